"""One pass of the controller: take results in, weigh what was pushed, plan every open incident, act.

``step`` is called by one thread only. It never waits for a scheduler: calls run on the runner, and their
results are taken in by a later pass.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from fleet.clock import Clock
from fleet.errors import BackendError
from fleet.findings import GateName, IncidentState, Severity, Step
from fleet.marks import comment_note
from fleet.scheduler import Owner, SchedulerBackend, SchedulerSnapshot
from remediator import recorder
from remediator.casebook import Casebook
from remediator.decisions import Act, Move, Settle
from remediator.evaluate import Evaluator, Weighing, worst
from remediator.executor import Hands, Runner, Task
from remediator.gates import GateResult, blocking
from remediator.lease import RemainingLease
from remediator.ledger import (
    DuplicateEffectError,
    LedgerError,
    LedgerUnavailableError,
    LostLeaseError,
    StaleRecordError,
)
from remediator.notify import Notifier
from remediator.orphans import orphans
from remediator.planning import Assessment, Planner, Survey
from remediator.records import (
    IncidentRecord,
    Lease,
    LedgerStore,
    LedgerTransaction,
    Outcome,
    Phase,
    StepRecord,
)
from remediator.sight import MetricInbox
from remediator.steps import StepResult
from remediator.world import World
from rules.metrics.state import MetricEvaluation

log = logging.getLogger(__name__)

#: How often a step that is not finished yet (a job still COMPLETING) is asked again.
POLL_SECONDS = 0.5
#: Moves that follow one another without waiting for the outside are made in one pass, up to this many.
MAX_MOVES_A_PASS = 8
#: How many items of a batch that failed are weighed one by one in a pass.
WEIGHED_ALONE = 50
#: After this share of its term the lease is renewed within a pass.
RENEW_SHARE = 0.2
#: Gates that only say "not yet" or "somebody is at it": no reason to page although a fatal node is blocked.
_QUIET = (GateName.MODE, GateName.SETTLE, GateName.FOREIGN_OWNER, GateName.MAINTENANCE, GateName.HOLD)


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass did; ``open`` incidents remain, ``holding`` of them keep a node out of service."""

    leading: bool
    weighed: int = 0
    opened: int = 0
    open: int = 0
    holding: int = 0


class Controller:
    def __init__(
        self,
        *,
        store: LedgerStore,
        backend: SchedulerBackend,
        world: World,
        evaluator: Evaluator,
        casebook: Casebook,
        metrics: MetricInbox,
        planner: Planner,
        hands: Hands,
        runner: Runner,
        notifier: Notifier,
        clock: Clock,
        holder: str,
        remaining: RemainingLease | None = None,
    ) -> None:
        self._remaining = RemainingLease(clock) if remaining is None else remaining
        self._store = store
        self._backend = backend
        self._world = world
        self._evaluator = evaluator
        self._casebook = casebook
        self._metrics = metrics
        self._planner = planner
        self._hands = hands
        self._runner = runner
        self._notifier = notifier
        self._clock = clock
        self._holder = holder
        self._lease: Lease | None = None
        self._renew_at = 0.0
        self._searched: SchedulerSnapshot | None = None
        self._not_before: dict[str, float] = {}
        self._results: list[tuple[Task, StepResult]] = []

    @property
    def lease(self) -> Lease | None:
        return self._lease

    @property
    def idle(self) -> bool:
        """No call of ours is on its way."""
        return not self._runner.running()

    # -- observing (called by the observing thread)

    def observe(self) -> bool:
        """Read the scheduler once. False when it did not answer: what we knew stays, and ages."""
        try:
            snapshot = self._backend.observe()
        except BackendError as error:
            self._world.failed(str(error), self._clock.now())
            log.warning("the scheduler could not be read: %s", error)
            return False
        self._world.publish(snapshot)
        return True

    # -- deciding

    def step(self) -> Pass:
        """One pass. Without the lease nothing is weighed and nothing is done."""
        if not self._lead():
            self._stand_by()
            return Pass(leading=False)
        self._take_in_results()
        weighed = self._weigh() + self._take_in_metrics()
        with self._transaction() as tx:
            self._look_around(tx)
            survey = self._planner.survey(tx)
        for finding_id, sentence in weighed.notices:
            self._notifier.notice(f"finding/{finding_id}", sentence)
        holding = 0
        ids = [incident.id for incident in survey.open]
        for incident_id in ids:
            if self._clock.monotonic() >= self._renew_at and not self._lead():
                return Pass(leading=False)
            state = self._advance_alone(incident_id, survey)
            holding += state is not None and state.holds_node
        if done := self._runner.finished():
            # An inline runner has results at once: record them now, so that a pass is complete.
            self._results.extend(done)
            self._take_in_results()
        return Pass(
            leading=True,
            weighed=weighed.items,
            opened=len(weighed.opened),
            open=len(ids),
            holding=holding,
        )

    def _look_around(self, tx: LedgerTransaction) -> None:
        """What only a new answer of the scheduler can show, once for each."""
        snapshot = self._world.snapshot
        if snapshot is None or snapshot is self._searched:
            return
        self._searched = snapshot
        self._casebook.end_what_is_over(tx)
        for key, sentence in orphans(snapshot, tx):
            self._notifier.page(key, sentence)

    def _stand_by(self) -> None:
        """The leader sees for itself; a later evaluation of ours begins from what it has stored."""
        waiting = self._metrics.peek()
        if waiting is not None:
            self._world.saw_metrics(waiting.sight)
            self._metrics.done()

    def _take_in_metrics(self) -> Weighing:
        """Store the evaluation that waits, if one does. It waits on while the store fails; once it is too old
        to be a look at now it is dropped: what still holds is found by the next.
        """
        waiting = self._metrics.peek()
        if waiting is None:
            return Weighing(0, 0)
        age = self._clock.now() - waiting.sight.at
        if not 0 <= age <= self._planner.policy.metrics_stale_seconds:
            log.warning("an evaluation of the metric rules has waited for %.0f s and is not used", age)
            self._metrics.done()
            return Weighing(0, 0)
        try:
            with self._transaction() as tx:
                weighed = self._evaluator.take_in_metrics(tx, waiting.evaluation)
        except (LostLeaseError, LedgerUnavailableError):
            raise
        except Exception:  # boundary: one finding, or a defect, must not stop all others; told below
            log.exception("an evaluation cannot be taken in as a whole; each finding is taken alone")
            weighed = self._take_in_each(waiting.evaluation)
        self._world.saw_metrics(waiting.sight)
        self._metrics.done()
        return weighed

    def _take_in_each(self, evaluation: MetricEvaluation) -> Weighing:
        """What an evaluation found and ended, one by one; the ends first, as in the whole."""
        nothing = replace(evaluation, findings=(), cleared=())
        parts = [replace(nothing, cleared=(one,)) for one in evaluation.cleared]
        parts += [replace(nothing, findings=(one,)) for one in evaluation.findings]
        done: list[Weighing] = []
        for part in parts:
            try:
                with self._transaction() as tx:
                    done.append(self._evaluator.take_in_metrics(tx, part))
            except (LostLeaseError, LedgerUnavailableError):
                raise
            except Exception as error:  # boundary: see above
                what = next((f"{f.rule} on {f.node}" for f in part.findings), "the end of a finding")
                log.exception("%s cannot be stored", what)
                self._notifier.page("metrics", f"{what} was found by metrics and cannot be stored: {error}")
        return sum(done, Weighing(0, 0))

    def _weigh(self) -> Weighing:
        """All that is pending, together; if that cannot be done, each item alone, and none for ever."""
        try:
            with self._transaction() as tx:
                return self._evaluator.process(tx)
        except (LostLeaseError, LedgerUnavailableError):
            raise
        except (
            Exception
        ):  # boundary: one item, or a defect in weighing it, must not stop all others; told below
            log.exception("the inbox cannot be weighed as a whole; each item is weighed alone")
        with self._transaction() as tx:
            items = tx.pending_inbox(WEIGHED_ALONE)
        done: list[Weighing] = []
        for item in items:
            try:
                with self._transaction() as tx:
                    done.append(self._evaluator.process(tx, items=[item]))
            except (LostLeaseError, LedgerUnavailableError):
                raise
            except Exception as error:  # boundary: see above
                log.exception("inbox item %d cannot be weighed", item.id)
                with self._transaction() as tx:
                    self._evaluator.skip(tx, item, error)
                self._notifier.page("inbox", f"a stored {item.kind} could not be weighed: {error}")
        return sum(done, Weighing(0, 0))

    def _lead(self) -> bool:
        """Take or renew the lease. A long pass renews it on its way."""
        duration = self._planner.policy.lease_seconds
        asked_at = self._clock.monotonic()
        with self._store.transaction() as tx:
            self._lease = tx.acquire_lease(self._holder, self._clock.now(), duration)
        if self._lease is None:
            self._remaining.lost()
            return False
        self._remaining.renewed(asked_at, duration)
        self._renew_at = asked_at + duration * RENEW_SHARE
        return True

    def _transaction(self) -> AbstractContextManager[LedgerTransaction]:
        return self._store.transaction(fence=self._lease)

    def _take_in_results(self) -> None:
        self._results.extend(self._runner.finished())
        while self._results:
            task, result = self._results[0]
            try:
                self._take_in(task, result)
            except (DuplicateEffectError, StaleRecordError) as error:
                # The ledger knows better: another pass (or a person) got there first. Keeping the result
                # would stand in the way of all others for ever.
                log.warning("a result of %s on %s is not recorded: %s", task.step, task.node, error)
            self._results.pop(0)

    def _take_in(self, task: Task, result: StepResult) -> None:
        now = self._clock.now()
        if result.node is not None:
            self._world.saw_node(result.node, now if result.at is None else result.at)
        with self._transaction() as tx:
            incident = tx.incident(task.incident)
            if incident is None:
                log.error("incident %s of a finished step is not in the ledger", task.incident)
                return
            if task.step is None:
                self._take_in_note(tx, incident, result, now)
                return
            if result.outcome is Outcome.IN_PROGRESS:
                self._not_before[task.key] = self._clock.monotonic() + POLL_SECONDS
                return
            self._not_before.pop(task.key, None)
            recorder.record(tx, incident, task.step, task.key, result, now)
        log.info("%s %s: %s (%s)", task.node, task.step, result.outcome, result.reason)

    def _take_in_note(
        self, tx: LedgerTransaction, incident: IncidentRecord, result: StepResult, now: float
    ) -> None:
        """The outcome of a note beside a foreign cordon: told once, tried again only if nobody answered."""
        if result.outcome is Outcome.UNKNOWN:
            again = self._clock.monotonic() + recorder.MAX_RETRY_SECONDS
            self._not_before[f"{incident.id}/annotate"] = again
            return
        tx.append(
            StepRecord(
                at=now,
                phase=Phase.DECISION,
                reason=result.reason,
                node=incident.node,
                incident=incident.id,
                outcome=result.outcome,
            )
        )
        tx.update_incident(replace(incident, noted=True, updated_at=now))

    def _advance_alone(self, incident_id: str, survey: Survey) -> IncidentState | None:
        """``_advance``, so that one incident the ledger refuses does not stand in the way of all others."""
        try:
            return self._advance(incident_id, survey)
        except (LostLeaseError, LedgerUnavailableError):
            raise
        except LedgerError as error:
            log.error("incident %s cannot go on: %s", incident_id, error)  # noqa: TRY400  # one clear line
            self._notifier.page(
                f"stuck/{incident_id}", f"incident {incident_id} is stuck: the ledger says {error}"
            )
            return None

    def _advance(self, incident_id: str, survey: Survey) -> IncidentState | None:
        """Plan one incident and do what is next, all in one transaction; calls start after it is durable."""
        submit: list[Task] = []
        state: IncidentState | None = None
        with self._transaction() as tx:
            for _ in range(MAX_MOVES_A_PASS):
                incident = tx.incident(incident_id)
                if incident is not None:
                    survey.moved(incident)
                if incident is None or incident.state.is_closed:
                    state = incident.state if incident is not None else None
                    break
                state = incident.state
                if any(
                    t.incident == incident_id and t.step is not Step.VERIFY for t in self._runner.running()
                ):
                    # What it does is not known yet; a verification changes nothing, so it holds up nobody.
                    break
                assessment = self._planner.assess(tx, incident, self._lease, survey)
                decision = assessment.decision
                if isinstance(decision, Move):
                    recorder.move(tx, assessment.situation, decision)
                    log.info(
                        "%s %s -> %s: %s", incident.node, incident.state, decision.state, decision.reason
                    )
                    continue
                if isinstance(decision, Settle):
                    self._settle(tx, assessment, decision)
                    continue
                if isinstance(decision, Act):
                    task = self._act(tx, assessment, decision)
                    if task is not None:
                        submit.append(task)
                    written = task is not None or decision.step is Step.HAND_OVER
                    if written and (after := tx.incident(incident_id)) is not None:
                        survey.moved(after)
                        state = after.state
                break
        for task in submit:
            self._runner.submit(task)
        return state

    def _settle(self, tx: LedgerTransaction, assessment: Assessment, decision: Settle) -> None:
        incident = assessment.situation.incident
        key = recorder.intent_key(incident, decision.step, None, assessment.steps)
        result = StepResult(Outcome.ALREADY, decision.reason)
        recorder.record(tx, incident, decision.step, key, result, self._clock.now())

    def _act(self, tx: LedgerTransaction, assessment: Assessment, act: Act) -> Task | None:
        situation = assessment.situation
        incident = situation.incident
        in_the_way = blocking(assessment.gates)
        if in_the_way:
            return self._refuse(tx, assessment, act, in_the_way)
        if act.step is Step.HAND_OVER:
            recorder.hand_over(tx, situation, act.reason, assessment.steps)
            self._notifier.page(
                f"hand-over/{incident.id}",
                f"{incident.node} needs hands: {act.reason} (incident {incident.id})",
            )
            return None
        key = recorder.intent_key(incident, act.step, act.job, assessment.steps)
        job = act.job.job if act.job is not None else None
        if self._is_busy(key, job) or self._clock.monotonic() < self._not_before.get(key, 0.0):
            return None
        key, announced = recorder.announce(tx, situation, act, assessment.steps)
        call = self._guarded(self._hands.call_for(act, situation, announced))
        return Task(key, incident.id, incident.node, act.step, call, job)

    def _is_busy(self, key: str, job: str | None = None) -> bool:
        return any(
            task.key == key or (job is not None and task.job == job) for task in self._runner.running()
        )

    def _guarded(self, call: Callable[[], StepResult]) -> Callable[[], StepResult]:
        """Looks at the lease when the call begins, not when it was planned; notes when it ended."""

        def guarded() -> StepResult:
            self._remaining.require(0.0)
            return replace(call(), at=self._clock.now())

        return guarded

    def _refuse(
        self, tx: LedgerTransaction, assessment: Assessment, act: Act, in_the_way: tuple[GateResult, ...]
    ) -> Task | None:
        situation = assessment.situation
        incident = situation.incident
        gates = tuple(str(result.gate) for result in in_the_way)
        if recorder.blocked(tx, situation, act.step, gates, tuple(result.reason for result in in_the_way)):
            log.info("%s %s refused: %s", incident.node, act.step, "; ".join(r.reason for r in in_the_way))
            self._page_if_grave(assessment, act, in_the_way)
        return self._note_beside_foreign(situation.incident, assessment, in_the_way)

    def _page_if_grave(self, assessment: Assessment, act: Act, in_the_way: tuple[GateResult, ...]) -> None:
        """A burst raises one page for all; a fatal node that stays in service is a black hole for jobs."""
        incident = assessment.situation.incident
        for result in in_the_way:
            if result.gate is GateName.BURST:
                self._notifier.page(f"burst/{incident.pool}/{incident.rule}", result.reason)
                return
        node = assessment.situation.node
        in_service = node is None or not node.is_cordoned
        grave = in_service and worst(assessment.situation.findings) is Severity.CRITICAL
        loud = [result for result in in_the_way if result.gate not in _QUIET]
        if act.step is Step.CORDON and grave and loud:
            self._notifier.page(
                f"black-hole/{incident.id}",
                f"{incident.node} is broken and still in service: {loud[0].reason} (incident {incident.id})",
            )

    def _note_beside_foreign(
        self, incident: IncidentRecord, assessment: Assessment, in_the_way: tuple[GateResult, ...]
    ) -> Task | None:
        """Beside somebody else's drain we leave one comment, if nothing but their ownership stops us."""
        names = {result.gate for result in in_the_way}
        harmless = {GateName.FOREIGN_OWNER, GateName.BUDGET, GateName.RATE, GateName.MAINTENANCE}
        node = assessment.situation.node
        if (
            incident.noted
            or GateName.FOREIGN_OWNER not in names
            or names - harmless
            or incident.state.holds_node
            or node is None
            or node.owner is not Owner.FOREIGN
        ):
            return None
        key = f"{incident.id}/annotate"
        if self._is_busy(key) or self._clock.monotonic() < self._not_before.get(key, 0.0):
            return None
        text = comment_note(incident.id, incident.sentence or incident.rule)
        call: Callable[[], StepResult] = lambda: self._hands.annotate(incident.node, text)  # noqa: E731
        return Task(key, incident.id, incident.node, None, self._guarded(call))
