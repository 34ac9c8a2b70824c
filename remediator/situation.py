"""What the planner looks at, and the questions it asks of it: whose cordon, which machine, which boot.

Pure. ``Situation`` is everything known when an incident is planned; each function answers one question from
it, and None is an answer: unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet.findings import Finding, IncidentState, Mode, Repair, Step
from fleet.marks import Mark
from fleet.scheduler import JobRecord, NodeRecord, NodeState
from remediator.policy import Policy, next_rung
from remediator.records import AgentContact, IncidentRecord, Outcome

#: ``Finding.source`` of what the metric rules found.
METRICS = "metrics"
#: ``Finding.source`` of what an alert found.
ALERTS = "alertmanager"
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
    the outcome of this repair attempt's verification. ``metrics_at`` is when the metric rules last judged
    the node on an answer of its own, ``standing`` the findings whose condition they then saw to hold,
    ``quiet`` those whose condition they saw not to. ``is_unlisted``: the scheduler's whole answer lacks the
    node (one that could not be read is unknown, and still listed).
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
    metrics_at: float | None = None
    standing: frozenset[str] = frozenset()
    quiet: frozenset[str] = frozenset()
    is_unlisted: bool = False

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


def boot_now(node: NodeRecord | None, agent: AgentContact | None) -> str | None:
    """The boot the node is in: by its agent; without one by the scheduler, where that knows (Kubernetes)."""
    if agent is not None:
        return agent.boot_id
    return node.boot_id if node is not None else None


def is_new_epoch(s: Situation) -> bool | None:
    """Has the node booted since the epoch this incident is about? None: cannot tell."""
    before = s.incident.reboot_boot_id or s.incident.boot_id
    if before is not None:
        if s.agent is not None and s.agent.contested:
            return None
        now = boot_now(s.node, s.agent)
        return None if now is None else now != before
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
    now = boot_now(s.node, s.agent)
    return tuple(f for f in s.findings if f.response.acts and now is not None and f.boot_id == now)


def faults_since_repair(s: Situation) -> tuple[Finding, ...]:
    """What asks for action and came after the repair (without one: since this state began).

    After a reboot the boot alone tells, as far as it is known: clocks of nodes differ, and a node that was
    told to reboot may still report on its way down.
    """
    incident = s.incident
    began = incident.opened_at if incident.state is IncidentState.PROBATION else incident.state_since
    since = began if incident.repair_started_at is None else incident.repair_started_at
    now = boot_now(s.node, s.agent)
    acting = (f for f in s.findings if f.response.acts and f.boot_id in (None, now))
    before = incident.reboot_boot_id or incident.boot_id
    return tuple(
        f
        for f in acting
        if (None not in (f.boot_id, before) and f.boot_id != before)
        or (f.since > since and (f.boot_id is None or incident.reboot_boot_id is None))
    )


def seen_by_metrics(s: Situation) -> tuple[Finding | None, str | None]:
    """What metrics found is over when metrics say so: (a finding that still stands, or None; why nothing is
    known yet, or None). Only what asks for action counts, of rules that are in force.
    """
    mine = [
        f
        for f in s.findings
        if f.source == METRICS and f.response.acts and f.rule not in s.policy.disabled_rules
    ]
    if not mine:
        return None, None
    if s.metrics_at is None or s.metrics_at <= s.incident.state_since:
        return None, "waits for the node's exporter to answer: what it showed before is not known to be over"
    standing = next((f for f in mine if f.id in s.standing), None)
    # After a boot its timer counts anew, and what was not reported yet shows nothing: neither is the end.
    unseen = next((f for f in mine if f.id not in s.quiet), None)
    if standing is not None or unseen is None:
        return standing, None
    return None, f"waits for the exporter to show that {unseen.rule} is over"


def stands_by_alert(s: Situation) -> Finding | None:
    """What only Alertmanager told of, and it has not said since that it is resolved."""
    return next(
        (
            f
            for f in s.findings
            if f.source == ALERTS and f.response.acts and f.evidence.get("resolved_at") is None
        ),
        None,
    )


def ready_to_verify(s: Situation) -> tuple[bool, str]:
    """Epoch and GPU count must be known and right before the verification command is worth running."""
    if s.node is None or is_away(s.node):
        return False, f"waits for the node to come back: {absence(s)}"
    if s.node.ready is False:
        # Kubernetes: the agent may speak before the kubelet does; a node that is not Ready stays cordoned.
        return False, f"waits for the node to be Ready: the scheduler says {s.node.base}"
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


def is_away(node: NodeRecord) -> bool:
    """Nobody can tell anything of it. INVALID_REG is no absence: the node has registered, with less than it
    is configured to have.
    """
    return node.state in AWAY and not (node.state is NodeState.UNKNOWN and node.has("INVALID_REG"))


def absence(s: Situation) -> str:
    """Why the node is not back yet, for a sentence."""
    if s.node is None:
        return "its state is not known"
    if is_away(s.node):
        return f"the scheduler says {s.node.state}"
    if s.agent is None:
        return "its agent has not spoken yet"
    return "its agent still reports the old boot"


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
