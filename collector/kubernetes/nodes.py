"""From a Node, and the pods on it, to a node record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collector.kubernetes.claims import Claims
from collector.kubernetes.gpus import NodeGpus, Told, node_gpus, pod_gpus
from collector.kubernetes.marks import OBSERVED, epoch, is_cordoned, owner_of, reason_of
from collector.kubernetes.objects import Condition, NodeObject, PodObject, Taint
from collector.kubernetes.pods import OrphanTest, PodClass, classify, is_stuck
from fleet.scheduler import GpuUse, NodeRecord, NodeState, Owner, Reason

# Set while somebody else takes a node out of service; hands off. Cluster autoscaler FAQ; Karpenter
# "Disruption"; AKS node auto-repair; medik8s; Kubernetes "Non-graceful node shutdown" (out-of-service).
FOREIGN_TAINTS = (
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "remediator.aks.microsoft.com/unschedulable",
    "medik8s.io/drain",
    "medik8s.io/remediation",
    "node.kubernetes.io/out-of-service",
)
# Taints that ordinary pods do not tolerate, so that nothing new comes (Kubernetes "Taints and Tolerations",
# "Well-Known Labels, Annotations and Taints"). Not here: not-ready and unreachable, which follow the Ready
# condition late; memory-pressure, which keeps BestEffort pods off only; those of pools, such as
# nvidia.com/gpu, which the pool's own pods tolerate.
_CLOSED_TAINTS = (
    *FOREIGN_TAINTS,
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/network-unavailable",
    "node.cloudprovider.kubernetes.io/uninitialized",
    "node.cloudprovider.kubernetes.io/shutdown",
    "karpenter.sh/unregistered",
    "sickbay.io/unhealthy",
)
_KEEPS_OFF = ("NoSchedule", "NoExecute")
DELETING = "deletionTimestamp"


@dataclass(frozen=True, slots=True)
class NodeReading:
    """``problems``: what the node says that cannot be read or contradicts itself."""

    record: NodeRecord
    problems: tuple[Told, ...]
    whole_means: GpuUse


def read_node(
    node: NodeObject,
    pods: Sequence[PodObject] | None,
    *,
    now: float,
    is_orphan: OrphanTest = lambda _: False,
    claims: Claims | None = None,
    complete: bool = True,
) -> NodeReading:
    """``pods``: the pods on the node, or None if they were not read; ``complete``: these are all of them.

    Without all pods nothing may be called empty: a cordoned node is then ``draining``.
    """
    meta, info = node.metadata, node.status.node_info if node.status else None
    conditions = newest_conditions(node)
    ready = conditions.get("Ready")
    known_claims = claims or Claims()
    gpus = node_gpus(node, known_claims.offered_on(meta.name))
    classes = None if pods is None else [(pod, classify(pod, is_orphan=is_orphan)) for pod in pods]
    allocated = _allocated(gpus, classes, known_claims) if complete else None
    base = _base(ready)
    leaving = None if is_cordoned(node) else _foreign_taint(node)
    out = is_cordoned(node) or (leaving is not None and base == "ready")
    record = NodeRecord(
        name=meta.name,
        state=_state(base, classes, full=_is_full(gpus, allocated), cordoned=out, complete=complete, now=now),
        base=base,
        flags=_flags(node, conditions),
        uid=meta.uid,
        boot_id=info.boot_id or None if info else None,
        machine_id=info.machine_id or None if info else None,
        gpus_total=gpus.total,
        gpus_allocated=allocated,
        gpu_types=dict(gpus.types),
        gpu_resources=dict(gpus.resources),
        os=info.os_image or None if info else None,
        owner=Owner.FOREIGN if leaving else owner_of(node),
        reason=Reason(f"taint {leaving.key}", None, epoch(leaving.time_added))
        if leaving
        else reason_of(node),
        comment=(meta.annotations or {}).get(OBSERVED),
        ready=None if ready is None else ready.status == "True",
        labels=dict(meta.labels or {}),
        schedulable=base == "ready" and not is_cordoned(node) and _is_open(node),
    )
    return NodeReading(record, gpus.problems, gpus.whole_means)


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
    taint = _foreign_taint(node)
    return f"taint {taint.key}" if taint is not None else None


def _foreign_taint(node: NodeObject) -> Taint | None:
    """Of its taints that keep pods off; a preference (PreferNoSchedule) takes nothing out of service."""
    return next((taint for taint in _keeping_off(node) if taint.key in FOREIGN_TAINTS), None)


def _keeping_off(node: NodeObject) -> list[Taint]:
    return [taint for taint in (node.spec.taints if node.spec else None) or () if taint.effect in _KEEPS_OFF]


def _is_open(node: NodeObject) -> bool:
    closed = any(taint.key in _CLOSED_TAINTS for taint in _keeping_off(node))
    return node.metadata.deletion_timestamp is None and not closed


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


def _allocated(gpus: NodeGpus, classes: _Classes | None, claims: Claims) -> int | None:
    """Whole GPUs that its pods hold, DaemonSets included; a finished pod holds none."""
    if classes is None:
        return None
    held = [
        pod_gpus(pod, whole_means=gpus.whole_means, claimed=claims.of(pod))
        for pod, kind in classes
        if kind is not PodClass.FINISHED
    ]
    known = [one.physical for one in held if one.physical is not None]
    if len(known) != len(held):
        return None
    # Pods may share a claim: its devices count once.
    return sum(known) + len(frozenset().union(*(one.claimed for one in held)))


def _is_full(gpus: NodeGpus, allocated: int | None) -> bool:
    return bool(gpus.total) and allocated is not None and allocated >= (gpus.total or 0)


def _state(
    base: str, classes: _Classes | None, *, full: bool, cordoned: bool, complete: bool, now: float
) -> NodeState:
    work = None if classes is None else [pod for pod, kind in classes if kind.is_workload]
    if cordoned:
        if work is None or not complete:
            return NodeState.DRAINING
        # A kubelet that is gone cannot confirm an end: pods that should be over are not waited for.
        left = [pod for pod in work if not (base == "unknown" and is_stuck(pod, now=now))]
        return NodeState.DRAINING if left else NodeState.DRAINED
    if base != "ready":
        return NodeState.DOWN if base == "notready" else NodeState.UNKNOWN
    if not work:
        return NodeState.IDLE
    return NodeState.ALLOCATED if full else NodeState.MIXED
