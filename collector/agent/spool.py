"""Events wait here, on the disk, until the controller has them.

What holds at any instant, kill -9 included:

- an event is on the disk before it is handed out for sending, under its final (boot_id, sequence);
- it stays until ``settle``: the controller accepted it, knew it already, or rejected it for good;
- a sequence is never used twice. The controller drops what it has seen by (node, boot_id, sequence), so a
  reused sequence would be a lost XID. Three witnesses, the highest wins: the journal, the ``sequence``
  file (numbers reserved in blocks, ahead of use) and the clock in milliseconds, which alone is left when
  the folder is lost or cannot be written. A sequence therefore needs 64 bits.

A disk that fails does not stop the agent: events are kept in memory, and the disk is tried again.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collector.agent.journal import DIRECTORY_MODE, FILE_MODE, Journal, Loaded, encode_line, write_durably
from fleet.clock import Clock
from fleet.errors import SickbayError
from fleet.observations import EventKind, Problem, ProblemReason

SEQUENCE_BLOCK = 1000
DISK_RETRY_SECONDS = 30.0
# Rewrite the journal when this many of its events are settled (and they are the larger part).
COMPACT_AFTER = 1000
# When full, make room for more than one event: choosing what to drop looks at all of them.
DROP_SHARE = 100

_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_GPU_KINDS = (EventKind.XID, EventKind.SXID, EventKind.GPU_LOST)


class SpoolBusyError(SickbayError):
    """Another agent serves the same node from the same folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event on its way into the spool. ``read_at``: when its line was read (monotonic s), if it was."""

    boot_id: str
    event: Mapping[str, Any]
    read_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An event in the spool. (boot_id, sequence) names it for ever.

    ``document`` is the event as JSON: ten thousand of them as dictionaries would be 30 MB.
    """

    sequence: int
    boot_id: str
    document: str
    read_at: float | None = None

    @property
    def event(self) -> dict[str, Any]:
        decoded: dict[str, Any] = json.loads(self.document)
        return decoded

    def line(self) -> bytes:
        """The journal's line of this event; ``document`` goes in as it is."""
        boot_id = json.dumps(self.boot_id)
        return f'{{"sequence":{self.sequence},"boot_id":{boot_id},"event":{self.document}}}\n'.encode("ascii")


def make_entry(sequence: int, new: NewEvent) -> Entry:
    document = json.dumps(new.event, separators=(",", ":"))
    return Entry(sequence=sequence, boot_id=new.boot_id, document=document, read_at=new.read_at)


class Spool:
    """Durable, bounded, thread-safe.

    ``report`` hears of every loss and every failure of the disk; it must not call back.
    """

    def __init__(
        self,
        directory: Path,
        *,
        clock: Clock,
        report: Callable[[Problem], None],
        limit: int = 10_000,
    ) -> None:
        """Load what an earlier agent left. SpoolBusyError if that agent still runs."""
        self._directory = directory
        self._clock = clock
        self._report = report
        self._limit = limit
        self._journal = Journal(directory / "events.jsonl")
        self._mutex = threading.Lock()
        self._entries: dict[int, Entry] = {}
        self._last = int(clock.now() * 1000)
        self._reserved = 0
        self._dead = 0
        self._loaded = False
        self._durable = False
        self._retry_at = 0.0
        self._lock_descriptor: int | None = None
        self.dropped = 0
        self._try_disk()

    # -- what others ask

    @property
    def depth(self) -> int:
        return len(self._entries)

    @property
    def durable(self) -> bool:
        """False while events are kept in memory only."""
        return self._durable

    def add(self, events: Sequence[NewEvent]) -> list[Entry]:
        """Number the events and write them down; returns them once they are on the disk (or cannot be)."""
        with self._mutex:
            if not self._durable and self._clock.monotonic() >= self._retry_at:
                self._try_disk()
            entries = []
            for new in events:
                self._last += 1
                entries.append(make_entry(self._last, new))
            if self._durable:
                self._guarded(lambda: self._write_new(entries))
            self._entries.update((entry.sequence, entry) for entry in entries)
            self._make_room()
            return entries

    def peek(self, limit: int) -> list[Entry]:
        """The oldest unsettled events, in order."""
        with self._mutex:
            return list(itertools.islice(self._entries.values(), limit))

    def settle(self, sequences: Iterable[int]) -> None:
        """Forget events that the controller answered for.

        Not synced: a settlement lost in a crash means that the event is sent again, as a duplicate.
        """
        with self._mutex:
            self._forget([number for number in sequences if number in self._entries])

    def close(self) -> None:
        with self._mutex:
            self._journal.close()
            if self._lock_descriptor is not None:
                os.close(self._lock_descriptor)
                self._lock_descriptor = None
            self._durable = False
            self._retry_at = float("inf")

    # -- the disk

    def _try_disk(self) -> None:
        self._guarded(self._open_disk)

    def _open_disk(self) -> None:
        self._directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        self._take_lock()
        if not self._loaded:
            self._take_over(self._journal.load())
            self._last = max(self._last, self._read_reserved())
            self._loaded = True
        self._reserve(self._last)
        self._rewrite()
        self._durable = True

    def _take_lock(self) -> None:
        if self._lock_descriptor is not None:
            return
        descriptor = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise SpoolBusyError(
                f"another sickbay agent already works from {self._directory}; stop it first, "
                "or give this one an agent.node or agent.spool_dir of its own"
            ) from error
        except OSError:
            os.close(descriptor)
            raise
        self._lock_descriptor = descriptor

    def _take_over(self, loaded: Loaded) -> None:
        """Put what the journal held before what memory holds."""
        found: dict[int, Entry] = {}
        bad = loaded.bad_lines
        for record in loaded.records:
            bad += not self._replay(record, found)
        self._entries = dict(sorted((found | self._entries).items()))
        if loaded.torn:
            self._problem(ProblemReason.TRUNCATED, "the last record was torn by a crash and is dropped")
        if bad:
            self._problem(ProblemReason.UNREADABLE, f"{bad} damaged records are skipped", count=bad)

    def _replay(self, record: Mapping[str, Any], found: dict[int, Entry]) -> bool:
        """Apply one journal record; False when it makes no sense."""
        match record:
            case {"sequence": int(number), "boot_id": str(boot_id), "event": dict(event)}:
                found[number] = make_entry(number, NewEvent(boot_id=boot_id, event=event))
                self._last = max(self._last, number)
            case {"settled": list(numbers)}:
                for number in numbers:
                    found.pop(number, None) if isinstance(number, int) else None
            case {"last": int(number)}:
                self._last = max(self._last, number)
            case _:
                return False
        return True

    def _read_reserved(self) -> int:
        path = self._directory / "sequence"
        try:
            return int(path.read_bytes()[:32])
        except FileNotFoundError:
            return 0
        except ValueError:
            self._problem(ProblemReason.UNREADABLE, f"{path} is damaged; going on from the clock")
            return 0

    def _reserve(self, number: int) -> None:
        if number >= self._reserved:
            reserved = number + SEQUENCE_BLOCK
            write_durably(self._directory / "sequence", [b"%d\n" % reserved])
            self._reserved = reserved

    def _write_new(self, entries: Sequence[Entry]) -> None:
        self._reserve(self._last)
        self._journal.append([entry.line() for entry in entries], sync=True)

    def _rewrite(self) -> None:
        head = encode_line({"last": self._last})
        self._journal.rewrite(itertools.chain([head], (entry.line() for entry in self._entries.values())))
        self._dead = 0

    def _guarded(self, write: Callable[[], None]) -> None:
        """The boundary to the disk: a failure is told, and memory carries on."""
        try:
            write()
        except OSError as error:
            self._durable = False
            self._retry_at = self._clock.monotonic() + DISK_RETRY_SECONDS
            denied = error.errno in _DENIED
            self._problem(
                ProblemReason.PERMISSION_DENIED if denied else ProblemReason.PARTIAL,
                f"cannot write {self._directory} ({error.strerror or error}): events are kept in memory "
                "only and would not survive a restart; free the disk or fix its rights",
            )

    # -- bounds

    def _forget(self, numbers: Sequence[int]) -> None:
        if not numbers:
            return
        for number in numbers:
            del self._entries[number]
        self._dead += len(numbers)
        if not self._durable:
            return
        if self._dead >= COMPACT_AFTER and self._dead > len(self._entries):
            self._guarded(self._rewrite)
        else:
            self._guarded(lambda: self._journal.append([encode_line({"settled": list(numbers)})], sync=False))

    def _make_room(self) -> None:
        over = len(self._entries) - self._limit
        if over <= 0:
            return
        victims = least_valuable(list(self._entries.values()), over + self._limit // DROP_SHARE)
        self.dropped += len(victims)
        self._forget(victims)
        self._problem(
            ProblemReason.TOO_LARGE,
            f"the spool is full ({self._limit} events): {len(victims)} of the oldest repeats are dropped; "
            "the controller has not answered for a long time",
            count=len(victims),
        )

    def _problem(self, reason: ProblemReason, message: str, *, count: int = 1) -> None:
        self._report(Problem(source="spool", reason=reason, message=message, count=count))


def least_valuable(entries: Sequence[Entry], wanted: int) -> list[int]:
    """The sequences to give up first: repeats before firsts, lesser kinds before GPU faults, oldest first.

    A repeat is an event whose fault (boot, kind, code, GPU, link, certainty) an older event of the spool
    already names: dropping it loses a count, not a fault. What a code is worth is the controller's policy, so
    every XID counts as a GPU fault here.
    """
    seen: set[tuple[object, ...]] = set()
    ranked: list[tuple[bool, bool, int]] = []
    for entry in entries:
        event = entry.event
        key = _fault_key(entry.boot_id, event)
        ranked.append((key not in seen, _is_critical(event), entry.sequence))
        seen.add(key)
    ranked.sort()
    return [sequence for _, _, sequence in ranked[:wanted]]


def _fault_key(boot_id: str, event: Mapping[str, Any]) -> tuple[object, ...]:
    named = ("kind", "code", "gpu", "pci", "mig", "link", "recovery_action", "uncertain", "fatal")
    return (boot_id, *(str(event.get(name)) for name in named))


def _is_critical(event: Mapping[str, Any]) -> bool:
    return event.get("kind") in _GPU_KINDS or event.get("fatal") is True
