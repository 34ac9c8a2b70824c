"""The recent past of the fleet as arrays: one row of targets per tick and signal, NaN where no sample is.

A target is a GPU (node and UUID; its index may move), a node, or a part of a node (a port). Beside the
values the store knows which GPUs a node named at a tick, and whether the node's answer was whole: a GPU
that is missing from a whole answer is evidence, a node that did not answer is unknown.

Memory is bounded: ``horizon_seconds / step_seconds`` ticks (a few more), ``max_targets`` targets; what was
not seen for the horizon is forgotten. It starts empty, and so do all timers that are counted from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fleet.observations import Reading
from rules.metrics.intake import Target, Tick, read_tick
from rules.model import Rule

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

T = TypeVar("T", bound=np.generic)

GAP_STEPS = 2.5
"""Samples further apart than this many steps leave a gap: what lies between is unknown."""
SPARE_TICKS = 4
_FIRST_TARGETS = 64


class Answer(IntEnum):
    """What a node said at a tick: nothing, something of which a part is lost, or a whole answer."""

    NONE = 0
    DAMAGED = 1
    WHOLE = 2


@dataclass(frozen=True, slots=True)
class TickRef:
    """A tick that is kept: its time and its place in the store."""

    time: float
    slot: int


class SampleWindows:
    """Vectorised store of the last ``horizon_seconds`` of ``signals``; appended to once per step.

    One thread appends and evaluates; nothing in here locks.
    """

    def __init__(
        self,
        signals: Iterable[str],
        *,
        horizon_seconds: float,
        step_seconds: float,
        max_targets: int = 1_000_000,
    ) -> None:
        if not (step_seconds > 0 and horizon_seconds >= step_seconds):
            raise ValueError("windows need step_seconds > 0 and horizon_seconds >= step_seconds")
        self.signals = tuple(dict.fromkeys(signals))
        self.horizon_seconds = horizon_seconds
        self.step_seconds = step_seconds
        self.max_targets = max_targets
        self.refused_targets = 0
        """Targets that found no place at the last append (``max_targets``)."""
        self.unplaced_samples = 0
        """Samples of the last append without node or UUID, or too old: nobody's."""
        self._capacity = math.ceil(horizon_seconds / step_seconds) + SPARE_TICKS
        self._clear()

    @classmethod
    def for_rules(cls, rules: Iterable[Rule], *, step_seconds: float) -> SampleWindows:
        """Windows that hold what these rules read, as long as they look back."""
        conditions = [rule.when for rule in rules if rule.when is not None]
        signals = (signal for condition in conditions for signal in condition.signals)
        longest = max((condition.history_seconds for condition in conditions), default=0.0)
        horizon = longest + (GAP_STEPS + 1) * step_seconds
        return cls(signals, horizon_seconds=horizon, step_seconds=step_seconds)

    # -- what is in here

    @property
    def started_at(self) -> float | None:
        """When the first tick came after a start; None while empty."""
        return self._started_at

    @property
    def gap_seconds(self) -> float:
        return GAP_STEPS * self.step_seconds

    @property
    def rows(self) -> int:
        """Length of every row; freed places among them have no target."""
        return len(self._targets)

    @property
    def targets(self) -> Sequence[Target | None]:
        return self._targets

    @property
    def nodes(self) -> Sequence[str | None]:
        return self._nodes

    @property
    def node_of(self) -> NDArray[np.int64]:
        """For each row the place of its node in ``nodes``."""
        return self._node_of[: self.rows]

    @property
    def is_gpu(self) -> Bools:
        """Rows that are a GPU now; freed rows are none."""
        return self._is_gpu[: self.rows]

    @property
    def in_use(self) -> Bools:
        return self._in_use[: self.rows]

    @property
    def last_seen(self) -> Floats:
        return self._last_seen[: self.rows]

    def row_of(self, target: Target) -> int | None:
        return self._row_of.get(target)

    def rows_of_gpu(self, gpu: str) -> Sequence[int]:
        """Every row with this UUID: more than one after a card has moved to another node."""
        return self._rows_of_gpu.get(gpu, ())

    def place(self, row: int) -> tuple[int | None, str | None]:
        """The index and the PCI address the GPU had last."""
        return self._index.get(row), self._pci.get(row)

    def boot_of(self, node: str) -> str | None:
        return self._boots.get(node)

    def ticks(self, now: float, seconds: float) -> list[TickRef]:
        """The ticks in (now - seconds, now], oldest first (left-open, as in Prometheus 3)."""
        return [tick for tick in self._ticks if now - seconds < tick.time <= now]

    def newest(self, now: float) -> TickRef | None:
        """The last tick, unless it is older than a gap (or lies in the future)."""
        found = self.ticks(now, self.gap_seconds)
        return found[-1] if found and found[-1] is self._ticks[-1] else None

    def values(self, signal: str, slot: int) -> Floats:
        """One value per row at a tick: NaN without a sample. A signal that is not kept is all NaN."""
        kept = self._values.get(signal)
        if kept is None:
            return np.full(self.rows, np.nan)
        return kept[slot, : self.rows]

    def block(self, signal: str, slots: Sequence[int], rows: slice) -> Floats:
        """[ticks x rows] of a signal, copied, in the order of ``slots``."""
        kept = self._values.get(signal)
        if kept is None:
            return np.full((len(slots), rows.stop - rows.start), np.nan)
        found: Floats = kept[list(slots), rows]
        return found

    def named(self, slot: int) -> Bools:
        """Rows that some record of the tick named, with a usable value or not."""
        return self._named[slot, : self.rows]

    def answer_of(self, node: str, slot: int) -> Answer:
        """What one node said at a tick."""
        place = self._node_row.get(node)
        return Answer.NONE if place is None else Answer(int(self._answers[slot, place]))

    def answers(self, slot: int) -> NDArray[np.int8]:
        """One ``Answer`` per node."""
        return self._answers[slot, : len(self._nodes)]

    def matrix(self, signal: str, now: float, seconds: float) -> tuple[Floats, Floats]:
        """(times [ticks], values [targets x ticks]) of a window, copied."""
        ticks = self.ticks(now, seconds)
        rows = [self.values(signal, tick.slot) for tick in ticks]
        values = np.stack(rows, axis=1) if rows else np.empty((self.rows, 0))
        return np.array([tick.time for tick in ticks], dtype=np.float64), values

    @property
    def nbytes(self) -> int:
        """Memory of the arrays."""
        arrays = (*self._values.values(), self._named, self._answers, self._node_of, self._last_seen)
        return sum(array.nbytes for array in arrays)

    # -- what comes in

    def append(
        self, readings: Sequence[Reading], at: float, *, boots: Mapping[str, str] | None = None
    ) -> None:
        """One pass over the sources at ``at`` (our clock). Call it also when nothing answered.

        ``boots``: boot ID per node, where an agent says it. A new one forgets the node's past: nothing
        of an earlier epoch speaks against this one. Less than half a step after the last tick a pass
        joins it; a clock that went back starts the windows again.
        """
        for node, boot_id in (boots or {}).items():
            self._boot(node, boot_id)
        tick = read_tick(readings, at, frozenset(self.signals), max_age=self.gap_seconds)
        self.unplaced_samples = tick.unplaced
        self.refused_targets = 0
        self._forget(at)
        slot = self._slot(at)
        self._write(tick, slot, at)

    def forget(self, node: str) -> None:
        """What the node said until now is about another boot, or another machine of that name."""
        place = self._node_row.get(node)
        if place is None:
            return
        self._answers[:, place] = Answer.NONE
        self._release(np.flatnonzero(self.in_use & (self.node_of == place)))

    def append_columns(self, at: float, targets: Sequence[Target], values: Mapping[str, Floats]) -> None:
        """A tick from columns (a cache of history): every target's node gave a whole answer.

        ``values``: one array per signal, in the order of ``targets``, NaN without a sample.
        """
        self.refused_targets = 0
        self._forget(at)
        rows = np.array([self._row(target) for target in targets], dtype=np.int64)
        slot = self._slot(at)
        placed = rows >= 0
        where = rows[placed]
        for signal in self._values.keys() & values.keys():
            self._values[signal][slot, where] = values[signal][placed]
        self._named[slot, where] = True
        self._answers[slot, self._node_of[where]] = Answer.WHOLE
        self._last_seen[where] = at

    # -- inside

    def _clear(self) -> None:
        self._started_at: float | None = None
        self._ticks: list[TickRef] = []
        self._targets: list[Target | None] = []
        self._row_of: dict[Target, int] = {}
        self._rows_of_gpu: dict[str, list[int]] = {}
        self._free: list[int] = []
        self._index: dict[int, int | None] = {}
        self._pci: dict[int, str | None] = {}
        self._nodes: list[str | None] = []
        self._free_nodes: list[int] = []
        self._node_row: dict[str, int] = {}
        self._boots: dict[str, str] = {}
        size = _FIRST_TARGETS
        self._values: dict[str, Floats] = {
            name: np.full((self._capacity, size), np.nan) for name in self.signals
        }
        self._named = np.zeros((self._capacity, size), dtype=np.bool_)
        self._answers = np.zeros((self._capacity, size), dtype=np.int8)
        self._node_of = np.zeros(size, dtype=np.int64)
        self._is_gpu = np.zeros(size, dtype=np.bool_)
        self._in_use = np.zeros(size, dtype=np.bool_)
        self._last_seen = np.full(size, -np.inf)

    def _boot(self, node: str, boot_id: str) -> None:
        known = self._boots.get(node)
        self._boots[node] = boot_id
        if known is not None and known != boot_id:
            self.forget(node)

    def _slot(self, at: float) -> int:
        """The place for the tick at ``at``; the last one's where ``at`` belongs to it."""
        if self._ticks:
            since = at - self._ticks[-1].time
            if abs(since) < self.step_seconds / 2:
                return self._ticks[-1].slot
            if since < 0:
                boots = self._boots
                self._clear()
                self._boots = boots
        if self._started_at is None:
            self._started_at = at
        if len(self._ticks) < self._capacity:
            slot = len(self._ticks)
        else:
            slot = self._ticks.pop(0).slot
            for kept in self._values.values():
                kept[slot] = np.nan
            self._named[slot] = False
            self._answers[slot] = Answer.NONE
        self._ticks.append(TickRef(at, slot))
        return slot

    def _write(self, tick: Tick, slot: int, at: float) -> None:
        for node, whole in tick.answered.items():
            place = self._node(node)
            said = Answer.WHOLE if whole else Answer.DAMAGED
            # Two passes of one tick: the worse answer counts.
            before = self._answers[slot, place]
            self._answers[slot, place] = said if before == Answer.NONE else min(said, before)
        rows: dict[Target, int] = {}
        for target, seen in tick.seen.items():
            row = self._row(target)
            if row < 0:
                continue
            rows[target] = row
            if seen.index is not None:
                self._index[row] = seen.index
            if seen.pci is not None:
                self._pci[row] = seen.pci
        named = np.fromiter(rows.values(), dtype=np.int64, count=len(rows))
        self._named[slot, named] = True
        self._last_seen[named] = at
        for signal, column in tick.values.items():
            kept = [(rows[target], value) for target, value in column.items() if target in rows]
            if kept:
                where, what = zip(*kept, strict=True)
                self._values[signal][slot, list(where)] = what

    def _row(self, target: Target) -> int:
        """The row of a target, a new one if need be; -1 when there is no room."""
        row = self._row_of.get(target)
        if row is not None:
            return row
        if self._free:
            row = self._free.pop()
            self._targets[row] = target
        elif len(self._targets) < self.max_targets:
            row = len(self._targets)
            self._targets.append(target)
            if row >= len(self._in_use):
                self._grow()
        else:
            self.refused_targets += 1
            return -1
        self._row_of[target] = row
        self._node_of[row] = self._node(target.node)
        self._in_use[row] = True
        self._is_gpu[row] = target.gpu is not None
        if target.gpu is not None:
            self._rows_of_gpu.setdefault(target.gpu, []).append(row)
        return row

    def _node(self, node: str) -> int:
        place = self._node_row.get(node)
        if place is None:
            if self._free_nodes:
                place = self._free_nodes.pop()
                self._nodes[place] = node
            else:
                place = len(self._nodes)
                self._nodes.append(node)
            self._node_row[node] = place
            if place >= self._answers.shape[1]:
                self._answers = _widened(self._answers, Answer.NONE)
        return place

    def _grow(self) -> None:
        for signal, kept in self._values.items():
            self._values[signal] = _widened(kept, np.nan)
        self._named = _widened(self._named, False)  # noqa: FBT003 - a fill value
        self._node_of = _widened(self._node_of, 0)
        self._is_gpu = _widened(self._is_gpu, False)  # noqa: FBT003
        self._in_use = _widened(self._in_use, False)  # noqa: FBT003
        self._last_seen = _widened(self._last_seen, -np.inf)

    def _forget(self, at: float) -> None:
        """Give back the rows of targets that were not seen for the horizon, and nodes without any."""
        old = self.in_use & (self.last_seen < at - self.horizon_seconds)
        if not old.any():
            return
        self._release(np.flatnonzero(old))
        alive = set(self.node_of[self.in_use].tolist())
        for node, place in list(self._node_row.items()):
            if place not in alive:
                del self._node_row[node]
                self._nodes[place] = None
                self._answers[:, place] = Answer.NONE
                self._free_nodes.append(place)

    def _release(self, rows: NDArray[np.int64]) -> None:
        for row in rows.tolist():
            target = self._targets[row]
            if target is None:
                continue
            self._targets[row] = None
            del self._row_of[target]
            self._index.pop(row, None)
            self._pci.pop(row, None)
            self._free.append(row)
            if target.gpu is not None:
                left = [other for other in self._rows_of_gpu.pop(target.gpu) if other != row]
                if left:
                    self._rows_of_gpu[target.gpu] = left
        self._in_use[rows] = False
        self._is_gpu[rows] = False
        self._last_seen[rows] = -np.inf
        for kept in self._values.values():
            kept[:, rows] = np.nan
        self._named[:, rows] = False


def _widened(array: NDArray[T], fill: object) -> NDArray[T]:
    """Twice as many columns, the new ones holding ``fill``."""
    wide = np.full((*array.shape[:-1], 2 * array.shape[-1]), fill, dtype=array.dtype)
    wide[..., : array.shape[-1]] = array
    return wide
