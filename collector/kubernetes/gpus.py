"""GPUs as Kubernetes counts them: extended resources of nodes and pods.

Physical GPUs, MIG instances and shared replicas come under different resource names or, worse, under the
same one; the labels of NVIDIA's gpu-feature-discovery tell them apart (k8s-device-plugin, README "Shared
access to GPUs", docs/gpu-feature-discovery: ``nvidia.com/gpu.count``, ``.replicas``, ``.sharing-strategy``,
``.product``, ``.present``, ``nvidia.com/mig.strategy``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeVar

from collector.kubernetes.claims import Device, Key, PoolGpus
from collector.kubernetes.objects import Container, NodeObject, PodObject
from collector.kubernetes.quantity import parse_count
from fleet.errors import InvalidInputError
from fleet.observations import ProblemReason
from fleet.scheduler import GpuUse

_WHOLE = frozenset(
    {"nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi"}
)
# MIG profiles; AMD's partitions by compute and memory mode (k8s-device-plugin of ROCm: "cpx_nps4").
_SLICE = re.compile(r"nvidia\.com/mig-.+|amd\.com/(?:spx|dpx|tpx|qpx|cpx)_nps\d+")
_SHARED_SUFFIX = ".shared"
_SHARING = ("time-slicing", "mps")
# Where the product's name stands, best first.
_PRODUCT_LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator")

Told = tuple[ProblemReason, str]
N = TypeVar("N", int, Decimal)


def is_gpu_resource(name: str) -> bool:
    return name.removesuffix(_SHARED_SUFFIX) in _WHOLE or _is_slice(name)


def _is_slice(name: str) -> bool:
    return _SLICE.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """``total``: physical GPUs, None if unknown. ``resources``: capacity by resource name.

    ``whole_means``: what a pod gets there that asks for a whole GPU (a share, a slice).
    ``problems``: what cannot be read or contradicts itself, a reason and a sentence each.
    """

    total: int | None = None
    types: Mapping[str, int] = field(default_factory=dict)
    resources: Mapping[str, int] = field(default_factory=dict)
    whole_means: GpuUse = GpuUse.EXCLUSIVE
    problems: tuple[Told, ...] = ()


@dataclass(frozen=True, slots=True)
class PodGpus:
    """``count`` as the pod's job record shows it.

    ``physical``: whole GPUs it takes from its node beside those of its claims, ``claimed``; None if unknown.
    """

    count: int | None
    use: GpuUse
    physical: int | None
    claimed: frozenset[Key] = frozenset()


def node_gpus(node: NodeObject, offered: PoolGpus | None = None) -> NodeGpus:
    """What the node says of its GPUs. Capacity, not allocatable: a withdrawn GPU is still there.

    ``offered``: what drivers of dynamic resource allocation offer there, None for nothing known.
    """
    status = node.status
    if status is None or not status.capacity:
        return NodeGpus(offered.total, offered.types) if offered else NodeGpus()
    problems: list[Told] = []
    resources = _counts(status.capacity, problems)
    labels = node.metadata.labels or {}
    shared = _is_shared(resources, labels)
    if not any(resources.values()) and not problems and offered is not None:
        return NodeGpus(offered.total, dict(offered.types), resources)
    total = None if problems else _physical(resources, labels, shared=shared)
    left = _counts(status.allocatable or {}, problems)
    problems.extend(
        (ProblemReason.INCONSISTENT, text) for text in _contradictions(resources, left, labels, shared=shared)
    )
    types = {_type(labels): total} if total else {}
    means = GpuUse.SHARED if shared else GpuUse.SLICE if _is_single(labels) else GpuUse.EXCLUSIVE
    return NodeGpus(total, types, resources, means, tuple(problems))


def pod_gpus(
    pod: PodObject, *, whole_means: GpuUse = GpuUse.EXCLUSIVE, claimed: Sequence[Device] | None = None
) -> PodGpus:
    """The effective request. ``whole_means``: of its node; ``claimed``: the devices of its claims, None if
    they are not known.
    """
    spec = pod.spec
    if spec is None:
        return PodGpus(None, GpuUse.UNKNOWN, None)
    try:
        counts = effective(spec.containers or (), spec.init_containers or (), _asked)
    except InvalidInputError:
        return PodGpus(None, GpuUse.UNKNOWN, None)
    whole = sum(count for name, count in counts.items() if name in _WHOLE)
    slices = sum(count for name, count in counts.items() if _is_slice(name))
    shares = sum(count for name, count in counts.items() if name.endswith(_SHARED_SUFFIX))
    if shares or (whole and whole_means is GpuUse.SHARED):
        return PodGpus(None, GpuUse.SHARED, None)
    if whole and whole_means is GpuUse.SLICE:
        return PodGpus(whole + slices, GpuUse.SLICE, None)
    if whole:
        if slices or (spec.resource_claims and claimed is None):
            return PodGpus(whole if not slices else None, GpuUse.EXCLUSIVE, None)
        return _with_claims(whole, GpuUse.EXCLUSIVE, claimed or ())
    if slices:
        return PodGpus(slices, GpuUse.SLICE, None)
    if spec.resource_claims:
        if claimed is None:
            return PodGpus(None, GpuUse.CLAIM, None)
        return _with_claims(0, GpuUse.CLAIM, claimed)
    return PodGpus(0, GpuUse.NONE, 0)


def _with_claims(whole: int, use: GpuUse, claimed: Sequence[Device]) -> PodGpus:
    """Devices of other kinds (network cards) are no GPUs; a part of a GPU takes no whole number of them."""
    gpus = [device for device in claimed if device.is_gpu]
    if not gpus and not whole:
        return PodGpus(0, GpuUse.NONE, 0)
    known = all(device.whole for device in gpus)
    return PodGpus(whole + len(gpus), use, whole if known else None, frozenset(device.key for device in gpus))


def _counts(resources: Mapping[str, Any], problems: list[Told]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in resources.items():
        if not is_gpu_resource(name):
            continue
        try:
            found[name] = parse_count(value)
        except InvalidInputError as error:
            problems.append((ProblemReason.UNRECOGNISED_VALUE, f"{name}: {error}"))
    return found


def _is_shared(resources: Mapping[str, int], labels: Mapping[str, str]) -> bool:
    if labels.get("nvidia.com/gpu.sharing-strategy") in _SHARING:
        return True
    if labels.get("nvidia.com/gpu.product", "").endswith("-SHARED"):
        return True
    replicas = _labelled(labels, "nvidia.com/gpu.replicas")
    return (replicas is not None and replicas > 1) or any(
        name.endswith(_SHARED_SUFFIX) and not _is_slice(name) and count for name, count in resources.items()
    )


def _has_slices(resources: Mapping[str, int], labels: Mapping[str, str]) -> bool:
    """Slices under their own names (mixed), or under the name of whole GPUs (single: the product tells)."""
    if any(count for name, count in resources.items() if _is_slice(name)):
        return True
    return _is_single(labels)


def _is_single(labels: Mapping[str, str]) -> bool:
    product = labels.get("nvidia.com/gpu.product", "")
    return labels.get("nvidia.com/mig.strategy") == "single" and "-MIG-" in product


def _physical(resources: Mapping[str, int], labels: Mapping[str, str], *, shared: bool) -> int | None:
    labelled = _labelled(labels, "nvidia.com/gpu.count")
    if _has_slices(resources, labels):
        # With the mixed strategy the label counts boards, sliced or not; with single it counts slices.
        return labelled if labels.get("nvidia.com/mig.strategy") == "mixed" else None
    if shared:
        return labelled
    if not resources and labels.get("nvidia.com/gpu.present") == "true":
        return None  # a GPU node whose driver or device plugin does not run
    whole = sum(count for name, count in resources.items() if name in _WHOLE)
    return None if labelled is not None and resources.get("nvidia.com/gpu", 0) > labelled else whole


def _contradictions(
    capacity: Mapping[str, int], allocatable: Mapping[str, int], labels: Mapping[str, str], *, shared: bool
) -> Iterable[str]:
    for name, count in capacity.items():
        left = allocatable.get(name)
        if left is None or left == count:
            continue
        if left > count:
            yield f"has {left} {name} to give away but only {count} in all"
        else:
            yield (
                f"{count - left} of {count} {name} are withdrawn by the device plugin; it gives none back "
                "before it restarts, so compare with NVML before calling a GPU broken"
            )
    labelled = _labelled(labels, "nvidia.com/gpu.count")
    offered = capacity.get("nvidia.com/gpu")
    if not capacity and labels.get("nvidia.com/gpu.present") == "true":
        yield "is labelled as a GPU node but offers no GPU resource: driver or device plugin does not run"
    elif labelled is None or offered is None or _has_slices(capacity, labels):
        return
    elif offered < labelled:
        yield f"offers {offered} GPUs but is labelled with {labelled}: a GPU may be missing"
    elif offered > labelled and not shared:
        yield f"offers {offered} GPUs but is labelled with {labelled}: shared unsaid, or the labels are stale"


def _labelled(labels: Mapping[str, str], key: str) -> int | None:
    value = labels.get(key, "")
    return int(value) if value.isascii() and value.isdecimal() else None


def _type(labels: Mapping[str, str]) -> str:
    product = next((labels[key] for key in _PRODUCT_LABELS if labels.get(key)), "")
    return product.removesuffix("-SHARED").lower() or "gpu"


def effective(
    containers: Iterable[Container], init: Iterable[Container], asked: Callable[[Container], dict[str, N]]
) -> dict[str, N]:
    """What a pod takes of each resource at its worst moment.

    Kubernetes documentation, "Sidecar Containers", "Resource sharing within containers": init containers run
    one after the other, each beside the sidecars (restartPolicy Always) that were started before it; then
    all containers run beside all sidecars.
    """
    beside: dict[str, N] = {}
    most: dict[str, N] = {}
    for container in init:
        here = dict(beside)
        _add(here, asked(container))
        if container.restart_policy == "Always":
            beside = here
        _raise_to(most, here)
    together = dict(beside)
    for container in containers:
        _add(together, asked(container))
    _raise_to(most, together)
    return most


def _raise_to(most: dict[str, N], amounts: Mapping[str, N]) -> None:
    for name, amount in amounts.items():
        most[name] = max(most[name], amount) if name in most else amount


def _add(total: dict[str, N], amounts: Mapping[str, N]) -> None:
    for name, amount in amounts.items():
        total[name] = total[name] + amount if name in total else amount


def _asked(container: Container) -> dict[str, int]:
    resources = container.resources
    if resources is None:
        return {}
    asked = {**(resources.requests or {}), **(resources.limits or {})}
    return {name: parse_count(value) for name, value in asked.items() if is_gpu_resource(name)}
