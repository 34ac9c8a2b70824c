"""Ledger lines, strikes, retention, words."""

from __future__ import annotations

import pytest

from fleet.findings import IncidentState, Step
from remediator.ledger import (
    DuplicateEffectError,
    DuplicateIntentError,
    Ledger,
    LedgerError,
    Transaction,
)
from remediator.records import Actor, Outcome, Phase, Pruned, StepRecord, Strike, Word, WordKind
from tests.support.ledger_records import event, incident, line


def test_a_line_comes_back_as_it_was(ledger: Ledger) -> None:
    full = StepRecord(
        at=1.5,
        phase=Phase.ATTEMPT,
        reason="asked for a reboot",
        node="n01",
        incident="inc-1",
        step=Step.REBOOT,
        outcome=Outcome.UNKNOWN,
        actor=Actor.PERSON,
        key="inc-1:reboot:1",
        payload={"argv": ["scontrol", "reboot"], "rc": None},
    )
    bare = StepRecord(at=2.0, phase=Phase.DECISION, reason="observed", node="n02")
    with ledger.transaction() as tx:
        tx.add_incident(incident())
        assert (tx.append(full), tx.append(bare)) == (1, 2)
    with ledger.transaction(read_only=True) as tx:
        first, second = tx.steps()
    assert StepRecord(**{**_fields(first), "id": 0}) == full
    assert StepRecord(**{**_fields(second), "id": 0}) == bare


def _fields(step: StepRecord) -> dict[str, object]:
    return {name: getattr(step, name) for name in StepRecord.__slots__}


def test_steps_are_oldest_first_and_a_limit_keeps_the_newest(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        for number in range(6):
            tx.append(line(Phase.DECISION, node=f"n{number % 2}", at=float(number)))
        assert [step.at for step in tx.steps(limit=3)] == [3.0, 4.0, 5.0]
        assert [step.at for step in tx.steps(node="n1")] == [1.0, 3.0, 5.0]
        assert [step.id for step in tx.steps_since(2, limit=3)] == [3, 4, 5]
        assert tx.steps(incident="inc-1") == []


def test_no_action_is_recorded_twice(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        tx.append(line(Phase.INTENT, "k"))
    with pytest.raises(DuplicateIntentError), ledger.transaction() as tx:
        _append_all(tx, line(Phase.DECISION), line(Phase.INTENT, "k", node="n02"))
    with ledger.transaction() as tx:
        tx.append(line(Phase.ATTEMPT, "k", outcome=Outcome.FAILED))
        tx.append(line(Phase.ATTEMPT, "k", outcome=Outcome.DONE))
        tx.append(line(Phase.EFFECT, "k", outcome=Outcome.DONE))
    with pytest.raises(DuplicateEffectError), ledger.transaction() as tx:
        tx.append(line(Phase.EFFECT, "k", outcome=Outcome.FAILED))
    with ledger.transaction() as tx:
        assert [step.phase for step in tx.steps()] == [
            Phase.INTENT,
            Phase.ATTEMPT,
            Phase.ATTEMPT,
            Phase.EFFECT,
        ]


def _append_all(tx: Transaction, *steps: StepRecord) -> None:
    for step in steps:
        tx.append(step)


def test_a_refused_duplicate_spoils_nothing_else(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        tx.append(line(Phase.INTENT, "k"))
        with pytest.raises(DuplicateIntentError):
            tx.append(line(Phase.INTENT, "k"))
        tx.append(line(Phase.DECISION))
    with ledger.transaction(read_only=True) as tx:
        assert [step.phase for step in tx.steps()] == [Phase.INTENT, Phase.DECISION]


def test_the_database_itself_refuses_a_duplicate(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the look before the write stands a unique index, for a writer that does not look."""
    with ledger.transaction() as tx:
        tx.append(line(Phase.INTENT, "k"))
    monkeypatch.setattr(Transaction, "_recorded", lambda self, step: False)
    with pytest.raises(DuplicateIntentError), ledger.transaction() as tx:
        tx.append(line(Phase.INTENT, "k"))


def test_an_intent_needs_a_key(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="no key"), ledger.transaction() as tx:
        tx.append(line(Phase.INTENT))


def test_open_intents_are_those_without_an_effect(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        tx.add_incident(incident())
        tx.add_incident(incident("inc-2"))
        for key in "abc":
            tx.append(line(Phase.INTENT, key, incident="inc-1"))
        tx.append(line(Phase.INTENT, "d", incident="inc-2"))
        tx.append(line(Phase.ATTEMPT, "a", incident="inc-1", outcome=Outcome.UNKNOWN))
        tx.append(line(Phase.EFFECT, "b", incident="inc-1", outcome=Outcome.FAILED))
    with ledger.transaction(read_only=True) as tx:
        assert [step.key for step in tx.open_intents("inc-1")] == ["a", "c"]
        assert [step.key for step in tx.open_intents("inc-2")] == ["d"]


def test_the_rate_counts_effects_that_are_done(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        tx.append(line(Phase.EFFECT, "early", outcome=Outcome.DONE, at=99.9))
        tx.append(line(Phase.EFFECT, "a", outcome=Outcome.DONE, at=100.0))
        tx.append(line(Phase.EFFECT, "b", outcome=Outcome.DONE, at=101.0, node="n02"))
        tx.append(line(Phase.EFFECT, "failed", outcome=Outcome.FAILED, at=101.0))
        tx.append(line(Phase.EFFECT, "drain", outcome=Outcome.DONE, at=101.0, step=Step.DRAIN))
        tx.append(line(Phase.EFFECT, "elsewhere", outcome=Outcome.DONE, at=101.0, node="n03"))
        tx.append(line(Phase.ATTEMPT, "a", outcome=Outcome.DONE, at=101.0))
        assert tx.count_effects(Step.CORDON, ["n01", "n02"], 100.0) == 2
        assert tx.count_effects(Step.CORDON, [f"n{number:05}" for number in range(40_000)], 100.0) == 0
        assert tx.count_effects(Step.CORDON, [], 0.0) == 0


def test_retention_takes_only_what_ended_long_ago(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        tx.add_incident(incident("old", state=IncidentState.RETURNED, closed_at=50.0))
        tx.add_incident(incident("new", state=IncidentState.RETURNED, closed_at=150.0))
        tx.add_incident(incident("open", opened_at=1.0))
        for name in ("old", "new", "open"):
            tx.append(line(Phase.INTENT, name, incident=name, at=2.0))
        tx.append(line(Phase.DECISION, at=99.0))
        tx.append(line(Phase.DECISION, at=101.0))
        tx.append(line(Phase.INTENT, "lone", at=2.0))
        tx.add_strike(Strike(at=2.0, node="n01", rule="xid-79", incident="old"))
        tx.add_events([event(1)], 2.0)
        assert tx.prune(100.0) == Pruned(inbox=0, steps=2)
        assert [step.key for step in tx.steps()] == ["new", "open", None, "lone"]
        assert tx.incident("old") is not None
        assert len(tx.strikes(0.0)) == 1
        assert tx.pending_inbox_count() == 1


def test_strikes_are_kept_per_gpu_and_node(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        tx.add_strike(Strike(at=1.0, node="n01", rule="xid-79", uuid="GPU-1"))
        tx.add_strike(Strike(at=2.0, node="n02", rule="xid-79", uuid="GPU-1"))
        tx.add_strike(Strike(at=3.0, node="n02", rule="boot"))
    with ledger.transaction(read_only=True) as tx:
        assert [strike.at for strike in tx.strikes(2.0)] == [2.0, 3.0]
        assert [strike.node for strike in tx.strikes(0.0, uuid="GPU-1")] == ["n01", "n02"]
        assert [strike.uuid for strike in tx.strikes(0.0, node="n02")] == ["GPU-1", None]


def _word(kind: WordKind, target: str | None, *, since: float = 0.0, expires_at: float | None = None) -> Word:
    return Word(kind=kind, target=target, author="ada", reason="looking", since=since, expires_at=expires_at)


def test_words_bind_until_they_end_or_expire(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        hold = tx.add_word(_word(WordKind.HOLD, "n01"))
        short = tx.add_word(_word(WordKind.HOLD, "n01", expires_at=10.0))
        pool = tx.add_word(_word(WordKind.PAUSE, "gpu"))
        fleet = tx.add_word(_word(WordKind.PAUSE, None))
    with ledger.transaction(read_only=True) as tx:
        assert tx.words(9.9) == [hold, short, pool, fleet]
        assert tx.words(10.0) == [hold, pool, fleet]
    with ledger.transaction() as tx:
        assert tx.end_words(WordKind.PAUSE, None, 20.0) == 1
        assert tx.end_words(WordKind.PAUSE, None, 21.0) == 0
        assert tx.end_words(WordKind.HOLD, "n01", 20.0) == 1, "the expired one ended by itself"
        assert tx.end_words(WordKind.COOLDOWN, "gpu", 20.0) == 0
        assert tx.words(20.0) == [pool]
