"""One source's thread: its rhythm, its patience with a hanging driver, and what it says of problems."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from prometheus_client import generate_latest

from collector.agent.board import Board
from collector.agent.bounded import Bounded
from collector.agent.poller import MAX_PAUSE_SECONDS, SourcePoller, pause_after
from collector.agent.stats import AgentCollector, AgentStats, registry_of
from fleet.clock import ManualClock, SystemClock
from fleet.observations import Problem, ProblemReason, Reading, Sample
from tests.support.processes import wait_until

GOOD = Reading((Sample(node="n01", signal="gpu_temperature_celsius", value=50.0, time=0.0, gpu="GPU-a"),))


def failed(reason: ProblemReason, message: str = "why", pci: str | None = None) -> Reading:
    return Reading((Problem(source="dcgm", reason=reason, message=message, pci=pci),), ok=False)


LATE = failed(ProblemReason.TIMEOUT)


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.stats = AgentStats()
        self.board = Board(["dcgm"], clock=self.clock, interval_seconds=15.0)
        self.answer: Reading | Exception = GOOD
        self.takes = 0.0
        self.poller = SourcePoller(
            "dcgm", self._read, board=self.board, stats=self.stats, clock=self.clock, interval_seconds=15.0
        )

    def _read(self) -> Reading:
        self.clock.advance(self.takes)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def step(self) -> float:
        """Seconds from the start of this read to the next one's."""
        began = self.clock.monotonic()
        return self.poller.step() - began

    def metric(self, name: str, **labels: str) -> float | None:
        spool: Callable[[], tuple[int, bool, int]] = lambda: (0, True, 0)  # noqa: E731
        registry = registry_of(AgentCollector(stats=self.stats, version="1", spool=spool))
        generate_latest(registry)
        return registry.get_sample_value(name, labels)


@pytest.mark.parametrize(
    ("takes", "due"), [(0.0, 15.0), (9.0, 15.0), (14.9, 15.0), (15.0, 30.0), (16.0, 30.0), (47.0, 60.0)]
)
def test_the_rhythm_holds_and_missed_turns_are_skipped(takes: float, due: float) -> None:
    bench = Bench()
    bench.takes = takes
    assert bench.step() == due


def test_time_outs_in_a_row_double_the_pause_and_an_answer_ends_that() -> None:
    bench = Bench()
    bench.answer = LATE
    assert [bench.step() for _ in range(9)] == [15, 30, 60, 120, 240, 480, 960, 960, 960]
    (health,) = bench.board.health()
    assert (health.timeouts, health.interval_seconds, health.up) == (9, 960.0, False)
    bench.answer = failed(ProblemReason.DRIVER_LIBRARY_MISMATCH)
    assert bench.step() == 15.0
    bench.answer = LATE
    assert bench.step() == 15.0
    bench.answer = GOOD
    assert bench.step() == 15.0
    assert next(bench.board.health()).up is True


def test_the_longest_pause_is_bounded() -> None:
    assert pause_after(10_000, 15.0) == MAX_PAUSE_SECONDS
    assert pause_after(5, 3600.0) == 3600.0


def test_a_defect_costs_one_read(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.answer = RuntimeError("a defect")
    assert bench.step() == 15.0
    assert "a defect" in caplog.text
    assert bench.metric("sickbay_agent_loop_failures_total", part="metric_source") == 1.0
    assert bench.metric("sickbay_agent_problems_total", source="dcgm", reason="query_error") == 1.0
    assert next(bench.board.health()).up is False
    bench.answer = GOOD
    bench.step()
    assert next(bench.board.health()).up is True


def test_problems_are_counted_each_time_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench()
    bench.answer = failed(ProblemReason.TOOL_MISSING, "nvidia-smi is not installed")
    for _ in range(20):
        bench.step()
        bench.clock.advance(15.0)
    assert bench.metric("sickbay_agent_problems_total", source="dcgm", reason="tool_missing") == 20.0
    assert caplog.text.count("nvidia-smi is not installed") == 1
    bench.answer = failed(ProblemReason.GPU_LOST, "a GPU is lost", pci="0000:1b:00.0")
    bench.step()
    bench.answer = failed(ProblemReason.GPU_LOST, "another GPU is lost", pci="0000:2b:00.0")
    bench.step()
    assert "tool_missing" in caplog.text
    assert "a GPU is lost" in caplog.text
    assert "another GPU is lost" in caplog.text
    assert "without problems" not in caplog.text
    bench.answer = GOOD
    bench.step()
    bench.step()
    assert caplog.text.count("dcgm is read without problems again") == 1


def test_a_problem_that_comes_and_goes_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    for _ in range(4):
        for bench.answer in (LATE, GOOD):
            bench.step()
            bench.clock.advance(5.0)
    assert caplog.text.count("timeout") == 1


def test_the_thread_reads_at_once_and_again() -> None:
    read = threading.Semaphore(0)
    clock = SystemClock()
    board = Board(["dcgm"], clock=clock, interval_seconds=0.02)

    def once() -> Reading:
        read.release()
        return GOOD

    poller = SourcePoller("dcgm", once, board=board, stats=AgentStats(), clock=clock, interval_seconds=0.02)
    poller.start()
    assert all(read.acquire(timeout=5) for _ in range(3))
    poller.stop()


# -- a read that hangs


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_hanging_read_is_left_behind_and_none_is_started_beside_it(release: threading.Event) -> None:
    started = []

    def read() -> Reading:
        started.append(time.monotonic())
        release.wait(30)
        return GOOD

    bounded = Bounded("nic", read, seconds=0.05)
    first = bounded()
    assert [(p.source, p.reason) for p in first.problems] == [("nic", ProblemReason.TIMEOUT)]
    assert not first.ok
    assert [bounded().problems[0].message for _ in range(3)] == [
        "an earlier read has not come back; none is started beside it"
    ] * 3
    assert len(started) == 1
    release.set()
    wait_until(lambda: bounded().ok, timeout=5, what="the read to be tried again")
    assert len(started) == 2, "the late answer is dropped: it is of then, not of now"


def test_what_a_read_raises_is_its_callers() -> None:
    def defect() -> Reading:
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own"):
        Bounded("nic", defect, seconds=5.0)()
    assert Bounded("nic", lambda: GOOD, seconds=5.0)() is GOOD
