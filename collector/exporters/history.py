"""What only two reads together can tell: jobs that started, and how long they had waited.

Counters of this process's life. What happened before the first read is nobody's news: after a restart the
running jobs are not counted as starts again, and ``rate`` and ``increase`` know a counter that begins anew.
Missed are starts while no exporter ran, and jobs that started and were forgotten by the scheduler (Slurm's
MinJobAge; on Kubernetes: finished) between two reads.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from collector.exporters.classes import QueueState, SizeClass
from collector.exporters.model import QueueItem
from collector.exporters.summary import NO_PARTITION, LabelBudget

#: Upper bounds in seconds. Ten seconds is "at once" for a scheduler; a week is when somebody calls.
WAIT_BUCKETS = (
    *(10.0, 30.0, 60.0, 300.0, 900.0, 1800.0, 3600.0),
    *(7200.0, 14400.0, 28800.0, 86400.0, 172800.0, 604800.0),
)
# A run that a read leaves out (one record nobody could parse) must not be a start again when it is back.
_REMEMBER_SECONDS = 3600.0

WaitKey = tuple[str, SizeClass]


@dataclass(slots=True)
class WaitHistogram:
    """Counts per bucket (the last one is above all bounds; not cumulative) and the sum of seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(WAIT_BUCKETS) + 1))
    total_seconds: float = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect.bisect_left(WAIT_BUCKETS, seconds)] += 1
        self.total_seconds += seconds

    def copy(self) -> WaitHistogram:
        return WaitHistogram(list(self.counts), self.total_seconds)


@dataclass(frozen=True, slots=True)
class Waits:
    """A picture of the history: waits by (partition, size), and starts whose wait nobody can tell."""

    histograms: Mapping[WaitKey, WaitHistogram]
    unknown: Mapping[str, int]


class StartHistory:
    """Feed it every successful read, in order. For one thread."""

    def __init__(self, partition: LabelBudget) -> None:
        self._partition = partition
        self._seen: dict[tuple[str, ...], float] | None = None
        self._histograms: dict[WaitKey, WaitHistogram] = {}
        self._unknown: Counter[str] = Counter()

    def update(self, items: Iterable[QueueItem], *, now: float) -> None:
        """Compare with the reads before (``now`` is monotonic seconds). The first one only sets the stage."""
        first, seen = self._seen is None, dict(self._seen or {})
        for item in items:
            if (
                item.state is not QueueState.ENDED
            ):  # its class exists from now on, at 0: its first start counts
                self._of_class(item)
            if item.started:
                if not first and item.run not in seen:
                    self._count(item)
                seen[item.run] = now
        self._seen = {run: at for run, at in seen.items() if now - at <= _REMEMBER_SECONDS}

    def picture(self) -> Waits:
        copies = {key: histogram.copy() for key, histogram in self._histograms.items()}
        return Waits(copies, dict(self._unknown))

    def _of_class(self, item: QueueItem) -> WaitHistogram:
        """A started job has one partition. One that still waits in several is in each of them at 0."""
        found = [
            self._histograms.setdefault((self._partition(name), item.size), WaitHistogram())
            for name in item.partitions or (NO_PARTITION,)
        ]
        for name in item.partitions or (NO_PARTITION,):
            self._unknown.setdefault(self._partition(name), 0)
        return found[0]

    def _count(self, item: QueueItem) -> None:
        histogram = self._of_class(item)
        if item.wait_seconds is None:
            self._unknown[self._partition((item.partitions or (NO_PARTITION,))[0])] += 1
            return
        histogram.observe(item.wait_seconds)
