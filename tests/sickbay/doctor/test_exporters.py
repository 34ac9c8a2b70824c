"""The sources of signals: silent, partly silent, strangers, and rules that nobody feeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from collector.scrape import ScrapeTarget, TargetReading
from fleet.clock import SystemClock
from fleet.errors import UnavailableError
from fleet.observations import Reading, Sample
from fleet.scheduler import NodeRecord, NodeState, SchedulerSnapshot
from rules.catalogue import load_catalogue
from rules.metrics.conditions import PRESENCE_SIGNALS, signals_of
from sickbay.config import parse_config
from sickbay.doctor.exporters import Ages, ExporterChecks, blind_rules
from sickbay.doctor.model import Shared, Status
from sickbay.doctor.run import examine

CATALOGUE = load_catalogue(())
ALL = signals_of(rule.when for rule in CATALOGUE.metric_rules if rule.when is not None)


def answered(node: str, signals: Sequence[str] = ALL) -> TargetReading:
    samples = tuple(Sample(node=node, signal=name, value=1.0, time=1.0, gpu="GPU-1") for name in signals)
    return TargetReading(
        ScrapeTarget(node, f"http://{node}:9400/metrics"),
        Reading(samples),
        ok=True,
        duration_seconds=0.1,
        error=None,
    )


def silent(node: str, error: str = "no whole answer within 5 s") -> TargetReading:
    return TargetReading(
        ScrapeTarget(node, f"http://{node}:9400/metrics"),
        Reading(ok=False),
        ok=False,
        duration_seconds=5,
        error=error,
    )


def look(
    readings: Sequence[TargetReading] | None,
    nodes: Sequence[str] = ("n1", "n2"),
    *,
    ages: Ages | None = None,
    **metrics: Any,
) -> Mapping[str, tuple[Status, str]]:
    config = parse_config(
        {"cluster": "a", "scheduler": {"kind": "slurm"}, "metrics": metrics or {"source": "scrape"}}
    )
    known = {name: NodeRecord(name=name, state=NodeState.IDLE, gpus_total=8) for name in nodes}
    snapshot = SchedulerSnapshot(1.0, known, ())
    checks = ExporterChecks(config, CATALOGUE, Shared(lambda: readings), Shared(lambda: snapshot), ages, 5.0)
    return {one.name: (one.status, one.sentence) for one in examine(checks.checks(), SystemClock())}


def test_all_answer() -> None:
    found = look([answered("n1"), answered("n2")])
    assert {status for status, _ in found.values()} == {Status.OK}


def test_some_and_none_answer() -> None:
    found = look([answered("n1"), silent("n2", "n2:9400 does not answer")])
    assert found["metrics.answers"][0] is Status.WARN
    assert "n2: n2:9400 does not answer" in found["metrics.answers"][1]
    found = look([silent("n1"), silent("n2")])
    assert found["metrics.answers"][0] is Status.FAIL
    assert found["metrics.signals"][0] is Status.UNKNOWN


def test_no_targets() -> None:
    found = look(None)
    assert found["metrics.answers"][0] is Status.WARN
    assert found["metrics.nodes"][0] is Status.UNKNOWN


def test_prometheus_without_our_series() -> None:
    found = look([], source="prometheus", prometheus={"url": "http://p:9090"})
    assert found["metrics.answers"][0] is Status.FAIL
    assert "http://p:9090" in found["metrics.answers"][1]


def test_names_must_be_the_schedulers() -> None:
    found = look([answered("n1"), answered("n2.example.org")])
    assert "n2.example.org" in found["metrics.strangers"][1]
    assert found["metrics.unwatched"] == (Status.WARN, "1 GPU node without metrics: n2")


def test_a_rule_that_nobody_feeds_is_named() -> None:
    rule = next(one for one in CATALOGUE.metric_rules if one.when is not None and one.when.signals)
    assert rule.when is not None
    signal = rule.when.signals[0]
    found = look([answered(n, [s for s in ALL if s != signal]) for n in ("n1", "n2")])
    assert found["metrics.signals"][0] is Status.WARN
    assert rule.id in found["metrics.signals"][1]
    assert signal in found["metrics.signals"][1]


def test_blind_rules() -> None:
    assert blind_rules(CATALOGUE, ALL, frozenset()) == {}
    everything = {rule.id for rule in CATALOGUE.metric_rules}
    assert blind_rules(CATALOGUE, [], frozenset()).keys() == everything
    assert blind_rules(CATALOGUE, [], frozenset(everything)) == {}
    # One presence signal is enough to see a GPU vanish.
    only = blind_rules(CATALOGUE, PRESENCE_SIGNALS[:1], frozenset())
    assert everything - only.keys()


@pytest.mark.parametrize(
    ("ages", "status"),
    [({"n1": 10.0, "n2": 20.0}, Status.OK), ({"n1": 10.0, "n2": 200.0}, Status.WARN), ({}, Status.UNKNOWN)],
)
def test_freshness(ages: Mapping[str, float], status: Status) -> None:
    found = look([answered("n1"), answered("n2")], ages=lambda: ages)
    assert found["metrics.fresh"][0] is status


def test_a_prometheus_that_is_down_is_unknown_age() -> None:
    def down() -> Mapping[str, float]:
        raise UnavailableError("connection refused")

    assert look([], ages=down)["metrics.fresh"][0] is Status.UNKNOWN
