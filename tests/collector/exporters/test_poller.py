"""What a scrape may see: the last read while it is good, and nothing once it is not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise

import pytest

from collector.exporters.model import SchedulerReading
from collector.exporters.poller import FailureReason, Poller
from collector.exporters.summary import Names
from collector.process import TimedOutError, ToolMissingError
from fleet.clock import ManualClock, SystemClock
from fleet.errors import ForbiddenError, NotFoundError, RateLimitedError, UnavailableError
from fleet.scheduler import NodeRecord, NodeState

READING = SchedulerReading(nodes=(NodeRecord(name="n1", state=NodeState.IDLE),), items=())


class Source:
    """Reads what ``answer`` gives; ``closed`` after the end."""

    kind = "slurm"

    def __init__(self, answer: Callable[[], SchedulerReading] = lambda: READING) -> None:
        self.answer = answer
        self.reads = 0
        self.closed = False

    def read(self) -> SchedulerReading:
        self.reads += 1
        return self.answer()

    def close(self) -> None:
        self.closed = True


def raising(error: Exception) -> Callable[[], SchedulerReading]:
    def answer() -> SchedulerReading:
        raise error

    return answer


def poller_of(source: Source, clock: ManualClock) -> Poller:
    return Poller(
        source, Names.fresh(lambda _: "p"), clock=clock, interval_seconds=30.0, slowest_read_seconds=20.0
    )


def test_before_the_first_read_nothing_is_known() -> None:
    state = poller_of(Source(), ManualClock()).state()
    assert (state.up, state.reads, state.waits, state.last_success_at) == (False, 0, None, None)


def test_a_scrape_reads_nothing_itself() -> None:
    source = Source()
    poller = poller_of(source, ManualClock())
    poller.poll()
    for _ in range(100):
        assert poller.state().up
    assert source.reads == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (UnavailableError("no answer"), FailureReason.UNAVAILABLE),
        (TimedOutError("too slow"), FailureReason.TIMEOUT),
        (ToolMissingError("no sinfo"), FailureReason.TOOL_MISSING),
        (ForbiddenError("not you"), FailureReason.FORBIDDEN),
        (RateLimitedError("later", 3.0), FailureReason.RATE_LIMITED),
        (NotFoundError("what"), FailureReason.OTHER),
        (ZeroDivisionError("ours"), FailureReason.INTERNAL),
    ],
)
def test_a_failed_read_leaves_no_numbers_but_its_age(error: Exception, reason: FailureReason) -> None:
    source, clock = Source(), ManualClock()
    poller = poller_of(source, clock)
    poller.poll()
    succeeded_at = clock.now()
    clock.advance(30.0)
    source.answer = raising(error)

    state = poller.poll()

    assert not state.up
    assert state.last_success_at == succeeded_at
    assert {word: n for word, n in state.failures.items() if n} == {reason: 1}
    assert state.reads == 2
    assert state.waits is not None  # counters go on: what had happened did happen
    source.answer = lambda: READING
    assert poller.poll().up


def test_a_read_that_hangs_ends_what_the_last_one_said() -> None:
    clock = ManualClock()
    poller = poller_of(Source(), clock)
    poller.poll()

    clock.advance(90.0)
    assert poller.state().up
    clock.advance(0.5)
    hung = poller.state()
    assert not hung.up
    assert hung.last_success_at is not None
    assert hung.error == "the last read is 90 s old, and one is due every 30 s"


def test_a_stepped_wall_clock_ages_nothing() -> None:
    clock = ManualClock()
    poller = poller_of(Source(), clock)
    poller.poll()
    clock.step_wall_clock(86_400.0)
    assert poller.state().up


def test_reads_keep_their_distance_and_end_when_told() -> None:
    source, read = Source(), threading.Semaphore(0)
    started: list[float] = []
    clock = SystemClock()

    def answer() -> SchedulerReading:
        started.append(clock.monotonic())
        read.release()
        return READING

    source.answer = answer
    poller = Poller(
        source, Names.fresh(lambda _: "p"), clock=clock, interval_seconds=0.05, slowest_read_seconds=1.0
    )
    thread = threading.Thread(target=poller.run)
    thread.start()
    for _ in range(4):
        assert read.acquire(timeout=10.0)
    poller.stop()
    thread.join(10.0)

    assert not thread.is_alive()
    assert source.closed
    gaps = [later - earlier for earlier, later in pairwise(started)]
    assert min(gaps) >= 0.025  # half the interval: threads are started late on a busy machine


def test_a_pause_that_the_scheduler_asked_for_is_kept() -> None:
    source, read = Source(), threading.Event()

    def answer() -> SchedulerReading:
        read.set()
        raise RateLimitedError("later", 3600.0)

    source.answer = answer
    poller = Poller(
        source,
        Names.fresh(lambda _: "p"),
        clock=SystemClock(),
        interval_seconds=0.01,
        slowest_read_seconds=1.0,
    )
    thread = threading.Thread(target=poller.run)
    thread.start()
    assert read.wait(10.0)
    thread.join(0.2)
    assert (thread.is_alive(), source.reads) == (True, 1)
    poller.stop()
    thread.join(10.0)
    assert not thread.is_alive()
