"""A token bucket on the injected clock: how often we may bother somebody else's controller."""

from __future__ import annotations

import threading

from fleet.clock import Clock
from fleet.errors import RateLimitedError


class TokenBucket:
    """``rate`` calls a second on average, ``burst`` at once. Safe to share between threads."""

    def __init__(self, *, rate: float, clock: Clock, burst: float | None = None) -> None:
        if rate <= 0:
            raise ValueError("a rate limit must be greater than 0")
        self._rate = rate
        self._burst = max(1.0, rate if burst is None else burst)
        self._clock = clock
        self._tokens = self._burst
        self._filled_at = clock.monotonic()
        self._lock = threading.Lock()

    def acquire(self, max_wait_seconds: float = 0.0) -> None:
        """Take one token, sleeping up to ``max_wait_seconds`` for it, else raise RateLimitedError.

        A caller that would have to wait longer is told so at once and takes nothing.
        """
        with self._lock:
            now = self._clock.monotonic()
            self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
            self._filled_at = now
            wait = max(0.0, (1.0 - self._tokens) / self._rate)
            if wait > max_wait_seconds:
                raise RateLimitedError(
                    f"our own limit of {self._rate:g} calls/s to the scheduler is used up; "
                    f"next one in {wait:.1f} s",
                    retry_after_seconds=wait,
                )
            self._tokens -= 1.0  # may go below zero: that is the queue of those already waiting
        if wait > 0:
            self._clock.sleep(wait)
