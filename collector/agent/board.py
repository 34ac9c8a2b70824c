"""The last reading of each source, and how it goes: what a scrape shows without reading anything."""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from collector.agent.sources import GPU_SOURCES
from fleet.clock import Clock
from fleet.observations import Problem, ProblemReason, Reading, Sample

#: A reading is shown for this many intervals, then it is absent.
INTERVALS_SHOWN = 3
#: Bounds of what one source may put on the page: sixteen GPUs with every signal stay below 3,000 series.
MAX_SERIES = 10_000
MAX_LABEL_CHARS = 256
# A part of the answer is lost, if no single GPU is named: what it does not list may still be there. PARTIAL
# is not among them: a source says so when it knows that a GPU is missing.
_LOSSES = frozenset(
    {
        ProblemReason.TRUNCATED,
        ProblemReason.TOO_LARGE,
        ProblemReason.UNREADABLE,
        ProblemReason.TIMEOUT,
        ProblemReason.QUERY_ERROR,
        ProblemReason.PERMISSION_DENIED,
        ProblemReason.CONFLICT,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceHealth:
    """How one source does. What is not known yet is None.

    ``up``: the last read ended well, and is not too old to be shown. ``last_success`` is epoch seconds.
    ``interval_seconds``: until the next read, longer while it backs off. ``timeouts`` counts reads.
    """

    source: str
    up: bool | None
    last_success: float | None
    duration_seconds: float | None
    interval_seconds: float
    timeouts: int


@dataclass(slots=True)
class _Entry:
    """``samples`` with the time at which each is too old, of the monotonic clock.

    ``whole``: no part of that reading was lost. ``listed``: the GPUs of the last whole one. ``late``: the
    last read got no answer in time.
    """

    interval: float
    samples: tuple[tuple[Sample, float], ...] = ()
    ok: bool | None = None
    until: float = -math.inf
    last_success: float | None = None
    duration: float | None = None
    timeouts: int = 0
    late: bool = False
    whole: bool = False
    listed: frozenset[str] | None = None


class Board:
    """Shared between the sources' threads and those that answer scrapes.

    ``sources`` in the order of precedence, best first.
    """

    def __init__(self, sources: Sequence[str], *, clock: Clock, interval_seconds: float) -> None:
        self._clock = clock
        self._shown_seconds = INTERVALS_SHOWN * interval_seconds
        self._mutex = threading.Lock()
        self._entries = {source: _Entry(interval_seconds) for source in sources}

    def record(self, source: str, reading: Reading, *, began: float, next_seconds: float) -> None:
        """A read of ``source`` ended. ``began``: when it was started (monotonic).

        A read that failed keeps what was known until that is too old: one late answer makes no gap.
        """
        now, wall = self._clock.monotonic(), self._clock.now()
        until = began + self._shown_seconds
        samples = tuple((sample, until - self._age(sample, wall, now - began)) for sample in reading.samples)
        with self._mutex:
            entry = self._entries[source]
            entry.interval = next_seconds
            entry.duration = now - began
            entry.ok = reading.ok
            entry.late = timed_out(reading)
            entry.timeouts += entry.late
            if reading.ok:
                entry.samples, entry.until, entry.last_success = samples, until, wall
                entry.whole = not any(map(_is_loss, reading.problems))
                if entry.whole:
                    entry.listed = _gpus(reading.samples)

    def samples(self) -> tuple[tuple[Sample, ...], ...]:
        """What each source says now, in the order of precedence; nothing that is too old."""
        now = self._clock.monotonic()
        with self._mutex:
            kept = [entry.samples for entry in self._entries.values()]
        return tuple(tuple(sample for sample, until in samples if now <= until) for samples in kept)

    def health(self) -> Iterator[SourceHealth]:
        now = self._clock.monotonic()
        with self._mutex:
            found = [
                SourceHealth(
                    source=source,
                    up=None if entry.ok is None else entry.ok and now <= entry.until,
                    last_success=entry.last_success,
                    duration_seconds=entry.duration,
                    interval_seconds=entry.interval,
                    timeouts=entry.timeouts,
                )
                for source, entry in self._entries.items()
            ]
        yield from found

    def gpus_complete(self) -> bool | None:
        """Whether a GPU that is not shown is one that no source sees. None: no source lists GPUs.

        Unless a source that may know more cannot tell now: it has not been read yet, hangs, has lost a part
        of its answer, or listed, when it last answered whole, a GPU that nobody shows now.
        """
        now = self._clock.monotonic()
        named = _gpus(sample for samples in self.samples() for sample in samples)
        with self._mutex:
            entries = [entry for source, entry in self._entries.items() if source in GPU_SOURCES]
            whole = [bool(entry.ok and entry.whole and now <= entry.until) for entry in entries]
            others = [
                entry.listed <= named
                if entry.listed is not None
                else entry.ok is False and not entry.late and any(whole)
                for entry in entries
            ]
        return all(map(operator.or_, whole, others)) if entries else None

    def _age(self, sample: Sample, wall: float, took: float) -> float:
        """How old the sample was when its read began (s): an exporter may print times of its own."""
        return max(0.0, wall - sample.time - took)


def _is_loss(problem: Problem) -> bool:
    nameless = problem.gpu is None and problem.index is None and problem.pci is None
    return nameless and problem.reason in _LOSSES


def _gpus(samples: Iterable[Sample]) -> frozenset[str]:
    names = (
        sample.gpu or sample.pci or (None if sample.index is None else f"{sample.index}")
        for sample in samples
    )
    return frozenset(name for name in names if name is not None)


def timed_out(reading: Reading) -> bool:
    """True when nothing was read because the source did not answer in time."""
    return not reading.ok and any(p.reason is ProblemReason.TIMEOUT for p in reading.problems)


def within_bounds(reading: Reading, source: str) -> Reading:
    """``reading`` with finite samples of a bounded number and size only; the rest is a problem."""
    samples: list[Sample] = []
    problems = list(reading.problems)
    dropped = 0
    for sample in reading.samples:
        if not math.isfinite(sample.value):
            continue
        short = all(len(value) <= MAX_LABEL_CHARS for value in sample.labels.values())
        if short and len(samples) < MAX_SERIES:
            samples.append(sample)
        else:
            dropped += 1
    if dropped:
        message = f"more than {MAX_SERIES} series, or a label of more than {MAX_LABEL_CHARS} characters"
        reason = ProblemReason.TOO_LARGE
        problems.append(Problem(source=source, reason=reason, message=message, count=dropped))
    return Reading((*samples, *problems), ok=reading.ok)
