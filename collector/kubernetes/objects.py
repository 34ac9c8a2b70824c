"""The parts of API objects that are read, and nothing else. Unknown fields are skipped while decoding.

Field meanings: Kubernetes API reference v1 (Node, Pod), resource.k8s.io (ResourceClaim, ResourceSlice),
meta/v1 (Status, ListMeta). Everything may be null or missing in real answers, so everything has a default
but names.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct


class OwnerReference(Struct, rename="camel", frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ManagedFields(Struct, rename="camel", frozen=True):
    """Who set which fields. ``fields_v1`` stays undecoded: it is large and rarely asked."""

    manager: str = ""
    operation: str = ""
    subresource: str | None = None
    time: str | None = None
    fields_v1: Raw = msgspec.field(name="fieldsV1", default=Raw(b"{}"))


class Metadata(Struct, rename="camel", frozen=True):
    name: str
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    finalizers: list[str] | None = None
    owner_references: list[OwnerReference] | None = None
    managed_fields: list[ManagedFields] | None = None


class Taint(Struct, rename="camel", frozen=True):
    key: str
    value: str | None = None
    effect: str = ""
    time_added: str | None = None


class Condition(Struct, rename="camel", frozen=True):
    type: str
    status: str = "Unknown"
    last_heartbeat_time: str | None = None
    last_transition_time: str | None = None
    reason: str | None = None
    message: str | None = None


class NodeSpec(Struct, rename="camel", frozen=True):
    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeInfo(Struct, frozen=True):
    boot_id: str | None = msgspec.field(name="bootID", default=None)
    machine_id: str | None = msgspec.field(name="machineID", default=None)
    os_image: str | None = msgspec.field(name="osImage", default=None)


class NodeStatus(Struct, rename="camel", frozen=True):
    capacity: dict[str, Any] | None = None
    allocatable: dict[str, Any] | None = None
    conditions: list[Condition] | None = None
    node_info: NodeInfo | None = None


class NodeObject(Struct, frozen=True):
    metadata: Metadata
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class Resources(Struct, frozen=True):
    limits: dict[str, Any] | None = None
    requests: dict[str, Any] | None = None
    claims: list[dict[str, Any]] | None = None


class Container(Struct, rename="camel", frozen=True):
    name: str = ""
    resources: Resources | None = None
    restart_policy: str | None = None


class Toleration(Struct, rename="camel", frozen=True):
    key: str | None = None
    operator: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class EmptyDir(Struct, frozen=True):
    medium: str | None = None


class Volume(Struct, rename="camel", frozen=True):
    name: str = ""
    empty_dir: EmptyDir | None = None


class PodClaim(Struct, rename="camel", frozen=True):
    name: str = ""
    resource_claim_name: str | None = None


class PodSpec(Struct, rename="camel", frozen=True):
    node_name: str | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    tolerations: list[Toleration] | None = None
    volumes: list[Volume] | None = None
    scheduling_gates: list[dict[str, Any]] | None = None
    resource_claims: list[PodClaim] | None = None
    active_deadline_seconds: int | None = None
    termination_grace_period_seconds: int | None = None
    overhead: dict[str, Any] | None = None
    resources: Resources | None = None


class Terminated(Struct, rename="camel", frozen=True):
    exit_code: int | None = None
    signal: int | None = None
    finished_at: str | None = None


class ContainerState(Struct, frozen=True):
    terminated: Terminated | None = None
    running: dict[str, Any] | None = None


class AllocatedDevice(Struct, frozen=True):
    resource_id: str | None = msgspec.field(name="resourceID", default=None)
    health: str | None = None


class AllocatedResource(Struct, frozen=True):
    name: str = ""
    resources: list[AllocatedDevice] | None = None


class ContainerStatus(Struct, rename="camel", frozen=True):
    name: str = ""
    restart_count: int = 0
    state: ContainerState | None = None
    allocated_resources_status: list[AllocatedResource] | None = None


class ClaimStatus(Struct, rename="camel", frozen=True):
    name: str = ""
    resource_claim_name: str | None = None


class PodStatus(Struct, rename="camel", frozen=True):
    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    start_time: str | None = None
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resource_claim_statuses: list[ClaimStatus] | None = None


class PodObject(Struct, frozen=True):
    metadata: Metadata
    spec: PodSpec | None = None
    status: PodStatus | None = None

    @property
    def id(self) -> str:
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"


class DeviceResult(Struct, rename="camel", frozen=True):
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None


class DeviceAllocation(Struct, frozen=True):
    results: list[DeviceResult] | None = None


class ClaimAllocation(Struct, rename="camel", frozen=True):
    devices: DeviceAllocation | None = None
    node_selector: Any = None


class ClaimConsumer(Struct, frozen=True):
    resource: str = ""
    name: str = ""


class ResourceClaimStatus(Struct, rename="camel", frozen=True):
    allocation: ClaimAllocation | None = None
    reserved_for: list[ClaimConsumer] | None = None


class ClaimObject(Struct, frozen=True):
    metadata: Metadata
    status: ResourceClaimStatus | None = None

    @property
    def id(self) -> str:
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"


class BasicDevice(Struct, frozen=True):
    attributes: dict[str, Any] | None = None


class SliceDevice(Struct, frozen=True):
    """``basic`` holds the attributes in v1alpha3 and v1beta1; from v1beta2 on they stand by themselves."""

    name: str = ""
    basic: BasicDevice | None = None
    attributes: dict[str, Any] | None = None


class ResourcePool(Struct, frozen=True):
    name: str = ""
    generation: int = 0


class ResourceSliceSpec(Struct, rename="camel", frozen=True):
    driver: str = ""
    pool: ResourcePool | None = None
    node_name: str | None = None
    devices: list[SliceDevice] | None = None


class SliceObject(Struct, frozen=True):
    metadata: Metadata
    spec: ResourceSliceSpec | None = None


class DaemonSetObject(Struct, frozen=True):
    metadata: Metadata


class StatusCause(Struct, frozen=True):
    reason: str = ""
    message: str = ""


class StatusDetails(Struct, rename="camel", frozen=True):
    name: str | None = None
    kind: str | None = None
    causes: list[StatusCause] | None = None
    retry_after_seconds: int | None = None


class StatusObject(Struct, frozen=True):
    """meta/v1 Status: what the API server says instead of an object."""

    kind: str = ""
    status: str | None = None
    message: str | None = None
    reason: str | None = None
    details: StatusDetails | None = None
    code: int | None = None


class ListMeta(Struct, rename="camel", frozen=True):
    resource_version: str | None = None
    continue_: str | None = msgspec.field(name="continue", default=None)
    remaining_item_count: int | None = None


class ListObject(Struct, frozen=True):
    """A list with its items undecoded, so that one bad item costs itself only. ``items`` may be null."""

    kind: str = ""
    metadata: ListMeta | None = None
    items: list[Raw] | None = None
