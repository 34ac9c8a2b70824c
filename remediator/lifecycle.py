"""The planner: a pure function from what is known about an incident to the one next thing to do.

Invariant: ``decide`` depends on nothing but its argument, and every action it asks for is idempotent by
the mark, the epoch or the job's restart count. Interrupted after any write it therefore asks for the same
action again, finds it done, and goes on; it converges to the same end and does nothing twice
(docs/architecture.md, "Interrupted anywhere").

    suspected -> confirmed -> [awaiting_approval] -> cordoning -> draining -> drained -> repairing
              -> verifying -> probation -> returned          and: cancelled, handed_over
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fleet.findings import ClearOn, IncidentState, Mode, Repair, Response, Step
from fleet.scheduler import JobRecord, NodeRecord, NodeState
from remediator.decisions import Act, Decision, Move, Settle, Wait
from remediator.policy import Policy, next_rung
from remediator.records import IncidentRecord, Outcome
from remediator.situation import (
    AWAY,
    JobRun,
    Situation,
    absence,
    faults_of_this_boot,
    faults_since_repair,
    has_all_gpus,
    is_away,
    is_new_epoch,
    other_machine,
    owns_cordon,
    planned_repair,
    ready_to_verify,
    seen_by_metrics,
    stands_by_alert,
)

#: Who cancels when no person does.
US = "sickbay"


def decide(s: Situation) -> Decision:
    """The one next thing for this incident, with one sentence why."""
    if s.incident.state.is_closed:
        return _closed(s)
    if s.incident.cancelled_by is not None:
        return _cancelling(s)
    other = other_machine(s.incident, s.node, s.agent)
    if other is not None:
        return Move(s.incident.state, f"{other}: what was found before is not about it", give_up=True)
    return _BY_STATE[s.incident.state](s)


def _cancelling(s: Situation) -> Decision:
    who = f"cancelled by {s.incident.cancelled_by}: {s.incident.cancel_reason or 'no reason given'}"
    if not s.incident.state.holds_node:
        return Move(IncidentState.CANCELLED, who, clear_findings=True)
    unfinished = [run for run in s.requeues if run.outcome is None]
    if unfinished:
        # A job we hold must be let go, whatever became of the incident.
        return let_go(unfinished[0], who)
    if s.node is None and s.is_unlisted and s.incident.cancelled_by != US:
        gone = f"{who}; the scheduler does not list the node any more, there is no cordon to lift"
        return Move(IncidentState.CANCELLED, gone, clear_findings=True)
    if s.node is None:
        return Wait(f"{who}; the node cannot be read, so its cordon stays for now")
    if s.open_step is Step.UNCORDON and not s.node.is_cordoned:
        return Settle(Step.UNCORDON, f"the announced uncordon is in effect ({s.node.state})")
    if owns_cordon(s.incident, s.node):
        if s.node.state in AWAY:
            return Wait(f"{who}; the node is {s.node.state}, its cordon is lifted when it is back")
        return _give_back(s, who)
    if s.open_step is Step.CORDON and not s.node_is_fresh:
        return Wait(f"{who}; a cordon may be on its way, reading the node again")
    return Move(IncidentState.CANCELLED, who, clear_findings=True)


def _give_back(s: Situation, who: str) -> Decision:
    """A person's word is enough. In our own name (another machine) the GPUs must be there first."""
    if s.incident.cancelled_by != US:
        return Act(Step.UNCORDON, f"{who}; give the node back")
    whole, count = has_all_gpus(s)
    if whole:
        return Act(Step.UNCORDON, f"{who}; {count}, give the node back")
    if s.agent is not None and s.now - s.agent.first_seen_boot > s.policy.verify_timeout_seconds:
        return Act(Step.HAND_OVER, f"{who}; {count}")
    return Wait(f"{who}; before it is given back: {count}")


def _suspected(s: Situation) -> Decision:
    if not s.findings:
        return Move(IncidentState.CANCELLED, "the evidence is gone before anything was done")
    left = s.incident.opened_at + s.policy.settle_seconds - s.now
    if left > 0:
        return Wait(f"settling for {left:.1f} s more, so that a burst is seen as one")
    return Move(IncidentState.CONFIRMED, "the evidence stands after the settle time")


def _confirmed(s: Situation) -> Decision:
    gone = _evidence_gone(s)
    if gone is not None:
        return gone
    if s.mode is Mode.APPROVE and s.incident.approved_by is None:
        return Move(IncidentState.AWAITING_APPROVAL, "the mode is approve: a person decides")
    if s.incident.response is Response.RESET_WHEN_IDLE and s.jobs:
        return Wait(f"waits for an idle moment: {_jobs(s.jobs)} on the node")
    return Act(Step.CORDON, s.incident.sentence or f"rule {s.incident.rule} asks for it")


def _evidence_gone(s: Situation) -> Move | None:
    if not s.findings:
        return Move(IncidentState.CANCELLED, "the evidence is gone before the cordon")
    by_epoch = all(f.clear_on is ClearOn.NEW_EPOCH_AND_GPU_COUNT for f in s.findings)
    if by_epoch and is_new_epoch(s) and s.incident.boot_id is not None and not faults_of_this_boot(s):
        whole, count = has_all_gpus(s)
        if whole:
            return Move(
                IncidentState.CANCELLED,
                f"the node rebooted by itself before the cordon and {count}",
                clear_findings=True,
            )
    return None


def _awaiting_approval(s: Situation) -> Decision:
    gone = _evidence_gone(s)
    if gone is not None:
        return gone
    if s.incident.approved_by is not None:
        return Move(IncidentState.CONFIRMED, f"approved by {s.incident.approved_by}")
    if s.mode is Mode.AUTO:
        return Move(IncidentState.CONFIRMED, "the mode is auto now")
    if s.mode is Mode.OBSERVE:
        return Move(IncidentState.CONFIRMED, "the mode is observe now: nothing to approve")
    return Wait("waits for a person: sickbay approve " + s.incident.id)


def _cordoning(s: Situation) -> Decision:
    return Act(Step.CORDON, s.incident.sentence or "finish the cordon that was announced")


def let_go(run: JobRun, why: str) -> Act:
    """A job that we hold is its user's: it never stays held because of what became of us or the node."""
    return Act(Step.REQUEUE, f"let go of job {run.job} ({why})", run, let_go=True)


def _theirs(s: Situation, node: NodeRecord) -> Wait | Act:
    """Somebody has put their own cordon in place of ours. For a while they may only look; after that the
    node is theirs, and must not go on to count as one that we repair.
    """
    who = (node.reason.user if node.reason else None) or "somebody else"
    told = f"the cordon is not ours any more ({who} replaced the reason)"
    since = (node.reason.time if node.reason else None) or 0.0
    if s.now - max(since, s.incident.state_since) > s.policy.verify_timeout_seconds:
        return Act(
            Step.HAND_OVER, f"{told} since {s.policy.verify_timeout_seconds:.0f} s: the node is theirs"
        )
    return Wait(f"{told}: hands off until it is gone")


def _lost_cordon(s: Situation) -> Move | Wait | Act | None:
    """While we hold a node: is the cordon still there, and still ours?"""
    if s.node is None:
        return Wait("the scheduler does not tell the node's state: unknown, hands stay still")
    if s.node.is_cordoned:
        if owns_cordon(s.incident, s.node):
            return None
        if not s.node_is_fresh:
            return Wait("reading the node again after our last action")
        return _theirs(s, s.node)
    if s.node.state in AWAY or not s.node_is_fresh:
        return Wait("reading the node again after our last action")
    return Move(
        IncidentState.CANCELLED,
        "somebody lifted our cordon: their word counts, the node is left alone for a while",
        cooldown=True,
        clear_findings=True,
    )


def _draining(s: Situation) -> Decision:
    unfinished = [run for run in s.requeues if run.outcome is None]
    lost = _lost_cordon(s)
    if lost is None and s.node is not None and s.node.state is NodeState.DOWN:
        lost = Wait("the node is down while draining: the scheduler ends or requeues its jobs")
    if lost is not None:
        return let_go(unfinished[0], lost.reason) if unfinished else lost
    assert s.node is not None  # noqa: S101  # _lost_cordon answered for None
    if unfinished:
        return Act(Step.REQUEUE, f"bring job {unfinished[0].job} off the node", unfinished[0])
    if not s.jobs_are_fresh:
        return Wait("reading the jobs again after the cordon")
    if not s.jobs:
        if s.node.state is NodeState.DRAINED:
            return Move(IncidentState.DRAINED, "no job is left on the node")
        return Wait(f"no job is left, but the scheduler still says {s.node.state}")
    if s.incident.response is Response.DRAIN and s.policy.requeue_jobs:
        return _requeue_or_wait(s)
    return Wait(f"waits for {_jobs(s.jobs)} to end")


def _requeue_or_wait(s: Situation) -> Decision:
    """Broken node: its jobs are taken off it, each run once, each job only so often."""
    tried = {(run.job, run.restarts) for run in s.requeues if run.outcome is not Outcome.ABANDONED}
    why = ""
    for job in s.jobs:
        if (job.id, job.restarts) in tried or job.state != "running":
            continue
        times = s.requeued_before.get(job.id, 0)
        if times >= s.policy.max_requeues:
            why = why or f"job {job.id} was requeued {times} times already and may be the cause"
            continue
        run = JobRun(job.id, job.restarts, job.submitted_at, None)
        return Act(Step.REQUEUE, f"job {job.id} runs on a broken node", run)
    refused = next((run.reason for run in s.requeues if run.outcome is Outcome.REFUSED), why)
    return Wait(f"waits for {_jobs(s.jobs)} to end" + (f": {refused}" if refused else ""))


_REPAIR_STEP: Mapping[Repair, Step] = {
    Repair.RESET_GPU: Step.RESET_GPU,
    Repair.REBOOT: Step.REBOOT,
    Repair.POWER_CYCLE: Step.POWER_CYCLE,
    Repair.HAND_OVER: Step.HAND_OVER,
}


def _drained(s: Situation) -> Decision:
    lost = _lost_cordon(s)
    if lost is not None:
        return lost
    repair, why = planned_repair(s.incident, s.policy)
    if repair is Repair.NONE:
        return Move(IncidentState.VERIFYING, why)
    by_itself = s.incident.repair_attempts == 0 and repair is Repair.REBOOT and is_new_epoch(s)
    if by_itself and not faults_of_this_boot(s):
        return Move(IncidentState.VERIFYING, "the node has rebooted by itself since the fault: verify it")
    if s.jobs and s.jobs_are_fresh:
        return Wait(f"a job appeared on the drained node: {_jobs(s.jobs)}")
    if s.node is not None and s.node.state is NodeState.DRAINING:
        return Wait("the scheduler says that work is on the drained node, whatever its list of jobs says")
    return Act(_REPAIR_STEP[repair], why)


def _repairing(s: Situation) -> Decision:
    if s.open_step is Step.REBOOT and is_new_epoch(s):
        return Settle(Step.REBOOT, "the node has booted anew since the reboot was announced")
    started = s.incident.repair_started_at or s.incident.state_since
    late = s.now - started > s.policy.verify_timeout_seconds
    if s.open_step in (Step.RESET_GPU, Step.REBOOT, Step.POWER_CYCLE):
        if late and s.incident.attempts > 0:
            tried = f"{s.open_step} could not be done in {s.policy.verify_timeout_seconds:.0f} s"
            return Move(IncidentState.DRAINED, tried, repair=Repair.HAND_OVER)
        return Act(s.open_step, f"finish the {s.open_step} that was announced")
    if s.incident.repair is Repair.RESET_GPU and Repair.RESET_GPU in s.policy.repair_commands:
        return Move(IncidentState.VERIFYING, "the GPU reset has ended")
    if s.node is not None and not is_away(s.node) and is_new_epoch(s):
        return Move(IncidentState.VERIFYING, "the node is back with a new boot")
    if late:
        return Move(
            IncidentState.DRAINED,
            f"the node did not come back within {s.policy.verify_timeout_seconds:.0f} s",
            repair=next_rung(s.incident.repair, s.policy.ladder),
        )
    return Wait(f"waits for the node to come back: {absence(s)}")


def _verifying(s: Situation) -> Decision:
    again = faults_since_repair(s)
    if s.open_step is Step.UNCORDON and s.node is not None:
        if not s.node.is_cordoned and s.node.state not in AWAY:
            # Not a person's doing: our own announced uncordon, whose answer was lost.
            return Settle(Step.UNCORDON, f"the announced uncordon is in effect ({s.node.state})")
        if owns_cordon(s.incident, s.node) and not again:
            return Act(Step.UNCORDON, "finish the uncordon that was announced")
    lost = _lost_cordon(s)
    if isinstance(lost, Move) or (lost is not None and (s.node is None or s.node.is_cordoned)):
        return lost
    if again:
        return _repair_again(s, f"a new fault after the repair: {again[0].sentence or again[0].rule}")
    fault = _not_over(s)
    if fault is not None:
        return fault
    if s.verification is Outcome.DONE and lost is not None:
        return lost
    if s.verification is Outcome.DONE:
        return Act(Step.UNCORDON, "verified: " + (s.verification_reason or "all checks passed"))
    if s.verification is Outcome.FAILED:
        return _repair_again(s, f"verification failed: {s.verification_reason}")
    ready, why = ready_to_verify(s)
    if ready:
        return Act(Step.VERIFY, why)
    return _too_late(why) if _is_late(s) else Wait(why)


def _not_over(s: Situation) -> Move | Wait | None:
    """What metrics or an alert found must be over in their eyes, and their eyes open, before anything else
    is asked.
    """
    standing, unseen = seen_by_metrics(s)
    if standing is not None:
        still = f"still seen after the repair: {standing.sentence or standing.rule}"
        return _repair_again(s, still) if _is_late(s) else Wait(still)
    whole, _ = has_all_gpus(s)
    if whole is False:
        # Verified, it fails: no need to wait for a card to report that is not there.
        return None
    firing = stands_by_alert(s)
    if firing is not None:
        still = f"waits for Alertmanager to resolve what it told: {firing.sentence or firing.rule}"
        return _repair_again(s, still) if _is_late(s) else Wait(still)
    if unseen is not None:
        return _too_late(unseen) if _is_late(s) else Wait(unseen)
    return None


def _is_late(s: Situation) -> bool:
    return s.now - s.incident.state_since > s.policy.verify_timeout_seconds


def _too_late(why: str) -> Move:
    return Move(IncidentState.DRAINED, f"could not be verified in time: {why}", repair=Repair.HAND_OVER)


def _repair_again(s: Situation, why: str) -> Move:
    spent = s.incident.repair_attempts >= s.policy.max_repair_attempts
    repair = Repair.HAND_OVER if spent else _same_or_stronger(s.incident, s.policy)
    return Move(IncidentState.DRAINED, why, repair=repair)


def _same_or_stronger(incident: IncidentRecord, policy: Policy) -> Repair:
    stronger = next_rung(incident.repair, policy.ladder)
    return incident.repair if stronger is Repair.HAND_OVER else stronger


def _probation(s: Situation) -> Decision:
    returned = s.incident.returned_at or s.incident.state_since
    relapse = faults_since_repair(s)
    if relapse:
        return Move(
            IncidentState.CONFIRMED,
            f"relapse during probation: {relapse[0].sentence or relapse[0].rule}",
            repair=next_rung(s.incident.repair, s.policy.ladder),
        )
    left = returned + s.policy.probation_seconds - s.now
    if left > 0:
        return Wait(f"in service on probation for {left:.0f} s more")
    return Move(
        IncidentState.RETURNED,
        f"{s.policy.probation_seconds:.0f} s of probation without a relapse",
        clear_findings=True,
    )


def _closed(s: Situation) -> Decision:
    return Wait(f"closed: {s.incident.state}")


def _jobs(jobs: tuple[JobRecord, ...]) -> str:
    names = ", ".join(job.id for job in jobs[:3])
    more = f" and {len(jobs) - 3} more" if len(jobs) > 3 else ""  # noqa: PLR2004
    return f"job{'s' if len(jobs) > 1 else ''} {names}{more}"


_BY_STATE: Mapping[IncidentState, Callable[[Situation], Decision]] = {
    IncidentState.SUSPECTED: _suspected,
    IncidentState.CONFIRMED: _confirmed,
    IncidentState.AWAITING_APPROVAL: _awaiting_approval,
    IncidentState.CORDONING: _cordoning,
    IncidentState.DRAINING: _draining,
    IncidentState.DRAINED: _drained,
    IncidentState.REPAIRING: _repairing,
    IncidentState.VERIFYING: _verifying,
    IncidentState.PROBATION: _probation,
    IncidentState.RETURNED: _closed,
    IncidentState.CANCELLED: _closed,
    IncidentState.HANDED_OVER: _closed,
}
