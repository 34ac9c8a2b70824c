"""How a simulated scheduler misbehaves on request: away, slow, or silent after it has done the work."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from fleet.clock import Clock
from fleet.errors import BackendError, UnavailableError


@dataclass(frozen=True, slots=True)
class _Planned:
    error: BackendError
    after_effect: bool


class Disturbances:
    """What is wrong with the scheduler now. ``verb`` is a backend method's name (``cordon`` ...)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._away_until = float("-inf")
        self._latency = 0.0
        self._planned: dict[str, list[_Planned]] = {}
        self.hit: Counter[str] = Counter()

    def be_unavailable(self, seconds: float) -> None:
        """Every call fails for ``seconds`` from now; jobs and nodes go on."""
        self._away_until = self._clock.now() + seconds

    def be_available(self) -> None:
        self._away_until = float("-inf")

    def set_latency(self, seconds: float) -> None:
        """Every call takes ``seconds`` of the injected clock's time."""
        self._latency = seconds

    def fail_next(self, verb: str, error: BackendError) -> None:
        """The next call of ``verb`` raises ``error`` and does nothing. Calls queue up."""
        self._planned.setdefault(verb, []).append(_Planned(error, after_effect=False))

    def time_out_after_next(self, verb: str) -> None:
        """The next call of ``verb`` does its work and then times out: the caller cannot know."""
        error = UnavailableError(f"{verb}: no answer from the scheduler in time")
        self._planned.setdefault(verb, []).append(_Planned(error, after_effect=True))

    def before(self, verb: str) -> BackendError | None:
        """Raise what a call meets before its effect; return what it is to raise after it."""
        if self._latency:
            self._clock.sleep(self._latency)
        if self._clock.now() < self._away_until:
            self.hit[verb] += 1
            raise UnavailableError(f"{verb}: unable to contact the scheduler's controller")
        queue = self._planned.get(verb)
        if not queue:
            return None
        planned = queue.pop(0)
        self.hit[verb] += 1
        if planned.after_effect:
            return planned.error
        raise planned.error
