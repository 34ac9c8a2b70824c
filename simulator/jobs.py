"""Simulated jobs: what a user asked for, and what has become of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleet.scheduler import ArrayRef, GpuUse, JobKind, JobRecord

# Slurm's words (squeue --json ``state_reason``; slurm_protocol_defs.c and job_mgr.c, 22.05).
HELD_REASON = "JobHeldUser"
REQUEUE_HOLD_TEXT = "job requeued in held state"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What is submitted. ``seconds``: how long it runs when nothing disturbs it."""

    name: str = "train"
    user: str = "alice"
    nodes: int = 1
    gpus_per_node: int = 8
    seconds: float = 3600.0
    requeue: bool = True
    kind: JobKind = JobKind.BATCH
    required_nodes: tuple[str, ...] = ()
    excluded_nodes: tuple[str, ...] = ()
    held: bool = False


@dataclass(slots=True, kw_only=True)
class SimulatedJob:
    """One job in the queue, running, or ended. Times are epoch seconds.

    ``held``: priority 0, whoever asked for it (a running job too: it will not start again);
    ``requeue_held``: it was requeued into a hold that it did not have before.
    ``completes_at``: the end of its COMPLETING phase, in which its processes still leave the nodes.
    """

    id: str
    raw_id: str
    spec: JobSpec
    submitted_at: float
    array: ArrayRef | None = None
    state: str = "pending"
    nodes: tuple[str, ...] = ()
    started_at: float | None = None
    ended_at: float | None = None
    begins_at: float | None = None
    completes_at: float | None = None
    after_completing: str = "pending"
    restarts: int = 0
    held: bool = False
    requeue_held: bool = False
    exit_code: int | None = None
    excluded_nodes: tuple[str, ...] = field(default_factory=tuple)
    failed_nodes: tuple[str, ...] = ()

    @property
    def on_nodes(self) -> bool:
        return self.state in ("running", "completing")

    @property
    def ended(self) -> bool:
        return self.state not in ("pending", "running", "completing")

    def record(self, now: float) -> JobRecord:
        """The job as a scheduler's reader reports it."""
        left = None
        if self.state == "running" and self.started_at is not None:
            left = max(0.0, self.started_at + self.spec.seconds - now)
        gpus = self.spec.gpus_per_node * self.spec.nodes
        return JobRecord(
            id=self.id,
            raw_id=self.raw_id,
            array=self.array,
            state=self.state,
            name=self.spec.name,
            user=self.spec.user,
            nodes=self.nodes if self.on_nodes or self.ended else (),
            partitions=("gpu",),
            gpus=gpus,
            gpu_use=GpuUse.EXCLUSIVE if gpus else GpuUse.NONE,
            requeue=self.spec.requeue,
            kind=self.spec.kind,
            time_left_seconds=left,
            exit_code=self.exit_code,
            failed_nodes=self.failed_nodes,
            ended_at=self.ended_at,
            restarts=self.restarts,
            submitted_at=self.submitted_at,
            begins_at=self.begins_at,
            state_reason=self._state_reason(now),
            state_text=REQUEUE_HOLD_TEXT if self.requeue_held and self.held else None,
            excluded_nodes=self.excluded_nodes,
            held=self.held,
            required_nodes=self.spec.required_nodes,
        )

    def _state_reason(self, now: float) -> str | None:
        if self.state != "pending":
            return None
        if self.held:
            return HELD_REASON
        if self.begins_at is not None and now < self.begins_at:
            return "BeginTime"
        return "Resources"
