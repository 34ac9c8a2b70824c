"""What the agent counts, and how Prometheus reads it.

Families are built per scrape from plain counters: no global registry, no ``_created`` series.
"""

from __future__ import annotations

import bisect
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

# Around the target of 50 ms from line to push (design: one second is already a slow path).
LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0)


# Label values -> count.
Values = Mapping[tuple[str, ...], int]


class PushFailure(StrEnum):
    """Why a push did not succeed. A closed list: it is a label."""

    UNREACHABLE = "unreachable"
    BUSY = "busy"
    REFUSED = "refused"
    BAD_REQUEST = "bad_request"
    TOO_LARGE = "too_large"
    NOT_THE_API = "not_the_api"
    NO_BOOT_ID = "no_boot_id"


class LoopFailure(StrEnum):
    """Which part of the agent failed and was tried again. A closed list: it is a label."""

    SOURCE = "source"
    PARSER = "parser"
    READER = "reader"
    PUSHER = "pusher"
    METRIC_SOURCE = "metric_source"


class AgentStats:
    """Counters shared by the agent's threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._events: Counter[str] = Counter()
        self._problems: Counter[tuple[str, ...]] = Counter()
        self._push_failures: Counter[str] = Counter({failure.value: 0 for failure in PushFailure})
        self._loop_failures: Counter[str] = Counter({failure.value: 0 for failure in LoopFailure})
        self._pushes = 0
        self._rejected = 0
        self._last_success: float | None = None
        self._latencies = [0] * (len(LATENCY_BUCKETS) + 1)
        self._latency_sum = 0.0

    def event(self, kind: str) -> None:
        with self._mutex:
            self._events[kind] += 1

    def problem(self, source: str, reason: str, count: int) -> None:
        with self._mutex:
            self._problems[(source, reason)] += count

    def push_attempt(self) -> None:
        with self._mutex:
            self._pushes += 1

    def push_failed(self, failure: PushFailure) -> None:
        with self._mutex:
            self._push_failures[failure.value] += 1

    def push_succeeded(self, at: float) -> None:
        """``at``: epoch seconds of the controller's answer."""
        with self._mutex:
            self._last_success = at

    def rejected(self, count: int) -> None:
        with self._mutex:
            self._rejected += count

    def latency(self, seconds: float) -> None:
        """From a line being read to its event being answered."""
        with self._mutex:
            self._latencies[bisect.bisect_left(LATENCY_BUCKETS, seconds)] += 1
            self._latency_sum += max(0.0, seconds)

    def loop_failed(self, failure: LoopFailure) -> None:
        with self._mutex:
            self._loop_failures[failure.value] += 1

    def families(self) -> Iterator[Metric]:
        """One consistent view of all counters."""
        with self._mutex:
            yield from list(self._families())

    def _families(self) -> Iterator[Metric]:
        yield _counter("events", "Events read, by kind.", ("kind",), _keys(self._events))
        yield _counter(
            "problems",
            "Lines and records that could not be used, by source and reason (untrusted ones too).",
            ("source", "reason"),
            dict(self._problems),
        )
        yield _counter("pushes", "Pushes tried.", (), {(): self._pushes})
        yield _counter(
            "push_failures",
            "Pushes that did not end with the controller's word, by reason.",
            ("reason",),
            _keys(self._push_failures),
        )
        yield _counter(
            "rejected_events",
            "Events the controller refused for good; the log has the reason of each.",
            (),
            {(): self._rejected},
        )
        yield _counter(
            "loop_failures",
            "Failures of a part of the agent that was then tried again.",
            ("part",),
            _keys(self._loop_failures),
        )
        if self._last_success is not None:
            yield GaugeMetricFamily(
                "sickbay_agent_last_push_timestamp_seconds",
                "When the controller last answered a push; absent before the first time.",
                value=self._last_success,
            )
        running = list(itertools.accumulate(self._latencies))
        bounds = [*(str(bound) for bound in LATENCY_BUCKETS), "+Inf"]
        yield HistogramMetricFamily(
            "sickbay_agent_line_to_push_seconds",
            "From reading a kernel line to the controller's answer for its event.",
            buckets=list(zip(bounds, map(float, running), strict=True)),
            sum_value=self._latency_sum,
        )


def _keys(counts: Counter[str]) -> Values:
    return {(key,): value for key, value in counts.items()}


def _counter(name: str, text: str, labels: tuple[str, ...], values: Values) -> CounterMetricFamily:
    family = CounterMetricFamily(f"sickbay_agent_{name}", text, labels=labels)
    for key in sorted(values):
        family.add_metric(list(key), values[key])
    return family


class AgentCollector(Collector):
    """The agent as a Prometheus collector. ``spool`` answers (depth, durable, dropped)."""

    def __init__(
        self, *, stats: AgentStats, version: str, spool: Callable[[], tuple[int, bool, int]]
    ) -> None:
        self._stats = stats
        self._version = version
        self._spool = spool

    def collect(self) -> Iterator[Metric]:
        depth, durable, dropped = self._spool()
        yield InfoMetricFamily("sickbay_agent_build", "What runs here.", value={"version": self._version})
        yield GaugeMetricFamily(
            "sickbay_agent_spool_events", "Events that wait for the controller's answer.", value=depth
        )
        yield GaugeMetricFamily(
            "sickbay_agent_spool_durable",
            "1 while events are on the disk before they are sent; 0 while memory alone holds them.",
            value=float(durable),
        )
        yield _counter("spool_dropped_events", "Events given up by a full spool.", (), {(): dropped})
        yield from self._stats.families()


def registry_of(*collectors: Collector) -> CollectorRegistry:
    """A registry with these collectors alone: nothing of the process or the interpreter."""
    registry = CollectorRegistry(auto_describe=False)
    for collector in collectors:
        registry.register(collector)
    return registry
