"""Logging that a storm cannot turn into a second storm."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from collector.agent.stats import AgentStats
from fleet.clock import Clock
from fleet.observations import Problem

log = logging.getLogger(__name__)

QUIET_SECONDS = 60.0
MAX_KEYS = 256
MAX_MESSAGE_CHARS = 500


@dataclass(slots=True)
class _Seen:
    at: float
    suppressed: int = 0


class Complaints:
    """Warns at most once a minute per key, and then says how many it kept to itself.

    Thread-safe.
    """

    def __init__(self, log: logging.Logger, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._seen: dict[str, _Seen] = {}
        self._mutex = threading.Lock()

    def say(self, key: str, message: str, *, count: int = 1) -> None:
        """Warn with ``message``, which stands for ``count`` things of the kind ``key``."""
        with self._mutex:
            now = self._clock.monotonic()
            seen = self._seen.get(key)
            if seen is not None and now - seen.at < QUIET_SECONDS:
                seen.suppressed += count
                return
            if len(self._seen) >= MAX_KEYS:
                self._seen.clear()
            self._seen[key] = _Seen(now)
        more = f" (and {seen.suppressed} more like it)" if seen is not None and seen.suppressed else ""
        self._log.warning("%s%s", message, more)


class ProblemLog:
    """What became unknown: counted by source and reason, told of now and then, never pushed."""

    def __init__(self, stats: AgentStats, clock: Clock) -> None:
        self._stats = stats
        self._complaints = Complaints(log, clock)

    def tell(self, problem: Problem) -> None:
        self._stats.problem(problem.source, problem.reason, problem.count)
        self._complaints.say(
            f"{problem.source}/{problem.reason}",
            f"{problem.source}: {problem.reason}: {problem.message[:MAX_MESSAGE_CHARS]}",
            count=problem.count,
        )
