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

# Values of a signal: one row of the windows, or a block of [ticks x rows]; all of one shape.
Get = Callable[[str], Floats]


def _guard(get: Get, guard: Guard) -> tuple[Bools, Bools]:
    """(holds, known): any known signal is enough to hold."""
    holds, known = _one_guard(get, guard, guard.signals[0])
    for signal in guard.signals[1:]:
        also, there = _one_guard(get, guard, signal)
        holds, known = holds | also, known | there
    return holds, known


def _one_guard(get: Get, guard: Guard, signal: str) -> tuple[Bools, Bools]:
    values = get(signal)
    known = ~np.isnan(values)
    return known & guard.op.apply(values, guard.value), known


def _allowed(get: Get, condition: MetricCondition, like: Bools) -> tuple[Bools, Bools]:
    """(allowed, refused) by the guards, in the shape of ``like``; neither: a guard is unknown."""
    allowed, refused = np.ones_like(like), np.zeros_like(like)
    if condition.only_while is not None:
        holds, known = _guard(get, condition.only_while)
        allowed, refused = holds, known & ~holds
    if condition.unless is not None:
        holds, known = _guard(get, condition.unless)
        allowed, refused = allowed & known & ~holds, refused | holds
    return allowed, refused


# -- threshold ------------------------------------------------------------------------------------


def _threshold(
    windows: SampleWindows, condition: MetricCondition, test: Threshold, now: float, newest: TickRef
) -> Judgement:
    def states(slot: int) -> tuple[Bools, Bools]:
        values = windows.values(test.signal, slot)
        known = ~np.isnan(values)
        hit = known & _compares(test, values)
        allowed, refused = _allowed(lambda signal: windows.values(signal, slot), condition, known)
        return hit & allowed, (known & ~hit) | refused

    values = windows.values(test.signal, newest.slot)
    known = ~np.isnan(values)
    true, false = states(newest.slot)
    allowed, _ = _allowed(lambda signal: windows.values(signal, newest.slot), condition, known)
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

_BLOCK_ROWS = 8192
"""Windows are read in blocks of so many rows: a block fits the caches, a small fleet is one block."""


@dataclass(slots=True)
class _Sums:
    """What a walk over the blocks of a window fills in, one element per row."""

    value: Floats
    since: Floats
    held: Floats
    samples: Ints
    fresh: Bools

    @classmethod
    def empty(cls, rows: int) -> _Sums:
        return cls(
            value=np.zeros(rows),
            since=np.full(rows, np.nan),
            held=np.zeros(rows),
            samples=np.zeros(rows, dtype=np.int64),
            fresh=np.zeros(rows, dtype=np.bool_),
        )


def _blocks(windows: SampleWindows) -> list[slice]:
    return [slice(low, min(low + _BLOCK_ROWS, windows.rows)) for low in range(0, windows.rows, _BLOCK_ROWS)]


def _first(times: Floats, true: Bools) -> Floats:
    """For each column the time of its first true tick; NaN without one."""
    found: Floats = np.where(true.any(axis=0), times[np.argmax(true, axis=0)], np.nan)
    return found


def _share(
    windows: SampleWindows, condition: MetricCondition, test: Share, now: float, newest: TickRef
) -> Judgement:
    ticks = windows.ticks(now, test.window_seconds)
    times = np.array([tick.time for tick in ticks])
    slots = [tick.slot for tick in ticks]
    sums = _Sums.empty(windows.rows)
    for rows in _blocks(windows) if ticks else ():
        values = windows.block(test.signal, slots, rows)
        usable = (values >= 0) & (values < _MAX_MASK)
        allowed, _ = _allowed(_of_block(windows, slots, rows), condition, usable)
        usable &= allowed
        flagged = (np.where(usable, values, 0).astype(np.int64) & test.mask) != 0
        sums.samples[rows] = usable.sum(axis=0)
        sums.value[rows] = flagged.sum(axis=0)
        sums.since[rows] = _first(times, flagged)
        sums.fresh[rows] = usable[-1]
    counted = sums.samples
    share = np.divide(sums.value, counted, out=np.full(windows.rows, np.nan), where=counted > 0)
    judged_seconds = counted * windows.step_seconds
    enough = judged_seconds >= test.min_seconds
    judged = sums.fresh & enough
    level = _level(condition, test.above)
    return Judgement(
        violating=judged & (share > test.above),
        pending=sums.fresh & ~enough & (share > test.above),
        calm=judged & (share <= level),
        uneasy=judged & (share > level),
        judged=judged,
        measure=share,
        held=judged_seconds.astype(np.float64),
        since=sums.since,
        samples=counted,
    )


def _increase(
    windows: SampleWindows, condition: MetricCondition, test: Increase, now: float, newest: TickRef
) -> Judgement:
    ticks = windows.ticks(now, test.window_seconds)
    times = np.array([tick.time for tick in ticks])
    slots = [tick.slot for tick in ticks]
    sums = _Sums.empty(windows.rows)
    for rows in _blocks(windows) if ticks else ():
        values = windows.block(test.signal, slots, rows)
        known = values >= 0
        grown = _growth(values, known)
        first = _first(times, known)
        sums.value[rows] = grown.sum(axis=0)
        sums.since[rows] = _first(times, grown > 0)
        sums.held[rows] = np.where(np.isnan(first), 0.0, newest.time - first)
        sums.samples[rows] = known.sum(axis=0)
        sums.fresh[rows] = known[-1]
    allowed, refused = _allowed(lambda signal: windows.values(signal, newest.slot), condition, sums.fresh)
    judged = sums.fresh & (sums.samples > 1)
    level = _level(condition, test.above)
    return Judgement(
        violating=judged & allowed & (sums.value > test.above),
        pending=np.zeros(windows.rows, dtype=np.bool_),
        calm=judged & allowed & (sums.value <= level),
        uneasy=judged & allowed & (sums.value > level),
        judged=judged & (allowed | refused),
        measure=sums.value,
        held=sums.held,
        since=sums.since,
        samples=sums.samples,
    )


def _growth(values: Floats, known: Bools) -> Floats:
    """How much a counter grew from the known sample before, per tick. A fall is a reset: counted from 0."""
    places = np.where(known, np.arange(len(values))[:, np.newaxis], -1)
    before = np.full_like(places, -1)
    np.maximum.accumulate(places[:-1], axis=0, out=before[1:])
    last = np.take_along_axis(values, np.maximum(before, 0), axis=0)
    grown = np.where(values < last, values, values - last)
    found: Floats = np.where(known & (before >= 0), grown, 0.0)
    return found


def _level(condition: MetricCondition, above: float) -> float:
    clear = condition.clear
    return above if clear is None or clear.level is None else clear.level


def _of_block(windows: SampleWindows, slots: Sequence[int], rows: slice) -> Get:
    return lambda signal: windows.block(signal, slots, rows)


# -- absence --------------------------------------------------------------------------------------


def _absence(windows: SampleWindows, test: Absence, now: float, newest: TickRef) -> Judgement:
    def states(slot: int) -> tuple[Bools, Bools]:
        named = windows.named(slot)
        whole = windows.answers(slot)[windows.node_of] == Answer.WHOLE
        missing = windows.is_gpu & ~named & whole & (_siblings(windows, slot) >= test.min_siblings)
        return missing, windows.is_gpu & named

    missing, named = states(newest.slot)
    rows = _not_replaced(windows, _not_elsewhere(windows, np.flatnonzero(missing)), newest.slot)
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


def _not_replaced(windows: SampleWindows, rows: Ints, slot: int) -> Ints:
    """Without those in whose slot (PCI address) another card of the node reports at the tick: it was
    exchanged, or the exporter that is asked is another machine's. Either way the slot is not empty. Indexes
    do not count: after a loss the cards behind it move up.
    """
    if not rows.size:
        return rows
    present = np.flatnonzero(windows.named(slot) & windows.is_gpu).tolist()
    taken = {(windows.node_of[row], windows.place(row)[1]) for row in present}
    kept = [
        row
        for row in rows.tolist()
        if (pci := windows.place(row)[1]) is None or (windows.node_of[row], pci) not in taken
    ]
    return np.array(kept, dtype=np.int64)


def _uuid(windows: SampleWindows, row: int) -> str:
    target = windows.targets[row]
    return (target.gpu if target is not None else None) or ""
