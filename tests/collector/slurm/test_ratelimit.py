"""The token bucket, on a clock that moves only when told to."""

from __future__ import annotations

import pytest

from collector.ratelimit import TokenBucket
from fleet.clock import ManualClock
from fleet.errors import RateLimitedError


def test_a_burst_is_free_and_the_rest_waits_its_turn() -> None:
    clock = ManualClock()
    bucket = TokenBucket(rate=2.0, clock=clock)
    started = clock.monotonic()

    for _ in range(6):
        bucket.acquire(max_wait_seconds=10)

    assert clock.monotonic() - started == pytest.approx(2.0)  # two at once, then four at 2/s


def test_who_would_wait_too_long_is_told_and_takes_nothing() -> None:
    clock = ManualClock()
    bucket = TokenBucket(rate=0.5, clock=clock)
    bucket.acquire()

    with pytest.raises(RateLimitedError) as caught:
        bucket.acquire(max_wait_seconds=1.0)

    assert caught.value.retry_after_seconds == pytest.approx(2.0)
    assert caught.value.retryable
    clock.advance(2.0)
    bucket.acquire()


def test_idle_time_fills_the_bucket_to_its_burst_only() -> None:
    clock = ManualClock()
    bucket = TokenBucket(rate=2.0, clock=clock)
    clock.advance(3600)

    bucket.acquire()
    bucket.acquire()
    with pytest.raises(RateLimitedError):
        bucket.acquire()


def test_a_wall_clock_step_changes_nothing() -> None:
    clock = ManualClock()
    bucket = TokenBucket(rate=1.0, clock=clock)
    bucket.acquire()
    clock.step_wall_clock(3600)

    with pytest.raises(RateLimitedError):
        bucket.acquire()


def test_a_rate_of_zero_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        TokenBucket(rate=0, clock=ManualClock())
