"""From a request to an answer: paths, verbs, content types, paging. What it does not know is an error."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field
from typing import Any

from simulator.kubernetes_api.discovery import DISCOVERY
from simulator.kubernetes_api.errors import Json, Refusal, bad_request, forbidden
from simulator.kubernetes_api.evictions import evict
from simulator.kubernetes_api.selectors import matches_fields, matches_query_labels, parse_fields
from simulator.kubernetes_api.store import KINDS, Store, merge_patch

_CORE = ("nodes", "pods", "namespaces")
_GROUPS = {"/api/v1": _CORE, "/apis/apps/v1": ("daemonsets",), "/apis/policy/v1": ("poddisruptionbudgets",)}
_CLUSTER_WIDE = ("nodes", "namespaces")
_PATH = re.compile(
    r"(?P<group>/api/v1|/apis/[a-z.0-9]+/v1)(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<resource>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[a-z]+))?"
)
_LIST_QUERY = {"limit", "continue", "fieldSelector", "labelSelector", "resourceVersion", "timeoutSeconds"}
_WRITE_QUERY = {"fieldManager", "fieldValidation", "dryRun"}
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
        if request.method == "GET":
            self._authorize(request, "get" if name else "list", resource, name)
            return 200, self._read(request, resource, name, namespace)
        if request.method == "PATCH" and name is not None:
            self._authorize(request, "patch", resource, name)
            return 200, self._patch(request, resource, name, namespace or "")
        raise Refusal(
            405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
        )

    def _authorize(self, request: Request, verb: str, resource: str, name: str | None = None) -> None:
        if (verb, resource) in self.denied:
            raise forbidden(request.user, verb, resource, name or "")

    def _subresource(
        self, request: Request, resource: str, name: str, namespace: str | None, subresource: str
    ) -> tuple[int, Json]:
        if (resource, subresource, request.method) != ("pods", "eviction", "POST") or namespace is None:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        self._authorize(request, "create", "pods/eviction", name)
        _content_type(request, "application/json")
        _only(request.query, _WRITE_QUERY)
        if not isinstance(request.body, dict):
            raise bad_request("the body is no object")
        return 201, evict(self.store, namespace, name, request.body)

    def _read(self, request: Request, resource: str, name: str | None, namespace: str | None) -> Json:
        if name is not None:
            _only(request.query, {"resourceVersion"})
            return self.store.get(resource, name, namespace or "")
        _only(request.query, _LIST_QUERY)
        return self._page(request.query, resource, namespace)

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

    def _patch(self, request: Request, resource: str, name: str, namespace: str) -> Json:
        """Status is a subresource: what a patch says about it here is ignored."""
        _content_type(request, "application/merge-patch+json", "application/strategic-merge-patch+json")
        _only(request.query, _WRITE_QUERY)
        patch = request.body
        if not isinstance(patch, dict):
            raise bad_request("the body is no object")
        if _holds_list(patch):
            raise bad_request("this server merges no lists")
        if patch.keys() - {"apiVersion", "kind", "metadata", "spec", "status"}:
            raise bad_request(f'strict decoding error: unknown field "{sorted(patch)[0]}"')
        current = self.store.get(resource, name, namespace)
        patched = merge_patch(current, {key: value for key, value in patch.items() if key != "status"})
        if "resourceVersion" not in patched["metadata"]:
            patched["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"]
        for empty in ("annotations", "labels"):
            if not patched["metadata"].get(empty, True):
                del patched["metadata"][empty]
        if patched.get("spec", {}).get("unschedulable") is False:
            del patched["spec"]["unschedulable"]  # omitempty
        if patched["metadata"].get("name") != name:
            raise bad_request("the name of the object does not match the name on the URL")
        return self.store.update(current, patched, manager=request.manager)

    def _review(self, request: Request) -> tuple[int, Json]:
        if request.method != "POST":
            raise Refusal(
                405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
            )
        _content_type(request, "application/json")
        body = request.body if isinstance(request.body, dict) else {}
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


def _content_type(request: Request, *allowed: str) -> None:
    sent = request.headers.get("content-type", "").partition(";")[0]
    if sent not in allowed:
        raise Refusal(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: "
            + ", ".join(allowed),
        )


def _holds_list(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_holds_list(inner) for inner in value.values())
    return isinstance(value, list)
