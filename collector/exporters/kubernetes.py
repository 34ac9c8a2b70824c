"""Kubernetes as an exporter's source: two lists through the one client, pods as queue items.

The queue is what the kube-scheduler places: pods of DaemonSets and static pods never queue and are left out.
A pod's partition is its namespace: Kubernetes has no partitions, and quotas are per namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from collector.exporters.classes import QueueState, SizeClass, WaitReason, size_class
from collector.exporters.model import QueueItem, SchedulerReading
from collector.kubernetes.client import KubernetesClient
from collector.kubernetes.cluster import read_cluster
from collector.kubernetes.marks import epoch
from collector.kubernetes.objects import NodeObject, PodObject
from collector.kubernetes.pods import MIRROR, controller_of, is_bound, is_daemon
from collector.kubernetes.quantity import parse_count
from fleet.clock import Clock
from fleet.errors import InvalidInputError
from fleet.scheduler import JobRecord, NodeRecord

_FINISHED = ("succeeded", "failed")
# Reasons of the condition PodScheduled (k8s.io/api core/v1, PodReason*), and gates on the pod itself.
_WAIT_REASONS = {
    "SchedulingGated": WaitReason.HELD,
    "Unschedulable": WaitReason.RESOURCES,
    None: WaitReason.NOT_CONSIDERED,
}


class KubernetesSource:
    """All nodes, then all unfinished pods. Both must answer."""

    kind = "kubernetes"

    def __init__(self, client: KubernetesClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    def read(self) -> SchedulerReading:
        """Raises a BackendError."""
        nodes, pods = self._client.list_nodes(), self._client.list_pods()
        cluster = read_cluster(nodes, pods, now=self._clock.now())
        jobs = {job.id: job for job in cluster.jobs}
        return SchedulerReading(
            nodes=cluster.nodes,
            items=tuple(queue_item(pod, jobs[pod.id]) for pod in pods if _queues(pod)),
            withdrawn=_withdrawn(nodes, cluster.nodes),
            problems=len(cluster.problems),
        )

    def close(self) -> None:
        self._client.close()


def _queues(pod: PodObject) -> bool:
    return not is_daemon(controller_of(pod)) and MIRROR not in (pod.metadata.annotations or {})


def queue_item(pod: PodObject, job: JobRecord) -> QueueItem:
    """``job`` is the same pod as the collector's job record."""
    size = size_class(job.gpus, job.gpu_use)
    state = _state(pod, job)
    bound = is_bound(pod)
    return QueueItem(
        run=(job.raw_id or job.id,),
        partitions=(pod.metadata.namespace or "default",),
        state=state,
        size=size,
        gpus=job.gpus if size is SizeClass.CPU or size.is_counted else None,
        reason=_WAIT_REASONS.get(job.state_reason, WaitReason.OTHER) if state is QueueState.PENDING else None,
        eligible_at=job.submitted_at,
        started=bound,
        wait_seconds=_waited(pod) if bound else None,
    )


def _state(pod: PodObject, job: JobRecord) -> QueueState:
    """A pod that has a node waits no longer: it pulls images and starts."""
    if job.state in _FINISHED:
        return QueueState.ENDED
    if job.state == "terminating":
        return QueueState.COMPLETING if is_bound(pod) else QueueState.ENDED
    if job.state == "pending":
        return QueueState.STARTING if is_bound(pod) else QueueState.PENDING
    return QueueState.RUNNING if job.state == "running" else QueueState.UNKNOWN


def _waited(pod: PodObject) -> float | None:
    """Creation to the condition PodScheduled, by the API server's and the scheduler's clocks."""
    created = epoch(pod.metadata.creation_timestamp)
    scheduled = next(
        (
            epoch(one.last_transition_time)
            for one in (pod.status.conditions if pod.status else None) or ()
            if one.type == "PodScheduled" and one.status == "True"
        ),
        None,
    )
    if created is None or scheduled is None or scheduled < created:
        return None
    return scheduled - created


def _withdrawn(nodes: Iterable[NodeObject], records: Iterable[NodeRecord]) -> Mapping[str, int]:
    """GPUs in the capacity but not allocatable: the device plugin calls them unhealthy.

    Only where every GPU resource of the node stands for whole GPUs.
    """
    known = {record.name: record for record in records}
    found: dict[str, int] = {}
    for node in nodes:
        record = known.get(node.metadata.name)
        if record is None or record.gpus_total != sum(record.gpu_resources.values()):
            continue
        missing = sum(_missing(node, name, count) for name, count in record.gpu_resources.items())
        if missing:
            found[record.name] = missing
    return found


def _missing(node: NodeObject, resource: str, capacity: int) -> int:
    allocatable = (node.status.allocatable if node.status else None) or {}
    if resource not in allocatable:
        return 0
    try:
        return max(0, capacity - parse_count(allocatable[resource]))
    except InvalidInputError:
        return 0
