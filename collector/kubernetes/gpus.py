"""GPUs as Kubernetes counts them: extended resources of nodes and pods.

Physical GPUs, MIG instances and shared replicas come under different resource names or, worse, under the
same one; the labels of NVIDIA's gpu-feature-discovery tell them apart (k8s-device-plugin, README "Shared
access to GPUs", docs/gpu-feature-discovery: ``nvidia.com/gpu.count``, ``.replicas``, ``.sharing-strategy``,
``.product``, ``.present``, ``nvidia.com/mig.strategy``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from collector.kubernetes.objects import Container, NodeObject, PodObject
from collector.kubernetes.quantity import parse_count
from fleet.errors import InvalidInputError
from fleet.scheduler import GpuUse

_WHOLE = frozenset(
    {"nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi"}
)
_SLICE_PREFIX = "nvidia.com/mig-"
_SHARED_SUFFIX = ".shared"
_SHARING = ("time-slicing", "mps")


def is_gpu_resource(name: str) -> bool:
    return name in _WHOLE or name.startswith(_SLICE_PREFIX) or name.removesuffix(_SHARED_SUFFIX) in _WHOLE


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """``total``: physical GPUs, None if unknown. ``resources``: capacity by resource name.

    ``problems``: what contradicts itself, one sentence each.
    """

    total: int | None = None
    types: Mapping[str, int] = field(default_factory=dict)
    resources: Mapping[str, int] = field(default_factory=dict)
    shared: bool = False
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PodGpus:
    """``count`` as the pod's job record shows it; ``physical``: whole GPUs it takes from its node."""

    count: int | None
    use: GpuUse
    physical: int | None


def node_gpus(node: NodeObject) -> NodeGpus:
    """What the node says of its GPUs. Capacity, not allocatable: a withdrawn GPU is still there."""
    status = node.status
    if status is None or status.capacity is None:
        return NodeGpus()
    problems: list[str] = []
    resources = _counts(status.capacity, problems)
    labels = node.metadata.labels or {}
    shared = _is_shared(resources, labels)
    total = None if problems else _physical(resources, labels, shared=shared)
    problems.extend(_contradictions(resources, _counts(status.allocatable or {}, problems), labels))
    types = {_type(labels): total} if total else {}
    return NodeGpus(total, types, resources, shared, tuple(problems))


def pod_gpus(pod: PodObject, *, shared_node: bool = False) -> PodGpus:
    """The effective request: the larger of all containers together and each init container."""
    spec = pod.spec
    if spec is None:
        return PodGpus(None, GpuUse.UNKNOWN, None)
    try:
        counts = _effective(spec.containers or (), spec.init_containers or ())
    except InvalidInputError:
        return PodGpus(None, GpuUse.UNKNOWN, None)
    whole = sum(count for name, count in counts.items() if name in _WHOLE)
    slices = sum(count for name, count in counts.items() if name.startswith(_SLICE_PREFIX))
    shares = sum(count for name, count in counts.items() if name.endswith(_SHARED_SUFFIX))
    if whole and not shared_node:
        return PodGpus(whole, GpuUse.EXCLUSIVE, whole)
    if whole or shares:
        return PodGpus(None, GpuUse.SHARED, None)
    if slices:
        return PodGpus(slices, GpuUse.SLICE, None)
    if spec.resource_claims:
        return PodGpus(None, GpuUse.CLAIM, None)
    return PodGpus(0, GpuUse.NONE, 0)


def _counts(resources: Mapping[str, Any], problems: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in resources.items():
        if not is_gpu_resource(name):
            continue
        try:
            found[name] = parse_count(value)
        except InvalidInputError as error:
            problems.append(f"{name}: {error}")
    return found


def _is_shared(resources: Mapping[str, int], labels: Mapping[str, str]) -> bool:
    if labels.get("nvidia.com/gpu.sharing-strategy") in _SHARING:
        return True
    replicas = labels.get("nvidia.com/gpu.replicas", "")
    return (replicas.isdecimal() and int(replicas) > 1) or any(
        name.endswith(_SHARED_SUFFIX) and count for name, count in resources.items()
    )


def _physical(resources: Mapping[str, int], labels: Mapping[str, str], *, shared: bool) -> int | None:
    if any(count for name, count in resources.items() if name.startswith(_SLICE_PREFIX)):
        return None  # some GPUs are sliced: how many is not said
    if labels.get("nvidia.com/mig.strategy") == "single" and "MIG" in labels.get(
        "nvidia.com/gpu.product", ""
    ):
        return None  # slices under the name of whole GPUs
    if shared:
        count = labels.get("nvidia.com/gpu.count", "")
        return int(count) if count.isdecimal() else None
    if not resources and labels.get("nvidia.com/gpu.present") == "true":
        return None  # a GPU node whose driver or device plugin does not run
    return sum(count for name, count in resources.items() if name in _WHOLE)


def _contradictions(
    capacity: Mapping[str, int], allocatable: Mapping[str, int], labels: Mapping[str, str]
) -> Iterable[str]:
    for name, count in capacity.items():
        left = allocatable.get(name)
        if left is not None and left < count:
            yield (
                f"{count - left} of {count} {name} are withdrawn by the device plugin; it gives none back "
                "before it restarts, so compare with NVML before calling a GPU broken"
            )
    labelled = labels.get("nvidia.com/gpu.count", "")
    has_whole = "nvidia.com/gpu" in capacity
    if not capacity and labels.get("nvidia.com/gpu.present") == "true":
        yield "is labelled as a GPU node but offers no GPU resource: driver or device plugin does not run"
    elif labelled.isdecimal() and has_whole and capacity["nvidia.com/gpu"] < int(labelled):
        offered = capacity["nvidia.com/gpu"]
        yield f"offers {offered} GPUs but is labelled with {labelled}: a GPU may be missing"


def _type(labels: Mapping[str, str]) -> str:
    return labels.get("nvidia.com/gpu.product", "").removesuffix("-SHARED").lower() or "gpu"


def _effective(containers: Iterable[Container], init: Iterable[Container]) -> dict[str, int]:
    """Kubernetes, "Resource sharing within containers": sidecars (restartPolicy Always) run beside."""
    together: dict[str, int] = {}
    alone: dict[str, int] = {}
    for container in (*containers, *(c for c in init if c.restart_policy == "Always")):
        for name, count in _asked(container).items():
            together[name] = together.get(name, 0) + count
    for container in init:
        for name, count in _asked(container).items():
            alone[name] = max(alone.get(name, 0), count)
    return {name: max(together.get(name, 0), alone.get(name, 0)) for name in {*together, *alone}}


def _asked(container: Container) -> dict[str, int]:
    resources = container.resources
    if resources is None:
        return {}
    asked = {**(resources.requests or {}), **(resources.limits or {})}
    return {name: parse_count(value) for name, value in asked.items() if is_gpu_resource(name)}
