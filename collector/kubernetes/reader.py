"""Captured Kubernetes JSON to records. Pure: bytes in, records out.

Accepted, also several in a row: Node, Pod, ResourceClaim, any List of them, watch events. A Status is the
API server's refusal, not an empty cluster.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from collector.kubernetes.cluster import SOURCE, device_allocations, read_cluster
from collector.kubernetes.objects import ClaimObject, NodeObject, PodObject
from fleet.observations import Problem, ProblemReason, Reading, Record

MAX_INPUT_BYTES = 512 * 1024 * 1024
_FORBIDDEN, _UNAUTHORIZED, _GONE = 403, 401, 410
_EVENTS = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")

T = TypeVar("T", NodeObject, PodObject, ClaimObject)


@dataclass(slots=True)
class _Found:
    nodes: dict[str, NodeObject] = field(default_factory=dict)
    pods: dict[str, PodObject] = field(default_factory=dict)
    claims: list[ClaimObject] = field(default_factory=list)
    pods_listed: bool = False
    problems: list[Problem] = field(default_factory=list)
    failed: bool = False
    understood: bool = False

    def problem(
        self, reason: ProblemReason, message: str, *, node: str | None = None, count: int = 1
    ) -> None:
        self.problems.append(Problem(source=SOURCE, reason=reason, message=message, node=node, count=count))

    def fail(self, reason: ProblemReason, message: str) -> None:
        self.problem(reason, message)
        self.failed = True


def read_captured(data: bytes, *, now: float) -> Reading:
    """Nodes, jobs (pods), allocations and problems. ``now`` (epoch seconds) dates what is overdue.

    Without any pod in the input the pods are unknown: no node is called empty then.
    """
    found = _Found()
    if len(data) > MAX_INPUT_BYTES:
        found.fail(ProblemReason.TOO_LARGE, f"more than {MAX_INPUT_BYTES} bytes of Kubernetes JSON")
    else:
        _read_documents(data.decode("utf-8", errors="replace"), found)
    pods = list(found.pods.values())
    cluster = read_cluster(list(found.nodes.values()), pods if found.pods_listed else None, now=now)
    allocations = device_allocations(pods, found.claims)
    records: tuple[Record, ...] = (
        *cluster.nodes,
        *cluster.jobs,
        *allocations,
        *cluster.problems,
        *found.problems,
    )
    return Reading(records, ok=found.understood or not found.failed)


def _read_documents(text: str, found: _Found) -> None:
    decoder, position = json.JSONDecoder(), 0
    text = text.removeprefix("\ufeff")
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        try:
            document, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            reason = ProblemReason.TRUNCATED if text[position] in "{[" else ProblemReason.UNREADABLE
            found.fail(
                reason, f"JSON breaks off or is damaged after character {position}; use kubectl ... -o json"
            )
            return
        _read_document(document, found, kind="")


def _read_document(document: Any, found: _Found, *, kind: str) -> None:
    """``kind`` is what the surrounding list implies: items of a NodeList carry none of their own."""
    if isinstance(document, list):
        for item in document:
            _read_document(item, found, kind=kind)
        return
    if not isinstance(document, dict):
        found.fail(ProblemReason.UNREADABLE, f"a {kind or 'JSON document'} that is no object")
        return
    own = document.get("kind")
    kind = own if isinstance(own, str) and own else kind
    if not own and document.get("type") in _EVENTS and "object" in document:
        _read_event(document, found)
    elif kind == "Status":
        _read_status(document, found)
    elif kind.endswith("List"):
        _read_list(document, found, kind=kind)
    else:
        _read_object(document, found, kind=kind)


def _read_event(event: dict[str, Any], found: _Found) -> None:
    """A watch event. A bookmark is no object; a deleted one is gone."""
    if event["type"] in ("ADDED", "MODIFIED", "ERROR"):
        _read_document(event["object"], found, kind="")
        return
    found.understood = True
    gone = event["object"]
    meta = gone.get("metadata") if isinstance(gone, dict) else None
    if event["type"] == "DELETED" and isinstance(meta, dict):
        if gone.get("kind") == "Node":
            found.nodes.pop(str(meta.get("name")), None)
        elif gone.get("kind") == "Pod":
            found.pods.pop(f"{meta.get('namespace') or 'default'}/{meta.get('name')}", None)


def _read_status(status: dict[str, Any], found: _Found) -> None:
    if status.get("status") == "Success":
        found.understood = True
        return
    code, message = status.get("code"), str(status.get("message") or "no message")[:200]
    if code in (_FORBIDDEN, _UNAUTHORIZED):
        found.fail(ProblemReason.PERMISSION_DENIED, f"Kubernetes refused the read: {message}")
    elif code == _GONE:
        found.fail(ProblemReason.QUERY_ERROR, f"the list or watch has expired, list again: {message}")
    else:
        found.fail(ProblemReason.QUERY_ERROR, f"Kubernetes answered with an error: {message}")


def _read_list(document: dict[str, Any], found: _Found, *, kind: str) -> None:
    found.understood = True
    if kind == "PodList":
        found.pods_listed = True
    items = document.get("items")
    if items is not None and not isinstance(items, list):
        found.fail(ProblemReason.UNREADABLE, f"the items of a {kind} are no list")
        return
    for item in items or ():
        _read_document(item, found, kind=kind.removesuffix("List"))
    meta = document.get("metadata")
    if isinstance(meta, dict) and meta.get("continue"):
        rest = meta.get("remainingItemCount")
        known = rest if isinstance(rest, int) and not isinstance(rest, bool) and rest > 0 else None
        found.problem(
            ProblemReason.PARTIAL,
            f"only a page of this {kind}: {known if known is not None else 'an unknown number of'} more "
            "items follow; absence from it is not deletion",
            count=known or 1,
        )


def _read_object(document: dict[str, Any], found: _Found, *, kind: str) -> None:
    if kind == "Node":
        node = _decode(document, NodeObject, found, kind)
        if node is not None:
            _add_node(node, found)
    elif kind == "Pod":
        found.pods_listed = True
        pod = _decode(document, PodObject, found, kind)
        if pod is not None:
            found.pods[pod.id] = pod
    elif kind == "ResourceClaim":
        claim = _decode(document, ClaimObject, found, kind)
        if claim is not None:
            found.claims.append(claim)
    elif kind:
        found.problem(
            ProblemReason.UNRECOGNISED_VALUE, f"a {kind[:40]} is neither Node, Pod nor ResourceClaim"
        )
    else:
        keys = ", ".join(sorted(map(str, document))[:6])
        found.fail(ProblemReason.UNREADABLE, f"JSON without a kind; its keys are {keys or 'none'}")


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


def _decode(document: dict[str, Any], kind: type[T], found: _Found, name: str) -> T | None:
    """One bad record costs itself only. Encoding again gives the undecoded parts their bytes."""
    try:
        decoded = msgspec.json.decode(msgspec.json.encode(document), type=kind)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError, OverflowError) as error:
        meta = document.get("metadata")
        which = meta.get("name") if isinstance(meta, dict) else None
        found.fail(ProblemReason.UNREADABLE, f"{name} {str(which or '?')[:60]}: {error}"[:300])
        return None
    found.understood = True
    return decoded
