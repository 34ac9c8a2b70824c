"""The simulated fleet's exporters as the metric path reads them: the real reader on simulated answers."""

from __future__ import annotations

from collector.dcgm import read_dcgm
from collector.scrape import ScrapeTarget, TargetReading
from fleet.clock import Clock
from fleet.observations import Problem, ProblemReason, Reading
from sickbay.metric_path import Exporters
from simulator.cluster import AnyCluster
from simulator.telemetry import SimulatedTelemetry


def simulated_exporters(cluster: AnyCluster) -> Exporters:
    """One exporter per simulated node, asked without a network."""
    names = cluster.fleet.names

    def read() -> tuple[TargetReading, ...]:
        return tuple(_read(cluster.telemetry, name, cluster.clock) for name in names)

    return Exporters(read, frozenset(names))


def _read(telemetry: SimulatedTelemetry, node: str, clock: Clock) -> TargetReading:
    target = ScrapeTarget(node, f"http://{node}:9400/metrics")
    body = telemetry.exposition(node)
    if body is None:
        message = f"{target.url}: connection refused"
        problem = Problem(source="dcgm", reason=ProblemReason.QUERY_ERROR, message=message, node=node)
        return TargetReading(
            target, Reading((problem,), ok=False), ok=False, duration_seconds=0.0, error=message
        )
    reading = read_dcgm(body, node=node, now=clock.now())
    error = None if reading.samples else "the answer holds no sample"
    return TargetReading(target, reading, ok=bool(reading.samples), duration_seconds=0.0, error=error)
