"""The simulated scheduler's books: node states, queue, reboots. Slurm's semantics, no rights and no failures.

Rules follow scontrol(1), sinfo(1) and what Debian's Slurm 22.05 was seen to do: state is a base plus
flags, the reason is one slot, a reboot keeps DRAIN and appends to the reason, and a node that registers
with fewer GPUs than configured gets INVALID_REG and keeps an earlier reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fleet.errors import NotFoundError, RefusedError
from fleet.marks import parse_mark
from fleet.scheduler import ArrayRef, JobKind, NodeRecord, NodeState, Owner, Reason
from simulator.fleet import SimulatedFleet, SimulatedNode
from simulator.jobs import JobSpec, SimulatedJob

PARTITION = "gpu"
GPU_TYPE = "h100"
COMPLETING_SECONDS = 1.0
REQUEUE_DELAY_SECONDS = 3.0
REBOOT_ISSUED_SUFFIX = " : reboot issued"
ENDED_JOBS_KEPT_SECONDS = 3600.0


@dataclass(slots=True, kw_only=True)
class NodeBooks:
    """What the scheduler itself knows about a node, beside its jobs."""

    name: str
    drain: bool = False
    down: bool = False
    invalid_registration: bool = False
    reboot_issued: bool = False
    maintenance: bool = False
    reason: Reason | None = None
    comment: str | None = None
    boot_id: str = ""


class ClusterState:
    """Nodes' states and the queue at the time of the last ``tick``. Not thread-safe: its owner locks."""

    def __init__(self, fleet: SimulatedFleet, *, our_user: str, reboot_seconds: float) -> None:
        self._fleet = fleet
        self._clock = fleet.clock
        self._our_user = our_user
        self._reboot_seconds = reboot_seconds
        self.books = {name: NodeBooks(name=name, boot_id=fleet.node(name).boot_id) for name in fleet.names}
        self.jobs: dict[str, SimulatedJob] = {}
        self._next_id = 1

    # -- reading

    def node_books(self, name: str) -> NodeBooks:
        """NotFoundError for anything that is not exactly one known node's name."""
        try:
            return self.books[name]
        except KeyError:
            raise NotFoundError(f"the scheduler knows no node {name!r}") from None

    def find_job(self, job_id: str) -> SimulatedJob:
        try:
            return self.jobs[job_id]
        except KeyError:
            raise NotFoundError(f"the scheduler knows no job {job_id!r}") from None

    def jobs_on(self, name: str) -> list[SimulatedJob]:
        return [job for job in self.jobs.values() if job.on_nodes and name in job.nodes]

    def record(self, name: str) -> NodeRecord:
        return self._record(self.node_books(name), self.jobs_on(name))

    def records(self) -> dict[str, NodeRecord]:
        """All nodes, in one pass over the queue."""
        by_node = self._jobs_by_node()
        return {name: self._record(books, by_node.get(name, [])) for name, books in self.books.items()}

    def _jobs_by_node(self) -> dict[str, list[SimulatedJob]]:
        by_node: dict[str, list[SimulatedJob]] = {}
        for job in self.jobs.values():
            for name in job.nodes if job.on_nodes else ():
                by_node.setdefault(name, []).append(job)
        return by_node

    def _record(self, books: NodeBooks, jobs: list[SimulatedJob]) -> NodeRecord:
        name = books.name
        node = self._fleet.node(name)
        used = sum(job.spec.gpus_per_node for job in jobs)
        base, flags = _base(books, jobs, used, len(node.gpus)), _flags(books, jobs)
        state = _state(base, flags)
        return NodeRecord(
            name=name,
            state=state,
            base=base,
            flags=flags,
            machine_id=node.machine_id,
            partitions=(PARTITION,),
            gpus_total=len(node.gpus),
            gpus_allocated=used,
            gpu_types={GPU_TYPE: len(node.gpus)},
            owner=self._owner(books),
            reason=books.reason,
            comment=books.comment,
            schedulable=self._schedulable(books),
            boot_time=node.boot_time,
        )

    # -- nodes

    def drain(self, name: str, text: str, user: str) -> None:
        """Set DRAIN and the reason; as in Slurm the same text again keeps the earlier user and time."""
        books = self.node_books(name)
        books.drain = True
        if books.reason is None or books.reason.text != text:
            books.reason = Reason(text=text, user=user, time=self._clock.now())

    def undrain(self, name: str) -> None:
        """UNDRAIN: clears DRAIN only; refused while the registration is invalid."""
        books = self.node_books(name)
        if books.invalid_registration:
            raise RefusedError(f"{name}: Invalid node state specified (INVALID_REG)")
        books.drain = False
        if not books.down:
            books.reason = None

    def rebooted_since(self, name: str, ordered_at: float) -> bool:
        """True if a reboot was issued at or after ``ordered_at``: the reason's suffix and time say so."""
        reason = self.node_books(name).reason
        if reason is None or reason.time is None:
            return False
        return reason.text.endswith(REBOOT_ISSUED_SUFFIX) and reason.time >= ordered_at

    def reboot(self, name: str) -> None:
        """Plain ``scontrol reboot`` of an idle node: down now, DRAIN kept, suffix appended to the reason.

        A reason that has the suffix from an earlier reboot is replaced as a whole (seen on 22.05.8): who
        orders a second reboot must write the mark again first, or loses it.
        """
        books = self.node_books(name)
        books.reboot_issued = books.down = True
        if books.reason is not None:
            repeated = books.reason.text.endswith(REBOOT_ISSUED_SUFFIX)
            text = "reboot issued" if repeated else books.reason.text + REBOOT_ISSUED_SUFFIX
            books.reason = replace(books.reason, text=text, time=self._clock.now())
        self._fleet.reboot(name, self._reboot_seconds)

    # -- jobs

    def submit(self, spec: JobSpec) -> SimulatedJob:
        raw_id = self._take_id()
        return self._add(SimulatedJob(id=raw_id, raw_id=raw_id, spec=spec, submitted_at=self._clock.now()))

    def submit_array(self, spec: JobSpec, tasks: int) -> list[SimulatedJob]:
        """``tasks`` elements ``<job>_0``..; each has a plain number of its own, as Slurm gives it."""
        job_id = self._take_id()
        elements = []
        for task in range(tasks):
            raw_id = job_id if task == tasks - 1 else self._take_id()
            job = SimulatedJob(
                id=f"{job_id}_{task}",
                raw_id=raw_id,
                array=ArrayRef(job=job_id, task=task),
                spec=replace(spec, kind=JobKind.ARRAY_TASK),
                submitted_at=self._clock.now(),
            )
            elements.append(self._add(job))
        return elements

    def requeue_hold(self, job: SimulatedJob) -> None:
        """``scontrol requeuehold Incomplete``: batch jobs that run and may be requeued, else RefusedError."""
        if not job.spec.requeue:
            raise RefusedError(f"job {job.id}: Requested operation is presently disabled (no requeue)")
        if job.spec.kind not in (JobKind.BATCH, JobKind.ARRAY_TASK):
            raise RefusedError(f"job {job.id}: Only batch jobs are accepted or processed")
        if job.state != "running":
            raise RefusedError(f"job {job.id} is {job.state}, not running")
        job.state = "completing"
        job.after_completing = "pending"
        job.completes_at = self._clock.now() + COMPLETING_SECONDS
        job.requeue_held = not job.held  # a hold that was there before is its user's
        job.held = True

    def release(self, job: SimulatedJob) -> None:
        """Lift a hold; a requeued job begins a little later."""
        job.held = job.requeue_held = False
        if job.restarts:
            job.begins_at = self._clock.now() + REQUEUE_DELAY_SECONDS

    def end_job(self, job: SimulatedJob, state: str, *, exit_code: int) -> None:
        """Bring a job to its end now: ``completed``, ``failed``, ``cancelled`` ..."""
        job.exit_code = exit_code
        if job.state == "running":
            job.state, job.after_completing = "completing", state
            job.completes_at = self._clock.now() + COMPLETING_SECONDS
        elif job.state == "completing":
            job.after_completing = state
        elif job.state == "pending":
            job.state, job.ended_at = state, self._clock.now()

    # -- time

    def tick(self) -> None:
        """Bring everything to the clock's present. Doing it twice at one time changes nothing."""
        self._fleet.tick()
        for books in self.books.values():
            self._follow_hardware(books)
        now = self._clock.now()
        for job in self.jobs.values():
            self._follow_job(job, now)
        self._forget_ended(now)
        self._schedule(now)

    # -- inside

    def _owner(self, books: NodeBooks) -> Owner:
        if not books.drain:
            return Owner.NONE
        reason = books.reason
        ours = reason is not None and reason.user == self._our_user and parse_mark(reason.text) is not None
        return Owner.SICKBAY if ours else Owner.FOREIGN

    @staticmethod
    def _schedulable(books: NodeBooks) -> bool:
        return not (books.drain or books.down or books.invalid_registration or books.maintenance)

    def _follow_hardware(self, books: NodeBooks) -> None:
        node: SimulatedNode = self._fleet.node(books.name)
        if node.boot_id == books.boot_id or not node.up:
            return
        books.boot_id = node.boot_id
        books.reboot_issued = books.down = False
        self.register(books.name)

    def register(self, name: str) -> None:
        """The node's daemon tells what it has; less than configured is INVALID_REG and drains the node.

        Slurm looks at the GPUs only then: one that is lost later goes unnoticed until the next start.
        """
        books, node = self.node_books(name), self._fleet.node(name)
        missing = len(node.gpus) - len(node.present_gpus)
        books.invalid_registration = missing > 0
        if missing:
            if not books.drain:
                counts = f"{len(node.present_gpus)} < {len(node.gpus)}"
                text = f"gres/gpu count reported lower than configured ({counts})"
                books.reason = Reason(text=text, user="slurm", time=self._clock.now())
            books.drain = True

    def _follow_job(self, job: SimulatedJob, now: float) -> None:
        if job.state == "running" and job.started_at is not None:
            ends_at = job.started_at + job.spec.seconds
            if now >= ends_at:
                job.state, job.after_completing, job.exit_code = "completing", "completed", 0
                job.completes_at = ends_at + COMPLETING_SECONDS
        if job.state == "completing" and job.completes_at is not None and now >= job.completes_at:
            self._leave_nodes(job)

    def _leave_nodes(self, job: SimulatedJob) -> None:
        job.state = job.after_completing
        if job.state == "pending":
            job.nodes, job.started_at = (), None
            job.restarts += 1
            job.begins_at = (job.completes_at or 0.0) + REQUEUE_DELAY_SECONDS
        else:
            job.ended_at = job.completes_at
        job.completes_at = None

    def _forget_ended(self, now: float) -> None:
        old = now - ENDED_JOBS_KEPT_SECONDS
        for job_id in [j.id for j in self.jobs.values() if j.ended_at is not None and j.ended_at < old]:
            del self.jobs[job_id]

    def _schedule(self, now: float) -> None:
        by_node = self._jobs_by_node()
        free = {
            name: self._fleet.gpus_per_node - sum(job.spec.gpus_per_node for job in by_node.get(name, ()))
            for name, books in self.books.items()
            if self._schedulable(books)
        }
        for job in self.jobs.values():
            if job.state != "pending" or job.held or (job.begins_at is not None and now < job.begins_at):
                continue
            chosen = _choose(job, free)
            if chosen is None:
                continue
            for name in chosen:
                free[name] -= job.spec.gpus_per_node
            job.state, job.nodes, job.started_at, job.begins_at = "running", chosen, now, None

    def _add(self, job: SimulatedJob) -> SimulatedJob:
        job.held = job.spec.held
        job.excluded_nodes = job.spec.excluded_nodes
        self.jobs[job.id] = job
        return job

    def _take_id(self) -> str:
        taken, self._next_id = self._next_id, self._next_id + 1
        return str(taken)


def _choose(job: SimulatedJob, free: dict[str, int]) -> tuple[str, ...] | None:
    """The nodes a job starts on, or None while they are not there. Fullest first, so gangs find room."""
    wanted = job.spec.gpus_per_node
    required = job.spec.required_nodes
    usable = [n for n, gpus in free.items() if gpus >= max(wanted, 1) and n not in job.excluded_nodes]
    if any(name not in usable for name in required):
        return None
    rest = sorted((n for n in usable if n not in required), key=lambda name: free[name])
    chosen = (*required, *rest)[: max(job.spec.nodes, len(required))]
    return tuple(sorted(chosen)) if len(chosen) >= job.spec.nodes else None


def _base(books: NodeBooks, jobs: Iterable[SimulatedJob], used: int, total: int) -> str:
    if books.down:
        return "down"
    running = [job for job in jobs if job.state == "running"]
    if not running:
        return "idle"
    return "allocated" if used >= total else "mixed"


def _flags(books: NodeBooks, jobs: Iterable[SimulatedJob]) -> tuple[str, ...]:
    flags = {
        "DRAIN": books.drain,
        "COMPLETING": any(job.state == "completing" for job in jobs),
        "INVALID_REG": books.invalid_registration,
        "MAINTENANCE": books.maintenance,
        "REBOOT_ISSUED": books.reboot_issued,
    }
    return tuple(flag for flag, is_set in flags.items() if is_set)


def _state(base: str, flags: tuple[str, ...]) -> NodeState:
    """The closed list's word, in the order of precedence of ``sickbay collect slurm``."""
    busy = base in ("allocated", "mixed") or "COMPLETING" in flags
    words = [
        ("REBOOT_ISSUED" in flags, NodeState.REBOOTING),
        (base == "down", NodeState.DOWN),
        ("DRAIN" in flags and busy, NodeState.DRAINING),
        ("DRAIN" in flags, NodeState.DRAINED),
        ("INVALID_REG" in flags, NodeState.UNKNOWN),
        ("MAINTENANCE" in flags, NodeState.MAINTENANCE),
        (base == "allocated" or "COMPLETING" in flags, NodeState.ALLOCATED),
        (base == "mixed", NodeState.MIXED),
    ]
    return next((state for holds, state in words if holds), NodeState.IDLE)
