"""Dynamic resource allocation: which devices the claims of a pod hold, and what ResourceSlices say of them.

Shapes: Kubernetes API reference, resource.k8s.io v1alpha3, v1beta1, v1beta2 and v1 (a claim's
``status.allocation.devices.results`` is the same in all four). A device is known by driver, pool and name.
Device names and attributes: NVIDIA's k8s-dra-driver-gpu (``gpu-0``; ``uuid``, ``index``, ``productName``,
``type``, ``parentUUID``). Access for administrators (``adminAccess``) holds nothing: it watches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from collector.kubernetes.objects import ClaimObject, DeviceResult, PodObject, SliceDevice, SliceObject

NVIDIA = "gpu.nvidia.com"
GPU_DRIVERS = frozenset({NVIDIA, "gpu.amd.com", "gpu.intel.com", "gpu.resource.intel.com"})
# Claims of NVIDIA's driver without slices: the name of a whole GPU is all there is to tell.
_WHOLE_NAME = re.compile(r"gpu-(?P<index>[0-9]{1,4})")
_PARTS = ("mig", "vgpu", "partition")

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a pool. ``whole``: a physical GPU; a part of one (MIG) is False, unknown is None.

    ``gpu`` is a UUID, of the part where it is one. ``model`` is the product's name, lower case.
    """

    key: Key
    node: str | None
    whole: bool | None = None
    gpu: str | None = None
    index: int | None = None
    parent: str | None = None
    model: str | None = None

    @property
    def is_gpu(self) -> bool:
        return self.key[0] in GPU_DRIVERS


@dataclass(frozen=True, slots=True)
class Held:
    """One allocated claim: its devices and the pods it is reserved for (``namespace/name``)."""

    devices: tuple[Device, ...]
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PoolGpus:
    """The GPUs that drivers offer on one node. ``total`` None: they are there, how many is not known."""

    total: int | None = None
    types: Mapping[str, int] = field(default_factory=dict)


class Claims:
    """All claims and slices that were read, joined."""

    def __init__(self, claims: Iterable[ClaimObject] = (), slices: Iterable[SliceObject] = ()) -> None:
        self._offered = _newest(slices)
        self._held = {claim.id: held for claim in claims if (held := self._read(claim)) is not None}

    def all(self) -> Iterable[Held]:
        return self._held.values()

    def of(self, pod: PodObject) -> tuple[Device, ...] | None:
        """The devices that the pod's claims hold for it; None if a claim of it is not known."""
        devices: dict[Key, Device] = {}
        statuses = (pod.status.resource_claim_statuses if pod.status else None) or ()
        made = {status.name: status.resource_claim_name for status in statuses}
        for wanted in (pod.spec.resource_claims if pod.spec else None) or ():
            name = wanted.resource_claim_name or made.get(wanted.name)
            if name is None and wanted.name in made:
                continue  # the API's word for: no claim was needed
            held = self._held.get(f"{pod.metadata.namespace or 'default'}/{name}")
            if held is None:
                return None
            devices.update((device.key, device) for device in held.devices)
        return tuple(devices.values())

    def named(self, driver: str, pool: str, name: str) -> Device | None:
        """A device by its full name, as kubelets write it into a pod's status."""
        if driver not in GPU_DRIVERS:
            return None
        return self._device(DeviceResult(driver=driver, pool=pool, device=name), node=None)

    def offered_on(self, node: str) -> PoolGpus | None:
        """What drivers offer on ``node``; None if no driver is known to offer GPUs there."""
        offered = [device for device in self._offered.values() if device.is_gpu and device.node == node]
        if not offered:
            held = (device for one in self._held.values() for device in one.devices)
            return PoolGpus() if any(device.is_gpu and device.node == node for device in held) else None
        if any(device.whole is None or (not device.whole and not device.parent) for device in offered):
            return PoolGpus()
        boards = {
            device.gpu if device.whole and device.gpu else device.parent or "/".join(device.key): device
            for device in sorted(offered, key=lambda device: bool(device.whole))
        }
        types: dict[str, int] = {}
        for device in boards.values():
            types[device.model or "gpu"] = types.get(device.model or "gpu", 0) + 1
        return PoolGpus(len(boards), types)

    def _read(self, claim: ClaimObject) -> Held | None:
        status = claim.status
        if status is None or status.allocation is None:
            return None
        allocation = status.allocation
        node = _selected(allocation.node_selector)
        results = (allocation.devices.results if allocation.devices else None) or ()
        namespace = claim.metadata.namespace or "default"
        return Held(
            tuple(self._device(result, node) for result in results if not result.admin_access),
            tuple(f"{namespace}/{one.name}" for one in status.reserved_for or () if one.resource == "pods"),
        )

    def _device(self, result: DeviceResult, node: str | None) -> Device:
        key = (result.driver, result.pool, result.device)
        known = self._offered.get(key)
        if known is not None:
            return known
        match = _WHOLE_NAME.fullmatch(result.device) if result.driver == NVIDIA else None
        return Device(
            key,
            node=node or result.pool or None,
            whole=True if match else (False if "-mig-" in result.device else None),
            index=int(match["index"]) if match else None,
        )


def _newest(slices: Iterable[SliceObject]) -> dict[Key, Device]:
    """The devices of each pool's newest generation; older slices are left-overs of an update."""
    specs = [one.spec for one in slices if one.spec is not None and one.spec.pool is not None]
    newest: dict[tuple[str, str], int] = {}
    for spec in specs:
        if spec.pool is not None:
            pool = (spec.driver, spec.pool.name)
            newest[pool] = max(newest.get(pool, spec.pool.generation), spec.pool.generation)
    return {
        (spec.driver, spec.pool.name, device.name): _offered(
            spec.driver, spec.pool.name, spec.node_name, device
        )
        for spec in specs
        if spec.pool is not None and spec.pool.generation == newest[(spec.driver, spec.pool.name)]
        for device in spec.devices or ()
    }


def _offered(driver: str, pool: str, node: str | None, device: SliceDevice) -> Device:
    raw = device.attributes or (device.basic.attributes if device.basic else None) or {}
    attributes = {key.rpartition("/")[2]: _plain(value) for key, value in raw.items()}
    kind, uuid, index = attributes.get("type"), attributes.get("uuid"), attributes.get("index")
    parent, model = attributes.get("parentUUID"), attributes.get("productName")
    part = kind in _PARTS or parent is not None
    return Device(
        (driver, pool, device.name),
        node=node or pool,
        whole=False if part else (True if kind == "gpu" or _WHOLE_NAME.fullmatch(device.name) else None),
        gpu=uuid if isinstance(uuid, str) else None,
        index=index if isinstance(index, int) and not isinstance(index, bool) and not part else None,
        parent=parent if isinstance(parent, str) else None,
        model="-".join(model.lower().split()) if isinstance(model, str) else None,
    )


def _plain(attribute: Any) -> Any:
    """``{"string": "GPU-1"}`` -> ``GPU-1``; an attribute has one member, named by its type."""
    return next(iter(attribute.values()), None) if isinstance(attribute, dict) else None


def _selected(selector: Any) -> str | None:
    """The one node that an allocation's node selector names (``metadata.name``), else None."""
    names = {
        name
        for term in _members(selector, "nodeSelectorTerms")
        for one in _members(term, "matchFields")
        if isinstance(one, dict) and (one.get("key"), one.get("operator")) == ("metadata.name", "In")
        for name in _members(one, "values")
        if isinstance(name, str)
    }
    return names.pop() if len(names) == 1 else None


def _members(found: Any, key: str) -> list[Any]:
    value = found.get(key) if isinstance(found, dict) else None
    return value if isinstance(value, list) else []
