"""Captured Kubernetes JSON to records. Pure: bytes in, records out.

Accepted, also several in a row: Node, Pod, ResourceClaim, ResourceSlice, any List of them, watch events. A
Status is the API server's refusal, not an empty cluster.
"""

from __future__ import annotations

import codecs
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from collector.kubernetes.claims import Claims
from collector.kubernetes.cluster import SOURCE, read_cluster, read_devices
from collector.kubernetes.documents import Document, Documents, Fault
from collector.kubernetes.objects import ClaimObject, NodeObject, PodObject, SliceObject
from fleet.observations import Problem, ProblemReason, Reading, Record

MAX_INPUT_BYTES = 512 * 1024 * 1024
_EVENTS = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")
_KINDS: dict[str, type[NodeObject | PodObject | ClaimObject | SliceObject]] = {
    "Node": NodeObject,
    "Pod": PodObject,
    "ResourceClaim": ClaimObject,
    "ResourceSlice": SliceObject,
}
# Other groups have kinds of the same names (longhorn.io has a Node).
_CORE, _DRA = "v1", "resource.k8s.io/"
# Answers that were shortened for somebody: what they lack is not absent from the cluster.
_SHORTENED = {
    "Table": "a table of printed columns",
    "PartialObjectMetadata": "metadata alone",
    "PartialObjectMetadataList": "metadata alone",
}
_REFUSALS = {
    "Forbidden": ProblemReason.PERMISSION_DENIED,
    "Unauthorized": ProblemReason.PERMISSION_DENIED,
    "Timeout": ProblemReason.TIMEOUT,
    "ServerTimeout": ProblemReason.TIMEOUT,
    "ServiceUnavailable": ProblemReason.CONTROLLER_UNREACHABLE,
}
_CODES = {
    401: ProblemReason.PERMISSION_DENIED,
    403: ProblemReason.PERMISSION_DENIED,
    503: ProblemReason.CONTROLLER_UNREACHABLE,
    504: ProblemReason.TIMEOUT,
}
_EXPIRED = 410

T = TypeVar("T", NodeObject, PodObject, ClaimObject, SliceObject)


@dataclass(slots=True)
class _Found:
    """What was read so far. ``incomplete``: nodes with a pod that could not be read, None for all nodes."""

    nodes: dict[str, NodeObject] = field(default_factory=dict)
    pods: dict[str, PodObject] = field(default_factory=dict)
    claims: dict[str, ClaimObject] = field(default_factory=dict)
    slices: dict[str, SliceObject] = field(default_factory=dict)
    pods_listed: bool = False
    incomplete: set[str] | None = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)
    failed: bool = False
    understood: bool = False

    def problem(
        self, reason: ProblemReason, message: str, *, node: str | None = None, count: int = 1
    ) -> None:
        self.problems.append(Problem(source=SOURCE, reason=reason, message=message, node=node, count=count))

    def fail(self, reason: ProblemReason, message: str, *, node: str | None = None, count: int = 1) -> None:
        self.problem(reason, message, node=node, count=count)
        self.failed = True

    def lacks_pods(self, node: str | None) -> None:
        """A pod of ``node`` (None: of any) is missing: the node is not known to be empty."""
        if node is None:
            self.incomplete = None
        elif self.incomplete is not None:
            self.incomplete.add(node)


def read_captured(data: bytes, *, now: float) -> Reading:
    """Nodes, jobs (pods), allocations and problems. ``now`` (epoch seconds) dates what is overdue.

    Without any pod in the input the pods are unknown: no node is called empty then.
    """
    found = _Found()
    if len(data) > MAX_INPUT_BYTES:
        found.fail(ProblemReason.TOO_LARGE, f"more than {MAX_INPUT_BYTES} bytes of Kubernetes JSON")
    else:
        _read_documents(_decoded(data), found)
    pods = list(found.pods.values())
    claims = Claims(found.claims.values(), found.slices.values())
    cluster = read_cluster(
        list(found.nodes.values()),
        pods if found.pods_listed else None,
        now=now,
        claims=claims,
        incomplete=found.incomplete,
    )
    devices = read_devices(pods, claims)
    records: tuple[Record, ...] = (
        *cluster.nodes,
        *cluster.jobs,
        *devices.allocations,
        *cluster.problems,
        *devices.problems,
        *found.problems,
    )
    return Reading(records, ok=found.understood or not (found.failed or found.others))


def _decoded(data: bytes) -> str:
    """UTF-8; PowerShell redirects into UTF-16 with a mark."""
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return data.decode("utf-16" if wide else "utf-8", errors="replace")


def _read_documents(text: str, found: _Found) -> None:
    documents = Documents(text)
    if not text.strip():
        found.fail(ProblemReason.UNREADABLE, "the input is empty: even an empty list of kubectl is not")
    for one in documents:
        if isinstance(one, Document):
            _read_document(one.value, found, broken=one.broken)
        elif isinstance(one, Fault):
            found.fail(one.reason, one.message, count=one.count)
        else:
            found.understood = True
    for kind, count in found.others.items():
        known = "neither Node, Pod nor ResourceClaim"
        found.problem(
            ProblemReason.UNRECOGNISED_VALUE, f"skipped {count} of kind {kind}: {known}", count=count
        )
    if documents.doubled:
        keys = ", ".join(sorted(documents.doubled)[:6])
        found.problem(
            ProblemReason.INCONSISTENT,
            f"keys stand twice in one object, of which the last counts: {keys}",
            count=sum(documents.doubled.values()),
        )


def _read_document(
    document: Any, found: _Found, *, kind: str = "", version: str = "", broken: bool = False
) -> None:
    """``kind`` and ``version`` are what the surrounding list implies: its items may carry none."""
    if isinstance(document, list):
        for item in document:
            _read_document(item, found, kind=kind, version=version)
        return
    if not isinstance(document, dict):
        found.fail(ProblemReason.UNREADABLE, f"a {kind or 'JSON document'} that is no object")
        if kind == "Pod":
            found.lacks_pods(None)
        return
    own, own_version = document.get("kind"), document.get("apiVersion")
    kind = own if isinstance(own, str) and own else kind
    version = own_version if isinstance(own_version, str) and own_version else version
    if not own and document.get("type") in _EVENTS and "object" in document:
        _read_event(document, found)
    elif kind == "Status":
        _read_status(document, found)
    elif kind in _SHORTENED:
        found.fail(
            ProblemReason.UNREADABLE,
            f"a {kind} is {_SHORTENED[kind]}, not whole objects; use kubectl ... -o json",
        )
    elif kind.endswith("List") or broken:
        _read_list(document, found, kind=kind or "List", version=version, broken=broken)
    else:
        _read_object(document, found, kind=kind, version=version)


def _read_event(event: dict[str, Any], found: _Found) -> None:
    """A watch event. A bookmark is no object; a deleted one is gone."""
    if event["type"] in ("ADDED", "MODIFIED", "ERROR"):
        _read_document(event["object"], found)
        return
    found.understood = True
    gone = event["object"]
    meta = gone.get("metadata") if isinstance(gone, dict) else None
    if event["type"] != "DELETED" or not isinstance(meta, dict):
        return
    name = str(meta.get("name"))
    within = f"{meta.get('namespace') or 'default'}/{name}"
    if gone.get("kind") == "Node":
        found.nodes.pop(name, None)
    elif gone.get("kind") == "Pod":
        found.pods.pop(within, None)
    elif gone.get("kind") == "ResourceClaim":
        found.claims.pop(within, None)
    elif gone.get("kind") == "ResourceSlice":
        found.slices.pop(name, None)


def _read_status(status: dict[str, Any], found: _Found) -> None:
    if status.get("status") == "Success":
        found.understood = True
        return
    code, why = status.get("code"), status.get("reason")
    message = str(status.get("message") or why or "no message")[:200]
    reason = _REFUSALS.get(why) if isinstance(why, str) else None
    if reason is None and isinstance(code, int):
        reason = _CODES.get(code)
    if reason is ProblemReason.PERMISSION_DENIED:
        found.fail(reason, f"Kubernetes refused the read: {message}")
    elif code == _EXPIRED or why in ("Expired", "Gone"):
        found.fail(ProblemReason.QUERY_ERROR, f"the list or watch has expired, list again: {message}")
    else:
        found.fail(reason or ProblemReason.QUERY_ERROR, f"Kubernetes answered with an error: {message}")


def _read_list(document: dict[str, Any], found: _Found, *, kind: str, version: str, broken: bool) -> None:
    of = kind.removesuffix("List")
    items = document.get("items")
    if items is not None and not isinstance(items, list):
        found.fail(ProblemReason.UNREADABLE, f"the items of a {kind} are no list")
        return
    if of and not _is_ours(of, version):
        found.others[_named(of, version)] += len(items or ())
        return
    if of or not items:
        found.understood = True
    if of == "Pod":
        found.pods_listed = True
    for item in items or ():
        _read_document(item, found, kind=of, version=version if of else "")
    more = _rest_of(document)
    if (more or broken) and of in ("", "Pod"):
        found.lacks_pods(None)
    if more:
        count = more if more > 0 else 1
        found.problem(
            ProblemReason.PARTIAL,
            f"only a page of this {kind}: {more if more > 0 else 'an unknown number of'} more "
            "items follow; absence from it is not deletion",
            count=count,
        )


def _rest_of(document: dict[str, Any]) -> int:
    """How many items a page leaves out; -1: some."""
    meta = document.get("metadata")
    if not isinstance(meta, dict) or not meta.get("continue"):
        return 0
    rest = meta.get("remainingItemCount")
    return rest if isinstance(rest, int) and not isinstance(rest, bool) and rest > 0 else -1


def _is_ours(kind: str, version: str) -> bool:
    if kind in ("Node", "Pod"):
        return version in ("", _CORE)
    return kind in _KINDS and (not version or version.startswith(_DRA))


def _named(kind: str, version: str) -> str:
    group = version.rpartition("/")[0]
    return f"{kind}.{group}"[:60] if group else kind[:60]


def _read_object(document: dict[str, Any], found: _Found, *, kind: str, version: str) -> None:
    if not kind:
        keys = ", ".join(sorted(map(str, document))[:6])
        found.fail(ProblemReason.UNREADABLE, f"JSON without a kind; its keys are {keys or 'none'}"[:300])
    elif not _is_ours(kind, version):
        found.others[_named(kind, version)] += 1
    elif kind == "Node":
        node = _decode(document, NodeObject, found, kind)
        if node is not None:
            _add_node(node, found)
    elif kind == "Pod":
        found.pods_listed = True
        pod = _decode(document, PodObject, found, kind)
        if pod is not None:
            found.pods[pod.id] = pod
        else:
            found.lacks_pods(_bound_to(document))
    elif kind == "ResourceClaim":
        claim = _decode(document, ClaimObject, found, kind)
        if claim is not None:
            found.claims[claim.id] = claim
    else:
        offered = _decode(document, SliceObject, found, kind)
        if offered is not None:
            found.slices[offered.metadata.name] = offered


def _add_node(node: NodeObject, found: _Found) -> None:
    """The later version of a node wins; two machines under one name contradict each other."""
    known = found.nodes.get(node.metadata.name)
    if known is not None and known.metadata.uid != node.metadata.uid:
        found.problem(
            ProblemReason.CONFLICT,
            f"{node.metadata.name} appears twice with different uids; the later one is shown",
            node=node.metadata.name,
        )
    found.nodes[node.metadata.name] = node


def _bound_to(pod: dict[str, Any]) -> str | None:
    spec = pod.get("spec")
    node = spec.get("nodeName") if isinstance(spec, dict) else None
    return node if isinstance(node, str) and node else None


def _decode(document: dict[str, Any], kind: type[T], found: _Found, name: str) -> T | None:
    """One bad record costs itself only. Encoding again gives the undecoded parts their bytes."""
    meta = document.get("metadata")
    which = meta.get("name") if isinstance(meta, dict) else None
    known = which if isinstance(which, str) and which else None
    try:
        try:
            decoded = msgspec.json.decode(msgspec.json.encode(document), type=kind)
        except msgspec.ValidationError:  # rare: a null where the API server leaves the field out
            decoded = msgspec.json.decode(msgspec.json.encode(_without_nulls(document)), type=kind)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError, OverflowError) as error:
        wrong = str(error)
    else:
        if known is not None:
            found.understood = True
            return decoded
        wrong = "it has no name"
    node = known if name == "Node" else _bound_to(document) if name == "Pod" else None
    found.fail(ProblemReason.UNREADABLE, f"{name} {str(which or '?')[:60]}: {wrong}"[:300], node=node)
    return None


def _without_nulls(value: Any) -> Any:
    """Null and absent mean the same to Kubernetes (API conventions, "Optional vs. Required")."""
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value if inner is not None]
    return value
