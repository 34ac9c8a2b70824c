"""The node's hardware on the agent's ``/metrics``: the last readings, and how each source does."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from collector.agent.board import Board
from collector.agent.merge import merge
from collector.prometheus_text import sample_families
from fleet.observations import Reading


class NodeCollector(Collector):
    """``sickbay_<signal>`` of what is on the board, and ``sickbay_agent_source_*``. Reads nothing."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def collect(self) -> Iterator[Metric]:
        yield from self._health()
        complete = self._board.gpus_complete()
        if complete is not None:
            yield GaugeMetricFamily(
                "sickbay_agent_gpus_complete",
                "1: a GPU that is not here is one that no source sees. 0: a source cannot tell now.",
                value=float(complete),
            )
        yield from sample_families(Reading(merge(self._board.samples())))

    def _health(self) -> Iterator[Metric]:
        up = _gauge("up", "1: the source's last read ended well. Absent before the first one has ended.")
        success = _gauge(
            "last_success_timestamp_seconds", "When the source was last read well; absent before that."
        )
        duration = _gauge("duration_seconds", "How long the source's last read took.")
        interval = _gauge("interval_seconds", "From one read to the next; longer while the source backs off.")
        timeouts = CounterMetricFamily(
            "sickbay_agent_source_timeouts", "Reads that got no answer in time.", labels=["source"]
        )
        for health in self._board.health():
            label = [health.source]
            if health.up is not None:
                up.add_metric(label, float(health.up))
            if health.last_success is not None:
                success.add_metric(label, health.last_success)
            if health.duration_seconds is not None:
                duration.add_metric(label, health.duration_seconds)
            interval.add_metric(label, health.interval_seconds)
            timeouts.add_metric(label, health.timeouts)
        yield from (family for family in (up, success, duration, interval, timeouts) if family.samples)


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"sickbay_agent_source_{name}", text, labels=["source"])
