"""One condition over the whole fleet: arrays in, arrays out, one element per row of the windows.

Each kernel walks the ticks and works on all targets of a tick at once. NaN is unknown: it makes nothing
true and nothing false.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from rules.metrics.conditions import (
    Absence,
    Guard,
    Increase,
    MetricCondition,
    Op,
    Share,
    Threshold,
)
from rules.metrics.windows import Answer, Bools, Floats, SampleWindows, TickRef

Ints = NDArray[np.int64]
_MAX_MASK = float(1 << 52)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What one condition says of each row at the newest tick.

    ``violating``: it holds, long enough. ``pending``: it holds, not yet long enough. ``calm`` and
    ``uneasy``: observed on the good, the bad side of the clearing level; a row that is neither is
    unknown to a finding that waits for its end. ``judged``: an answer was possible at all.

    ``measure``: the value, the share, the increase, or the seconds since last seen. ``held``: seconds of
    observed truth (share: of judged samples). ``since``: when that began. ``samples``: how many speak.
    """

    violating: Bools
    pending: Bools
    calm: Bools
    uneasy: Bools
    judged: Bools
    measure: Floats
    held: Floats
    since: Floats
    samples: Ints
    siblings: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


def judge(windows: SampleWindows, condition: MetricCondition, now: float, newest: TickRef) -> Judgement:
    """The judgement at ``newest``, the last tick of the windows, seen at ``now``."""
    test = condition.test
    if isinstance(test, Threshold):
        return _threshold(windows, condition, test, now, newest)
    if isinstance(test, Share):
        return _share(windows, condition, test, now, newest)
    if isinstance(test, Increase):
        return _increase(windows, condition, test, now, newest)
    if isinstance(test, Absence):
        return _absence(windows, test, now, newest)
    assert_never(test)


# -- guards ---------------------------------------------------------------------------------------


def _guard(windows: SampleWindows, guard: Guard, slot: int) -> tuple[Bools, Bools]:
    """(holds, known): any known signal is enough to hold."""
    known = np.zeros(windows.rows, dtype=np.bool_)
    holds = np.zeros(windows.rows, dtype=np.bool_)
    for signal in guard.signals:
        values = windows.values(signal, slot)
        there = ~np.isnan(values)
        known |= there
        holds |= there & guard.op.apply(values, guard.value)
    return holds, known


def _allowed(windows: SampleWindows, condition: MetricCondition, slot: int) -> tuple[Bools, Bools]:
    """(allowed, refused) by the guards; a row that is neither has an unknown guard."""
    allowed = np.ones(windows.rows, dtype=np.bool_)
    refused = np.zeros(windows.rows, dtype=np.bool_)
    if condition.only_while is not None:
        holds, known = _guard(windows, condition.only_while, slot)
        allowed &= holds
        refused |= known & ~holds
    if condition.unless is not None:
        holds, known = _guard(windows, condition.unless, slot)
        allowed &= known & ~holds
        refused |= holds
    return allowed, refused


# -- threshold ------------------------------------------------------------------------------------


def _threshold(
    windows: SampleWindows, condition: MetricCondition, test: Threshold, now: float, newest: TickRef
) -> Judgement:
    def states(slot: int) -> tuple[Bools, Bools]:
        values = windows.values(test.signal, slot)
        known = ~np.isnan(values)
        hit = known & _compares(test, values)
        allowed, refused = _allowed(windows, condition, slot)
        return hit & allowed, (known & ~hit) | refused

    values = windows.values(test.signal, newest.slot)
    known = ~np.isnan(values)
    true, false = states(newest.slot)
    allowed, _ = _allowed(windows, condition, newest.slot)
    good = known & ~_compares(test, values)
    if condition.clear is not None and condition.clear.level is not None:
        good = values <= condition.clear.level if test.op.rises else values >= condition.clear.level
    held, since, samples = _runs(windows, now, np.flatnonzero(true), states)
    long_enough = held >= test.for_seconds
    return Judgement(
        violating=true & long_enough,
        pending=true & ~long_enough,
        calm=known & allowed & good,
        uneasy=known & allowed & ~good,
        judged=true | false,
        measure=values.copy(),
        held=held,
        since=since,
        samples=samples,
    )


def _compares(test: Threshold, values: Floats) -> Bools:
    if test.op is Op.EQ:
        return np.isin(values, test.values)
    found: Bools = test.op.apply(values, test.values[0])
    return found


def _runs(
    windows: SampleWindows, now: float, rows: Ints, states: Callable[[int], tuple[Bools, Bools]]
) -> tuple[Floats, Floats, Ints]:
    """How long each of ``rows`` has been observed true without a false in between.

    Unknown ticks do not end a run; time across a gap is not counted. (held, since, samples), full length.
    """
    held, since = np.zeros(windows.rows), np.full(windows.rows, np.nan)
    samples = np.zeros(windows.rows, dtype=np.int64)
    if not rows.size:
        return held, since, samples
    run, began, last = np.zeros(rows.size), np.full(rows.size, np.nan), np.full(rows.size, -np.inf)
    count = np.zeros(rows.size, dtype=np.int64)
    for tick in windows.ticks(now, np.inf):
        true, false = (part[rows] for part in states(tick.slot))
        run[false], began[false], last[false], count[false] = 0.0, np.nan, -np.inf, 0
        step = tick.time - last
        run = np.where(true & (step <= windows.gap_seconds), run + step, run)
        began = np.where(true & np.isnan(began), tick.time, began)
        last = np.where(true, tick.time, last)
        count += true
    held[rows], since[rows], samples[rows] = run, began, count
    return held, since, samples


# -- share and increase ---------------------------------------------------------------------------


def _share(
    windows: SampleWindows, condition: MetricCondition, test: Share, now: float, newest: TickRef
) -> Judgement:
    counted = np.zeros(windows.rows, dtype=np.int64)
    bad = np.zeros(windows.rows, dtype=np.int64)
    since = np.full(windows.rows, np.nan)
    fresh = np.zeros(windows.rows, dtype=np.bool_)
    for tick in windows.ticks(now, test.window_seconds):
        values = windows.values(test.signal, tick.slot)
        allowed, _ = _allowed(windows, condition, tick.slot)
        usable = allowed & (values >= 0) & (values < _MAX_MASK)
        flagged = (np.where(usable, values, 0).astype(np.int64) & test.mask) != 0
        counted += usable
        bad += flagged
        since[flagged & np.isnan(since)] = tick.time
        if tick.slot == newest.slot:
            fresh = usable
    share = np.divide(bad, counted, out=np.full(windows.rows, np.nan), where=counted > 0)
    judged_seconds = counted * windows.step_seconds
    enough = judged_seconds >= test.min_seconds
    level = test.above if condition.clear is None or condition.clear.level is None else condition.clear.level
    return Judgement(
        violating=fresh & enough & (share > test.above),
        pending=fresh & ~enough & (share > test.above),
        calm=fresh & enough & (share <= level),
        uneasy=fresh & enough & (share > level),
        judged=fresh & enough,
        measure=share,
        held=judged_seconds.astype(np.float64),
        since=since,
        samples=counted,
    )


def _increase(
    windows: SampleWindows, condition: MetricCondition, test: Increase, now: float, newest: TickRef
) -> Judgement:
    total = np.zeros(windows.rows)
    last, since = np.full(windows.rows, np.nan), np.full(windows.rows, np.nan)
    first = np.full(windows.rows, np.nan)
    samples = np.zeros(windows.rows, dtype=np.int64)
    fresh = np.zeros(windows.rows, dtype=np.bool_)
    for tick in windows.ticks(now, test.window_seconds):
        values = windows.values(test.signal, tick.slot)
        known = values >= 0
        # A counter that fell was reset: what it shows now has been counted since.
        grown = np.where(values < last, values, values - last)
        grew = known & (grown > 0)
        total[grew] += grown[grew]
        since[grew & np.isnan(since)] = tick.time
        first[known & np.isnan(first)] = tick.time
        last = np.where(known, values, last)
        samples += known
        if tick.slot == newest.slot:
            fresh = known
    allowed, refused = _allowed(windows, condition, newest.slot)
    judged = fresh & (samples > 1)
    level = test.above if condition.clear is None or condition.clear.level is None else condition.clear.level
    return Judgement(
        violating=judged & allowed & (total > test.above),
        pending=np.zeros(windows.rows, dtype=np.bool_),
        calm=judged & allowed & (total <= level),
        uneasy=judged & allowed & (total > level),
        judged=judged & (allowed | refused),
        measure=total,
        held=newest.time - np.where(np.isnan(first), newest.time, first),
        since=since,
        samples=samples,
    )


# -- absence --------------------------------------------------------------------------------------


def _absence(windows: SampleWindows, test: Absence, now: float, newest: TickRef) -> Judgement:
    def states(slot: int) -> tuple[Bools, Bools]:
        named = windows.named(slot)
        whole = windows.answers(slot)[windows.node_of] == Answer.WHOLE
        missing = windows.is_gpu & ~named & whole & (_siblings(windows, slot) >= test.min_siblings)
        return missing, windows.is_gpu & named

    missing, named = states(newest.slot)
    rows = _not_elsewhere(windows, np.flatnonzero(missing))
    missing = np.zeros(windows.rows, dtype=np.bool_)
    missing[rows] = True
    held, since, samples = _runs(windows, now, rows, states)
    long_enough = held >= test.for_seconds
    nothing = np.zeros(windows.rows, dtype=np.bool_)
    return Judgement(
        violating=missing & long_enough,
        pending=missing & ~long_enough,
        calm=nothing,
        uneasy=nothing,
        judged=missing | named,
        measure=now - windows.last_seen,
        held=held,
        since=since,
        samples=samples,
        siblings=_siblings(windows, newest.slot),
    )


def _siblings(windows: SampleWindows, slot: int) -> Ints:
    """For each row how many GPUs of its node were named at the tick (a missing row is not among them)."""
    present = windows.named(slot) & windows.is_gpu
    per_node = np.bincount(windows.node_of[present], minlength=len(windows.nodes))
    return per_node[windows.node_of].astype(np.int64)


def _not_elsewhere(windows: SampleWindows, rows: Ints) -> Ints:
    """Without the cards that report from another node since: they were moved, not lost."""
    seen = windows.last_seen
    kept: Sequence[int] = [
        row
        for row in rows.tolist()
        if not any(seen[other] > seen[row] for other in windows.rows_of_gpu(_uuid(windows, row)))
    ]
    return np.array(kept, dtype=np.int64)


def _uuid(windows: SampleWindows, row: int) -> str:
    target = windows.targets[row]
    return (target.gpu if target is not None else None) or ""
