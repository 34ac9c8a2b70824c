"""The Slurm backend: scontrol for writes, JSON for reads, nothing believed until it is read back.

Verified on real clusters of 22.05.8; 23.02 and later differ in their JSON only (collector/slurm).
Choices that cost others dearly elsewhere: DRAIN, never DOWN (it kills jobs, and ReturnToService undoes it);
UNDRAIN, never RESUME (it also lifts DOWN and FAIL); a reboot without ASAP, nextstate or reason (each of
them loses the drain or its reason); exactly one node per call.
"""

from __future__ import annotations

import logging

from collector.slurm.answers import AnswerKind
from collector.slurm.client import SlurmClient
from collector.slurm.queries import load_job, load_jobs, load_node, load_nodes
from fleet.clock import Clock
from fleet.errors import (
    BackendError,
    ConflictError,
    NotFoundError,
    RefusedError,
    UnavailableError,
)
from fleet.identity import is_node_name
from fleet.marks import Mark
from fleet.scheduler import (
    JobRecord,
    NodeRecord,
    RequeueOutcome,
    RequeueRequest,
    RequeueState,
    SchedulerSnapshot,
)
from remediator.backends.slurm_nodes import (
    COMMENT_PREFIX,
    claim,
    has_reboot_suffix,
    is_ours,
    is_rebooting,
    reboot_was_issued,
    why_not_cordon,
    why_not_reboot,
    why_not_uncordon,
    with_owner,
)
from remediator.backends.slurm_requeue import START_DELAY_SECONDS, Decision, Next, decide, leader_of

_LOG = logging.getLogger(__name__)
_OUTCOMES = {
    Next.GONE: RequeueState.GONE,
    Next.REFUSED: RequeueState.REFUSED,
    Next.DONE: RequeueState.DONE,
    Next.WAIT: RequeueState.IN_PROGRESS,
}


class SlurmBackend:
    """``fleet.scheduler.SchedulerBackend`` over Slurm's commands. Safe to call from several threads.

    ``our_user`` is the Slurm user this service runs as: a reason with our mark under another name is
    foreign. None means that names are not compared.
    """

    kind = "slurm"

    def __init__(self, client: SlurmClient, clock: Clock, *, our_user: str | None = None) -> None:
        self._client = client
        self._clock = clock
        self._our_user = our_user

    # -- looking

    def observe(self) -> SchedulerSnapshot:
        """Two calls: all nodes, then all jobs. Either failing means unknown, so it raises."""
        taken_at = self._clock.now()
        nodes = load_nodes(self._client, now=taken_at)
        jobs = load_jobs(self._client, now=taken_at)
        problems = tuple(problem.message for problem in (*nodes.problems, *jobs.problems))
        known = {node.name: with_owner(node, self._our_user) for node in nodes.nodes}
        return SchedulerSnapshot(taken_at, known, jobs.jobs, problems)

    def observe_node(self, node: str) -> NodeRecord:
        return self._read_node(node)

    # -- nodes

    def cordon(self, node: str, mark: Mark) -> NodeRecord:
        before = self._read_node(node)
        if is_ours(before, mark, self._our_user):
            return before
        self._raise(why_not_cordon(before))
        said = self._write(node, "State=DRAIN", f"Reason={mark.reason()}")
        after = self._read_node(node)
        if is_ours(after, mark, self._our_user):
            return after
        if after.is_cordoned:
            raise ConflictError(f"{node} is drained by {claim(after)}, who wrote after us; it is theirs")
        raise UnavailableError(f"{node} is not drained after the drain was sent{said}; read it again")

    def uncordon(self, node: str, mark: Mark) -> NodeRecord:
        before = self._read_node(node)
        if not before.is_cordoned:
            return before
        self._raise(why_not_uncordon(before, mark, self._our_user))
        said = self._write(node, "State=UNDRAIN")
        after = self._read_node(node)
        if not after.is_cordoned:
            return after
        if not is_ours(after, mark, self._our_user):
            raise ConflictError(f"{node} was drained again by {claim(after)}; it stays theirs")
        raise UnavailableError(f"{node} is still drained after the undrain was sent{said}; read it again")

    def reboot(self, node: str, mark: Mark, *, ordered_at: float) -> NodeRecord:
        """A second reboot under one mark needs the mark written anew first.

        Measured on 22.05.8: Slurm replaces a reason that already ends with ``: reboot issued`` by
        ``reboot issued`` alone, and with it the mark would be lost.
        """
        before = self._read_node(node)
        ours = is_ours(before, mark, self._our_user)
        if ours and (is_rebooting(before) or reboot_was_issued(before, since=ordered_at)):
            return before
        self._raise(why_not_reboot(before, mark, self._our_user))
        if is_rebooting(before):
            raise ConflictError(f"{node} is already in a reboot that is not ours")
        if has_reboot_suffix(before):
            self._write(node, "State=DRAIN", f"Reason={mark.reason()}")
        answer = self._client.act(["scontrol", "reboot", node])
        after = self._read_node(node)
        if not is_ours(after, mark, self._our_user):
            raise ConflictError(f"{node} is no longer drained under {mark.incident}: {claim(after)}")
        if is_rebooting(after) or has_reboot_suffix(after):
            return after
        # Slurm ignores a reboot of some nodes with exit status 0 and a sentence.
        said = f": {answer.text}" if answer.text else ""
        raise UnavailableError(f"Slurm shows no reboot of {node} after it was ordered{said}; read it again")

    def annotate(self, node: str, text: str) -> NodeRecord:
        before = self._read_node(node)
        if before.comment == text:
            return before
        if before.comment and not before.comment.startswith(COMMENT_PREFIX):
            raise RefusedError(f"{node} carries somebody else's comment; nothing is written over it")
        said = self._write(node, f"Comment={text}")
        after = self._read_node(node)
        if after.comment != text:
            raise UnavailableError(f"the comment of {node} does not read back as written{said}")
        return after

    # -- jobs

    def requeue(self, request: RequeueRequest) -> RequeueOutcome:
        job = self._read_job(request)
        decision = decide(job, request, now=self._clock.now())
        if job is None or decision.next in _OUTCOMES:
            return RequeueOutcome(_OUTCOMES[decision.next], decision.reason)
        try:
            if decision.next is Next.REQUEUE:
                return self._bring_off(job, decision)
            self._free(job, decision)
        except NotFoundError:
            return RequeueOutcome(RequeueState.GONE, f"job {job.id} has ended meanwhile")
        again = decide(self._read_job(request), request, now=self._clock.now())
        if again.next is Next.FREE and not again.release:  # an exclusion that Slurm did not take
            return RequeueOutcome(RequeueState.DONE, again.reason)
        return RequeueOutcome(_OUTCOMES.get(again.next, RequeueState.IN_PROGRESS), again.reason)

    def _bring_off(self, job: JobRecord, decision: Decision) -> RequeueOutcome:
        """``Incomplete`` makes Slurm leave a job alone that ended since we looked."""
        verb = "requeuehold" if decision.hold else "requeue"
        try:
            answer = self._client.act(["scontrol", verb, "Incomplete", leader_of(job.id)])
        except RefusedError as error:
            return RequeueOutcome(RequeueState.REFUSED, f"Slurm refuses to requeue job {job.id}: {error}")
        said = f" (Slurm: {answer.text})" if answer.kind is AnswerKind.VERIFY else ""
        return RequeueOutcome(RequeueState.IN_PROGRESS, decision.reason + said)

    def _free(self, job: JobRecord, decision: Decision) -> None:
        """Exclusion and start time are extras; the release comes last and whatever they did."""
        leader = leader_of(job.id)
        if decision.exclude is not None:
            self._try_extra(f"JobId={job.id}", f"ExcNodeList={','.join(decision.exclude)}")
        if decision.start_soon:
            self._try_extra(f"JobId={leader}", f"StartTime=now+{START_DELAY_SECONDS}")
        if decision.release:
            self._client.act(["scontrol", "release", leader])

    def _try_extra(self, *update: str) -> None:
        try:
            self._client.act(["scontrol", "update", *update])
        except RefusedError as error:
            _LOG.warning("slurm: %s; going on without it", error)

    # -- inside

    def _read_node(self, node: str) -> NodeRecord:
        if not is_node_name(node):
            raise NotFoundError(f"{node[:60]!r} is not the name of one node; hostlists are not accepted")
        return with_owner(load_node(self._client, node, now=self._clock.now()), self._our_user)

    def _read_job(self, request: RequeueRequest) -> JobRecord | None:
        return load_job(self._client, request.job, now=self._clock.now())

    def _write(self, node: str, *attributes: str) -> str:
        """One update of one node; what Slurm said if it left doubts, for a sentence."""
        answer = self._client.act(["scontrol", "update", f"NodeName={node}", *attributes])
        return f" ({answer.text})" if answer.kind is AnswerKind.VERIFY else ""

    @staticmethod
    def _raise(error: BackendError | None) -> None:
        if error is not None:
            raise error
