"""What a scheduler knows: nodes, jobs, who owns a drain. And the one protocol every backend implements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from fleet.marks import Mark


class NodeState(StrEnum):
    """One word per node; the order of precedence is the contract of ``sickbay collect slurm``."""

    IDLE = "idle"
    ALLOCATED = "allocated"
    MIXED = "mixed"
    DRAINING = "draining"
    DRAINED = "drained"
    DOWN = "down"
    RESERVED = "reserved"
    MAINTENANCE = "maintenance"
    REBOOTING = "rebooting"
    POWERED_DOWN = "powered_down"
    UNKNOWN = "unknown"


class Owner(StrEnum):
    """Who drained a node: nobody, we (our mark), or somebody else. Foreign drains are never touched."""

    NONE = "none"
    SICKBAY = "sickbay"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Reason:
    """The scheduler's single reason slot: text, who set it, when (epoch seconds)."""

    text: str
    user: str | None = None
    time: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """One node as its scheduler reports it.

    ``base`` and ``flags`` are the scheduler's own words (Slurm: base lower case, flags upper case).
    ``gpus_total`` counts physical GPUs, None if unknown. ``boot_time`` (epoch seconds) drifts by a
    second within one boot on Slurm, so it is a hint, not an epoch; ``boot_id`` is one where known.
    ``labels`` are Kubernetes' (pools may select by them).
    """

    name: str
    state: NodeState
    base: str = ""
    flags: tuple[str, ...] = ()
    uid: str | None = None
    boot_id: str | None = None
    machine_id: str | None = None
    partitions: tuple[str, ...] = ()
    gpus_total: int | None = None
    gpus_allocated: int | None = None
    gpu_types: Mapping[str, int] = field(default_factory=dict)
    gpu_types_allocated: Mapping[str, int] = field(default_factory=dict)
    gpu_resources: Mapping[str, int] = field(default_factory=dict)
    memory_free_bytes: int | None = None
    os: str | None = None
    owner: Owner = Owner.NONE
    reason: Reason | None = None
    comment: str | None = None
    extra: str | None = None
    ready: bool | None = None
    schedulable: bool = False
    boot_time: float | None = None
    reservation: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def has(self, flag: str) -> bool:
        return flag in self.flags

    @property
    def is_cordoned(self) -> bool:
        """New work is kept off by a drain (ours or foreign)."""
        return self.state in (NodeState.DRAINING, NodeState.DRAINED) or self.has("DRAIN") or self.has("FAIL")


class JobKind(StrEnum):
    BATCH = "batch"
    INTERACTIVE = "interactive"
    ARRAY_TASK = "array_task"
    HET = "het"
    POD = "pod"
    UNKNOWN = "unknown"


class GpuUse(StrEnum):
    EXCLUSIVE = "exclusive"
    SLICE = "slice"
    SHARED = "shared"
    CLAIM = "claim"
    NONE = "none"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ArrayRef:
    """An array element (``task``) or a pending rest (``tasks`` such as ``7-8``, ``limit`` from ``%N``)."""

    job: str
    task: int | None = None
    tasks: str | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """One job (or pod) as its scheduler reports it. ``id`` is what actions use (``700_3``, ``ns/pod``).

    ``raw_id`` is Slurm's plain number (array tasks have one of their own). ``state`` is Slurm's, lower
    case; COMPLETING wins over an ended base. ``state_reason`` and ``state_text`` are Slurm's words for
    why it waits (``JobHeldUser``, "job requeued in held state"). ``held``: its priority is 0, by
    whomever (a running job can be held too: it will not start again). ``eligible_at``: since when nothing
    but resources and priority kept it waiting. Times are epoch seconds.
    """

    id: str
    state: str
    raw_id: str | None = None
    array: ArrayRef | None = None
    name: str | None = None
    user: str | None = None
    nodes: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    gpus: int | None = None
    gpu_use: GpuUse = GpuUse.UNKNOWN
    requeue: bool | None = None
    kind: JobKind = JobKind.UNKNOWN
    time_left_seconds: float | None = None
    memory_bytes: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    failed_nodes: tuple[str, ...] = ()
    ended_at: float | None = None
    restarts: int = 0
    submitted_at: float | None = None
    begins_at: float | None = None
    eligible_at: float | None = None
    state_reason: str | None = None
    state_text: str | None = None
    excluded_nodes: tuple[str, ...] = ()
    required_nodes: tuple[str, ...] = ()
    comment: str | None = None
    held: bool | None = None

    @property
    def holds_nodes(self) -> bool:
        """Its processes may still be on its nodes."""
        return self.state in (
            "running",
            "completing",
            "suspended",
            "configuring",
            "stopped",
            "stage_out",
            "resizing",
            "signaling",
        )


@dataclass(frozen=True, slots=True)
class SchedulerSnapshot:
    """One read of the whole scheduler at ``taken_at`` (epoch seconds). Raised errors mean: unknown.

    ``problems`` are records that could not be understood; the nodes they belong to are absent, which
    is unknown, not gone.
    """

    taken_at: float
    nodes: Mapping[str, NodeRecord]
    jobs: tuple[JobRecord, ...]
    problems: tuple[str, ...] = ()

    def jobs_on(self, node: str) -> tuple[JobRecord, ...]:
        return tuple(job for job in self.jobs if node in job.nodes and job.holds_nodes)


class RequeueState(StrEnum):
    """One pass of bringing a job off a node. REFUSED: it may not be requeued; GONE: it has ended."""

    DONE = "done"
    IN_PROGRESS = "in_progress"
    REFUSED = "refused"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class RequeueOutcome:
    state: RequeueState
    reason: str


@dataclass(frozen=True, slots=True)
class RequeueRequest:
    """Bring ``job`` off ``node``. ``restarts`` and ``submitted_at`` are what the intent recorded: they
    tell this run of the job from a later one, and our hold from its user's. Without ``begin`` a job that
    still runs is left alone (REFUSED); only what was begun is brought to its end.
    """

    job: str
    node: str
    restarts: int
    submitted_at: float | None
    exclude_node: bool = True
    begin: bool = True


class SchedulerBackend(Protocol):
    """What the remediator may ask of a scheduler.

    Every call ends within its deadline and raises a ``BackendError`` when its outcome is not what was
    asked. ``cordon``, ``uncordon``, ``reboot`` and ``annotate`` read, decide, write, re-read: they
    return the node as it is afterwards, and do nothing (successfully) when it already is as wanted.

    - ``observe``: nodes and jobs, in as few scheduler calls as there are. Must end in time.
    - ``observe_node``: one node, fresh. NotFoundError if the scheduler does not know it.
    - ``cordon``: keep new work off under our mark. ConflictError if somebody else owns the drain.
    - ``requeue``: one convergent pass (never waits); called again while IN_PROGRESS.
    - ``reboot``: only a node cordoned under ``mark`` and empty, else ConflictError. Keeps our cordon.
      A reboot the scheduler has issued at or after ``ordered_at`` (epoch seconds, when the intent was
      written) is this one: it is not ordered twice.
    - ``uncordon``: only a cordon under ``mark``, else ConflictError.
    - ``annotate``: leave a note where it overwrites nobody's words. May fail and be tried later.
    """

    kind: str

    def observe(self) -> SchedulerSnapshot: ...

    def observe_node(self, node: str) -> NodeRecord: ...

    def cordon(self, node: str, mark: Mark) -> NodeRecord: ...

    def uncordon(self, node: str, mark: Mark) -> NodeRecord: ...

    def requeue(self, request: RequeueRequest) -> RequeueOutcome: ...

    def reboot(self, node: str, mark: Mark, *, ordered_at: float) -> NodeRecord: ...

    def annotate(self, node: str, text: str) -> NodeRecord: ...
