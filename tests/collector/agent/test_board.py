"""What is shown and for how long: never old, never 0, never more than a page holds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import generate_latest

from collector.agent.board import MAX_LABEL_CHARS, MAX_SERIES, Board, SourceHealth, timed_out, within_bounds
from collector.agent.node_metrics import NodeCollector
from collector.agent.stats import registry_of
from collector.dcgm import read_dcgm
from fleet.clock import ManualClock
from fleet.observations import Problem, ProblemReason, Reading, Sample

HEAT = "gpu_temperature_celsius"


def problem(reason: ProblemReason = ProblemReason.TIMEOUT) -> Problem:
    return Problem(source="dcgm", reason=reason, message="why")


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.board = Board(["dcgm", "nvidia-smi"], clock=self.clock, interval_seconds=15.0)

    def read(
        self,
        value: float | None,
        *,
        source: str = "dcgm",
        took: float = 0.0,
        next_seconds: float = 15.0,
        **fields: Any,
    ) -> None:
        """``value`` None: a read that fails."""
        began, wall = self.clock.monotonic(), self.clock.now()
        self.clock.advance(took)
        sample = Sample(node="n01", signal=HEAT, value=value or 0.0, time=wall, gpu="GPU-a", **fields)
        reading = Reading((problem(),), ok=False) if value is None else Reading((sample,))
        self.board.record(source, reading, began=began, next_seconds=next_seconds)

    def shown(self) -> list[list[float]]:
        return [[sample.value for sample in samples] for samples in self.board.samples()]

    def health(self, source: str = "dcgm") -> SourceHealth:
        return next(health for health in self.board.health() if health.source == source)

    def page(self) -> str:
        return generate_latest(registry_of(NodeCollector(self.board))).decode()


def test_before_the_first_read_nothing_is_known() -> None:
    bench = Bench()
    assert bench.shown() == [[], []]
    assert bench.health() == SourceHealth(
        source="dcgm", up=None, last_success=None, duration_seconds=None, interval_seconds=15.0, timeouts=0
    )
    names = {line.split("{")[0] for line in bench.page().splitlines() if not line.startswith("#")}
    assert names == {
        "sickbay_agent_source_interval_seconds",
        "sickbay_agent_source_timeouts_total",
        "sickbay_agent_gpus_complete 0.0",
    }


def test_a_reading_is_shown_for_three_intervals_then_it_is_absent() -> None:
    bench = Bench()
    bench.read(50.0)
    bench.clock.advance(45.0)
    assert bench.shown() == [[50.0], []]
    assert bench.health().up is True
    assert f"sickbay_{HEAT}{{" in bench.page()
    bench.clock.advance(0.1)
    assert bench.shown() == [[], []]
    assert bench.health().up is False
    assert HEAT not in bench.page()
    assert 'sickbay_agent_source_up{source="dcgm"} 0.0' in bench.page()


def test_the_age_counts_from_the_start_of_the_read() -> None:
    bench = Bench()
    bench.read(50.0, took=10.0)
    assert bench.health().duration_seconds == 10.0
    bench.clock.advance(35.0)
    assert bench.shown()[0] == [50.0]
    bench.clock.advance(0.1)
    assert bench.shown()[0] == []


def test_one_failed_read_makes_no_gap_but_the_source_is_down() -> None:
    bench = Bench()
    bench.read(50.0)
    succeeded = bench.clock.now()
    bench.clock.advance(15.0)
    bench.read(None, next_seconds=30.0)
    assert bench.shown()[0] == [50.0]
    health = bench.health()
    assert (health.up, health.last_success, health.timeouts, health.interval_seconds) == (
        False,
        succeeded,
        1,
        30.0,
    )
    bench.clock.advance(30.1)
    assert bench.shown()[0] == []
    bench.read(51.0)
    assert bench.shown()[0] == [51.0]
    assert bench.health().up is True


def test_a_new_reading_replaces_the_old_one_whole() -> None:
    """A GPU that the source no longer names is gone at once."""
    bench = Bench()
    bench.read(50.0)
    bench.board.record("dcgm", Reading(()), began=bench.clock.monotonic(), next_seconds=15.0)
    assert bench.shown()[0] == []
    assert bench.health().up is True


def test_sources_do_not_touch_each_other() -> None:
    bench = Bench()
    bench.read(50.0)
    bench.read(60.0, source="nvidia-smi")
    bench.read(None)
    assert bench.shown() == [[50.0], [60.0]]
    assert bench.health("nvidia-smi").up is True
    assert bench.page().count(f"sickbay_{HEAT}{{") == 1


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
def test_a_step_of_the_wall_clock_hides_nothing_and_keeps_nothing(step: float) -> None:
    bench = Bench()
    bench.read(50.0)
    bench.clock.step_wall_clock(step)
    bench.clock.advance(45.0)
    assert bench.shown()[0] == [50.0]
    bench.clock.advance(0.1)
    assert bench.shown()[0] == []


def test_a_time_of_the_exporters_own_counts() -> None:
    """A federated page may print values of a minute ago."""
    bench = Bench()
    old, older = (
        Sample(node="n01", signal=HEAT, value=value, time=bench.clock.now() - age, gpu="GPU-a")
        for value, age in ((1.0, 30.0), (2.0, 50.0))
    )
    bench.board.record("dcgm", Reading((old, older)), began=bench.clock.monotonic(), next_seconds=15.0)
    assert bench.shown()[0] == [1.0]
    bench.clock.advance(15.1)
    assert bench.shown()[0] == []


def gpus(*uuids: str, ok: bool = True, problems: tuple[Problem, ...] = ()) -> Reading:
    samples = (Sample(node="n01", signal=HEAT, value=50.0, time=0.0, gpu=f"GPU-{uuid}") for uuid in uuids)
    return Reading((*samples, *problems), ok=ok)


LOST_ONE = Problem(source="nvidia-smi", reason=ProblemReason.GPU_LOST, message="why", pci="0000:1b:00.0")
NO_TIME = problem(ProblemReason.TIMEOUT)
GONE = Reading((problem(ProblemReason.TOOL_MISSING),), ok=False)
HANGS = Reading((NO_TIME,), ok=False)


@pytest.mark.parametrize(
    ("dcgm", "smi", "complete"),
    [
        # Nothing is read yet; then one of them.
        ([], [], False),
        ([gpus("a", "b")], [], False),
        ([gpus("a", "b")], [gpus("a", "b")], True),
        # A GPU that neither sees any more is missing.
        ([gpus("a", "b"), gpus("a")], [gpus("a", "b"), gpus("a")], True),
        ([gpus("a", "b"), gpus("a")], [gpus("a", "b"), gpus("a", problems=(LOST_ONE,))], True),
        # One hangs, and the other lists all that it listed.
        ([gpus("a", "b"), HANGS], [gpus("a", "b")], True),
        ([gpus("a", "b")], [gpus("a", "b"), HANGS], True),
        # One hangs that had listed more than the other does now: nobody knows.
        ([gpus("a")], [gpus("a", "b"), HANGS], False),
        ([gpus("a", "b"), gpus("a")], [gpus("a", "b"), HANGS], False),
        # A part of the answer is lost.
        ([HANGS], [gpus("a", "b"), gpus("a", problems=(NO_TIME,))], False),
        ([gpus("a", "b")], [gpus("a", problems=(NO_TIME,))], False),
        ([gpus("a", "b")], [gpus("a", "b"), gpus("a", problems=(NO_TIME,))], True),
        # One that is not installed knows nothing; one that has hung from the start may.
        ([gpus("a")], [GONE], True),
        ([gpus("a")], [HANGS], False),
        ([GONE], [GONE], False),
    ],
)
def test_whether_a_gpu_that_is_not_shown_is_missing(
    dcgm: list[Reading], smi: list[Reading], complete: bool
) -> None:
    bench = Bench()
    for source, readings in (("dcgm", dcgm), ("nvidia-smi", smi)):
        for number, reading in enumerate(readings):
            dated = Reading(tuple(_now(record, bench) for record in reading.records), ok=reading.ok)
            # An earlier reading is so old that it is shown no more.
            began = bench.clock.monotonic() - (46.0 if number + 1 < len(readings) else 0.0)
            bench.board.record(source, dated, began=began, next_seconds=15.0)
    assert bench.board.gpus_complete() is complete
    page = bench.page()
    assert f"sickbay_agent_gpus_complete {float(complete)}" in page
    problems = read_dcgm(page.encode(), node="n01", now=0.0).problems
    told = [p.reason for p in problems if p.reason is not ProblemReason.NO_DEVICES]
    assert told == ([] if complete else [ProblemReason.QUERY_ERROR])


def _now(record: Any, bench: Bench) -> Any:
    return replace(record, time=bench.clock.now()) if isinstance(record, Sample) else record


def test_a_node_whose_sources_list_no_gpus_says_nothing_of_them() -> None:
    board = Board(["nic"], clock=ManualClock(), interval_seconds=15.0)
    assert board.gpus_complete() is None
    assert "gpus_complete" not in generate_latest(registry_of(NodeCollector(board))).decode()


def test_a_gpu_without_uuid_counts_by_what_it_has() -> None:
    bench = Bench()
    bench.read(50.0)
    sample = Sample(node="n01", signal=HEAT, value=1.0, time=bench.clock.now(), index=3)
    bench.board.record("nvidia-smi", Reading((sample,)), began=bench.clock.monotonic(), next_seconds=15.0)
    bench.clock.advance(15.0)
    bench.read(50.0)
    assert bench.board.gpus_complete() is True
    bench.clock.advance(31.0)
    assert bench.board.gpus_complete() is False


def test_only_so_many_series_and_so_long_labels() -> None:
    def sample(number: int, text: str = "0") -> Sample:
        return Sample(node="n01", signal=HEAT, value=float(number), time=0.0, labels={"nvlink": text})

    many = within_bounds(Reading(tuple(sample(n) for n in range(MAX_SERIES + 3))), "dcgm")
    assert len(many.samples) == MAX_SERIES
    assert [(p.source, p.reason, p.count) for p in many.problems] == [("dcgm", ProblemReason.TOO_LARGE, 3)]
    long = within_bounds(
        Reading((sample(1, "x" * (MAX_LABEL_CHARS + 1)), sample(2), sample(math.nan))), "dcgm"
    )  # type: ignore[arg-type]
    assert [s.value for s in long.samples] == [2.0]
    assert [p.count for p in long.problems] == [1]
    fine = Reading((sample(1), problem(ProblemReason.PARTIAL)))
    assert within_bounds(fine, "dcgm") == fine


def test_late_means_that_nothing_came_in_time() -> None:
    assert timed_out(Reading((problem(),), ok=False))
    assert not timed_out(Reading((problem(),), ok=True)), "one GPU hangs, the others answered"
    assert not timed_out(Reading((problem(ProblemReason.TOOL_MISSING),), ok=False))
