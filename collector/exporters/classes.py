"""The closed lists that labels are taken from: states of jobs, their sizes, why they wait, where GPUs are.

A label never carries free text, a job id or a user: series must stay few, and be the same ones tomorrow.
"""

from __future__ import annotations

from enum import StrEnum

from fleet.scheduler import GpuUse


class SizeClass(StrEnum):
    """A job by the whole GPUs it asks for. An eight-GPU node ends the third class.

    PART: MIG slices or shares, which are no GPUs. UNKNOWN: nobody says how many.
    """

    CPU = "cpu"
    ONE = "1"
    UP_TO_8 = "2-8"
    UP_TO_64 = "9-64"
    UP_TO_512 = "65-512"
    LARGE = "513+"
    PART = "part"
    UNKNOWN = "unknown"

    @property
    def is_counted(self) -> bool:
        """Its jobs ask for a known number of whole GPUs."""
        return self not in (SizeClass.CPU, SizeClass.PART, SizeClass.UNKNOWN)


_BOUNDS = (
    (0, SizeClass.CPU),
    (1, SizeClass.ONE),
    (8, SizeClass.UP_TO_8),
    (64, SizeClass.UP_TO_64),
    (512, SizeClass.UP_TO_512),
)


def size_class(gpus: int | None, use: GpuUse) -> SizeClass:
    """The class of a job with ``gpus`` GPUs, held as ``use``."""
    if use in (GpuUse.SLICE, GpuUse.SHARED):
        return SizeClass.PART
    if gpus is None:
        return SizeClass.UNKNOWN
    return next((size for bound, size in _BOUNDS if gpus <= bound), SizeClass.LARGE)


class QueueState(StrEnum):
    """Where a job or pod stands. ENDED ones are no part of the queue: they only tell that they started."""

    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    SUSPENDED = "suspended"
    COMPLETING = "completing"
    UNKNOWN = "unknown"
    ENDED = "ended"


LIVING = tuple(state for state in QueueState if state is not QueueState.ENDED)


class WaitReason(StrEnum):
    """Why a pending job waits, in groups that call for one answer each."""

    RESOURCES = "resources"
    PRIORITY = "priority"
    NODES_UNAVAILABLE = "nodes_unavailable"
    LIMITS = "limits"
    RESERVATION = "reservation"
    LICENSES = "licenses"
    HELD = "held"
    DEPENDENCY = "dependency"
    BEGIN_TIME = "begin_time"
    NOT_CONSIDERED = "not_considered"
    OTHER = "other"

    @property
    def by_choice(self) -> bool:
        """Whoever submitted it (or an admin) wants it to wait: no sign of a short cluster."""
        return self in (WaitReason.HELD, WaitReason.DEPENDENCY, WaitReason.BEGIN_TIME)


class GpuStatus(StrEnum):
    """ALLOCATED: a job holds it. IDLE: free on a node that takes work. UNAVAILABLE: neither."""

    ALLOCATED = "allocated"
    IDLE = "idle"
    UNAVAILABLE = "unavailable"


class OutReason(StrEnum):
    """Why a GPU that nobody holds takes no work; NONE beside ``allocated`` and ``idle``.

    SICKBAY and FOREIGN: its node is drained, by us or by anybody else. INVALID_REGISTRATION: a Slurm node
    registered with less than is configured (a lost GPU does that). WITHDRAWN: Kubernetes' device plugin took
    it back. NOT_SCHEDULABLE: the scheduler starts nothing there, and none of the other reasons says why.
    UNKNOWN: the scheduler itself does not know (a node that does not answer), or does not say how many of
    the node's GPUs are in use.
    """

    NONE = "none"
    SICKBAY = "drained_by_sickbay"
    FOREIGN = "drained_by_others"
    DOWN = "down"
    INVALID_REGISTRATION = "invalid_registration"
    REBOOTING = "rebooting"
    RESERVED = "reserved"
    MAINTENANCE = "maintenance"
    POWERED_DOWN = "powered_down"
    WITHDRAWN = "withdrawn"
    NOT_SCHEDULABLE = "not_schedulable"
    UNKNOWN = "unknown"
