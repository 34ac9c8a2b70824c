"""From a Node, and the pods on it, to a node record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collector.kubernetes.gpus import NodeGpus, node_gpus, pod_gpus
from collector.kubernetes.marks import OBSERVED, epoch, is_cordoned, owner_of, reason_of
from collector.kubernetes.objects import Condition, NodeObject, PodObject
from collector.kubernetes.pods import OrphanTest, PodClass, classify, is_stuck
from fleet.scheduler import NodeRecord, NodeState

# Set while another machine takes a node out of service; hands off (facts: foreign in-progress marks).
FOREIGN_TAINTS = (
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "remediator.aks.microsoft.com/unschedulable",
    "medik8s.io/drain",
)
DELETING = "deletionTimestamp"


@dataclass(frozen=True, slots=True)
class NodeReading:
    """``problems``: what the node says that contradicts itself, one sentence each."""

    record: NodeRecord
    problems: tuple[str, ...]
    shared: bool


def read_node(
    node: NodeObject,
    pods: Sequence[PodObject] | None,
    *,
    now: float,
    is_orphan: OrphanTest = lambda _: False,
) -> NodeReading:
    """``pods``: all pods on the node, or None if they were not read.

    Without pods nothing may be called empty: a cordoned node is then ``draining``.
    """
    meta, info = node.metadata, node.status.node_info if node.status else None
    conditions = newest_conditions(node)
    ready = conditions.get("Ready")
    gpus = node_gpus(node)
    cordoned = is_cordoned(node)
    classes = None if pods is None else [(pod, classify(pod, is_orphan=is_orphan)) for pod in pods]
    base = _base(ready)
    state = _state(base, classes, _allocated(gpus, classes), gpus.total, cordoned=cordoned, now=now)
    record = NodeRecord(
        name=meta.name,
        state=state,
        base=base,
        flags=_flags(node, conditions),
        uid=meta.uid,
        boot_id=info.boot_id or None if info else None,
        machine_id=info.machine_id or None if info else None,
        gpus_total=gpus.total,
        gpus_allocated=_allocated(gpus, classes),
        gpu_types=dict(gpus.types),
        gpu_resources=dict(gpus.resources),
        os=info.os_image or None if info else None,
        owner=owner_of(node),
        reason=reason_of(node),
        comment=(meta.annotations or {}).get(OBSERVED),
        ready=None if ready is None else ready.status == "True",
        labels=dict(meta.labels or {}),
        schedulable=base == "ready" and not cordoned and meta.deletion_timestamp is None,
    )
    return NodeReading(record, gpus.problems, gpus.shared)


def newest_conditions(node: NodeObject) -> dict[str, Condition]:
    """One per type: of duplicates the one with the newest heartbeat (writers die, conditions stay)."""
    newest: dict[str, Condition] = {}
    for condition in (node.status.conditions if node.status else None) or ():
        known = newest.get(condition.type)
        if known is None or _heard(condition) > _heard(known):
            newest[condition.type] = condition
    return newest


def foreign_mark(node: NodeObject) -> str | None:
    """What shows that another machine is taking the node out of service right now."""
    for taint in (node.spec.taints if node.spec else None) or ():
        if taint.key in FOREIGN_TAINTS:
            return f"taint {taint.key}"
    return None


def _heard(condition: Condition) -> float:
    return epoch(condition.last_heartbeat_time) or epoch(condition.last_transition_time) or 0.0


def _base(ready: Condition | None) -> str:
    if ready is None or ready.status not in ("True", "False"):
        return "unknown"
    return "ready" if ready.status == "True" else "notready"


def _flags(node: NodeObject, conditions: dict[str, Condition]) -> tuple[str, ...]:
    flags = [name for name, condition in conditions.items() if condition.status == "True"]
    flags.extend(taint.key for taint in (node.spec.taints if node.spec else None) or ())
    if node.metadata.deletion_timestamp is not None:
        flags.append(DELETING)
    return tuple(dict.fromkeys(flags))


_Classes = list[tuple[PodObject, PodClass]]


def _allocated(gpus: NodeGpus, classes: _Classes | None) -> int | None:
    """Whole GPUs that its pods hold, DaemonSets included; a finished pod holds none."""
    if classes is None:
        return None
    counts = [
        pod_gpus(pod, shared_node=gpus.shared).physical
        for pod, kind in classes
        if kind is not PodClass.FINISHED
    ]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _state(
    base: str,
    classes: _Classes | None,
    allocated: int | None,
    total: int | None,
    *,
    cordoned: bool,
    now: float,
) -> NodeState:
    work = None if classes is None else [pod for pod, kind in classes if kind.is_workload]
    if cordoned:
        if work is None:
            return NodeState.DRAINING
        # A kubelet that is gone cannot confirm an end: pods that should be over are not waited for.
        left = [pod for pod in work if not (base == "unknown" and is_stuck(pod, now=now))]
        return NodeState.DRAINING if left else NodeState.DRAINED
    if base != "ready":
        return NodeState.DOWN if base == "notready" else NodeState.UNKNOWN
    if not work:
        return NodeState.IDLE
    return NodeState.ALLOCATED if total and allocated == total else NodeState.MIXED
