"""Nodes and pods of one look, joined: pure, from decoded objects to records and problems."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from collector.kubernetes.nodes import read_node
from collector.kubernetes.objects import ClaimObject, NodeObject, PodObject
from collector.kubernetes.pods import OrphanTest, is_bound, job_record
from fleet.observations import Allocation, Problem, ProblemReason
from fleet.scheduler import JobRecord, NodeRecord

SOURCE = "kubernetes"


@dataclass(frozen=True, slots=True)
class ClusterReading:
    nodes: tuple[NodeRecord, ...]
    jobs: tuple[JobRecord, ...]
    problems: tuple[Problem, ...]


def pods_by_node(pods: Iterable[PodObject]) -> dict[str, list[PodObject]]:
    """Bound pods by node name."""
    found: dict[str, list[PodObject]] = {}
    for pod in pods:
        if pod.spec is not None and pod.spec.node_name:
            found.setdefault(pod.spec.node_name, []).append(pod)
    return found


def read_cluster(
    nodes: Sequence[NodeObject],
    pods: Sequence[PodObject] | None,
    *,
    now: float,
    is_orphan: OrphanTest = lambda _: False,
) -> ClusterReading:
    """``pods`` None: they were not read, which is not the same as none."""
    on = pods_by_node(pods or ())
    records: list[NodeRecord] = []
    problems: list[Problem] = []
    shared: set[str] = set()
    for node in nodes:
        name = node.metadata.name
        reading = read_node(node, None if pods is None else on.get(name, []), now=now, is_orphan=is_orphan)
        records.append(reading.record)
        if reading.shared:
            shared.add(name)
        problems.extend(
            Problem(source=SOURCE, reason=ProblemReason.INCONSISTENT, node=name, message=f"{name} {text}")
            for text in reading.problems
        )
    jobs = tuple(job_record(pod, now=now, shared_nodes=frozenset(shared)) for pod in pods or ())
    return ClusterReading(tuple(records), jobs, tuple(problems))


def device_allocations(pods: Iterable[PodObject], claims: Iterable[ClaimObject]) -> list[Allocation]:
    """Which pod holds which device, where the API says so.

    Pods: ``containerStatuses[].allocatedResourcesStatus`` (device ids are UUIDs with NVIDIA's plugin).
    Claims: the allocated devices of the driver gpu.nvidia.com; their pool is the node, their name
    ``gpu-<index>`` (k8s-dra-driver-gpu). What is no GPU's UUID or such a name is left out, not guessed.
    """
    return [*_from_pods(pods), *_from_claims(claims)]


def _from_pods(pods: Iterable[PodObject]) -> Iterable[Allocation]:
    for pod in pods:
        if pod.spec is None or not is_bound(pod):
            continue
        held: dict[str, None] = {}
        for status in (pod.status.container_statuses if pod.status else None) or ():
            for resource in status.allocated_resources_status or ():
                for device in resource.resources or ():
                    if device.resource_id and device.resource_id.startswith("GPU-"):
                        held[device.resource_id] = None
        for uuid in held:
            yield Allocation(node=pod.spec.node_name, gpu=uuid, pods=(pod.id,))


def _from_claims(claims: Iterable[ClaimObject]) -> Iterable[Allocation]:
    for claim in claims:
        status = claim.status
        if status is None or status.allocation is None or status.allocation.devices is None:
            continue
        namespace = claim.metadata.namespace or "default"
        pods = tuple(f"{namespace}/{one.name}" for one in status.reserved_for or () if one.resource == "pods")
        for result in status.allocation.devices.results or ():
            kind, _, index = result.device.partition("-")
            if result.driver == "gpu.nvidia.com" and kind == "gpu" and index.isdecimal():
                yield Allocation(node=result.pool, gpu=None, index=int(index), pods=pods)
