"""The read loop's one pass: lines from the kernel log into the spool."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from collector.agent.backoff import Backoff
from collector.agent.boot import BootId, epoch_of
from collector.agent.complaints import Complaints, ProblemLog
from collector.agent.spool import NewEvent, Spool
from collector.agent.stats import AgentStats, LoopFailure
from fleet.clock import Clock
from fleet.observations import Event, Problem, TimeSource

log = logging.getLogger(__name__)

MAX_MESSAGE_CHARS = 4096
# Without a boot ID lines stay where they are; ask for it again after this (s).
BOOT_ID_RETRY_SECONDS = 0.2
# In a storm the first fault goes out before the last line is understood, and memory stays small.
LINES_AT_ONCE = 200


class LineSource(Protocol):
    """A followed log. OSError when it cannot be read; it is then closed and opened again."""

    def read_lines(self, timeout_seconds: float) -> list[bytes]:
        """Whole lines as they come; an empty list after ``timeout_seconds`` without one."""
        ...

    def take_problems(self) -> list[Problem]:
        """What could not be read since the last call."""
        ...

    def close(self) -> None: ...


class LineParser(Protocol):
    """Lines in, events and problems out; keeps what it needs of earlier lines (repeats, dumps)."""

    def feed(self, line: bytes) -> Sequence[Event | Problem]: ...

    def flush(self, now: float) -> Sequence[Event | Problem]:
        """What has waited long enough for a line that did not come."""
        ...

    def close(self) -> Sequence[Event | Problem]:
        """Everything that is left."""
        ...


class KernelLogReader:
    """Reads, understands, stamps with the epoch, writes down, wakes the pusher.

    ``parser_for`` builds the parser around a function that tells the epoch of the lines being fed.
    ``pause`` waits (s) and returns early when the agent stops.
    """

    def __init__(
        self,
        *,
        node: str,
        open_source: Callable[[], LineSource],
        parser_for: Callable[[Callable[[], str | None]], LineParser],
        encode: Callable[[Event], Mapping[str, Any]],
        boot_id: BootId,
        spool: Spool,
        stats: AgentStats,
        problems: ProblemLog,
        clock: Clock,
        uniform: Callable[[], float],
        wake: Callable[[], None],
        pause: Callable[[float], object],
        wait_seconds: float,
    ) -> None:
        self._node = node
        self._open_source = open_source
        self._parser = parser_for(lambda: self._epoch)
        self._encode = encode
        self._boot_id = boot_id
        self._spool = spool
        self._stats = stats
        self._clock = clock
        self._backoff = Backoff(uniform)
        self._wake = wake
        self._pause = pause
        self._wait = wait_seconds
        self._source: LineSource | None = None
        self._source_complaint: str | None = None
        self._complaints = Complaints(log, clock)
        self._problems = problems
        self._epoch: str | None = None
        self._held: list[bytes] = []

    def step(self, wait_seconds: float | None = None) -> int:
        """One pass; returns the number of events written down. Waits at most ``wait_seconds`` for a line.

        Named boundary: whatever the source does (it is a device, a file being rotated, a network mount) is
        logged, counted and tried again with back-off; the agent goes on.
        """
        try:
            lines = self._held or self._read(self._wait if wait_seconds is None else wait_seconds)
        except Exception as error:  # noqa: BLE001 - the boundary named above
            self._source_failed(error)
            return 0
        read_at = self._clock.monotonic()
        epoch = self._boot_id.read()
        if epoch is None:
            self._held = lines
            if lines:
                self._complaints.say("boot-id", "the boot ID cannot be read: lines wait until it can")
                self._pause(BOOT_ID_RETRY_SECONDS)
            return 0
        self._held, self._epoch = [], epoch
        written = 0
        for start in range(0, len(lines), LINES_AT_ONCE):
            records: list[Event | Problem] = []
            for line in lines[start : start + LINES_AT_ONCE]:
                records += self._parse(lambda line=line: self._parser.feed(line))  # type: ignore[misc]
            written += self._write_down(records, epoch, read_at)
        late = self._parse(lambda: self._parser.flush(self._clock.now()))
        return written + self._write_down(late, epoch, read_at)

    def close(self) -> None:
        """Write down what the parser still holds, and leave the log."""
        if self._epoch is not None:
            self._write_down(self._parse(self._parser.close), self._epoch, None)
        self._close_source()

    def _close_source(self) -> None:
        if self._source is not None:
            source, self._source = self._source, None
            try:
                source.close()
            except OSError as error:
                log.warning("closing the kernel log: %s", error)

    # -- the source

    def _read(self, wait_seconds: float) -> list[bytes]:
        if self._source is None:
            self._source = self._open_source()
        lines = self._source.read_lines(wait_seconds)
        for problem in self._source.take_problems():
            self._problems.tell(problem)
        self._backoff.reset()
        if self._source_complaint is not None:
            log.info("the kernel log can be read again")
            self._source_complaint = None
        return lines

    def _source_failed(self, error: Exception) -> None:
        self._stats.loop_failed(LoopFailure.SOURCE)
        message = str(error) or type(error).__name__
        if message != self._source_complaint:
            log.warning(
                "cannot read the kernel log: %s; check agent.kernel_log and the rights on it; trying again",
                message,
            )
            self._source_complaint = message
        self._close_source()
        self._pause(self._backoff.failed())

    # -- lines

    def _parse(self, work: Callable[[], Sequence[Event | Problem]]) -> Sequence[Event | Problem]:
        """Named boundary: a line that the parser trips over costs itself, not the lines after it."""
        try:
            return work()
        except Exception:
            self._stats.loop_failed(LoopFailure.PARSER)
            log.exception("the parser failed on a line of the kernel log; the line is skipped")
            return ()

    def _write_down(self, records: Sequence[Event | Problem], epoch: str, read_at: float | None) -> int:
        events = [record for record in records if isinstance(record, Event)]
        for record in records:
            if isinstance(record, Problem):
                self._problems.tell(record)
        if events:
            self._spool.add(
                [
                    NewEvent(
                        boot_id=epoch_of(event.boot_id, epoch), event=self._stamp(event), read_at=read_at
                    )
                    for event in events
                ]
            )
            self._wake()
        for event in events:
            self._stats.event(event.kind)
        return len(events)

    def _stamp(self, event: Event) -> dict[str, Any]:
        """The event as it is pushed: in our own name, whatever the line says, and fit for JSON."""
        document = dict(self._encode(event))
        document["node"] = self._node
        for name in ("message", "process"):
            text = document.get(name)
            if isinstance(text, str):
                document[name] = text.encode("utf-8", "replace").decode("utf-8")[:MAX_MESSAGE_CHARS]
        if not math.isfinite(event.time):
            document["time"], document["time_source"] = self._clock.now(), TimeSource.RECEIVED.value
        return document
