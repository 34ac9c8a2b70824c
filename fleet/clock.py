"""Time is injected: nothing below the application calls ``time`` itself."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time. ``now`` is epoch seconds (UTC); ``monotonic`` never jumps."""

    def now(self) -> float: ...

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class ManualClock:
    """A clock that moves only when told to: tests, the demo and backtests run on it."""

    def __init__(self, start: float = 1_767_225_600.0) -> None:
        self._now = start
        self._monotonic = 0.0

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move time forward by ``seconds`` (>= 0)."""
        if seconds < 0:
            raise ValueError("time does not run backwards here; use step_wall_clock for an NTP step")
        self._now += seconds
        self._monotonic += seconds

    def step_wall_clock(self, seconds: float) -> None:
        """An NTP step: the wall clock jumps (either way), the monotonic clock does not."""
        self._now += seconds
