"""The append-only lines, strikes, and retention. Nothing here changes a line that was written."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import and_, delete, insert, or_, select
from sqlalchemy.exc import IntegrityError

from fleet.findings import Step
from remediator.ledger import rows, schema
from remediator.ledger.errors import DuplicateEffectError, DuplicateIntentError, LedgerError
from remediator.ledger.session import Session
from remediator.records import Outcome, Phase, Pruned, StepRecord, Strike

_DUPLICATE = {Phase.INTENT: DuplicateIntentError, Phase.EFFECT: DuplicateEffectError}


class LinePart(Session):
    def append(self, step: StepRecord) -> int:
        if step.phase is Phase.INTENT and not step.key:
            raise LedgerError(
                f"an intent for {step.node} has no key: its effect could never be matched to it"
            )
        duplicate = _DUPLICATE.get(step.phase) if step.key else None
        if duplicate is not None and self._recorded(step):
            raise duplicate(f"the {step.phase} of {step.key} on {step.node} is in the ledger already")
        try:
            return self._insert(insert(schema.step), rows.step_values(step))
        except LedgerError as error:
            if duplicate is not None and isinstance(error.__cause__, IntegrityError):
                raise duplicate(f"the {step.phase} of {step.key} is in the ledger already") from error
            raise

    def _recorded(self, step: StepRecord) -> bool:
        table = schema.step
        same = select(table.c.id).where(table.c.key == step.key, table.c.phase == step.phase.value)
        return self._first(same) is not None

    def steps(
        self, *, incident: str | None = None, node: str | None = None, limit: int = 1000
    ) -> Sequence[StepRecord]:
        table = schema.step
        newest = select(table).order_by(table.c.id.desc()).limit(limit)
        if incident is not None:
            newest = newest.where(table.c.incident == incident)
        if node is not None:
            newest = newest.where(table.c.node == node)
        return [rows.step_record(row) for row in reversed(self._rows(newest))]

    def open_intents(self, incident: str) -> Sequence[StepRecord]:
        table = schema.step
        effect = table.alias("effect")
        answered = (
            select(effect.c.id)
            .where(effect.c.key == table.c.key, effect.c.phase == Phase.EFFECT.value)
            .exists()
        )
        wanted = (
            select(table)
            .where(table.c.incident == incident, table.c.phase == Phase.INTENT.value, ~answered)
            .order_by(table.c.id)
        )
        return [rows.step_record(row) for row in self._rows(wanted)]

    def count_effects(self, step: Step, nodes: Collection[str], since: float) -> int:
        table = schema.step
        # The window holds few effects, ``nodes`` may be a whole fleet: the nodes are matched here.
        done = select(table.c.node).where(
            table.c.step == step.value,
            table.c.phase == Phase.EFFECT.value,
            table.c.outcome == Outcome.DONE.value,
            table.c.at >= since,
        )
        wanted = frozenset(nodes)
        return sum(row.node in wanted for row in self._rows(done))

    def count_requeues(self, job: str, since: float) -> int:
        """Effects DONE of requeues whose intent named ``job``, both at or after ``since``."""
        table = schema.step
        wanted = select(table).where(table.c.step == Step.REQUEUE.value, table.c.at >= since)
        lines = [rows.step_record(row) for row in self._rows(wanted)]
        mine = {s.key for s in lines if s.phase is Phase.INTENT and s.payload.get("job") == job}
        return sum(s.phase is Phase.EFFECT and s.outcome is Outcome.DONE and s.key in mine for s in lines)

    def steps_since(self, after_id: int, limit: int = 500) -> Sequence[StepRecord]:
        """Lines with a higher id, oldest first."""
        table = schema.step
        wanted = select(table).where(table.c.id > after_id).order_by(table.c.id).limit(limit)
        return [rows.step_record(row) for row in self._rows(wanted)]

    def add_strike(self, strike: Strike) -> int:
        return self._insert(insert(schema.strike), rows.strike_values(strike))

    def strikes(self, since: float, *, node: str | None = None, uuid: str | None = None) -> Sequence[Strike]:
        table = schema.strike
        wanted = select(table).where(table.c.at >= since).order_by(table.c.at, table.c.id)
        if node is not None:
            wanted = wanted.where(table.c.node == node)
        if uuid is not None:
            wanted = wanted.where(table.c.uuid == uuid)
        return [rows.strike_record(row) for row in self._rows(wanted)]

    def prune(self, before: float) -> Pruned:
        inbox, incident, step = schema.inbox, schema.incident, schema.step
        received = self._run(delete(inbox).where(inbox.c.processed_at < before)).rowcount
        long_closed = select(incident.c.id).where(incident.c.closed_at < before)
        lone_decision = and_(
            step.c.incident.is_(None), step.c.phase == Phase.DECISION.value, step.c.at < before
        )
        lines = self._run(delete(step).where(or_(step.c.incident.in_(long_closed), lone_decision))).rowcount
        return Pruned(inbox=received, steps=lines)
