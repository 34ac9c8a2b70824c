"""From a Pod to a job record, and which pods are work that a drain must bring off a node.

The classes follow kubectl drain's filters (kubectl pkg/drain/filters.go), each with a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

from collector.kubernetes.claims import Device
from collector.kubernetes.gpus import PodGpus, effective, pod_gpus
from collector.kubernetes.marks import UNSCHEDULABLE_TAINT, epoch
from collector.kubernetes.objects import Container, OwnerReference, PodObject, PodSpec, PodStatus, Terminated
from collector.kubernetes.quantity import parse_quantity
from fleet.errors import InvalidInputError
from fleet.scheduler import GpuUse, JobKind, JobRecord

MIRROR = "kubernetes.io/config.mirror"
_FINISHED = ("succeeded", "failed")
_MEMORY = "memory"
# Somebody's word that this pod must not be moved (cluster-autoscaler FAQ, Karpenter "Disruption").
_STAY = (
    ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
    ("karpenter.sh/do-not-disrupt", "true"),
)


class PodClass(StrEnum):
    """DAEMON, MIRROR, FINISHED, TOLERANT: not work to move. The rest keeps its node busy."""

    DAEMON = "daemon"
    MIRROR = "mirror"
    FINISHED = "finished"
    TOLERANT = "tolerant"
    TERMINATING = "terminating"
    UNMANAGED = "unmanaged"
    PINNED = "pinned"
    LOST = "lost"
    EVICTABLE = "evictable"

    @property
    def is_workload(self) -> bool:
        return self not in (PodClass.DAEMON, PodClass.MIRROR, PodClass.FINISHED, PodClass.TOLERANT)


OrphanTest = Callable[[OwnerReference], bool]


def controller_of(pod: PodObject) -> OwnerReference | None:
    """The one owner that puts the pod back; a pod without one never returns."""
    return next((owner for owner in pod.metadata.owner_references or () if owner.controller), None)


def is_daemon(owner: OwnerReference | None) -> bool:
    """Kind and group: other groups have kinds of the same name."""
    return owner is not None and owner.kind == "DaemonSet" and owner.api_version.startswith("apps/")


def is_mirror(pod: PodObject) -> bool:
    """Of a static pod: annotated by its kubelet and, since 1.18, owned by its Node."""
    owner = controller_of(pod)
    if MIRROR in (pod.metadata.annotations or {}):
        return True
    return owner is not None and (owner.kind, owner.api_version) == ("Node", "v1")


def is_finished(pod: PodObject) -> bool:
    """Its containers have ended for good: it holds nothing any more."""
    return _phase(pod) in _FINISHED


def is_bound(pod: PodObject) -> bool:
    return bool(pod.spec and pod.spec.node_name)


def classify(pod: PodObject, *, is_orphan: OrphanTest = lambda _: False) -> PodClass:
    """What a drain does with this pod. ``is_orphan``: a DaemonSet that is known to be gone."""
    phase = _phase(pod)
    owner = controller_of(pod)
    annotations = pod.metadata.annotations or {}
    if is_mirror(pod):
        return PodClass.MIRROR
    if phase in _FINISHED:
        return PodClass.FINISHED
    if is_daemon(owner) and owner is not None and not is_orphan(owner):
        return PodClass.DAEMON
    if pod.metadata.deletion_timestamp is not None:
        return PodClass.TERMINATING
    if owner is None:
        return PodClass.UNMANAGED
    if _tolerates_cordon(pod):
        return PodClass.PINNED if pod_gpus(pod).count != 0 else PodClass.TOLERANT
    if any(annotations.get(key) == value for key, value in _STAY):
        return PodClass.PINNED
    if phase == "unknown":
        return PodClass.LOST
    return PodClass.EVICTABLE


def why_pinned(pod: PodObject) -> str:
    annotations = pod.metadata.annotations or {}
    for key, value in _STAY:
        if annotations.get(key) == value:
            return f"its owner forbids to move it ({key}={value})"
    return "it tolerates cordoned nodes and would come straight back"


def is_stuck(pod: PodObject, *, now: float) -> bool:
    """Should have ended by now: the deletion timestamp includes the grace period."""
    due = epoch(pod.metadata.deletion_timestamp)
    return due is not None and due < now


def job_record(
    pod: PodObject,
    *,
    now: float,
    whole_means: GpuUse = GpuUse.EXCLUSIVE,
    claimed: Sequence[Device] | None = None,
) -> JobRecord:
    """The pod as a job. ``restarts`` counts restarts of its containers in place."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    node = spec.node_name if spec else None
    gpus: PodGpus = pod_gpus(pod, whole_means=whole_means, claimed=claimed)
    phase = _phase(pod)
    ended = _ended(pod) if phase in _FINISHED else _Ended()
    started = epoch(status.start_time) if status else None
    deadline = spec.active_deadline_seconds if spec else None
    return JobRecord(
        id=pod.id,
        raw_id=meta.uid,
        name=meta.name,
        state="terminating" if meta.deletion_timestamp is not None and phase not in _FINISHED else phase,
        nodes=(node,) if node else (),
        gpus=gpus.count,
        gpu_use=gpus.use,
        requeue=_can_return(pod),
        kind=JobKind.POD,
        time_left_seconds=started + deadline - now if started is not None and deadline is not None else None,
        memory_bytes=_memory(spec) if spec else None,
        exit_code=ended.exit_code,
        signal=ended.signal,
        ended_at=ended.at,
        restarts=max(
            (s.restart_count for s in (status.container_statuses if status else None) or ()), default=0
        ),
        submitted_at=epoch(meta.creation_timestamp),
        state_reason=_why_waiting(pod),
        held=bool(spec.scheduling_gates) if spec else None,
    )


def _can_return(pod: PodObject) -> bool:
    """Its controller makes it again, elsewhere if need be."""
    owner = controller_of(pod)
    return owner is not None and not is_daemon(owner) and not is_mirror(pod)


def _phase(pod: PodObject) -> str:
    return ((pod.status.phase if pod.status else None) or "unknown").lower()


def _tolerates_cordon(pod: PodObject) -> bool:
    for toleration in (pod.spec.tolerations if pod.spec else None) or ():
        everything = not toleration.key and toleration.operator == "Exists"
        if (everything or toleration.key == UNSCHEDULABLE_TAINT) and toleration.effect in (
            None,
            "",
            "NoSchedule",
        ):
            return True
    return False


def _why_waiting(pod: PodObject) -> str | None:
    if pod.spec and pod.spec.scheduling_gates:
        return "SchedulingGated"
    conditions = (pod.status.conditions if pod.status else None) or ()
    scheduled = next(
        (one for one in conditions if one.type == "PodScheduled" and one.status == "False"), None
    )
    return (scheduled.reason if scheduled else None) or (pod.status.reason if pod.status else None)


@dataclass(frozen=True, slots=True)
class _Ended:
    exit_code: int | None = None
    signal: int | None = None
    at: float | None = None


def _ended(pod: PodObject) -> _Ended:
    """The first failure among its containers, else their success; when the last one ended."""
    status = pod.status or PodStatus()
    states: list[Terminated] = [
        one.state.terminated
        for one in (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
        if one.state is not None and one.state.terminated is not None
    ]
    if not states:
        return _Ended()
    shown = next((state for state in states if state.exit_code), states[0])
    times = [moment for state in states if (moment := epoch(state.finished_at)) is not None]
    return _Ended(shown.exit_code, shown.signal or None, max(times, default=None))


def _memory(spec: PodSpec) -> int | None:
    """What the scheduler sets aside: the pod's own request, else its containers', and its overhead."""
    try:
        own = _memory_of(spec.resources.requests if spec.resources else None)
        total = own or effective(spec.containers or (), spec.init_containers or (), _asked_memory)
        overhead = _memory_of(spec.overhead)
    except InvalidInputError:
        return None
    amount = total.get(_MEMORY, Decimal(0)) + overhead.get(_MEMORY, Decimal(0))
    return int(amount) or None


def _asked_memory(container: Container) -> dict[str, Decimal]:
    """A limit alone is a request too (the API server's default)."""
    resources = container.resources
    if resources is None:
        return {}
    return _memory_of(resources.requests) or _memory_of(resources.limits)


def _memory_of(amounts: Mapping[str, Any] | None) -> dict[str, Decimal]:
    return {_MEMORY: parse_quantity(amounts[_MEMORY])} if amounts and _MEMORY in amounts else {}
