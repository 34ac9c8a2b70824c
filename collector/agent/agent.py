"""The agent: a thread that reads, a thread that pushes, and the spool between them.

Two threads, because a controller that hangs must not keep a fatal line from reaching the disk.
"""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from collector.agent.push import Pusher, PushOutcome
from collector.agent.reader import KernelLogReader
from collector.agent.settings import AgentSettings
from collector.agent.spool import Spool
from collector.agent.stats import AgentStats, LoopFailure
from fleet.clock import Clock

log = logging.getLogger(__name__)

# A new event shortens the wait after a failure to this (s since the last try), not to nothing: agents of a
# whole rack may have new events each second while the controller is down.
HURRY_SECONDS = 2.0
PUSHER_FAILED_SECONDS = 30.0
READER_FAILED_SECONDS = 1.0
# A loop that has not come round for this long (s) hangs: one push may last a minute, a read a second.
WATCHDOG_SECONDS = 300.0
JOIN_SECONDS = 5.0


class Companion(Protocol):
    """Something that runs beside the loops: a source of metrics, the metrics server."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Bell:
    """Wakes the pusher and ends the waits when the agent stops."""

    def __init__(self) -> None:
        self._wake = threading.Event()
        self._stop = threading.Event()

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def ring(self) -> None:
        self._wake.set()

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()

    def silence(self) -> None:
        """Forget rings so far; called before looking at what waits, so that a later ring is not lost."""
        self._wake.clear()

    def wait(self, seconds: float) -> bool:
        """True when rung within ``seconds``."""
        return self._wake.wait(max(0.0, seconds))

    def pause(self, seconds: float) -> None:
        """Wait, unless the agent stops."""
        self._stop.wait(max(0.0, seconds))


class Watchdog:
    """Knows when each loop last came round."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen = {"reading": clock.monotonic(), "pushing": clock.monotonic()}

    def alive(self, loop: str) -> None:
        self._seen[loop] = self._clock.monotonic()

    def healthy(self) -> tuple[bool, str]:
        """Whether both loops still come round, and a sentence."""
        now = self._clock.monotonic()
        for loop, at in self._seen.items():
            if now - at > WATCHDOG_SECONDS:
                return False, f"{loop} hangs since {now - at:.0f} s; restart the agent"
        return True, "ok"


class Agent:
    """One node's agent. ``run`` returns after ``stop``, which any thread or signal handler may call."""

    def __init__(
        self,
        *,
        settings: AgentSettings,
        clock: Clock,
        reader: KernelLogReader,
        spool: Spool,
        pusher: Pusher,
        stats: AgentStats,
        bell: Bell,
        watchdog: Watchdog,
        companions: tuple[Companion, ...] = (),
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._reader = reader
        self._spool = spool
        self._pusher = pusher
        self._stats = stats
        self._bell = bell
        self._companions = companions
        self._watchdog = watchdog
        self._thread = threading.Thread(target=self._push_loop, name="agent-push", daemon=True)

    def run(self) -> None:
        """Read and push until stopped."""
        log.info(
            "agent of %s: %s to %s, spool %s (events waiting: %d)",
            self._settings.node,
            self._settings.kernel_log,
            self._settings.controller,
            self._settings.node_spool_dir,
            self._spool.depth,
        )
        for companion in self._companions:
            companion.start()
        # The log is open before the first heartbeat says that somebody watches.
        self._read_once(0.0)
        self._thread.start()
        try:
            while not self._bell.stopping:
                self._read_once()
                self._watchdog.alive("reading")
        finally:
            self._reader.close()
            self._bell.stop()
            self._thread.join(JOIN_SECONDS)
            self._close()
        log.info("stopped (events waiting for the next start: %d)", self._spool.depth)

    def stop(self) -> None:
        self._bell.stop()

    def once(self) -> bool:
        """One read without waiting and one push; True when the controller has everything."""
        try:
            self._reader.step(0.0)
            self._reader.close()
            return self._push_once().ok
        finally:
            self._close()

    def _close(self) -> None:
        for companion in self._companions:
            companion.stop()
        self._pusher.close()
        self._spool.close()

    def _read_once(self, wait_seconds: float | None = None) -> None:
        """Named boundary of the read loop: a defect is logged and counted, and the next line is read."""
        try:
            self._reader.step(wait_seconds)
        except Exception:
            self._stats.loop_failed(LoopFailure.READER)
            log.exception("a pass of the read loop failed inside the agent; going on")
            self._bell.pause(READER_FAILED_SECONDS)

    # -- the pushing thread

    def _push_loop(self) -> None:
        outcome = PushOutcome(ok=False, wait_seconds=0.0)
        while not self._bell.stopping:
            self._bell.silence()
            started = self._clock.monotonic()
            outcome = self._push_once()
            self._watchdog.alive("pushing")
            self._rest(started, outcome)
        if self._spool.depth and outcome.ok:
            self._push_once()

    def _push_once(self) -> PushOutcome:
        """Named boundary of the pushing thread: a defect is logged and counted, and the next push comes."""
        try:
            return self._pusher.push()
        except Exception:
            self._stats.loop_failed(LoopFailure.PUSHER)
            log.exception("a push failed inside the agent; trying again in %g s", PUSHER_FAILED_SECONDS)
            return PushOutcome(ok=False, wait_seconds=PUSHER_FAILED_SECONDS, refused=True)

    def _rest(self, started: float, outcome: PushOutcome) -> None:
        """Wait for the next heartbeat or try; a new event ends the wait, after a failure not at once."""
        ended = self._clock.monotonic()
        due = (started if outcome.ok else ended) + outcome.wait_seconds
        while not self._bell.stopping and self._clock.monotonic() < due:
            if not self._bell.wait(due - self._clock.monotonic()):
                continue
            if outcome.ok:
                return
            self._bell.silence()
            if not outcome.refused:
                due = min(due, ended + HURRY_SECONDS)
