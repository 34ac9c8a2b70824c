"""Nodes and pods of one look, joined: pure, from decoded objects to records and problems."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from collector.kubernetes.claims import Claims, Device
from collector.kubernetes.nodes import read_node
from collector.kubernetes.objects import NodeObject, PodObject
from collector.kubernetes.pods import OrphanTest, is_bound, is_finished, job_record
from fleet.identity import MigInstance
from fleet.observations import Allocation, Problem, ProblemReason
from fleet.scheduler import GpuUse, JobRecord, NodeRecord

SOURCE = "kubernetes"
_OLD_MIG = re.compile(r"MIG-(?P<gpu>GPU-[0-9A-Fa-f-]+)/(?P<gi>[0-9]{1,3})/(?P<ci>[0-9]{1,3})")


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
    claims: Claims | None = None,
    incomplete: Collection[str] | None = (),
) -> ClusterReading:
    """``pods`` None: they were not read, which is not the same as none.

    ``incomplete``: the nodes of which not all pods could be read; None: that may be any of them.
    """
    on = pods_by_node(pods or ())
    claims = claims or Claims()
    records: list[NodeRecord] = []
    problems: list[Problem] = []
    means: dict[str, GpuUse] = {}
    for node in nodes:
        name = node.metadata.name
        reading = read_node(
            node,
            None if pods is None else on.get(name, []),
            now=now,
            is_orphan=is_orphan,
            claims=claims,
            complete=incomplete is not None and name not in incomplete,
        )
        records.append(reading.record)
        means[name] = reading.whole_means
        problems.extend(
            Problem(source=SOURCE, reason=reason, node=name, message=f"{name} {text}")
            for reason, text in reading.problems
        )
    jobs = tuple(
        job_record(
            pod,
            now=now,
            whole_means=means.get((pod.spec.node_name if pod.spec else None) or "", GpuUse.EXCLUSIVE),
            claimed=claims.of(pod),
        )
        for pod in pods or ()
    )
    return ClusterReading(tuple(records), jobs, tuple(problems))


@dataclass(frozen=True, slots=True)
class Devices:
    """Which pod holds which device, and what kubelets say against some of them."""

    allocations: tuple[Allocation, ...] = ()
    problems: tuple[Problem, ...] = ()


def read_devices(pods: Iterable[PodObject], claims: Claims) -> Devices:
    """Which pod holds which device, where the API says so; one line for each device.

    Pods: ``allocatedResourcesStatus`` of their containers (KEP-4680; the device ids of NVIDIA's plugin are
    UUIDs). Claims: their allocated devices. What is no GPU's UUID, index or known name is left out, not
    guessed. A device called Unhealthy is told as a problem: the plugin's word, no verdict.
    """
    found: dict[_Place, dict[str, None]] = {}
    problems: list[Problem] = []
    for pod in pods:
        if pod.spec is None or pod.spec.node_name is None or not is_bound(pod) or is_finished(pod):
            continue
        for resource, device_id, health in _resources(pod):
            place = _place(resource, device_id, pod.spec.node_name, claims)
            if place is not None:
                found.setdefault(place, {})[pod.id] = None
            if health == "Unhealthy":
                problems.append(_unhealthy(pod, resource, device_id, place))
    for held in claims.all():
        for device in held.devices:
            place = _place_of(device)
            if place is not None:
                found.setdefault(place, {}).update(dict.fromkeys(held.pods))
    allocations = tuple(
        Allocation(node=place.node, gpu=place.gpu, index=place.index, mig=place.mig, pods=tuple(holders))
        for place, holders in found.items()
    )
    return Devices(allocations, tuple(problems))


@dataclass(frozen=True, slots=True)
class _Place:
    node: str | None
    gpu: str | None = None
    index: int | None = None
    mig: MigInstance | None = None


def _resources(pod: PodObject) -> Iterable[tuple[str, str, str | None]]:
    """(resource, device id, health) of containers that may still run; each device once."""
    status = pod.status
    if status is None:
        return
    told: set[tuple[str, str]] = set()
    for container in (*(status.container_statuses or ()), *(status.init_container_statuses or ())):
        if container.state is not None and container.state.terminated is not None:
            continue
        for resource in container.allocated_resources_status or ():
            for device in resource.resources or ():
                if device.resource_id and (resource.name, device.resource_id) not in told:
                    told.add((resource.name, device.resource_id))
                    yield resource.name, device.resource_id, device.health


def _place(resource: str, device_id: str, node: str, claims: Claims) -> _Place | None:
    """``GPU-..``, ``GPU-..::3`` (the fourth share of it), ``MIG-..``, ``MIG-GPU-../7/0`` (drivers before
    470: the GPU, its GPU instance and compute instance), or ``driver/pool/device`` of a claim.
    """
    if resource.startswith("claim:"):
        driver, _, rest = device_id.partition("/")
        pool, _, name = rest.rpartition("/")
        device = claims.named(driver, pool, name)
        return _place_of(device) if device is not None else None
    uuid = device_id.partition("::")[0]
    old = _OLD_MIG.fullmatch(uuid)
    if old is not None:
        return _Place(node, old["gpu"], mig=MigInstance(gi=int(old["gi"]), ci=int(old["ci"])))
    return _Place(node, uuid) if uuid.startswith(("GPU-", "MIG-")) else None


def _place_of(device: Device) -> _Place | None:
    if not device.is_gpu or (device.gpu is None and device.index is None):
        return None
    return _Place(device.node, device.gpu, device.index)


def _unhealthy(pod: PodObject, resource: str, device_id: str, place: _Place | None) -> Problem:
    return Problem(
        source=SOURCE,
        reason=ProblemReason.INCONSISTENT,
        node=pod.spec.node_name if pod.spec else None,
        gpu=place.gpu if place else None,
        index=place.index if place else None,
        message=f"pod {pod.id} runs on {device_id} of {resource}, which its kubelet calls Unhealthy; a "
        "device plugin keeps this word until it restarts, so ask the device itself before calling it broken",
    )
