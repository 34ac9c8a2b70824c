"""Which GPUs this node has, as far as it can tell right now. Asked beside the push, never in its way."""

from __future__ import annotations

import csv
import logging
import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from collector.agent.stats import AgentStats, LoopFailure
from collector.process import TimedOutError, run
from fleet.clock import Clock
from fleet.errors import UnavailableError
from fleet.identity import normalise_pci

log = logging.getLogger(__name__)

QUERY = ("nvidia-smi", "--query-gpu=uuid,index,pci.bus_id", "--format=csv,noheader")
DEADLINE_SECONDS = 10.0
REFRESH_SECONDS = 60.0
# A refresh that is late by this much (the tool hangs) makes what we knew unknown.
STALE_SECONDS = REFRESH_SECONDS + 3 * DEADLINE_SECONDS
_UUID = re.compile(r"^GPU-[0-9A-Fa-f-]{8,64}$")
_COLUMNS = 3
# In a driver that hangs not even SIGKILL ends the tool. Each one in a row doubles the pause, so that they
# do not pile up.
MAX_PAUSE_SECONDS = 960.0


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """One GPU. The index moves after a loss; the UUID does not."""

    uuid: str
    index: int
    pci: str


class GpuInventory(Protocol):
    """What the pusher asks; must answer at once.

    The GPUs of boot ``boot_id``; an empty tuple: there are none; None: cannot tell.
    """

    def current(self, boot_id: str) -> tuple[GpuIdentity, ...] | None: ...


class UnknownInventory:
    """A node that cannot tell (``nvidia-smi`` is not among its sources)."""

    def current(self, boot_id: str) -> tuple[GpuIdentity, ...] | None:
        return None


def parse_gpus(text: str) -> tuple[GpuIdentity, ...] | None:
    """The answer of ``QUERY``; None when any of it cannot be understood.

    One line a GPU: ``GPU-<uuid>, 0, 00000000:3B:00.0`` (nvidia-smi(1), ``--help-query-gpu``). All or
    nothing: a list that lacks the GPU with the damaged line would look like a node that lost one.
    """
    if "no devices were found" in text.lower():
        return ()
    gpus = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        if not row:
            continue
        if len(row) != _COLUMNS:
            return None
        uuid, index, address = (cell.strip() for cell in row)
        pci = normalise_pci(address)
        if not _UUID.match(uuid) or not index.isdecimal() or pci is None:
            return None
        gpus.append(GpuIdentity(uuid, int(index), pci))
    if not gpus or len({gpu.uuid for gpu in gpus}) != len(gpus):
        return None
    return tuple(gpus)


class QueryError(Exception):
    """The tool gave no usable answer; the text says why. ``hangs``: it had to be killed at the deadline."""

    def __init__(self, message: str, *, hangs: bool = False) -> None:
        super().__init__(message)
        self.hangs = hangs


def query_gpus(
    argv: tuple[str, ...] = QUERY, deadline_seconds: float = DEADLINE_SECONDS
) -> tuple[GpuIdentity, ...]:
    """Run the tool once. QueryError when it is missing, late, failing or not understood."""
    try:
        done = run(argv, env={**os.environ, "LC_ALL": "C"}, timeout_seconds=deadline_seconds)
    except TimedOutError as error:
        raise QueryError(str(error), hangs=True) from error
    except UnavailableError as error:
        raise QueryError(str(error)) from error
    text = done.stdout.decode("utf-8", "replace")
    gpus = parse_gpus(text)
    if gpus is None or (gpus and done.rc != 0):
        line = next(iter(text.strip().splitlines()), "(no output)")[:200]
        raise QueryError(f"{argv[0]} exited {done.rc} and said: {line}")
    return gpus


@dataclass(frozen=True, slots=True)
class _Answer:
    boot_id: str
    gpus: tuple[GpuIdentity, ...]
    at: float


class CachedInventory:
    """Asks ``query`` every 60 s in a thread of its own; ``current`` only looks at the last answer.

    An answer belongs to the boot it was asked in: after a reboot nothing is known until asked again.
    ``changed`` is called (in that thread) when what is known has changed.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        stats: AgentStats,
        boot_id: Callable[[], str | None],
        changed: Callable[[], None],
        query: Callable[[], tuple[GpuIdentity, ...]],
    ) -> None:
        self._clock = clock
        self._stats = stats
        self._boot_id = boot_id
        self._changed = changed
        self._query = query
        self._answer: _Answer | None = None
        self._complaint: str | None = None
        self._pause_seconds = REFRESH_SECONDS
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu-inventory", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end; it is not waited for (the tool may hang)."""
        self._stop.set()
        self._wake.set()

    def current(self, boot_id: str) -> tuple[GpuIdentity, ...] | None:
        answer = self._answer
        if answer is None or self._clock.monotonic() - answer.at > STALE_SECONDS:
            return None
        if answer.boot_id != boot_id:
            self._wake.set()
            return None
        return answer.gpus

    def refresh(self) -> None:
        """Ask once, now."""
        boot_id = self._boot_id()
        answer = None
        try:
            if boot_id is not None:
                gpus = self._query()
                if self._boot_id() == boot_id:
                    answer = _Answer(boot_id, gpus, self._clock.monotonic())
            self._say(None)
            self._pause_seconds = REFRESH_SECONDS
        except QueryError as error:
            self._say(str(error))
            self._pause_seconds = (
                min(MAX_PAUSE_SECONDS, 2 * self._pause_seconds) if error.hangs else REFRESH_SECONDS
            )
        before, self._answer = self._answer, answer
        if _known(before) != _known(answer):
            self._changed()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            try:
                self.refresh()
            except Exception:  # boundary of the side thread: logged, counted, asked again
                self._answer = None
                self._stats.loop_failed(LoopFailure.INVENTORY)
                log.exception("reading the GPU inventory failed; trying again in %g s", REFRESH_SECONDS)
            self._wake.wait(self._pause_seconds)

    def _say(self, complaint: str | None) -> None:
        if complaint == self._complaint:
            return
        self._complaint = complaint
        if complaint is None:
            log.info("the GPU inventory is known again")
        else:
            self._stats.loop_failed(LoopFailure.INVENTORY)
            log.warning("the GPUs of this node are unknown: %s", complaint)


def _known(answer: _Answer | None) -> tuple[str, tuple[GpuIdentity, ...]] | None:
    return None if answer is None else (answer.boot_id, answer.gpus)
