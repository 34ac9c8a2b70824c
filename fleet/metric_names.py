"""The names of the metrics we export or record: what dashboards and alerts may ask for, and nothing else.

Signals of hardware stand in the signal catalogue (``sickbay_<signal>``); this table holds the rest: what
controller, agent and exporters say of themselves and of the fleet, and what our recording rules derive.
A test holds it to what the running code exposes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

PREFIX = "sickbay_"

# When a part of ours is called stale. Boards and alerts show the same numbers (seconds).
STALE_PASS_SECONDS = 60.0
STALE_SCHEDULER_SECONDS = 120.0
STALE_AGENT_SECONDS = 60.0
STALE_EVALUATION_SECONDS = 120.0
#: Mirrors ``slo.availability`` of the configuration's defaults.
AVAILABILITY_OBJECTIVE = 0.95
#: Scheduler states in which a node takes work, and those that are planned (no part of the promise).
SERVING_STATES = "idle|allocated|mixed|reserved"
PLANNED_STATES = "maintenance|powered_down"


class MetricType(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class MetricSource(StrEnum):
    """Who says it."""

    CONTROLLER = "controller"
    AGENT = "agent"
    SCHEDULER_EXPORTER = "scheduler exporter"
    SLURM_EXPORTER = "slurm exporter"
    RECORDED = "recording rule"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedMetric:
    """One family. ``name`` is that of its samples (``_total``, ``_info`` included; a histogram's base name).

    ``unit``: the base unit, ``1`` for counts. ``labels``: its own, without those a scrape adds
    (``job``, ``instance``, ``cluster``, ``node`` of an agent's target).
    """

    name: str
    type: MetricType
    unit: str
    source: MetricSource
    labels: tuple[str, ...] = ()

    @property
    def series(self) -> tuple[str, ...]:
        """The names its samples have."""
        if self.type is MetricType.HISTOGRAM:
            return tuple(f"{self.name}{suffix}" for suffix in ("_bucket", "_sum", "_count"))
        return (self.name,)


def _rows(source: MetricSource, *rows: tuple[str, MetricType, str, str]) -> tuple[ExportedMetric, ...]:
    return tuple(
        ExportedMetric(name=name, type=kind, unit=unit, source=source, labels=tuple(labels.split()))
        for name, kind, unit, labels in rows
    )


_GAUGE, _COUNTER, _HISTOGRAM = MetricType.GAUGE, MetricType.COUNTER, MetricType.HISTOGRAM

CONTROLLER_METRICS = _rows(
    MetricSource.CONTROLLER,
    ("sickbay_build_info", _GAUGE, "1", "version"),
    ("sickbay_events_received_total", _COUNTER, "1", "result"),
    ("sickbay_alerts_received_total", _COUNTER, "1", "result"),
    ("sickbay_passes_total", _COUNTER, "1", ""),
    ("sickbay_pass_failures_total", _COUNTER, "1", ""),
    ("sickbay_pass_duration_seconds", _HISTOGRAM, "seconds", ""),
    ("sickbay_last_pass_timestamp_seconds", _GAUGE, "seconds", ""),
    ("sickbay_scheduler_reads_total", _COUNTER, "1", ""),
    ("sickbay_scheduler_read_failures_total", _COUNTER, "1", ""),
    ("sickbay_scheduler_last_read_timestamp_seconds", _GAUGE, "seconds", ""),
    ("sickbay_leader", _GAUGE, "1", ""),
    ("sickbay_pages", _GAUGE, "1", ""),
    ("sickbay_nodes", _GAUGE, "1", "pool state verdict"),
    ("sickbay_incidents_open", _GAUGE, "1", "pool state"),
    ("sickbay_incidents_blocked", _GAUGE, "1", "gate"),
    ("sickbay_inbox_pending", _GAUGE, "1", ""),
    ("sickbay_finding", _GAUGE, "1", "node gpu uuid rule kind severity"),
    ("sickbay_scrape_target_up", _GAUGE, "1", "node"),
    ("sickbay_scrape_target_duration_seconds", _GAUGE, "seconds", "node"),
    ("sickbay_scrape_target_samples", _GAUGE, "1", "node"),
    ("sickbay_scrape_target_last_success_timestamp_seconds", _GAUGE, "seconds", "node"),
    ("sickbay_scrape_pass_duration_seconds", _HISTOGRAM, "seconds", ""),
    ("sickbay_metric_evaluations_total", _COUNTER, "1", ""),
    ("sickbay_metric_evaluations_postponed_total", _COUNTER, "1", ""),
    ("sickbay_metric_evaluation_failures_total", _COUNTER, "1", ""),
    ("sickbay_metric_last_evaluation_timestamp_seconds", _GAUGE, "seconds", ""),
    ("sickbay_rule_targets", _GAUGE, "1", "rule"),
    ("sickbay_rule_targets_judged", _GAUGE, "1", "rule"),
)

AGENT_METRICS = _rows(
    MetricSource.AGENT,
    ("sickbay_agent_build_info", _GAUGE, "1", "version"),
    ("sickbay_agent_spool_events", _GAUGE, "1", ""),
    ("sickbay_agent_spool_durable", _GAUGE, "1", ""),
    ("sickbay_agent_spool_dropped_events_total", _COUNTER, "1", ""),
    ("sickbay_agent_events_total", _COUNTER, "1", "kind"),
    ("sickbay_agent_problems_total", _COUNTER, "1", "source reason"),
    ("sickbay_agent_pushes_total", _COUNTER, "1", ""),
    ("sickbay_agent_push_failures_total", _COUNTER, "1", "reason"),
    ("sickbay_agent_rejected_events_total", _COUNTER, "1", ""),
    ("sickbay_agent_loop_failures_total", _COUNTER, "1", "part"),
    ("sickbay_agent_last_push_timestamp_seconds", _GAUGE, "seconds", ""),
    ("sickbay_agent_line_to_push_seconds", _HISTOGRAM, "seconds", ""),
    ("sickbay_agent_source_up", _GAUGE, "1", "source"),
    ("sickbay_agent_source_last_success_timestamp_seconds", _GAUGE, "seconds", "source"),
    ("sickbay_agent_source_duration_seconds", _GAUGE, "seconds", "source"),
    ("sickbay_agent_source_interval_seconds", _GAUGE, "seconds", "source"),
    ("sickbay_agent_source_timeouts_total", _COUNTER, "1", "source"),
    ("sickbay_agent_gpus_complete", _GAUGE, "1", ""),
)

#: What an exporter says of any scheduler. ``partition`` is a namespace on Kubernetes.
SCHEDULER_METRICS = _rows(
    MetricSource.SCHEDULER_EXPORTER,
    ("sickbay_scheduler_exporter_build_info", _GAUGE, "1", "version scheduler"),
    ("sickbay_scheduler_exporter_up", _GAUGE, "1", ""),
    ("sickbay_scheduler_exporter_interval_seconds", _GAUGE, "seconds", ""),
    ("sickbay_scheduler_exporter_last_read_timestamp_seconds", _GAUGE, "seconds", ""),
    ("sickbay_scheduler_exporter_read_duration_seconds", _GAUGE, "seconds", ""),
    ("sickbay_scheduler_exporter_reads_total", _COUNTER, "1", ""),
    ("sickbay_scheduler_exporter_read_failures_total", _COUNTER, "1", "reason"),
    ("sickbay_scheduler_exporter_unreadable_records", _GAUGE, "1", ""),
    ("sickbay_scheduler_nodes", _GAUGE, "1", "pool state owner"),
    ("sickbay_scheduler_nodes_unknown_gpus", _GAUGE, "1", "pool"),
    ("sickbay_scheduler_gpus", _GAUGE, "1", "pool gpu_type status reason"),
    ("sickbay_scheduler_jobs", _GAUGE, "1", "state"),
    ("sickbay_scheduler_pending_jobs", _GAUGE, "1", "reason"),
    ("sickbay_scheduler_pending_gpus", _GAUGE, "1", "size"),
    ("sickbay_scheduler_pending_jobs_unknown_size", _GAUGE, "1", ""),
    ("sickbay_scheduler_oldest_pending_timestamp_seconds", _GAUGE, "seconds", "size"),
    ("sickbay_partition_jobs", _GAUGE, "1", "partition state"),
    ("sickbay_partition_pending_jobs", _GAUGE, "1", "partition reason"),
    ("sickbay_partition_pending_gpus", _GAUGE, "1", "partition size"),
    ("sickbay_partition_pending_jobs_unknown_size", _GAUGE, "1", "partition"),
    ("sickbay_partition_oldest_pending_timestamp_seconds", _GAUGE, "seconds", "partition size"),
    ("sickbay_partition_queue_wait_seconds", _HISTOGRAM, "seconds", "partition size"),
    ("sickbay_partition_starts_unknown_wait_total", _COUNTER, "1", "partition"),
)

#: What only Slurm's exporter says: nodes of Kubernetes are in no partition.
SLURM_METRICS = _rows(
    MetricSource.SLURM_EXPORTER,
    ("sickbay_partition_nodes", _GAUGE, "1", "partition state"),
    ("sickbay_partition_gpus", _GAUGE, "1", "partition status reason"),
)

#: Windows over which unavailability is averaged, for burn rates.
BURN_WINDOWS = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")
RECORDED_METRICS = _rows(
    MetricSource.RECORDED,
    ("gpu:sickbay_dcgm_printed:group", _GAUGE, "1", "cluster node gpu uuid"),
    ("gpu:sickbay_gpu_present:group", _GAUGE, "1", "cluster node gpu uuid"),
    ("node:sickbay_gpu_present:count", _GAUGE, "1", "cluster node"),
    ("cluster:sickbay_nodes_available:ratio", _GAUGE, "ratio", "cluster"),
    *(
        (f"cluster:sickbay_nodes_unavailable:ratio_avg{window}", _GAUGE, "ratio", "cluster")
        for window in BURN_WINDOWS
    ),
)

EXPORTED_METRICS: tuple[ExportedMetric, ...] = (
    *CONTROLLER_METRICS,
    *AGENT_METRICS,
    *SCHEDULER_METRICS,
    *SLURM_METRICS,
    *RECORDED_METRICS,
)


def unused(expressions: Iterable[str]) -> tuple[str, ...]:
    """The families of ``EXPORTED_METRICS`` that none of these PromQL expressions asks for, in their order."""
    asked = {name for expression in expressions for name in names_in(expression)}
    return tuple(metric.name for metric in EXPORTED_METRICS if asked.isdisjoint(metric.series))


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.)*'")
_MATCHERS = re.compile(r"\{[^{}]*\}|\[[^\[\]]*\]")
_LABEL_LIST = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)", re.IGNORECASE)
_WORD = re.compile(r"(?<![\w:$.])([a-zA-Z_:][\w:]*)(?!\s*\()(?![\w:])", re.ASCII)
_KEYWORDS = frozenset(
    {
        *("and", "or", "unless", "by", "without", "on", "ignoring", "group_left", "group_right"),
        *("offset", "bool", "inf", "nan"),
    }
)


def names_in(expression: str) -> Iterator[str]:
    """The metric names a PromQL expression selects by name, in order, repeats included.

    A reader of names, not a parser: strings, matchers and label lists are cut out, and every word left that
    is neither a function, an aggregation nor a keyword is a name.
    """
    text = expression
    for pattern in (_STRING, _MATCHERS, _LABEL_LIST):
        text = pattern.sub(" ", text)
    for match in _WORD.finditer(text):
        word = match[1]
        if word.lower() not in _KEYWORDS:
            yield word
