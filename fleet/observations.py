"""What a source can say: samples, events, processes, allocations, and problems of the source itself.

Field names and their JSON form are the contract of ``sickbay collect`` (docs/collect.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fleet.identity import MigInstance
from fleet.scheduler import JobRecord, NodeRecord


class EventKind(StrEnum):
    XID = "xid"
    SXID = "sxid"
    GPU_LOST = "gpu_lost"
    PCIE_AER = "pcie_aer"
    MACHINE_CHECK = "machine_check"
    DRIVER_FAULT = "driver_fault"
    BOOT = "boot"
    NIC = "nic"
    OTHER = "other"


class TimeSource(StrEnum):
    """Where an event's time comes from: the line, boot time + uptime offset, or when we received it."""

    LINE = "line"
    UPTIME = "uptime"
    RECEIVED = "received"


class RecoveryAction(StrEnum):
    """What the driver recommends (XID 154; open-gpu-kernel-modules ``gpu.c`` names the values)."""

    NONE = "none"
    GPU_RESET = "gpu_reset"
    NODE_REBOOT = "node_reboot"
    DRAIN_P2P = "drain_p2p"
    DRAIN_AND_RESET = "drain_and_reset"
    RECOVER_IMEX_DOMAIN = "recover_imex_domain"
    UNKNOWN = "unknown"


class ProblemReason(StrEnum):
    """Why a source, or a part of it, could not be used. A closed list."""

    UNTRUSTED = "untrusted"
    RESET_REQUIRED = "reset_required"
    TOOL_MISSING = "tool_missing"
    TIMEOUT = "timeout"
    DRIVER_LIBRARY_MISMATCH = "driver_library_mismatch"
    DRIVER_NOT_LOADED = "driver_not_loaded"
    NO_DEVICES = "no_devices"
    GPU_LOST = "gpu_lost"
    UNREADABLE = "unreadable"
    TRUNCATED = "truncated"
    PERMISSION_DENIED = "permission_denied"
    CONTROLLER_UNREACHABLE = "controller_unreachable"
    PARTIAL = "partial"
    QUERY_ERROR = "query_error"
    CONFLICT = "conflict"
    INCONSISTENT = "inconsistent"
    UNRECOGNISED_VALUE = "unrecognised_value"
    TOO_LARGE = "too_large"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One value of one signal, in base units (signals.csv), at epoch seconds ``time``."""

    node: str | None
    signal: str
    value: float
    time: float
    gpu: str | None = None
    index: int | None = None
    pci: str | None = None
    mig: MigInstance | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One discrete occurrence. ``count`` > 1: repeats within 5 s, or "message repeated N times".

    ``boot_id`` is the epoch the event belongs to where its source says so (journald, the agent).
    ``fatal`` is what the line itself says (SXID, NVLink 5, AER, machine check), never our judgement.
    ``uncertain``: a torn line; never acted on.
    """

    kind: EventKind
    node: str | None
    time: float
    time_source: TimeSource = TimeSource.LINE
    code: int | None = None
    gpu: str | None = None
    pci: str | None = None
    mig: MigInstance | None = None
    pid: int | None = None
    process: str | None = None
    cause: int | None = None
    link: int | None = None
    unit: str | None = None
    registers: tuple[str, ...] = ()
    fatal: bool | None = None
    recovery_action: RecoveryAction | None = None
    uncertain: bool = False
    count: int = 1
    message: str = ""
    boot_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that holds a GPU; memory in bytes or None."""

    node: str | None
    gpu: str | None
    pid: int
    time: float
    name: str | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Which jobs and pods hold a GPU."""

    node: str | None
    gpu: str | None
    index: int | None = None
    mig: MigInstance | None = None
    jobs: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A source, or a record of it, could not be used: unknown, never healthy and never sick."""

    source: str
    reason: ProblemReason
    message: str
    node: str | None = None
    gpu: str | None = None
    index: int | None = None
    pci: str | None = None
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRecord:
    """One alert of an Alertmanager notification, its node resolved against the inventory only."""

    name: str | None
    status: str
    node: str | None
    unresolved: str | None = None
    gpu: str | None = None
    index: int | None = None
    severity: str | None = None
    starts_at: str | None = None
    ends_at: str | None = None
    fingerprint: str | None = None


Record = Sample | Event | GpuProcess | Allocation | Problem | NodeRecord | JobRecord | AlertRecord


@dataclass(frozen=True, slots=True)
class Reading:
    """One pass over one source. ``ok`` is False when nothing could be read at all."""

    records: tuple[Record, ...] = ()
    ok: bool = True

    @property
    def samples(self) -> tuple[Sample, ...]:
        return tuple(r for r in self.records if isinstance(r, Sample))

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(r for r in self.records if isinstance(r, Event))

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(r for r in self.records if isinstance(r, Problem))

    @property
    def nodes(self) -> tuple[NodeRecord, ...]:
        return tuple(r for r in self.records if isinstance(r, NodeRecord))

    @property
    def jobs(self) -> tuple[JobRecord, ...]:
        return tuple(r for r in self.records if isinstance(r, JobRecord))
