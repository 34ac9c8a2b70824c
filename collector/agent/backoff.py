"""How long to wait after a failed push. Pure, with injected randomness."""

from __future__ import annotations

from collections.abc import Callable

FIRST_SECONDS = 0.5
LONGEST_SECONDS = 30.0
# Refusals that only a person can end (token, inventory) are asked again at this pace.
REFUSED_SECONDS = 30.0


class Backoff:
    """0.5 s, 1 s, 2 s ... 30 s, each shortened by up to half at random.

    The jitter spreads a fleet whose controller has just come back; it never goes below half, so that the
    mean pace towards a failing controller is known. ``uniform`` returns a number in [0, 1).
    """

    def __init__(self, uniform: Callable[[], float]) -> None:
        self._uniform = uniform
        self._failures = 0

    def reset(self) -> None:
        self._failures = 0

    def failed(self) -> float:
        """Seconds to wait after one more failure in a row."""
        whole = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(self._failures, 16))
        self._failures += 1
        return self._jitter(whole)

    def refused(self) -> float:
        """Seconds to wait after a refusal that waiting alone will not end."""
        return self._jitter(REFUSED_SECONDS)

    def _jitter(self, whole: float) -> float:
        return whole * (1.0 - 0.5 * self._uniform())
