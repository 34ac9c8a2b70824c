"""Direct scrape of a small fleet's exporters: all targets at once, each with a health of its own.

Every pass ends in time: each target has a deadline, connecting a shorter one, the pass one over all. Targets
that failed last time are asked last, so that a dead rack does not hold up the living. 300 nodes every 15 s is
what this is for (docs/metrics-path.md); beyond, let Prometheus scrape.
"""

from __future__ import annotations

import logging
import queue
import ssl
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from collector.dcgm import read_dcgm
from collector.deadline_http import (
    Answer,
    Deadline,
    Fetcher,
    FetchError,
    FetchTimeoutError,
    FetchTooLargeError,
    FetchTruncatedError,
    FetchUnreadableError,
)
from collector.inventory import Inventory
from fleet.clock import Clock
from fleet.errors import InvalidInputError
from fleet.observations import Problem, ProblemReason, Reading, Sample

log = logging.getLogger(__name__)

MAX_BYTES = 16 * 1024 * 1024
CONNECT_SECONDS = 2.0
_SOURCE = "dcgm"
_WAIT_SECONDS = 0.2
_OPENMETRICS = "application/openmetrics-text"
_TEXT_TYPES = frozenset({"", "text/plain", _OPENMETRICS, "application/octet-stream"})
_HEADERS = {
    "Accept": "text/plain;version=0.0.4,application/openmetrics-text;version=1.0.0;q=0.8",
    "Accept-Encoding": "gzip",
    "User-Agent": "sickbay",
}


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """One exporter: the node's name in the scheduler, and the address of its metrics."""

    node: str
    url: str


@dataclass(frozen=True, slots=True)
class TargetReading:
    """What one target said in one pass.

    ``ok``: at least one sample was read; otherwise nothing is known of this node, and ``error`` is the one
    line why, which is a Problem in ``reading`` too. ``duration_seconds``: from its turn to the answer read.
    """

    target: ScrapeTarget
    reading: Reading
    ok: bool
    duration_seconds: float
    error: str | None


@dataclass(slots=True)
class _Slot:
    """A target's connection and record. Touched by one worker at a time: ``busy`` says whether one has it."""

    target: ScrapeTarget
    fetcher: Fetcher
    busy: bool = False
    failed: bool = False


class _Pass:
    """One pass over all targets. Late answers of an earlier pass find theirs closed and are dropped."""

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline
        self.results: dict[int, TargetReading] = {}
        self.pending = 0
        self.closed = False


class Scraper:
    """Scrapes its targets in worker threads; connections are kept between passes.

    ``timeout_seconds`` bounds one target from its turn on, ``pass_seconds`` (default: twice as much) all of
    them. ``max_bytes`` bounds a body on the wire and unpacked. ``clock`` must move with real time. Raises
    InvalidInputError for an address that can never work, or a node that stands there twice.
    """

    def __init__(
        self,
        targets: Sequence[ScrapeTarget],
        *,
        timeout_seconds: float,
        clock: Clock,
        max_bytes: int = MAX_BYTES,
        workers: int = 32,
        pass_seconds: float | None = None,
        inventory: Inventory | None = None,
    ) -> None:
        if len({target.node for target in targets}) != len(targets):
            raise InvalidInputError("scrape targets: a node stands there twice")
        self._clock = clock
        self._timeout = timeout_seconds
        self._pass_seconds = 2 * timeout_seconds if pass_seconds is None else pass_seconds
        self._inventory = inventory
        self._nodes = frozenset(target.node for target in targets)
        headers = {**_HEADERS, "X-Prometheus-Scrape-Timeout-Seconds": f"{timeout_seconds:g}"}
        tls = ssl.create_default_context() if any(t.url.startswith("https:") for t in targets) else None
        self._slots = [
            _Slot(target, Fetcher(target.url, headers=headers, max_bytes=max_bytes, tls=tls))
            for target in targets
        ]
        self._tasks: queue.SimpleQueue[tuple[int, _Pass] | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._turn = threading.Lock()
        self._threads = [
            threading.Thread(target=self._work, name=f"scrape-{number}", daemon=True)
            for number in range(min(workers, len(targets)))
        ]
        self._closed = False

    def scrape_all(self) -> tuple[TargetReading, ...]:
        """One pass: a reading per target, in the order of the targets. Never raises, ends in time."""
        with self._turn:
            return self._scrape_all()

    def close(self) -> None:
        """End the workers; a request under way ends at its own deadline."""
        self._closed = True
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(_WAIT_SECONDS)
        with self._changed:
            for slot in self._slots:
                if not slot.busy:
                    slot.fetcher.close()

    def _scrape_all(self) -> tuple[TargetReading, ...]:
        for thread in self._threads:
            if thread.ident is None:
                thread.start()
        one = _Pass(Deadline(self._clock.monotonic, self._pass_seconds))
        with self._changed:
            # A worker that hangs in name resolution still has its target from the pass before.
            order = [n for n, slot in enumerate(self._slots) if not slot.busy]
            order.sort(key=lambda n: self._slots[n].failed)
            one.pending = len(order)
            for number in order:
                self._slots[number].busy = True
                self._tasks.put((number, one))
            while one.pending and self._is_open(one):
                self._changed.wait(_WAIT_SECONDS)
            one.closed = True
            return tuple(one.results.get(n) or self._unanswered(n) for n in range(len(self._slots)))

    def _is_open(self, one: _Pass) -> bool:
        try:
            return one.deadline.left() > 0
        except FetchTimeoutError:
            return False

    def _unanswered(self, number: int) -> TargetReading:
        slot = self._slots[number]
        slot.failed = True
        message = f"no answer before the pass ended ({self._pass_seconds:g} s)"
        return self._failure(slot.target, ProblemReason.TIMEOUT, message, self._pass_seconds)

    # -- in the workers

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            number, one = task
            slot = self._slots[number]
            result: TargetReading | None = None
            try:
                if not one.closed and not self._closed:
                    result = self._scrape(slot, one)
            except Exception:  # a worker's last stop: one target may not end the thread of all
                log.exception("scraping %s failed in a way nobody foresaw", slot.target.node)
                result = self._failure(
                    slot.target, ProblemReason.QUERY_ERROR, "internal error, see the log", 0.0
                )
            with self._changed:
                slot.busy = False
                if result is not None:
                    slot.failed = not result.ok
                    one.results[number] = result
                one.pending -= 1
                self._changed.notify_all()

    def _scrape(self, slot: _Slot, one: _Pass) -> TargetReading:
        started = self._clock.monotonic()
        try:
            seconds = min(self._timeout, one.deadline.left())
            answer = _fetch(slot.fetcher, self._clock, seconds)
            node = slot.target.node
            reading = _read(
                answer,
                node=node,
                now=self._clock.now(),
                inventory=self._inventory,
                neighbours=self._nodes - {node},
            )
        except FetchError as error:
            took = self._clock.monotonic() - started
            return self._failure(slot.target, _reason(error), str(error), took)
        took = self._clock.monotonic() - started
        if reading.ok:
            return TargetReading(slot.target, reading, ok=True, duration_seconds=took, error=None)
        problems = reading.problems
        error_text = problems[0].message if problems else "the answer holds no sample"
        return TargetReading(slot.target, reading, ok=False, duration_seconds=took, error=error_text)

    def _failure(
        self, target: ScrapeTarget, reason: ProblemReason, message: str, took: float
    ) -> TargetReading:
        reading = _failed(target.url, reason, message, node=target.node)
        return TargetReading(target, reading, ok=False, duration_seconds=took, error=message)


def scrape_once(
    url: str,
    *,
    node: str | None,
    timeout_seconds: float,
    clock: Clock,
    max_bytes: int = MAX_BYTES,
    inventory: Inventory | None = None,
) -> Reading:
    """One exporter, once. ``node`` None: the exporter's own host. Raises InvalidInputError for a bad address
    only; ``ok`` is False when no sample was read.
    """
    fetcher = Fetcher(url, headers=_HEADERS, max_bytes=max_bytes)
    try:
        answer = _fetch(fetcher, clock, timeout_seconds)
        return _read(answer, node=node, now=clock.now(), inventory=inventory)
    except FetchError as error:
        return _failed(url, _reason(error), str(error), node=node)
    finally:
        fetcher.close()


def _fetch(fetcher: Fetcher, clock: Clock, seconds: float) -> Answer:
    deadline = Deadline(clock.monotonic, seconds)
    return fetcher.get(deadline, connect_seconds=min(CONNECT_SECONDS, seconds))


def _read(
    answer: Answer,
    *,
    node: str | None,
    now: float,
    inventory: Inventory | None,
    neighbours: Iterable[str] = (),
) -> Reading:
    """The answer, read. Raises FetchError for one that is no metrics; without a sample it is not ok."""
    _refuse(answer)
    body = answer.body
    # A body that is whole by its own framing is not torn because its last line lacks a line feed.
    if answer.framed and body and not body.endswith(b"\n"):
        body += b"\n"
    openmetrics = True if answer.content_type == _OPENMETRICS else None
    reading = read_dcgm(
        body, node=node, now=now, inventory=inventory, openmetrics=openmetrics, neighbours=neighbours
    )
    seen = any(isinstance(record, Sample) for record in reading.records)
    return Reading(reading.records, ok=seen)


def _failed(url: str, reason: ProblemReason, message: str, *, node: str | None) -> Reading:
    problem = Problem(source=_SOURCE, reason=reason, message=f"{url}: {message}", node=node)
    return Reading((problem,), ok=False)


class _DeniedError(FetchError):
    """The exporter wants a login."""


_REASONS: tuple[tuple[type[FetchError], ProblemReason], ...] = (
    (FetchTimeoutError, ProblemReason.TIMEOUT),
    (FetchTooLargeError, ProblemReason.TOO_LARGE),
    (FetchTruncatedError, ProblemReason.TRUNCATED),
    (FetchUnreadableError, ProblemReason.UNREADABLE),
    (_DeniedError, ProblemReason.PERMISSION_DENIED),
)


def _reason(error: FetchError) -> ProblemReason:
    return next((reason for kind, reason in _REASONS if isinstance(error, kind)), ProblemReason.QUERY_ERROR)


def _refuse(answer: Answer) -> None:
    """Raises FetchError for an answer that is not even read: its status, or what kind of document it is."""
    status = answer.status
    if status in {401, 403}:
        raise _DeniedError(f"answered {status}: it wants a login")
    if 300 <= status < 400:  # noqa: PLR2004 - the class of redirects
        raise FetchError(f"answered {status}: redirects are not followed, correct the address")
    if status != 200:  # noqa: PLR2004 - OK
        said = " ".join(answer.body[:200].decode("utf-8", "replace").split())
        raise FetchError(f"answered {status}: {said[:100]!r}")
    if answer.content_type not in _TEXT_TYPES:
        raise FetchUnreadableError(f"content type {answer.content_type[:60]!r} is not that of metrics")
