"""Slurm as an exporter's source: two calls through the one client, jobs as queue items."""

from __future__ import annotations

import re

from collector.exporters.classes import QueueState, SizeClass, WaitReason, size_class
from collector.exporters.model import QueueItem, SchedulerReading
from collector.slurm.client import SlurmClient
from collector.slurm.jobs import has_ended
from collector.slurm.queries import load_jobs, load_nodes
from fleet.clock import Clock
from fleet.scheduler import JobRecord

_STATES = {
    "pending": QueueState.PENDING,
    "requeued": QueueState.PENDING,
    "requeue_hold": QueueState.PENDING,
    "requeue_fed": QueueState.PENDING,
    "special_exit": QueueState.PENDING,
    "resv_del_hold": QueueState.PENDING,
    "configuring": QueueState.STARTING,
    "running": QueueState.RUNNING,
    "resizing": QueueState.RUNNING,
    "signaling": QueueState.RUNNING,
    "suspended": QueueState.SUSPENDED,
    "stopped": QueueState.SUSPENDED,
    "completing": QueueState.COMPLETING,
    "stage_out": QueueState.COMPLETING,
}
_HELD_STATES = frozenset({"requeue_hold", "special_exit", "resv_del_hold"})
# squeue(1), JOB REASON CODES.
_WAIT_REASONS = {
    "resources": WaitReason.RESOURCES,
    "priority": WaitReason.PRIORITY,
    "none": WaitReason.NOT_CONSIDERED,
    "begintime": WaitReason.BEGIN_TIME,
    "licenses": WaitReason.LICENSES,
    "jobheldadmin": WaitReason.HELD,
    "jobhelduser": WaitReason.HELD,
    "jobarraytasklimit": WaitReason.LIMITS,
    "partitiontimelimit": WaitReason.LIMITS,
    "partitionnodelimit": WaitReason.LIMITS,
    "nodedown": WaitReason.NODES_UNAVAILABLE,
    "partitiondown": WaitReason.NODES_UNAVAILABLE,
    "partitioninactive": WaitReason.NODES_UNAVAILABLE,
}
_WAIT_PREFIXES = (
    ("dependency", WaitReason.DEPENDENCY),
    ("reqnodenotavail", WaitReason.NODES_UNAVAILABLE),
    ("reservation", WaitReason.RESERVATION),
    ("qos", WaitReason.LIMITS),
    ("assoc", WaitReason.LIMITS),
    ("max", WaitReason.LIMITS),
)
_TASK_SPAN = re.compile(r"^(\d{1,10})(?:-(\d{1,10})(?::(\d{1,10}))?)?$")


class SlurmSource:
    """All nodes, then all jobs. Both must answer: a queue without its nodes is no picture."""

    kind = "slurm"

    def __init__(self, client: SlurmClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    def read(self) -> SchedulerReading:
        """Raises a BackendError. 22.05's empty list beside ``errors`` (exit code 0) is one."""
        nodes = load_nodes(self._client, now=self._clock.now())
        jobs = load_jobs(self._client, now=self._clock.now())
        return SchedulerReading(
            nodes=nodes.nodes,
            items=tuple(queue_item(job) for job in jobs.jobs),
            problems=sum(problem.count for problem in (*nodes.problems, *jobs.problems)),
        )

    def close(self) -> None:
        """Nothing is held between two reads."""


def queue_item(job: JobRecord) -> QueueItem:
    """One record of ``squeue --json`` as a queue item."""
    state = QueueState.ENDED if has_ended(job.state) else _STATES.get(job.state, QueueState.UNKNOWN)
    size = size_class(job.gpus, job.gpu_use)
    pending = state is QueueState.PENDING
    # A job that was cancelled while it waited has a start time as well, but no nodes.
    started = not pending and bool(job.nodes)
    return QueueItem(
        run=(job.id, job.raw_id or "", str(job.submitted_at), str(job.restarts)),
        partitions=job.partitions,
        state=state,
        size=size,
        gpus=job.gpus if size is SizeClass.CPU or size.is_counted else None,
        count=task_count(job) if pending else 1,
        reason=wait_reason(job) if pending else None,
        eligible_at=job.eligible_at,
        started=started,
        wait_seconds=_waited(job) if started else None,
    )


def _waited(job: JobRecord) -> float | None:
    """Start minus eligible, by slurmctld's own clock. Negative: the eligible time is not this run's."""
    if job.begins_at is None or job.eligible_at is None or job.begins_at < job.eligible_at:
        return None
    return job.begins_at - job.eligible_at


def wait_reason(job: JobRecord) -> WaitReason:
    """Why a pending job waits. A job of priority 0 is held, whatever its last reason was."""
    word = (job.state_reason or "none").partition(",")[0].strip().lower()
    known = _WAIT_REASONS.get(word) or next(
        (reason for prefix, reason in _WAIT_PREFIXES if word.startswith(prefix)), WaitReason.OTHER
    )
    if known.by_choice:
        return known  # a dependency or a begin time may come with priority 0, and says more
    return WaitReason.HELD if job.held or job.state in _HELD_STATES else known


def task_count(job: JobRecord) -> int:
    """How many jobs a record stands for: the pending rest of an array (``7-8,11-15:2``) is one record.

    Slurm cuts long lists (``1-5,8,...``): what is left of them is counted, so this may be too low there.
    """
    if job.array is None or not job.array.tasks:
        return 1
    tasks = 0
    for part in job.array.tasks.strip("[]").split(","):
        span = _TASK_SPAN.match(part.strip())
        if span is not None:
            first, last, step = int(span[1]), int(span[2] or span[1]), int(span[3] or 1)
            tasks += len(range(first, last + 1, max(1, step)))
    return max(1, tasks)
