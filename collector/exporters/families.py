"""The metric families of an exporter, built per scrape from the last read (docs/exporters.md explains each).

What may be zero is said as zero: a partition without pending jobs has the series, with the value 0. What is
not known has no series at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from collector.exporters.classes import LIVING, GpuStatus, OutReason, SizeClass, WaitReason
from collector.exporters.history import WAIT_BUCKETS, WaitHistogram, Waits
from collector.exporters.poller import PollState
from collector.exporters.summary import NodeSummary, QueueSummary, QueueTable
from fleet.scheduler import NodeState, Owner

_ONCE = "Each one counted once."
_PER_PARTITION = "In several partitions: counted in each, so do not add partitions up."
_CORDONED = (NodeState.DRAINING, NodeState.DRAINED)
_NODE_CLASSES = tuple(
    (state, owner)
    for state in NodeState
    for owner in ((Owner.SICKBAY, Owner.FOREIGN) if state in _CORDONED else (Owner.NONE,))
)
_GPU_CLASSES = (
    (GpuStatus.ALLOCATED, OutReason.NONE),
    (GpuStatus.IDLE, OutReason.NONE),
    *((GpuStatus.UNAVAILABLE, reason) for reason in OutReason if reason is not OutReason.NONE),
)
_COUNTED_SIZES = tuple(size for size in SizeClass if size.is_counted)


class ExporterCollector(Collector):
    """What a registry asks at every scrape. ``state`` must be a cheap read."""

    def __init__(
        self, state: Callable[[], PollState], *, scheduler: str, version: str, interval_seconds: float
    ) -> None:
        self._state = state
        self._scheduler = scheduler
        self._version = version
        self._interval = interval_seconds

    def describe(self) -> Iterable[Metric]:
        """Nothing beforehand: registering must not need a read."""
        return ()

    def collect(self) -> Iterator[Metric]:
        state = self._state()
        yield from self._of_exporter(state)
        if state.waits is not None:
            yield from _wait_families(state.waits)
        if state.summary is not None:
            yield _gauge(
                "sickbay_scheduler_exporter_unreadable_records",
                "Records of the last read that could not be understood in full.",
                state.summary.problems,
            )
            yield from _node_families(state.summary.nodes)
            yield from _queue_families(state.summary.queue)

    def _of_exporter(self, state: PollState) -> Iterator[Metric]:
        info = InfoMetricFamily("sickbay_scheduler_exporter_build", "The running exporter.")
        info.add_metric([], {"version": self._version, "scheduler": self._scheduler})
        yield info
        prefix = "sickbay_scheduler_exporter"
        yield _gauge(
            f"{prefix}_up",
            "1 if the last read of the scheduler succeeded and is not too old; else the rest is unknown.",
            int(state.up),
        )
        yield _gauge(f"{prefix}_interval_seconds", "Time between two reads of the scheduler.", self._interval)
        if state.last_success_at is not None:
            yield _gauge(
                f"{prefix}_last_read_timestamp_seconds",
                "When the scheduler last answered in full.",
                state.last_success_at,
            )
        if state.duration_seconds is not None:
            yield _gauge(
                f"{prefix}_read_duration_seconds",
                "How long the last read took, successful or not.",
                state.duration_seconds,
            )
        yield _counter(f"{prefix}_reads", "Reads of the scheduler that were tried.", state.reads)
        failures = CounterMetricFamily(
            f"{prefix}_read_failures", "Reads of the scheduler that failed.", labels=["reason"]
        )
        for reason, count in state.failures.items():
            failures.add_metric([reason.value], count)
        yield failures


def _node_families(summary: NodeSummary) -> Iterator[Metric]:
    nodes = _labelled(
        "sickbay_scheduler_nodes",
        f"Nodes by state and by who drained them. {_ONCE}",
        ("pool", "state", "owner"),
    )
    unknown = _labelled(
        "sickbay_scheduler_nodes_unknown_gpus",
        "Nodes whose number of GPUs is unknown: their GPUs are in no other series.",
        ("pool",),
    )
    for (pool,), found in _by_label(summary.nodes, 1):
        _fill(nodes, (pool,), _NODE_CLASSES, found)
        unknown.add_metric([pool], summary.without_gpu_count.get(pool, 0))
    gpus = _labelled(
        "sickbay_scheduler_gpus",
        f"GPUs by status; unavailable ones by reason. {_ONCE}",
        ("pool", "gpu_type", "status", "reason"),
    )
    for labels, found in _by_label({(pool, *place): n for (pool, place), n in summary.gpus.items()}, 2):
        _fill(gpus, labels, _GPU_CLASSES, found)
    yield from (nodes, unknown, gpus)
    if summary.partitions:
        yield from _partition_node_families(summary)


def _partition_node_families(summary: NodeSummary) -> Iterator[Metric]:
    nodes = _labelled("sickbay_partition_nodes", f"Nodes by state. {_PER_PARTITION}", ("partition", "state"))
    for labels, found in _by_label(summary.partition_nodes, 1):
        _fill(nodes, labels, tuple((state,) for state in NodeState), found)
    gpus = _labelled(
        "sickbay_partition_gpus",
        f"GPUs by status; unavailable ones by reason. {_PER_PARTITION}",
        ("partition", "status", "reason"),
    )
    for labels, found in _by_label(summary.partition_gpus, 1):
        _fill(gpus, labels, _GPU_CLASSES, found)
    yield from (nodes, gpus)


def _queue_families(summary: QueueSummary) -> Iterator[Metric]:
    yield from _queue_tables("sickbay_scheduler", _ONCE, (), [((), summary.whole)])
    tables = [((name,), table) for name, table in summary.partitions.items()]
    if tables:
        yield from _queue_tables("sickbay_partition", _PER_PARTITION, ("partition",), tables)


def _queue_tables(
    prefix: str, how: str, labels: Sequence[str], tables: Sequence[tuple[tuple[str, ...], QueueTable]]
) -> Iterator[Metric]:
    jobs = _labelled(f"{prefix}_jobs", f"Jobs (or pods) by state. {how}", (*labels, "state"))
    reasons = _labelled(
        f"{prefix}_pending_jobs", f"Pending jobs by why they wait. {how}", (*labels, "reason")
    )
    gpus = _labelled(
        f"{prefix}_pending_gpus",
        f"Whole GPUs that pending jobs ask for, by the size of the job. {how}",
        (*labels, "size"),
    )
    unknown = _labelled(
        f"{prefix}_pending_jobs_unknown_size",
        f"Pending jobs that nobody can say the GPUs of: they are in no series of pending GPUs. {how}",
        labels,
    )
    oldest = _labelled(
        f"{prefix}_oldest_pending_timestamp_seconds",
        "Since when the longest waiting pending job is eligible; jobs that wait by choice left out.",
        (*labels, "size"),
    )
    for names, table in tables:
        for state in LIVING:
            jobs.add_metric([*names, state.value], table.states.get(state, 0))
        for reason in WaitReason:
            reasons.add_metric([*names, reason.value], table.reasons.get(reason, 0))
        for size in _COUNTED_SIZES:
            gpus.add_metric([*names, size.value], table.gpus.get(size, 0))
        unknown.add_metric([*names], table.unknown_size)
        for size in sorted(table.oldest):
            oldest.add_metric([*names, size.value], table.oldest[size])
    yield from (jobs, reasons, gpus, unknown)
    if oldest.samples:
        yield oldest


def _wait_families(waits: Waits) -> Iterator[Metric]:
    if waits.histograms:
        family = HistogramMetricFamily(
            "sickbay_partition_queue_wait_seconds",
            "From eligible to start of the jobs that started while this exporter ran. "
            "Each one counted once, in the partition it started in.",
            labels=["partition", "size"],
        )
        for (partition, size), histogram in sorted(waits.histograms.items()):
            family.add_metric([partition, size.value], _cumulative(histogram), histogram.total_seconds)
        yield family
    if waits.unknown:
        starts = CounterMetricFamily(
            "sickbay_partition_starts_unknown_wait",
            "Jobs that started while this exporter ran, whose wait the scheduler does not tell.",
            labels=["partition"],
        )
        for partition in sorted(waits.unknown):
            starts.add_metric([partition], waits.unknown[partition])
        yield starts


def _cumulative(histogram: WaitHistogram) -> list[tuple[str, float]]:
    total, buckets = 0, []
    bounds = (*(str(bound) for bound in WAIT_BUCKETS), "+Inf")
    for bound, count in zip(bounds, histogram.counts, strict=True):
        total += count
        buckets.append((bound, float(total)))
    return buckets


def _by_label(counts: Mapping[Any, int], labels: int) -> Iterator[tuple[tuple[str, ...], dict[Any, int]]]:
    """Counts by the first ``labels`` parts of their keys, in order: what is left of each key -> count."""
    found: dict[tuple[str, ...], dict[Any, int]] = {}
    for key, count in counts.items():
        found.setdefault(key[:labels], {})[key[labels:]] = count
    yield from sorted(found.items())


def _fill(
    family: GaugeMetricFamily,
    labels: tuple[str, ...],
    classes: Sequence[tuple[str, ...]],
    found: Mapping[Any, int],
) -> None:
    """Every class of the closed list, 0 included; and what was found beside it."""
    for key in (*classes, *sorted(key for key in found if key not in classes)):
        family.add_metric([*labels, *(str(word) for word in key)], found.get(key, 0))


def _labelled(name: str, text: str, labels: Sequence[str]) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=list(labels))


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, value=value)
