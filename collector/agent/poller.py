"""One source, read on its rhythm in a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from collector.agent.board import Board, timed_out, within_bounds
from collector.agent.complaints import Complaints
from collector.agent.stats import AgentStats, LoopFailure
from fleet.clock import Clock
from fleet.observations import Problem, ProblemReason, Reading

log = logging.getLogger(__name__)

MAX_PAUSE_SECONDS = 960.0
MAX_MESSAGE_CHARS = 300
_MAX_TOLD = 64


def pause_after(timeouts_in_a_row: int, interval_seconds: float) -> float:
    """Seconds from one read's start to the next one's. Pure.

    A driver that hangs is not helped by questions: from the second time-out in a row the pause doubles.
    """
    doublings = max(0, min(timeouts_in_a_row, 32) - 1)
    return min(max(MAX_PAUSE_SECONDS, interval_seconds), interval_seconds * 2.0**doublings)


class SourcePoller:
    """Reads ``source`` every ``interval_seconds`` onto the board; reads never overlap.

    A read that takes longer than the interval skips the turns it missed. Problems are counted each time and
    logged when they are new.
    """

    def __init__(
        self,
        source: str,
        read: Callable[[], Reading],
        *,
        board: Board,
        stats: AgentStats,
        clock: Clock,
        interval_seconds: float,
    ) -> None:
        self._source = source
        self._read = read
        self._board = board
        self._stats = stats
        self._clock = clock
        self._interval = interval_seconds
        self._timeouts = 0
        self._told: set[tuple[str, str]] = set()
        self._complaints = Complaints(log, clock)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"agent-{source}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end; it is not waited for (its source may hang)."""
        self._stop.set()

    def step(self) -> float:
        """Read once, now; when the next read is due (monotonic)."""
        began = self._clock.monotonic()
        reading = self._read_once()
        self._timeouts = self._timeouts + 1 if timed_out(reading) else 0
        pause = pause_after(self._timeouts, self._interval)
        self._board.record(self._source, reading, began=began, next_seconds=pause)
        self._tell(reading)
        turns = (self._clock.monotonic() - began) // pause + 1
        return began + turns * pause

    def _read_once(self) -> Reading:
        """Named boundary of the source's thread: a defect is logged and counted, and the next read comes."""
        try:
            return within_bounds(self._read(), self._source)
        except Exception:
            self._stats.loop_failed(LoopFailure.METRIC_SOURCE)
            log.exception("reading %s failed inside the agent; trying again", self._source)
            message = "the read failed inside the agent, see its log"
            problem = Problem(source=self._source, reason=ProblemReason.QUERY_ERROR, message=message)
            return Reading((problem,), ok=False)

    def _run(self) -> None:
        while not self._stop.is_set():
            due = self.step()
            self._stop.wait(max(0.0, due - self._clock.monotonic()))

    def _tell(self, reading: Reading) -> None:
        now: set[tuple[str, str]] = set()
        for problem in reading.problems:
            self._stats.problem(self._source, problem.reason, problem.count)
            key = (problem.reason.value, problem.pci or problem.gpu or "")
            if key not in self._told and key not in now:
                message = f"{self._source}: {problem.reason}: {problem.message[:MAX_MESSAGE_CHARS]}"
                self._complaints.say("/".join(key), message)
            if len(now) < _MAX_TOLD:
                now.add(key)
        if self._told and not now:
            log.info("%s is read without problems again", self._source)
        self._told = now
