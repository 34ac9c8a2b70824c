"""The words of a metric condition: what is tested, when it may be judged, when a finding ends. No NumPy."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Op(StrEnum):
    GT = ">"
    GE = ">="
    LT = "<"
    LE = "<="
    EQ = "=="
    NE = "!="

    @property
    def apply(self) -> Callable[[Any, Any], Any]:
        """The comparison as a function of two numbers or arrays."""
        return _FUNCTIONS[self]

    @property
    def rises(self) -> bool | None:
        """True: high values are bad; False: low ones; None: neither."""
        return {Op.GT: True, Op.GE: True, Op.LT: False, Op.LE: False}.get(self)


_FUNCTIONS: dict[Op, Callable[[Any, Any], Any]] = {
    Op.GT: operator.gt,
    Op.GE: operator.ge,
    Op.LT: operator.lt,
    Op.LE: operator.le,
    Op.EQ: operator.eq,
    Op.NE: operator.ne,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Holds when any of ``signals`` compares so with ``value``; unknown when none of them is known."""

    signals: tuple[str, ...]
    op: Op
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """``signal op value`` at every sample for ``for_seconds``. With ``==``: any of ``values``."""

    signal: str
    op: Op
    values: tuple[float, ...]
    for_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A bit of ``mask`` is set in more than ``above`` (0..1) of the judged samples of a window.

    Judged are samples whose guards allow it (``only_while`` the GPU is busy); less than ``min_seconds``
    of them judge nothing.
    """

    signal: str
    mask: int
    above: float
    window_seconds: float
    min_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Increase:
    """A counter grew by more than ``above`` within a window; a fall is a reset, as in PromQL.

    Unlike PromQL's ``increase`` nothing is extrapolated to the window's edges yet: half-integer
    thresholds give the same answer for integer counters.
    """

    signal: str
    above: float
    window_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """A GPU that reported before is missing for ``for_seconds`` while its siblings on the node report."""

    for_seconds: float
    min_siblings: int


Test = Threshold | Share | Increase | Absence


@dataclass(frozen=True, slots=True, kw_only=True)
class Clearing:
    """The finding ends after ``seconds`` of observed calm: at or beyond ``level`` on the good side.

    ``level`` None: the condition itself does not hold. Unknown time does not count, one bad sample
    starts it again.
    """

    seconds: float
    level: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricCondition:
    """A test, its guards, and its hysteresis (None: the finding does not end by metrics).

    A sample is judged only where ``only_while`` is known to hold and ``unless`` is known not to.
    """

    test: Test
    only_while: Guard | None = None
    unless: Guard | None = None
    clear: Clearing | None = None

    @property
    def kind(self) -> str:
        return type(self.test).__name__.lower()

    @property
    def guards(self) -> tuple[Guard, ...]:
        return tuple(guard for guard in (self.only_while, self.unless) if guard is not None)

    @property
    def signals(self) -> tuple[str, ...]:
        """Every signal it reads, the tested one first."""
        tested = () if isinstance(self.test, Absence) else (self.test.signal,)
        return tuple(dict.fromkeys((*tested, *(s for guard in self.guards for s in guard.signals))))

    @property
    def history_seconds(self) -> float:
        """How much of the past must be kept to judge it."""
        if isinstance(self.test, Share | Increase):
            return self.test.window_seconds
        return self.test.for_seconds


#: What every dcgm-exporter reports of a GPU that is there: absence is judged by these, among others.
PRESENCE_SIGNALS = ("gpu_temperature_celsius", "gpu_power_watts", "gpu_sm_clock_hertz")


def signals_of(conditions: Iterable[MetricCondition]) -> tuple[str, ...]:
    """All signals that these conditions read, for a source that must be asked for each by name."""
    found: list[str] = []
    for condition in conditions:
        found += PRESENCE_SIGNALS if isinstance(condition.test, Absence) else ()
        found += condition.signals
    return tuple(dict.fromkeys(found))
