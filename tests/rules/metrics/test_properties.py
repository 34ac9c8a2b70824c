"""Whatever the fleet reports: the same answer at another hour and in another order; silence says nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fleet.findings import Finding
from fleet.observations import Reading, Sample
from rules.metrics.conditions import MetricCondition, Share
from rules.metrics.evaluate import evaluate
from rules.metrics.state import MetricEvaluation, MetricState
from rules.metrics.windows import SampleWindows
from rules.model import Rule
from tests.support.metric_fleet import RULES, STEP, samples

pytestmark = pytest.mark.slow

NODES, GPUS = ("n01", "n02"), 2
PLACES = [(node, gpu) for node in NODES for gpu in range(GPUS)]


def quick(rule: Rule) -> Rule:
    """The same rule with windows of a few ticks, so that short histories reach every corner."""
    assert rule.when is not None
    test = rule.when.test
    if isinstance(test, Share):
        faster = replace(test, window_seconds=120.0, min_seconds=45.0)
        clear = replace(rule.when.clear, seconds=30.0) if rule.when.clear is not None else None
        return replace(rule, when=MetricCondition(test=faster, only_while=rule.when.only_while, clear=clear))
    return rule


QUICK = tuple(quick(rule) for rule in RULES)


@dataclass(frozen=True)
class Look:
    """One GPU at one tick; None for a GPU that is not in the answer."""

    reasons: float | None = 0.0
    busy: float | None = 0.98
    errors: float | None = 0.0
    flag: float | None = 0.0
    action: float | None = 0.0

    def values(self) -> dict[str, float | None]:
        return {
            "gpu_clock_event_reasons": self.reasons,
            "gpu_utilization_ratio": self.busy,
            "gpu_ecc_uncorrected_volatile_total": self.errors,
            "gpu_row_remap_pending": self.flag,
            "gpu_recovery_action": self.action,
        }


looks = st.builds(
    Look,
    reasons=st.sampled_from([0.0, 4.0, 64.0, 64.0, 96.0, None, float("nan")]),
    busy=st.sampled_from([0.98, 0.98, 0.0, None]),
    errors=st.sampled_from([0.0, 0.0, 1.0, 5.0, None]),
    flag=st.sampled_from([0.0, 1.0, 1.0, None]),
    action=st.sampled_from([0.0, 1.0, 2.0, None]),
)
Tick = dict[tuple[str, int], Look | None] | None
# Long phases of one look each are what rules react to; single ticks are in them too.
ticks = st.one_of(
    st.none(), st.fixed_dictionaries({place: st.one_of(st.none(), looks, looks) for place in PLACES})
)
histories: st.SearchStrategy[list[Tick]] = st.lists(
    st.tuples(ticks, st.integers(1, 7)), min_size=1, max_size=5
).map(lambda phases: [tick for tick, length in phases for _ in range(length)])


def reading(tick: Tick, at: float, order: list[int]) -> list[Reading]:
    if tick is None:
        return [Reading((), ok=False)]
    found: list[list[Sample]] = []
    for node in NODES:
        records: list[Sample] = []
        for place in [PLACES[number] for number in order]:
            look = tick[place]
            if place[0] == node and look is not None:
                records += samples(*place, look.values(), at)
        found.append(records)
    return [Reading(tuple(records)) for records in (found if order[0] < 2 else found[::-1])]


def run(history: list[Tick], *, start: float = 0.0, order: list[int] | None = None) -> list[MetricEvaluation]:
    windows = SampleWindows.for_rules(QUICK, step_seconds=STEP)
    state, answers = MetricState(), []
    for number, tick in enumerate(history):
        now = start + number * STEP
        windows.append(reading(tick, now, order or [0, 1, 2, 3]), now)
        answer = evaluate(windows, QUICK, now, state)
        state = answer.state
        answers.append(answer)
    return answers


def told(answer: MetricEvaluation, start: float) -> tuple[object, ...]:
    """An evaluation without its absolute times (ids are made of them)."""

    def of(found: Finding) -> tuple[object, ...]:
        evidence = {**found.evidence, "since": None, "detected_at": None}
        return found.rule, found.node, found.uuid, found.since - start, found.sentence, evidence

    return (
        [of(found) for found in answer.findings],
        sorted(text for _, text in answer.cleared),
        len(answer.standing),
        [unknown.sentence for unknown in answer.unknown],
        [(p.rule, p.node, p.uuid, p.held, p.since - start, p.sentence) for p in answer.pending],
        answer.coverage,
    )


@settings(deadline=None, max_examples=40)
@given(histories)
def test_the_same_again_at_any_hour(history: list[Tick]) -> None:
    once = run(history)
    assert once == run(history)
    start = 2.0**30
    assert [told(answer, 0.0) for answer in once] == [told(a, start) for a in run(history, start=start)]


@settings(deadline=None, max_examples=40)
@given(histories, st.permutations(range(4)))
def test_the_order_of_targets_means_nothing(history: list[Tick], order: list[int]) -> None:
    assert run(history) == run(history, order=order)


@settings(deadline=None, max_examples=40)
@given(histories, st.integers(1, 60))
@example([dict.fromkeys(PLACES, Look(reasons=64.0, flag=1.0, action=1.0))] * 12, 20)
def test_silence_begins_nothing_and_ends_nothing(history: list[Tick], silence: int) -> None:
    answers = run([*history, *([None] * silence)])
    before, quiet = answers[len(history) - 1], answers[len(history) :]
    for answer in quiet:
        assert (answer.findings, answer.cleared, answer.standing, answer.pending) == ((), (), (), ())
        assert {e.finding_id for e in answer.state.episodes} == {e.finding_id for e in before.state.episodes}


@settings(deadline=None, max_examples=40)
@given(histories)
def test_every_finding_has_one_life(history: list[Tick]) -> None:
    """It begins once, stands only while it is open, and ends at most once; its state survives JSON."""
    open_: set[str] = set()
    ever: set[str] = set()
    for answer in run(history):
        begun = {found.id for found in answer.findings}
        ended = {finding for finding, _ in answer.cleared}
        assert not begun & ever
        assert ended <= open_
        ever |= begun
        open_ = (open_ | begun) - ended
        assert {episode.finding_id for episode in answer.state.episodes} == open_
        assert set(answer.standing) <= open_
        assert MetricState.from_dict(answer.state.to_dict()) == answer.state
        for found in answer.findings:
            assert len(found.sentence) <= 220
            assert found.sentence.isprintable()


@settings(deadline=None, max_examples=40)
@given(histories, st.integers(0, 30))
def test_a_restart_repeats_no_finding(history: list[Tick], at: int) -> None:
    """With the state kept and the windows lost, what was open stays open and is not found again."""
    at = min(at, len(history))
    first = run(history[:at])
    state = first[-1].state if first else MetricState()
    windows = SampleWindows.for_rules(QUICK, step_seconds=STEP)
    kept = {(e.rule, e.target): e.finding_id for e in state.episodes}
    for number, tick in enumerate(history[at:], start=at):
        now = number * STEP
        windows.append(reading(tick, now, [0, 1, 2, 3]), now)
        answer = evaluate(windows, QUICK, now, state)
        state = answer.state
        for finding_id, _ in answer.cleared:
            kept = {key: value for key, value in kept.items() if value != finding_id}
        still = {(e.rule, e.target): e.finding_id for e in state.episodes}
        assert {key: still.get(key) for key in kept} == kept
