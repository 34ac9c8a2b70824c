"""How much of our lease is left, by the monotonic clock: asked right before each call that changes something.

The lease itself stands in the ledger and is dated by the wall clock, which may jump; a worker may have
waited, or the process been stopped, since the gates looked. What remains possible is told in
docs/architecture.md ("One executor").
"""

from __future__ import annotations

import threading

from fleet.clock import Clock
from fleet.errors import UnavailableError


class RemainingLease:
    """Written by the deciding thread, asked by every worker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._ends = float("-inf")

    def renewed(self, asked_at: float, seconds: float) -> None:
        """The lease was asked for at ``asked_at`` (monotonic) and given for ``seconds`` from then."""
        with self._lock:
            self._ends = asked_at + seconds

    def lost(self) -> None:
        with self._lock:
            self._ends = float("-inf")

    def require(self, seconds: float) -> None:
        """UnavailableError unless more than ``seconds`` are left: then nothing may be begun."""
        with self._lock:
            left = self._ends - self._clock.monotonic()
        if left <= seconds:
            raise UnavailableError(
                f"not called: {max(0.0, left):.1f} s of our lease are left, the call may take {seconds:g} s"
            )
