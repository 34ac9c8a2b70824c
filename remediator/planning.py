"""Gathers what the planner and the gates look at: from the ledger (inside a transaction) and the world.

Used by the controller before it acts and by ``why`` to explain: both see the very same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fleet.clock import Clock
from fleet.findings import Finding, IncidentState, Mode, Response, Step
from fleet.scheduler import NodeRecord
from remediator.decisions import Act, Decision
from remediator.gates import GateInput, GateResult, blocking, evaluate, evaluate_letting_go
from remediator.lifecycle import decide, let_go
from remediator.policy import UNMANAGED_POOL, Policy, Pool, counts_as_unavailable
from remediator.records import (
    IncidentRecord,
    Lease,
    LedgerTransaction,
    Outcome,
    Phase,
    StepRecord,
)
from remediator.situation import JobRun, Situation, boot_now
from remediator.world import World


@dataclass(frozen=True, slots=True)
class Assessment:
    """One look at an incident: what is known, the next thing, and what the gates say to it."""

    situation: Situation
    decision: Decision
    gates: tuple[GateResult, ...]
    steps: tuple[StepRecord, ...] = ()


class Survey:
    """What all incidents of one pass are measured against, read once: reading it for each of hundreds takes
    longer than a lease. Only the pass itself moves incidents, and tells (``moved``); words are not in here.
    """

    def __init__(self, tx: LedgerTransaction, policy: Policy, world: World, now: float) -> None:
        self._open = {incident.id: incident for incident in tx.open_incidents()}
        self.recent = tuple(tx.incidents_since(now - policy.burst.window_seconds))
        members: dict[str, list[NodeRecord]] = {}
        for record in world.nodes().values():
            members.setdefault(policy.pool_of(record).name, []).append(record)
        self._members = {pool: tuple(records) for pool, records in members.items()}
        self._names = {pool: frozenset(r.name for r in records) for pool, records in members.items()}
        self._unavailable = {
            pool: frozenset(r.name for r in records if counts_as_unavailable(r))
            for pool, records in members.items()
        }

    @property
    def open(self) -> tuple[IncidentRecord, ...]:
        return tuple(self._open.values())

    def moved(self, incident: IncidentRecord) -> None:
        if incident.state.is_closed:
            self._open.pop(incident.id, None)
        else:
            self._open[incident.id] = incident

    def members(self, pool: str) -> tuple[tuple[NodeRecord, ...], frozenset[str], frozenset[str]]:
        """The pool's nodes, their names, the names of those out of service."""
        nothing: frozenset[str] = frozenset()
        names, out = self._names.get(pool, nothing), self._unavailable.get(pool, nothing)
        return self._members.get(pool, ()), names, out


class Planner:
    """Pure but for its reads: the ledger transaction and the world it is given."""

    def __init__(self, *, policy: Policy, world: World, clock: Clock, holder: str) -> None:
        self.policy = policy
        self._world = world
        self._clock = clock
        self._holder = holder

    def survey(self, tx: LedgerTransaction) -> Survey:
        return Survey(tx, self.policy, self._world, self._clock.now())

    def assess(
        self,
        tx: LedgerTransaction,
        incident: IncidentRecord,
        lease: Lease | None,
        survey: Survey | None = None,
    ) -> Assessment:
        """Decide the next step of an incident and ask the gates about it."""
        steps = tuple(tx.steps(incident=incident.id))
        findings = tuple(stored.finding for stored in tx.findings(incident=incident.id))
        situation = self._situation(tx, incident, findings, steps)
        decision = decide(situation)
        step = decision.step if isinstance(decision, Act) else Step.CORDON
        survey = self.survey(tx) if survey is None else survey
        given = self._gate_input(tx, incident, findings, situation.mode, lease, survey)
        gates = evaluate(step, given)
        if isinstance(decision, Act) and decision.job in situation.requeues:
            stopped = blocking(gates)
            if stopped and not decision.let_go:
                # What stops us from taking a job off a node must not keep it held for ever.
                decision = let_go(decision.job, stopped[0].reason)
            if decision.let_go:
                gates = evaluate_letting_go(given)
        return Assessment(situation, decision, gates, steps)

    def gates_for_idle_node(
        self, tx: LedgerTransaction, node: str, lease: Lease | None
    ) -> tuple[GateResult, ...]:
        """What would stop us from cordoning a node that has no incident: the "why not?" of a healthy node."""
        record, _ = self._world.node(node)
        pool = self._pool(record, None)
        now = self._clock.now()
        probe = IncidentRecord(
            id="none",
            node=node,
            pool=pool.name,
            rule="none",
            state=IncidentState.CONFIRMED,
            opened_at=now - self.policy.settle_seconds,
            updated_at=now,
            state_since=now,
            response=Response.OBSERVE,
        )
        mode, _ = self.policy.mode_for(pool, "none", Mode.AUTO)
        return evaluate(Step.CORDON, self._gate_input(tx, probe, (), mode, lease, self.survey(tx)))

    def _situation(
        self,
        tx: LedgerTransaction,
        incident: IncidentRecord,
        findings: tuple[Finding, ...],
        steps: tuple[StepRecord, ...],
    ) -> Situation:
        node, node_at = self._world.node(incident.node)
        jobs, jobs_at = self._world.jobs_on(incident.node)
        pool = self._pool(node, incident)
        mode, _ = self._mode(pool, incident, findings)
        agent = self._world.contact(incident.node)
        outcome, reason = _verification(steps, boot_now(node, agent))
        sight = self._world.sight
        return Situation(
            incident=incident,
            policy=self.policy,
            mode=mode,
            now=self._clock.now(),
            findings=findings,
            node=node,
            node_at=node_at,
            jobs=jobs,
            jobs_at=jobs_at,
            agent=agent,
            requeues=_requeues(steps),
            requeued_before={
                job.id: tx.count_requeues(job.id, job.submitted_at or 0.0)
                for job in (jobs if incident.state is IncidentState.DRAINING else ())
            },
            open_step=_open_step(steps),
            verification=outcome,
            verification_reason=reason,
            metrics_at=sight.seen_at(incident.node) if sight is not None else None,
            standing=sight.standing if sight is not None else frozenset(),
            quiet=frozenset(sight.quiet) if sight is not None else frozenset(),
            is_unlisted=self._world.is_unlisted(incident.node),
        )

    def _pool(self, node: NodeRecord | None, incident: IncidentRecord | None) -> Pool:
        """The pool the node is in now; while it is unknown, the one it was in when the incident opened."""
        if node is not None:
            return self.policy.pool_of(node)
        if incident is not None:
            return self.policy.pool_named(incident.pool)
        return Pool(name=UNMANAGED_POOL, mode=Mode.OBSERVE)

    def _mode(self, pool: Pool, incident: IncidentRecord, findings: tuple[Finding, ...]) -> tuple[Mode, str]:
        """The ceiling of the boldest finding that asks for action, and who set it: one rule that may only
        observe holds up no other.
        """
        acting = [f for f in findings if f.response.acts]
        if not acting:
            return self.policy.mode_for(pool, incident.rule, Mode.AUTO)
        found = [self.policy.mode_for(pool, f.rule, f.mode) for f in acting]
        return max(found, key=lambda each: each[0].rank)

    def _gate_input(
        self,
        tx: LedgerTransaction,
        incident: IncidentRecord,
        findings: tuple[Finding, ...],
        mode: Mode,
        lease: Lease | None,
        survey: Survey,
    ) -> GateInput:
        now = self._clock.now()
        node, _ = self._world.node(incident.node)
        snapshot = self._world.snapshot
        pool = self._pool(node, incident)
        members, names, unavailable = survey.members(pool.name)
        _, source = self._mode(pool, incident, findings)
        return GateInput(
            incident=replace(incident, pool=pool.name),
            policy=self.policy,
            pool=pool,
            mode=mode,
            mode_source=source,
            now=now,
            node=node,
            snapshot_at=snapshot.taken_at if snapshot is not None else None,
            pool_nodes=members,
            pool_names=names,
            pool_unavailable=unavailable,
            incidents=survey.open,
            recent=survey.recent,
            findings=findings,
            words=tuple(tx.words(now)),
            agent=self._world.contact(incident.node),
            sight=self._world.sight,
            alerts_heard_at=self._world.alerts_heard_at,
            cordons_in_window=tx.count_effects(Step.CORDON, names, now - pool.rate_window_seconds),
            backend=self._world.health,
            lease=lease,
            holder=self._holder,
        )


def _requeues(steps: tuple[StepRecord, ...]) -> tuple[JobRun, ...]:
    effects = {s.key: s for s in steps if s.step is Step.REQUEUE and s.phase is Phase.EFFECT}
    runs: list[JobRun] = []
    for intent in steps:
        if intent.step is not Step.REQUEUE or intent.phase is not Phase.INTENT:
            continue
        effect = effects.get(intent.key)
        submitted = intent.payload.get("submitted_at")
        restarts = intent.payload.get("restarts")
        runs.append(
            JobRun(
                job=str(intent.payload.get("job")),
                restarts=restarts if isinstance(restarts, int) else 0,
                submitted_at=float(submitted) if isinstance(submitted, int | float) else None,
                outcome=effect.outcome if effect is not None else None,
                reason=effect.reason if effect is not None else "",
            )
        )
    return tuple(runs)


def _open_step(steps: tuple[StepRecord, ...]) -> Step | None:
    """The newest announced action without an effect (requeues are tracked one by one)."""
    done = {s.key for s in steps if s.phase is Phase.EFFECT}
    for s in reversed(steps):
        if s.phase is Phase.INTENT and s.step is not Step.REQUEUE and s.key not in done:
            return s.step
    return None


def _verification(steps: tuple[StepRecord, ...], boot_id: str | None) -> tuple[Outcome | None, str]:
    """How the verification ended that was begun since the incident last came to be verified, in this boot.

    By the order of the lines: the wall clock may have jumped between them.
    """
    boots = {s.key: s.payload.get("boot_id") for s in steps if s.phase is Phase.INTENT}
    for s in reversed(steps):
        if s.phase is Phase.DECISION and s.payload.get("state") == IncidentState.VERIFYING:
            break
        if s.phase is Phase.EFFECT and s.step is Step.VERIFY:
            boot = boots.get(s.key)
            if None not in (boot, boot_id) and boot_id != boot:
                break
            return s.outcome, s.reason
    return None, ""
