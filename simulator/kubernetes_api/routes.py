"""From a request to an answer: paths, verbs, content types, paging. What it does not know is an error."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field
from typing import Any

from simulator.kubernetes_api import patches, protobuf, writes
from simulator.kubernetes_api.discovery import DISCOVERY
from simulator.kubernetes_api.errors import Json, Refusal, bad_request, forbidden
from simulator.kubernetes_api.evictions import evict
from simulator.kubernetes_api.selectors import matches_fields, matches_query_labels, parse_fields
from simulator.kubernetes_api.store import KINDS, Store
from simulator.kubernetes_api.tables import table, wants_table
from simulator.kubernetes_api.writes import WITH_STATUS

_CORE = ("nodes", "pods", "namespaces")
_GROUPS = {"/api/v1": _CORE, "/apis/apps/v1": ("daemonsets",), "/apis/policy/v1": ("poddisruptionbudgets",)}
_CLUSTER_WIDE = ("nodes", "namespaces")
_PATH = re.compile(
    r"(?P<group>/api/v1|/apis/[a-z.0-9]+/v1)(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<resource>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[a-z]+))?"
)
# Those that change nothing in the answers of this server among them.
_COMMON_QUERY = {"pretty", "timeout"}
_GET_QUERY = _COMMON_QUERY | {"resourceVersion"}
_LIST_QUERY = _GET_QUERY | {
    "limit",
    "continue",
    "fieldSelector",
    "labelSelector",
    "resourceVersionMatch",
    "timeoutSeconds",
}
_WRITE_QUERY = _COMMON_QUERY | {"fieldManager", "fieldValidation", "dryRun"}
_DELETE_QUERY = _COMMON_QUERY | {"dryRun", "gracePeriodSeconds", "propagationPolicy"}
_OPTIONS = {
    "apiVersion",
    "kind",
    "gracePeriodSeconds",
    "preconditions",
    "propagationPolicy",
    "dryRun",
    "orphanDependents",
}
_VERBS = {
    ("GET", True): "get",
    ("GET", False): "list",
    ("POST", False): "create",
    ("PATCH", True): "patch",
    ("DELETE", True): "delete",
}
_ACCESS_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True, slots=True)
class Request:
    """``body`` is the decoded JSON or None; ``user`` is whom the token names."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    user: str = "sickbay"

    @property
    def manager(self) -> str:
        """The field manager: as asked for, else the program's name in its User-Agent."""
        return self.query.get("fieldManager") or self.headers.get("user-agent", "unknown").partition("/")[0]


@dataclass(slots=True)
class Router:
    """``denied``: pairs of verb and resource (with subresource, ``pods/eviction``) that RBAC refuses."""

    store: Store
    denied: set[tuple[str, str]] = field(default_factory=set)
    expire_continues: int = 0

    def answer(self, request: Request) -> tuple[int, Json]:
        if request.method == "GET" and request.path in DISCOVERY:
            return 200, DISCOVERY[request.path]
        if request.path == _ACCESS_REVIEW:
            return self._review(request)
        match = _PATH.fullmatch(request.path)
        if match is None or match["resource"] not in _GROUPS.get(match["group"], ()):
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        resource, name, namespace = match["resource"], match["name"], match["namespace"]
        if namespace is not None and resource in _CLUSTER_WIDE and resource != "namespaces":
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        if name is not None and namespace is None and resource not in _CLUSTER_WIDE:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        if match["subresource"] is not None:
            return self._subresource(request, resource, name, namespace, match["subresource"])
        verb = _VERBS.get((request.method, name is not None))
        if verb is None or (verb == "create" and namespace is None and resource not in _CLUSTER_WIDE):
            raise _not_allowed()
        self._authorize(request, verb, resource, name)
        if verb == "create":
            return 201, self._create(request, resource, namespace or "")
        if verb == "patch":
            return 200, self._patch(request, resource, name or "", namespace or "")
        if verb == "delete":
            return 200, self._delete(request, resource, name or "", namespace or "")
        return 200, self._read(request, resource, name, namespace)

    def _authorize(self, request: Request, verb: str, resource: str, name: str | None = None) -> None:
        if (verb, resource) in self.denied:
            raise forbidden(request.user, verb, resource, name or "")

    def _subresource(
        self, request: Request, resource: str, name: str, namespace: str | None, subresource: str
    ) -> tuple[int, Json]:
        if subresource == "status" and resource in WITH_STATUS and request.method in ("GET", "PATCH"):
            verb = "get" if request.method == "GET" else "patch"
            self._authorize(request, verb, f"{resource}/status", name)
            if verb == "get":
                return 200, self._read(request, resource, name, namespace)
            return 200, self._patch(request, resource, name, namespace or "", subresource)
        if (resource, subresource, request.method) != ("pods", "eviction", "POST") or namespace is None:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        self._authorize(request, "create", "pods/eviction", name)
        _content_type(request, "application/json")
        _only(request.query, _WRITE_QUERY)
        if not isinstance(request.body, dict):
            raise bad_request("the body is no object")
        return 201, evict(self.store, namespace, name, request.body, dry=_is_dry(request))

    def _read(self, request: Request, resource: str, name: str | None, namespace: str | None) -> Json:
        if name is not None:
            _only(request.query, _GET_QUERY)
            found = self.store.get(resource, name, namespace or "")
        else:
            _only(request.query, _LIST_QUERY)
            found = self._page(request.query, resource, namespace)
        return table(found, self.store.clock) if wants_table(request.headers.get("accept", "")) else found

    def _page(self, query: dict[str, str], resource: str, namespace: str | None) -> Json:
        terms = parse_fields(resource, query.get("fieldSelector", ""))
        found = [
            one
            for one in self.store.all(resource, namespace)
            if matches_fields(one, terms) and matches_query_labels(one, query.get("labelSelector", ""))
        ]
        start = self._start(query.get("continue"))
        limit = int(query.get("limit") or 0) or len(found)
        page, rest = found[start : start + limit], len(found) - start - limit
        meta: Json = {"resourceVersion": str(self.store.version)}
        if rest > 0:
            meta["continue"] = base64.urlsafe_b64encode(
                json.dumps({"start": start + limit}).encode()
            ).decode()
            if not query.get("fieldSelector") and not query.get("labelSelector"):
                meta["remainingItemCount"] = rest
        api_version, kind = KINDS[resource]
        items = [
            {key: value for key, value in one.items() if key not in ("kind", "apiVersion")} for one in page
        ]
        return {"kind": f"{kind}List", "apiVersion": api_version, "metadata": meta, "items": items}

    def _start(self, token: str | None) -> int:
        if token is None:
            return 0
        if self.expire_continues > 0:
            self.expire_continues -= 1
            raise Refusal(
                410,
                "Expired",
                "The provided continue parameter is too old to display a consistent list result.",
            )
        try:
            return int(json.loads(base64.urlsafe_b64decode(token))["start"])
        except (ValueError, KeyError, TypeError):
            raise bad_request("continue key is not valid") from None

    def _create(self, request: Request, resource: str, namespace: str) -> Json:
        _content_type(request, "application/json")
        _only(request.query, _WRITE_QUERY)
        return writes.create(
            self.store, resource, request.body, namespace, manager=request.manager, dry=_is_dry(request)
        )

    def _patch(
        self, request: Request, resource: str, name: str, namespace: str, subresource: str | None = None
    ) -> Json:
        _content_type(request, *patches.TYPES)
        _only(request.query, _WRITE_QUERY)
        return writes.patch(
            self.store,
            self.store.get(resource, name, namespace),
            _media_type(request),
            request.body,
            subresource=subresource,
            manager=request.manager,
            dry=_is_dry(request),
        )

    def _delete(self, request: Request, resource: str, name: str, namespace: str) -> Json:
        """A body's options win over the query's (seen on a real server: the query is ignored beside one)."""
        _only(request.query, _DELETE_QUERY)
        options = request.body if isinstance(request.body, dict) else {}
        unknown = sorted(options.keys() - _OPTIONS)
        if unknown:
            raise bad_request(f'strict decoding error: unknown field "{unknown[0]}"')
        if not options and request.query.get("gracePeriodSeconds", "").isdecimal():
            options = {"gracePeriodSeconds": int(request.query["gracePeriodSeconds"])}
        dry = _is_dry(request) or options.get("dryRun") == ["All"]
        return writes.delete(self.store, self.store.get(resource, name, namespace), options, dry=dry)

    def _review(self, request: Request) -> tuple[int, Json]:
        if request.method != "POST":
            raise _not_allowed()
        _content_type(request, "application/json", protobuf.CONTENT_TYPE)
        sent = protobuf.access_review(request.body) if isinstance(request.body, bytes) else request.body
        body = sent if isinstance(sent, dict) else {}
        if (body.get("apiVersion"), body.get("kind")) != (
            "authorization.k8s.io/v1",
            "SelfSubjectAccessReview",
        ):
            raise bad_request("no such kind is registered")
        wanted = body["spec"]["resourceAttributes"]
        if wanted.keys() - {"verb", "group", "resource", "subresource", "namespace", "name", "version"}:
            raise bad_request("strict decoding error: unknown field in resourceAttributes")
        resource = "/".join(part for part in (wanted["resource"], wanted.get("subresource")) if part)
        return 201, {**body, "status": {"allowed": (wanted["verb"], resource) not in self.denied}}


def _only(query: dict[str, str], allowed: set[str]) -> None:
    """A parameter that this server does not obey must not seem to work."""
    unknown = sorted(query.keys() - allowed)
    if unknown:
        raise bad_request(f"this server does not know the query parameter {unknown[0]!r}")


def _is_dry(request: Request) -> bool:
    asked = request.query.get("dryRun")
    if asked not in (None, "All"):
        raise Refusal(422, "Invalid", f'dryRun: Unsupported value: "{asked}": supported values: "All"')
    return asked == "All"


def _not_allowed() -> Refusal:
    return Refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0]


def _content_type(request: Request, *allowed: str) -> None:
    if _media_type(request) not in allowed:
        raise Refusal(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: "
            + ", ".join(allowed),
        )
