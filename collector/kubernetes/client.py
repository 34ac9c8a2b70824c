"""The only way this project talks to a Kubernetes API server: few verbs, each with a deadline.

Two lanes with a token bucket each, so that the regular look never delays an action. No hidden retries but
these: a 401 is asked once more with renewed credentials, a 403 of the authorizer once more after a moment (a
kube-apiserver that has just started refuses rights that exist; both answers prove that nothing was done),
and a list whose continue token has expired starts again. Everything else is the caller's next cycle.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from collector.kubernetes.answers import TOO_MANY, UNAUTHORIZED, Answer, ExpiredError, error_for, read_answer
from collector.kubernetes.auth import Credentials, CredentialsError, Endpoint
from collector.kubernetes.objects import (
    ClaimObject,
    DaemonSetObject,
    ListObject,
    Metadata,
    NodeObject,
    PodObject,
)
from collector.kubernetes.rights import Right
from collector.ratelimit import TokenBucket
from fleet.clock import Clock
from fleet.errors import ForbiddenError, NotFoundError, RateLimitedError, UnavailableError

_LOG = logging.getLogger(__name__)
FIELD_MANAGER = "sickbay"
PAGE_ITEMS = 500
MAX_BODY_BYTES = 256 * 1024 * 1024
# Shares of the deadline. A write's parts add up to it at the worst: a lease is compared with it.
_CONNECT, _WRITE, _FIRST_BYTE, _BODY_OF_WRITE = 0.15, 0.15, 0.35, 0.65
_FIRST_BYTE_OF_READ = 0.7
_SECOND_LOOK_SECONDS = 2.0
_MAX_RESTARTS = 3
_TLS_ERROR = "[SSL:"  # how OpenSSL's errors start, wrapped or not
_JSON = "application/json"
_MERGE_PATCH = "application/merge-patch+json"
# Kubernetes 1.34, 1.33, 1.32 and 1.31.
_CLAIM_VERSIONS = ("v1", "v1beta2", "v1beta1", "v1alpha3")
_UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"

T = TypeVar("T")


class KubernetesClient:
    """Raises the errors of ``fleet.errors``; UnavailableError after a write means: outcome unknown.

    Safe to share between threads. ``timeout_seconds`` is the deadline of one call as a whole; waiting for a
    token may take as long again. ``may_act`` is asked with that deadline right before each write leaves; what
    it raises means that nothing was sent.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        clock: Clock,
        timeout_seconds: float = 10.0,
        max_qps: float = 10.0,
        page_items: int = PAGE_ITEMS,
        may_act: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._credentials = credentials
        self._clock = clock
        self._timeout = timeout_seconds
        self._page_items = page_items
        self._may_act = may_act
        self._reads = TokenBucket(rate=max_qps / 2, burst=max_qps, clock=clock)
        self._actions = TokenBucket(rate=max_qps / 2, burst=max_qps, clock=clock)
        self._lock = threading.Lock()
        self._resume_at = 0.0
        self._endpoint = credentials.endpoint()
        self._http = _session(self._endpoint)
        self._retired: httpx.Client | None = None

    @property
    def timeout_seconds(self) -> float:
        return self._timeout

    def close(self) -> None:
        self._http.close()
        if self._retired is not None:
            self._retired.close()

    # -- reads

    def list_nodes(self) -> list[NodeObject]:
        return self._list("/api/v1/nodes", NodeObject, {})

    def list_pods(self) -> list[PodObject]:
        """All pods that have not finished. A consistent read: it is ground for decisions."""
        return self._list("/api/v1/pods", PodObject, {"fieldSelector": _UNFINISHED})

    def list_pods_on(self, node: str) -> list[PodObject]:
        """The unfinished pods bound to ``node``, in the lane of actions."""
        selector = f"spec.nodeName={node},{_UNFINISHED}"
        return self._list("/api/v1/pods", PodObject, {"fieldSelector": selector}, lane=self._actions)

    def list_daemonsets(self) -> list[DaemonSetObject]:
        return self._list("/apis/apps/v1/daemonsets", DaemonSetObject, {})

    def list_claims(self) -> list[ClaimObject]:
        """ResourceClaims in the newest version that the server has; none where it has no such API."""
        for version in _CLAIM_VERSIONS:
            try:
                return self._list(f"/apis/resource.k8s.io/{version}/resourceclaims", ClaimObject, {})
            except NotFoundError:
                continue
        return []

    def get_node(self, name: str) -> NodeObject:
        return self._get(f"/api/v1/nodes/{_segment(name)}", NodeObject)

    def get_pod(self, namespace: str, name: str) -> PodObject:
        return self._get(f"/api/v1/namespaces/{_segment(namespace)}/pods/{_segment(name)}", PodObject)

    def get_daemonset(self, namespace: str, name: str) -> DaemonSetObject:
        path = f"/apis/apps/v1/namespaces/{_segment(namespace)}/daemonsets/{_segment(name)}"
        return self._get(path, DaemonSetObject)

    def budgets_in(self, namespace: str) -> list[dict[str, Any]]:
        """PodDisruptionBudgets as plain JSON objects, for naming those that select a pod."""
        path = f"/apis/policy/v1/namespaces/{_segment(namespace)}/poddisruptionbudgets"
        return self._list(path, dict[str, Any], {}, lane=self._actions)

    def may(self, right: Right) -> bool:
        """Have we this right, cluster-wide? By SelfSubjectAccessReview; changes nothing."""
        attributes = {
            "verb": right.verb,
            "group": right.group,
            "resource": right.resource,
            "subresource": right.subresource,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = self._call(self._reads, "POST", path, body=body)
        self._expect(answer, "POST selfsubjectaccessreviews")
        review = _decode(answer, dict[str, Any], path)
        status = review.get("status")
        return isinstance(status, dict) and status.get("allowed") is True

    # -- writes

    def patch_node(self, node: NodeObject, patch: Mapping[str, Any]) -> NodeObject:
        """Merge patch (RFC 7386) of exactly the version that was read; else ConflictError. The node after."""
        version = node.metadata.resource_version
        if not version:
            raise UnavailableError(
                f"node {node.metadata.name} came without a resourceVersion; nothing written"
            )
        body = {**patch, "metadata": {**patch.get("metadata", {}), "resourceVersion": version}}
        path = f"/api/v1/nodes/{_segment(node.metadata.name)}"
        answer = self._call(
            self._actions,
            "PATCH",
            path,
            body=body,
            content_type=_MERGE_PATCH,
            query={"fieldManager": FIELD_MANAGER},
        )
        self._expect(answer, f"PATCH {path}")
        return _decode(answer, NodeObject, path)

    def evict(self, pod: Metadata) -> Answer:
        """policy/v1 eviction of exactly this pod (by UID), with the pod's own grace period.

        The answer is returned as it is, refusals too: ``eviction.read_eviction`` reads it. Raises
        UnavailableError when none came: the pod may or may not be terminating.
        """
        namespace = pod.namespace or "default"
        if not pod.uid:
            raise UnavailableError(f"pod {namespace}/{pod.name} came without a uid; nothing was evicted")
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        path = f"/api/v1/namespaces/{_segment(namespace)}/pods/{_segment(pod.name)}/eviction"
        return self._call(self._actions, "POST", path, body=body)

    # -- inside

    def _get(self, path: str, kind: type[T]) -> T:
        answer = self._call(self._actions, "GET", path)
        self._expect(answer, f"GET {path}")
        return _decode(answer, kind, path)

    def _list(
        self, path: str, kind: type[T], query: dict[str, str], *, lane: TokenBucket | None = None
    ) -> list[T]:
        """All pages or an error: half a list is not a list."""
        for _ in range(_MAX_RESTARTS):
            try:
                return [
                    item
                    for page in self._pages(path, query, lane or self._reads)
                    for item in _items(page, kind, path)
                ]
            except ExpiredError as error:
                _LOG.info("kubernetes: %s; listing again from the start", error)
        raise UnavailableError(f"GET {path}: the list expired {_MAX_RESTARTS} times while it was read")

    def _pages(self, path: str, query: dict[str, str], lane: TokenBucket) -> Iterator[ListObject]:
        token: str | None = None
        while True:
            asked = {**query, "limit": str(self._page_items), **({"continue": token} if token else {})}
            answer = self._call(lane, "GET", path, query=asked)
            self._expect(answer, f"GET {path}")
            page = _decode(answer, ListObject, path)
            if not page.kind.endswith("List"):
                raise UnavailableError(f"GET {path}: answered with a {page.kind or 'thing without a kind'}")
            yield page
            token = page.metadata.continue_ if page.metadata else None
            if not token:
                return

    def _expect(self, answer: Answer, what: str) -> None:
        if not answer.ok:
            raise error_for(answer, what)

    def _call(
        self,
        lane: TokenBucket,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = _JSON,
    ) -> Answer:
        content = None if body is None else msgspec.json.encode(body)
        answer = self._send(lane, method, path, content, query, content_type)
        if answer.code == UNAUTHORIZED:
            self._renew()
            answer = self._send(lane, method, path, content, query, content_type)
        elif answer.is_missing_right:
            self._clock.sleep(_SECOND_LOOK_SECONDS)
            answer = self._send(lane, method, path, content, query, content_type)
        return answer

    def _send(
        self,
        lane: TokenBucket,
        method: str,
        path: str,
        content: bytes | None,
        query: Mapping[str, str] | None,
        content_type: str,
    ) -> Answer:
        self._wait_if_asked_to()
        lane.acquire(self._timeout)
        headers = {"Accept": _JSON, "User-Agent": FIELD_MANAGER}
        if content is not None:
            headers["Content-Type"] = content_type
        try:
            authorization = self._credentials.authorization()
        except CredentialsError as error:
            raise ForbiddenError(str(error)) from error
        if authorization is not None:
            headers["Authorization"] = authorization
        if method == "PATCH" or path.endswith("/eviction"):
            self._may_act(self._timeout)
        started = self._clock.monotonic()
        outcome = "failed"
        try:
            answer = self._exchange(method, path, content, query, headers)
            outcome = str(answer.code)
        except httpx.HTTPError as error:
            if _TLS_ERROR in str(error):
                self._renew_for_the_next_call()
            raise UnavailableError(f"{method} {path}: no answer from Kubernetes: {_said(error)}") from error
        finally:
            _LOG.info(
                "kubernetes: %s %s -> %s in %.3f s", method, path, outcome, self._clock.monotonic() - started
            )
        if answer.code == TOO_MANY and not answer.has_cause("DisruptionBudget"):
            self._pause(answer.retry_after_seconds or 1.0)
        return answer

    def _exchange(
        self,
        method: str,
        path: str,
        content: bytes | None,
        query: Mapping[str, str] | None,
        headers: dict[str, str],
    ) -> Answer:
        """One request; the deadline holds for the whole body, however slowly it drips."""
        whole, reads = self._timeout, method == "GET"
        give_up = self._clock.monotonic() + whole * (1.0 if reads else _BODY_OF_WRITE)
        timeout = httpx.Timeout(
            whole * (_FIRST_BYTE_OF_READ if reads else _FIRST_BYTE),
            connect=whole * _CONNECT,
            write=whole * _WRITE,
            pool=whole * _CONNECT,
        )
        extensions = {"sni_hostname": self._endpoint.server_name} if self._endpoint.server_name else {}
        parts: list[bytes] = []
        size = 0
        with self._http.stream(
            method,
            path,
            content=content,
            params=query,
            headers=headers,
            extensions=extensions,
            timeout=timeout,
        ) as response:
            for part in response.iter_bytes():
                parts.append(part)
                size += len(part)
                if size > MAX_BODY_BYTES:
                    raise UnavailableError(f"{method} {path}: more than {MAX_BODY_BYTES} bytes of answer")
                if self._clock.monotonic() > give_up:
                    raise UnavailableError(f"{method} {path}: not answered within {whole:g} s")
            return read_answer(response.status_code, b"".join(parts), response.headers.get("Retry-After"))

    def _renew_for_the_next_call(self) -> None:
        """Certificates rotate, ours and the authority's. This call has failed, whatever comes of it."""
        try:
            self._renew()
        except ForbiddenError as error:
            _LOG.warning("kubernetes: %s", error)

    def _renew(self) -> None:
        """Read the credentials anew; certificates belong to connections, so other ones need a new session."""
        try:
            self._credentials.renew()
            endpoint = self._credentials.endpoint()
        except CredentialsError as error:
            raise ForbiddenError(str(error)) from error
        with self._lock:
            if endpoint.identity == self._endpoint.identity:
                return
            unused, self._retired = self._retired, self._http  # calls of other threads may be under way in it
            self._endpoint, self._http = endpoint, _session(endpoint)
        if unused is not None:
            unused.close()

    def _pause(self, seconds: float) -> None:
        """The server asked everybody for a pause: it holds for all our calls."""
        with self._lock:
            self._resume_at = max(self._resume_at, self._clock.monotonic() + seconds)

    def _wait_if_asked_to(self) -> None:
        with self._lock:
            left = self._resume_at - self._clock.monotonic()
        if left > 0:
            raise RateLimitedError(f"the API server asked for a pause; {left:.1f} s are left", left)


def _session(endpoint: Endpoint) -> httpx.Client:
    return httpx.Client(
        base_url=endpoint.host,
        verify=endpoint.verify,
        proxy=endpoint.proxy,
        trust_env=False,  # a .netrc must not become our identity
        follow_redirects=False,
    )


def _segment(name: str) -> str:
    return quote(name, safe="")


def _decode(answer: Answer, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UnavailableError(f"{what}: the answer is not what Kubernetes sends: {error}"[:300]) from error


def _items(page: ListObject, kind: type[T], path: str) -> list[T]:
    try:
        return [msgspec.json.decode(raw, type=kind) for raw in page.items or ()]
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UnavailableError(f"GET {path}: an item cannot be read: {error}"[:300]) from error


def _said(error: Exception) -> str:
    return f"{type(error).__name__} {error}".strip()[:200]
