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
from dataclasses import dataclass, field

from fleet.findings import ClearOn, Finding, IncidentState, Mode, Repair, Response, Step
from fleet.marks import Mark
from fleet.scheduler import JobRecord, NodeRecord, NodeState
from remediator.policy import Policy, next_rung
from remediator.records import AgentContact, IncidentRecord, Outcome

#: Who cancels when no person does.
US = "sickbay"
AWAY = (NodeState.REBOOTING, NodeState.DOWN, NodeState.UNKNOWN, NodeState.POWERED_DOWN)


@dataclass(frozen=True, slots=True)
class JobRun:
    """A requeue we announced: which run of which job, and how its effect ended (None: not yet)."""

    job: str
    restarts: int
    submitted_at: float | None
    outcome: Outcome | None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that is known when an incident is planned.

    ``node`` is the newest record, read at ``node_at``; ``jobs`` are the jobs on it, read at ``jobs_at``.
    None means unknown. ``requeues`` are those of this incident, ``requeued_before`` how often each job on
    the node was requeued by us at all. ``open_step`` is the action whose intent
    is written and whose effect is not: it is finished before anything new is begun. ``verification`` is
    the outcome of this repair attempt's verification.
    """

    incident: IncidentRecord
    policy: Policy
    mode: Mode
    now: float
    findings: tuple[Finding, ...] = ()
    node: NodeRecord | None = None
    node_at: float | None = None
    jobs: tuple[JobRecord, ...] = ()
    jobs_at: float | None = None
    agent: AgentContact | None = None
    requeues: tuple[JobRun, ...] = ()
    requeued_before: Mapping[str, int] = field(default_factory=dict)
    open_step: Step | None = None
    verification: Outcome | None = None
    verification_reason: str = ""

    @property
    def mark(self) -> Mark:
        return mark_of(self.incident)

    @property
    def node_is_fresh(self) -> bool:
        """The record was read after our last change of state: only then absence of a drain means anything."""
        return self.node is not None and self.node_at is not None and self.node_at > self.incident.state_since

    @property
    def jobs_are_fresh(self) -> bool:
        return self.jobs_at is not None and self.jobs_at > self.incident.state_since


@dataclass(frozen=True, slots=True)
class Move:
    """Go to another state; nothing outside changes. ``give_up``: stay, and be cancelled in our name."""

    state: IncidentState
    reason: str
    cooldown: bool = False
    clear_findings: bool = False
    repair: Repair | None = None
    give_up: bool = False


@dataclass(frozen=True, slots=True)
class Act:
    """Do ``step`` if the gates pass. ``job`` names the run for a requeue.

    ``let_go``: of a requeue only what ends it: a job that we hold is released, one that still runs is left.
    """

    step: Step
    reason: str
    job: JobRun | None = None
    let_go: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do now, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Settle:
    """The effect of the action in flight is plain to see: record it, do not do it again."""

    step: Step
    reason: str


Decision = Move | Act | Wait | Settle


def mark_of(incident: IncidentRecord) -> Mark:
    return Mark(incident.id, incident.rule, incident.sentence)


def owns_cordon(incident: IncidentRecord, node: NodeRecord) -> bool:
    """Ours: cordoned under this incident's mark, by the user our own read-back showed.

    The text alone proves nothing: anybody can write it (facts: Slurm's reason is one slot without
    compare-and-set).
    """
    if not node.is_cordoned or node.reason is None or not mark_of(incident).owns(node.reason.text):
        return False
    return incident.mark_user is None or node.reason.user is None or node.reason.user == incident.mark_user


def other_machine(
    incident: IncidentRecord, node: NodeRecord | None, agent: AgentContact | None
) -> str | None:
    """Why another machine stands behind the name now than when the incident opened; None: it does not, or
    nobody can tell. The scheduler's own id decides; without one a set of GPU UUIDs with none in common does.
    """
    now = (node.uid or node.machine_id) if node is not None else None
    if incident.incarnation is not None and now is not None:
        if now == incident.incarnation:
            return None
        return f"another machine answers to {incident.node} now ({now}, was {incident.incarnation})"
    before = incident.prior.get("gpu_uuids")
    if not isinstance(before, list | tuple) or not before or agent is None or agent.contested:
        return None
    if agent.gpu_uuids and set(before).isdisjoint(agent.gpu_uuids):
        return f"another machine answers to {incident.node} now: none of its GPUs was there before"
    return None


def is_new_epoch(s: Situation) -> bool | None:
    """Has the node booted since the epoch this incident is about? None: cannot tell."""
    before = s.incident.reboot_boot_id or s.incident.boot_id
    if before is not None:
        return None if s.agent is None or s.agent.contested else s.agent.boot_id != before
    # No agent ever spoke: the scheduler's boot time is a hint good enough after a reboot we ordered.
    started = s.incident.repair_started_at
    if started is None or s.node is None or s.node.boot_time is None:
        return None
    return s.node.boot_time >= started


def has_all_gpus(s: Situation) -> tuple[bool | None, str]:
    """Are all GPUs there? (None, why not known). The agent's count wins where agents report one."""
    expected = s.incident.expected_gpus
    if expected is None:
        return None, "the expected GPU count is not known"
    if s.node is not None and s.node.has("INVALID_REG"):
        return False, "the scheduler reports fewer GPUs than configured (INVALID_REG)"
    if s.agent is not None and s.agent.contested:
        return None, "two agents speak for the node"
    if s.agent is not None and s.agent.gpu_count is not None:
        count = s.agent.gpu_count
        return count == expected, f"the agent sees {count} of {expected} GPUs"
    if s.incident.prior.get("agent_counts_gpus"):
        return None, "the agent has not counted the GPUs yet"
    if s.node is None or s.node.gpus_total is None:
        return None, "nobody reports a GPU count"
    return s.node.gpus_total == expected, f"the scheduler counts {s.node.gpus_total} of {expected} GPUs"


def faults_of_this_boot(s: Situation) -> tuple[Finding, ...]:
    """What asks for action and was seen in the boot the node is in now: no new epoch answers it."""
    if s.agent is None:
        return ()
    return tuple(f for f in s.findings if f.response.acts and f.boot_id == s.agent.boot_id)


def faults_since_repair(s: Situation) -> tuple[Finding, ...]:
    """What asks for action and came after the repair (without one: since this state began).

    After a reboot the boot alone tells, as far as it is known: clocks of nodes differ, and a node that was
    told to reboot may still report on its way down.
    """
    incident = s.incident
    began = incident.opened_at if incident.state is IncidentState.PROBATION else incident.state_since
    since = began if incident.repair_started_at is None else incident.repair_started_at
    now = s.agent.boot_id if s.agent is not None else None
    acting = (f for f in s.findings if f.response.acts and f.boot_id in (None, now))
    before = incident.reboot_boot_id or incident.boot_id
    return tuple(
        f
        for f in acting
        if (None not in (f.boot_id, before) and f.boot_id != before)
        or (f.since > since and (f.boot_id is None or incident.reboot_boot_id is None))
    )


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


def _lost_cordon(s: Situation) -> Move | Wait | None:
    """While we hold a node: is the cordon still there, and still ours?"""
    if s.node is None:
        return Wait("the scheduler does not tell the node's state: unknown, hands stay still")
    if s.node.is_cordoned:
        if owns_cordon(s.incident, s.node):
            return None
        if not s.node_is_fresh:
            return Wait("reading the node again after our last action")
        who = (s.node.reason.user if s.node.reason else None) or "somebody else"
        return Wait(
            f"the cordon is not ours any more ({who} replaced the reason): hands off until it is gone"
        )
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


def planned_repair(incident: IncidentRecord, policy: Policy) -> tuple[Repair, str]:
    """Which repair comes next, and why that one."""
    repair = incident.repair
    if repair is Repair.NONE:
        return Repair.NONE, "the rule asks for no repair"
    if repair is Repair.HAND_OVER:
        tried = incident.repair_attempts
        if tried == 0:
            return repair, "the rule says this needs hands"
        return repair, f"{tried} repair{'s' if tried > 1 else ''} did not help ({incident.last_reason})"
    if not policy.repair_enabled:
        return Repair.HAND_OVER, "repair is switched off by the configuration"
    if incident.repair_attempts >= policy.max_repair_attempts:
        return Repair.HAND_OVER, f"{incident.repair_attempts} repairs did not help"
    needs_command = repair in (Repair.RESET_GPU, Repair.POWER_CYCLE) and repair not in policy.repair_commands
    if needs_command or repair not in policy.ladder:
        why = "has no command configured" if needs_command else "is not on the configured ladder"
        stronger = next_rung(repair, policy.ladder)
        return stronger, f"{repair} {why}, the next rung is {stronger}"
    return repair, f"repair attempt {incident.repair_attempts + 1} of {policy.max_repair_attempts}"


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
    if s.node is not None and not _is_away(s.node) and is_new_epoch(s):
        return Move(IncidentState.VERIFYING, "the node is back with a new boot")
    if late:
        return Move(
            IncidentState.DRAINED,
            f"the node did not come back within {s.policy.verify_timeout_seconds:.0f} s",
            repair=next_rung(s.incident.repair, s.policy.ladder),
        )
    return Wait(f"waits for the node to come back: {_absence(s)}")


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
    if s.verification is Outcome.DONE and lost is not None:
        return lost
    if s.verification is Outcome.DONE:
        return Act(Step.UNCORDON, "verified: " + (s.verification_reason or "all checks passed"))
    if s.verification is Outcome.FAILED:
        return _repair_again(s, f"verification failed: {s.verification_reason}")
    ready, why = ready_to_verify(s)
    if ready:
        return Act(Step.VERIFY, why)
    if s.now - s.incident.state_since > s.policy.verify_timeout_seconds:
        return Move(IncidentState.DRAINED, f"could not be verified in time: {why}", repair=Repair.HAND_OVER)
    return Wait(why)


def _repair_again(s: Situation, why: str) -> Move:
    spent = s.incident.repair_attempts >= s.policy.max_repair_attempts
    repair = Repair.HAND_OVER if spent else _same_or_stronger(s.incident, s.policy)
    return Move(IncidentState.DRAINED, why, repair=repair)


def _same_or_stronger(incident: IncidentRecord, policy: Policy) -> Repair:
    stronger = next_rung(incident.repair, policy.ladder)
    return incident.repair if stronger is Repair.HAND_OVER else stronger


def ready_to_verify(s: Situation) -> tuple[bool, str]:
    """Epoch and GPU count must be known and right before the verification command is worth running."""
    if s.node is None or _is_away(s.node):
        return False, f"waits for the node to come back: {_absence(s)}"
    if s.incident.reboot_boot_id is not None or s.incident.repair in (Repair.REBOOT, Repair.POWER_CYCLE):
        epoch = is_new_epoch(s)
        if epoch is None:
            return False, "waits for word of the node's new boot"
        if not epoch:
            return False, "the node still reports the boot in which the fault happened"
    whole, count = has_all_gpus(s)
    if whole is None:
        return False, f"waits: {count}"
    if not whole:
        # Not a wait: the verify step itself records the failure.
        return True, count
    return True, f"new boot, {count}"


def _is_away(node: NodeRecord) -> bool:
    """INVALID_REG is no absence: the node has registered, with less than it is configured to have."""
    return node.state in AWAY and not (node.state is NodeState.UNKNOWN and node.has("INVALID_REG"))


def _absence(s: Situation) -> str:
    if s.node is None:
        return "its state is not known"
    if _is_away(s.node):
        return f"the scheduler says {s.node.state}"
    if s.agent is None:
        return "its agent has not spoken yet"
    return "its agent still reports the old boot"


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
