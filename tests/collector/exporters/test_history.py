"""Waits are counted once per start, whatever the reads leave out and however often we restart."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from collector.exporters.classes import QueueState, SizeClass, WaitReason
from collector.exporters.history import WAIT_BUCKETS, StartHistory, WaitHistogram
from collector.exporters.model import QueueItem
from collector.exporters.summary import LabelBudget

KEY = ("gpu", SizeClass.UP_TO_8)


def item(run: str = "1", wait: float | None = None, **parts: Any) -> QueueItem:
    """Pending without a ``wait``, else running."""
    fields: dict[str, Any] = {
        "partitions": ("gpu",),
        "state": QueueState.PENDING if wait is None else QueueState.RUNNING,
        "size": SizeClass.UP_TO_8,
        "gpus": 8,
        "started": wait is not None,
        "reason": WaitReason.RESOURCES if wait is None else None,
        "wait_seconds": wait,
        **parts,
    }
    return QueueItem(run=(run,), **fields)


def fed(*reads: tuple[QueueItem, ...], seconds: float = 30.0) -> StartHistory:
    history = StartHistory(LabelBudget(10))
    for number, read in enumerate(reads):
        history.update(read, now=number * seconds)
    return history


def count(history: StartHistory, key: tuple[str, SizeClass] = KEY) -> int:
    return sum(history.picture().histograms[key].counts)


def test_a_start_between_two_reads_is_counted_once() -> None:
    history = fed((item(),), (item(wait=40.0),), (item(wait=40.0),))

    waits = history.picture().histograms[KEY]
    assert (sum(waits.counts), waits.total_seconds) == (1, 40.0)
    assert waits.counts[WAIT_BUCKETS.index(60.0)] == 1


def test_what_runs_at_the_first_read_is_no_start() -> None:
    """After a restart of ours the same jobs run: they were counted, or started while nobody looked."""
    history = fed((item(wait=40.0),), (item(wait=40.0), item("2", wait=5.0)))
    assert (count(history), history.picture().histograms[KEY].total_seconds) == (1, 5.0)


def test_a_class_is_there_at_zero_before_its_first_start() -> None:
    """Otherwise ``increase`` would miss that first start: a counter that appears at 1 has not grown."""
    assert count(fed((item(),))) == 0


def test_a_job_that_came_and_went_between_two_reads_but_is_still_listed_counts() -> None:
    ended = item(wait=3.0, state=QueueState.ENDED)
    assert count(fed((), (ended,), (ended,))) == 1


def test_a_job_that_one_read_leaves_out_did_not_start_again() -> None:
    assert count(fed((item(),), (item(wait=40.0),), (), (item(wait=40.0),))) == 1


def test_an_outage_of_hours_makes_no_starts() -> None:
    running = item(wait=40.0)
    assert count(fed((running,), (running,), seconds=20_000.0)) == 0


def test_runs_are_forgotten_in_time() -> None:
    """Memory stays bounded: a run that is not listed any more is dropped after an hour."""
    history = fed((item(wait=1.0),), (), seconds=4_000.0)
    assert history._seen == {}


def test_an_unknown_wait_is_no_wait_of_zero() -> None:
    history = fed((), (item(started=True, state=QueueState.RUNNING),))
    assert count(history) == 0
    assert history.picture().unknown == {"gpu": 1}


def test_a_job_of_two_partitions_counts_where_it_starts() -> None:
    history = fed((item(partitions=("long", "short")),), (item(wait=9.0, partitions=("short",)),))
    assert count(history, ("short", SizeClass.UP_TO_8)) == 1
    assert count(history, ("long", SizeClass.UP_TO_8)) == 0


def test_a_picture_does_not_change_under_its_reader() -> None:
    history = fed((item(),))
    before = history.picture()
    history.update((item(wait=40.0),), now=60.0)
    assert sum(before.histograms[KEY].counts) == 0


@given(st.lists(st.floats(0, 1e7), max_size=50))
def test_every_wait_is_in_one_bucket_whose_bound_holds_it(waits: list[float]) -> None:
    histogram = WaitHistogram()
    for seconds in waits:
        histogram.observe(seconds)

    assert sum(histogram.counts) == len(waits)
    total = 0
    for bound, in_bucket in zip(WAIT_BUCKETS, histogram.counts, strict=False):
        total += in_bucket
        assert total == sum(seconds <= bound for seconds in waits)  # le, as Prometheus means it
