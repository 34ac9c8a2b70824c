"""Reads the scheduler at its own pace: once per interval, however many scrapes come.

A scrape shows the last read and never waits for one. When a read fails, what was known is gone at once: old
numbers would look like new ones.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from collector.exporters.history import StartHistory, Waits
from collector.exporters.model import Source
from collector.exporters.summary import Names, Summary, summarise
from collector.process import TimedOutError, ToolMissingError
from fleet.clock import Clock
from fleet.errors import BackendError, ForbiddenError, RateLimitedError

_LOG = logging.getLogger(__name__)
# A lost read or two may happen before what we hold is called old; so may a slow one.
_INTERVALS_UNTIL_OLD = 3.0


class FailureReason(StrEnum):
    """Why a read failed. INTERNAL: our own fault; the log has it."""

    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"
    TOOL_MISSING = "tool_missing"
    FORBIDDEN = "forbidden"
    RATE_LIMITED = "rate_limited"
    OTHER = "other"
    INTERNAL = "internal"


def failure_reason(error: BackendError) -> FailureReason:
    """The most telling word for it."""
    if isinstance(error, ToolMissingError):
        return FailureReason.TOOL_MISSING
    if isinstance(error, TimedOutError):
        return FailureReason.TIMEOUT
    if isinstance(error, ForbiddenError):
        return FailureReason.FORBIDDEN
    if isinstance(error, RateLimitedError):
        return FailureReason.RATE_LIMITED
    return FailureReason.UNAVAILABLE if error.retryable else FailureReason.OTHER


@dataclass(frozen=True, slots=True, kw_only=True)
class PollState:
    """What is known now. ``summary`` is None when the last read failed, is too old, or never came.

    ``waits`` is None before the first success; being counters, they outlive a failed read.
    ``last_success_at``: epoch seconds. ``error``: the last failure's one line, None after a success.
    """

    reads: int = 0
    failures: Mapping[FailureReason, int]
    duration_seconds: float | None = None
    last_success_at: float | None = None
    summary: Summary | None = None
    waits: Waits | None = None
    error: str | None = None

    @property
    def up(self) -> bool:
        return self.summary is not None


class Poller:
    """``poll`` is one read; ``run`` polls until ``stop``. ``state`` may be asked from any thread.

    ``slowest_read_seconds`` is how long one read may take at the worst: until then the last one is good.
    """

    def __init__(
        self,
        source: Source,
        names: Names,
        *,
        clock: Clock,
        interval_seconds: float,
        slowest_read_seconds: float,
    ) -> None:
        self._source = source
        self._names = names
        self._clock = clock
        self._interval = interval_seconds
        self._old_after = max(
            _INTERVALS_UNTIL_OLD * interval_seconds, interval_seconds + slowest_read_seconds
        )
        self._history = StartHistory(names.partition)
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._state = PollState(failures=dict.fromkeys(FailureReason, 0))
        self._succeeded_at = 0.0
        self._retry_after = 0.0

    @property
    def kind(self) -> str:
        return self._source.kind

    def state(self) -> PollState:
        with self._lock:
            state, age = self._state, self._clock.monotonic() - self._succeeded_at
        if state.summary is not None and age > self._old_after:
            # A read hangs, or the poller is gone: what we hold is no longer how things are.
            error = f"the last read is {age:.0f} s old, and one is due every {self._interval:g} s"
            return replace(state, summary=None, error=error)
        return state

    def poll(self) -> PollState:
        """One read now; the state after it."""
        started = self._clock.monotonic()
        try:
            reading = self._source.read()
            now, monotonic = self._clock.now(), self._clock.monotonic()
            summary = summarise(reading, self._names, now=now)
            self._history.update(reading.items, now=monotonic)
        except BackendError as error:
            asked = error.retry_after_seconds if isinstance(error, RateLimitedError) else None
            self._retry_after = asked or 0.0
            return self._failed(failure_reason(error), str(error), started)
        except Exception as error:  # noqa: BLE001 - the boundary of the poller: it must live on
            _LOG.exception("reading %s failed by a fault of our own", self._source.kind)
            return self._failed(FailureReason.INTERNAL, f"{type(error).__name__}: {error}", started)
        with self._lock:
            if self._state.error is not None:
                _LOG.info("%s answers again", self._source.kind)
            self._retry_after = 0.0
            self._succeeded_at = monotonic
            self._state = replace(
                self._state,
                reads=self._state.reads + 1,
                duration_seconds=monotonic - started,
                last_success_at=now,
                summary=summary,
                waits=self._history.picture(),
                error=None,
            )
            return self._state

    def _failed(self, reason: FailureReason, text: str, started: float) -> PollState:
        with self._lock:
            if self._state.error != text:  # the same words every interval would hide what is new
                _LOG.warning("cannot read %s (%s): %s", self._source.kind, reason.value, text)
            failures = dict(self._state.failures)
            failures[reason] += 1
            self._state = replace(
                self._state,
                reads=self._state.reads + 1,
                failures=failures,
                duration_seconds=self._clock.monotonic() - started,
                summary=None,
                error=text,
            )
            return self._state

    def run(self) -> None:
        """Poll once per interval, from start to start; a longer read is followed by the next at once."""
        while not self._stopped.is_set():
            due = self._clock.monotonic() + self._interval
            self.poll()
            now = self._clock.monotonic()
            self._stopped.wait(max(0.0, due - now, self._retry_after))
        self._source.close()

    def stop(self) -> None:
        """End ``run`` after the read that is under way."""
        self._stopped.set()
