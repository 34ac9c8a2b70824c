"""What one pass of a requeue does next. Pure: a job as it was just read, and the request.

The sequence as a whole (measured on Slurm 22.05): ``requeuehold Incomplete`` while it runs, wait until it
no longer completes, merge ExcNodeList, bring its begin time near, ``release``. Each pass looks at the
present state only, so a pass may be repeated or cut short anywhere.

Why near and not ``StartTime=now``: Slurm lets a requeued job wait for the life of its credential (121 s by
default), because slurmd has revoked it in whole seconds. A gang that restarts within that second on a node
it had before ends FAILED, "Job credential revoked" (seen on 22.05). Some seconds are enough, and few enough.

Whose hold it is: ours shows the text Slurm gives to requeuehold and exactly one restart more than the
intent recorded. A user who held the running job before is seen by its priority of 0; then the job is
requeued without a hold of ours, and there is nothing to release. What remains is a user who does a
requeuehold of their own in the second between our read and our write; Slurm shows no difference.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from collector.slurm.jobs import has_ended
from fleet.scheduler import JobKind, JobRecord, RequeueRequest

_JOB_ID = re.compile(r"\d+(?:_\d+|\+\d+)?")
_OUR_HOLD_TEXT = "job requeued in held state"
# Slurm delays a requeued job by its credential's life plus 1 s; a longer wait is somebody's own wish.
_LONGEST_REQUEUE_DELAY_SECONDS = 300.0
# The revoked credential and the new one are dated by different machines: room for their clocks to differ.
START_DELAY_SECONDS = 5
# Slurm requeues a job in these states; in the others it waits for something first.
_REQUEUABLE_STATES = frozenset({"running", "suspended", "configuring", "stopped"})


class Next(StrEnum):
    """GONE, REFUSED, DONE: over. WAIT: look again. REQUEUE: bring it off. FREE: let it start elsewhere."""

    GONE = "gone"
    REFUSED = "refused"
    DONE = "done"
    WAIT = "wait"
    REQUEUE = "requeue"
    FREE = "free"


@dataclass(frozen=True, slots=True)
class Decision:
    """``hold``: requeue into a hold of ours. ``exclude``: the whole new list of nodes to avoid."""

    next: Next
    reason: str
    hold: bool = True
    exclude: tuple[str, ...] | None = None
    release: bool = False
    start_soon: bool = False


def decide(job: JobRecord | None, request: RequeueRequest, *, now: float) -> Decision:
    """The one next thing, with the sentence that says why."""
    if _JOB_ID.fullmatch(request.job) is None:
        return Decision(Next.REFUSED, f"{request.job[:40]!r} does not name one job of Slurm")
    if job is None:
        return Decision(Next.GONE, f"job {request.job} is not known to Slurm any more")
    if has_ended(job.state):
        return Decision(Next.GONE, f"job {job.id} has ended ({job.state})")
    if _is_another_job(job, request):
        return Decision(Next.GONE, f"job {job.id} has ended; its number names another job now")
    if job.state == "completing":
        return Decision(Next.WAIT, f"job {job.id} is leaving its nodes")
    if job.holds_nodes:
        return _while_on_nodes(job, request)
    return _while_waiting(job, request, now)


def _is_another_job(job: JobRecord, request: RequeueRequest) -> bool:
    """Numbers wrap at MaxJobId. A requeue renews the submit time and counts a restart."""
    if job.restarts < request.restarts:
        return True
    same_run = job.restarts == request.restarts
    known = job.submitted_at is not None and request.submitted_at is not None
    return same_run and known and job.submitted_at != request.submitted_at


def _while_on_nodes(job: JobRecord, request: RequeueRequest) -> Decision:
    if job.restarts > request.restarts:
        return Decision(Next.DONE, f"job {job.id} was requeued and runs again on {','.join(job.nodes)}")
    if request.node not in job.nodes:
        return Decision(Next.DONE, f"job {job.id} is not on {request.node}")
    if not request.begin:
        return Decision(Next.REFUSED, f"job {job.id} has not been requeued and stays where it is")
    if job.kind is JobKind.INTERACTIVE:
        return Decision(Next.REFUSED, f"job {job.id} is interactive (srun or salloc) and cannot be requeued")
    if job.requeue is False:
        return Decision(Next.REFUSED, f"job {job.id} must not be requeued: its user said so (Requeue=0)")
    if job.state not in _REQUEUABLE_STATES:
        return Decision(Next.WAIT, f"job {job.id} is {job.state}; it cannot be requeued at this moment")
    return Decision(Next.REQUEUE, f"job {job.id} is requeued off {request.node}", hold=job.held is not True)


def _while_waiting(job: JobRecord, request: RequeueRequest, now: float) -> Decision:
    if job.restarts != request.restarts + 1:
        return Decision(Next.DONE, f"job {job.id} waits in the queue and is on no node")
    ours = bool(job.held) and job.state_text == _OUR_HOLD_TEXT
    decision = Decision(
        Next.FREE,
        f"job {job.id} is requeued and free to start elsewhere",
        exclude=_exclusion(job, request),
        release=ours,
        start_soon=ours and _waits_for_our_requeue(job, now),
    )
    if decision.exclude is None and not decision.release:
        held = " under its user's own hold" if job.held else ""
        return Decision(Next.DONE, f"job {job.id} is requeued and waits in the queue{held}")
    return decision


def _exclusion(job: JobRecord, request: RequeueRequest) -> tuple[str, ...] | None:
    """The whole new list, since an update replaces it; None where there is nothing to add.

    A user who insists on that very node keeps it: the job waits until the node is back.
    """
    if not request.exclude_node or request.node in (*job.excluded_nodes, *job.required_nodes):
        return None
    return (*job.excluded_nodes, request.node)


def _waits_for_our_requeue(job: JobRecord, now: float) -> bool:
    """Its begin time lies ahead because of the requeue, not because its user wants it later.

    Only asked while our hold is on: the release comes last, so the time is not pushed on again and again.
    """
    if job.begins_at is None or job.submitted_at is None:
        return False
    if job.begins_at - now <= 2 * START_DELAY_SECONDS:
        return False
    return job.begins_at - job.submitted_at <= _LONGEST_REQUEUE_DELAY_SECONDS


def leader_of(job: str) -> str:
    """``2+1`` -> ``2``: of a heterogeneous job Slurm requeues and releases only the leader, with the rest."""
    return job.partition("+")[0]
