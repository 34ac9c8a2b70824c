"""The controller's own metrics: counters live for the process, the fleet's numbers are built per scrape.

So what has vanished is gone from the next scrape, and one failing part never fails the whole.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

PASS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
#: Labels of ``sickbay_finding``.
FINDING_LABELS = ("node", "gpu", "uuid", "rule", "kind", "severity")
SCRAPE_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0)


class FleetFacts(Protocol):
    """What a scrape asks the service; every method is a cheap read."""

    def nodes_by(self) -> Iterable[tuple[str, str, str]]:
        """(pool, state, verdict) of every node."""
        ...

    def incidents_by(self) -> Iterable[tuple[str, str]]:
        """(pool, state) of every open incident."""
        ...

    def blocked_by(self) -> Iterable[str]:
        """The name of each gate that blocks an open incident, once per incident."""
        ...

    def findings_open(self) -> Iterable[Mapping[str, str]]:
        """The labels of each open finding: node, gpu (PCI address or empty), uuid, rule, kind, severity."""
        ...

    def inbox_depth(self) -> int: ...


class TargetFacts(Protocol):
    """How one exporter answered in the last pass."""

    @property
    def node(self) -> str: ...
    @property
    def ok(self) -> bool: ...
    @property
    def duration_seconds(self) -> float: ...
    @property
    def samples(self) -> int: ...
    @property
    def last_success(self) -> float | None: ...


class ControllerMetrics:
    """Counters and the registry. ``render`` gives the text exposition."""

    def __init__(self, version: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        info = Gauge(
            "sickbay_build_info", "Version of the running controller.", ["version"], registry=self.registry
        )
        info.labels(version).set(1)
        self.events = Counter(
            "sickbay_events_received_total",
            "Events pushed by agents, by what became of them at the door.",
            ["result"],
            registry=self.registry,
        )
        self.alerts = Counter(
            "sickbay_alerts_received_total",
            "Alerts received from Alertmanager, by what became of them at the door.",
            ["result"],
            registry=self.registry,
        )
        for counter in (self.events, self.alerts):
            for result in ("accepted", "duplicate", "rejected"):
                counter.labels(result)
        self.passes = Counter("sickbay_passes_total", "Passes of the control loop.", registry=self.registry)
        self.pass_failures = Counter(
            "sickbay_pass_failures_total", "Passes that ended in an error.", registry=self.registry
        )
        self.pass_seconds = Histogram(
            "sickbay_pass_duration_seconds",
            "Duration of a pass of the control loop.",
            buckets=PASS_BUCKETS,
            registry=self.registry,
        )
        self.last_pass = Gauge(
            "sickbay_last_pass_timestamp_seconds",
            "When the control loop last completed a pass.",
            registry=self.registry,
        )
        self.reads = Counter(
            "sickbay_scheduler_reads_total", "Full reads of the scheduler.", registry=self.registry
        )
        self.read_failures = Counter(
            "sickbay_scheduler_read_failures_total",
            "Full reads of the scheduler that failed.",
            registry=self.registry,
        )
        self.last_read = Gauge(
            "sickbay_scheduler_last_read_timestamp_seconds",
            "When the scheduler last answered in full.",
            registry=self.registry,
        )
        self.scrape_seconds = Histogram(
            "sickbay_scrape_pass_duration_seconds",
            "Duration of a pass over all exporters.",
            buckets=SCRAPE_BUCKETS,
            registry=self.registry,
        )
        self.evaluations = Counter(
            "sickbay_metric_evaluations_total", "Evaluations of the metric rules.", registry=self.registry
        )
        self.evaluations_postponed = Counter(
            "sickbay_metric_evaluations_postponed_total",
            "Evaluations put off because the one before was not stored yet.",
            registry=self.registry,
        )
        self.evaluation_failures = Counter(
            "sickbay_metric_evaluation_failures_total",
            "Passes of the metric path that ended in an error.",
            registry=self.registry,
        )
        self.last_evaluation = Gauge(
            "sickbay_metric_last_evaluation_timestamp_seconds",
            "When the metric rules were last evaluated.",
            registry=self.registry,
        )
        self.rule_targets = Gauge(
            "sickbay_rule_targets", "Targets a metric rule is about.", ["rule"], registry=self.registry
        )
        self.rule_targets_judged = Gauge(
            "sickbay_rule_targets_judged",
            "Targets a metric rule could judge: 0 of many means that nobody reports its signal.",
            ["rule"],
            registry=self.registry,
        )
        self.leading = Gauge(
            "sickbay_leader", "1 while this controller holds the lease.", registry=self.registry
        )
        self.pages = Gauge("sickbay_pages", "Pages raised since start.", registry=self.registry)

    def watch(self, facts: FleetFacts) -> None:
        """Add the fleet's own numbers, read at each scrape."""
        self.registry.register(_FleetCollector(facts))

    def watch_targets(self, targets: Callable[[], Sequence[TargetFacts]]) -> None:
        """Add a line per exporter that is scraped, as it answered last."""
        self.registry.register(_TargetCollector(targets))

    def evaluated(self, coverage: Iterable[tuple[str, int, int]], at: float) -> None:
        """The metric rules were evaluated; ``coverage``: (rule, judged, targets)."""
        self.evaluations.inc()
        self.last_evaluation.set(at)
        for rule, judged, targets in coverage:
            self.rule_targets.labels(rule).set(targets)
            self.rule_targets_judged.labels(rule).set(judged)

    def render(self) -> bytes:
        return generate_latest(self.registry)


class _FleetCollector(Collector):
    def __init__(self, facts: FleetFacts) -> None:
        self._facts = facts

    def describe(self) -> Iterator[Metric]:
        # Not asked at registration: the store may not be open yet.
        return iter(())

    def collect(self) -> Iterator[Metric]:
        nodes = GaugeMetricFamily(
            "sickbay_nodes",
            "Nodes by pool, scheduler state and verdict.",
            labels=["pool", "state", "verdict"],
        )
        for labels, count in sorted(Tally(self._facts.nodes_by()).items()):
            nodes.add_metric(list(labels), count)
        yield nodes
        incidents = GaugeMetricFamily(
            "sickbay_incidents_open", "Open incidents by pool and state.", labels=["pool", "state"]
        )
        for pair, count in sorted(Tally(self._facts.incidents_by()).items()):
            incidents.add_metric(list(pair), count)
        yield incidents
        blocked = GaugeMetricFamily(
            "sickbay_incidents_blocked", "Open incidents a gate keeps from their next step.", labels=["gate"]
        )
        for gate, count in sorted(Tally(self._facts.blocked_by()).items()):
            blocked.add_metric([gate], count)
        yield blocked
        yield GaugeMetricFamily(
            "sickbay_inbox_pending",
            "Stored pushes that are not weighed yet.",
            value=self._facts.inbox_depth(),
        )
        findings = GaugeMetricFamily(
            "sickbay_finding", "1 for each open finding.", labels=list(FINDING_LABELS)
        )
        told = {tuple(labels[name] for name in FINDING_LABELS) for labels in self._facts.findings_open()}
        for values in sorted(told):
            findings.add_metric(list(values), 1)
        yield findings


class _TargetCollector(Collector):
    def __init__(self, targets: Callable[[], Sequence[TargetFacts]]) -> None:
        self._targets = targets

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily(
            "sickbay_scrape_target_up",
            "1 if a node's exporter gave samples in the last pass.",
            labels=["node"],
        )
        took = GaugeMetricFamily(
            "sickbay_scrape_target_duration_seconds",
            "How long a node's exporter took to answer.",
            labels=["node"],
        )
        samples = GaugeMetricFamily(
            "sickbay_scrape_target_samples", "Samples in a node's last answer.", labels=["node"]
        )
        last = GaugeMetricFamily(
            "sickbay_scrape_target_last_success_timestamp_seconds",
            "When a node's exporter last gave samples.",
            labels=["node"],
        )
        for target in sorted(self._targets(), key=lambda target: target.node):
            up.add_metric([target.node], 1 if target.ok else 0)
            took.add_metric([target.node], target.duration_seconds)
            samples.add_metric([target.node], target.samples)
            if target.last_success is not None:
                last.add_metric([target.node], target.last_success)
        yield from (up, took, samples, last)
