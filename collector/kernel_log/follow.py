"""Following a kernel log as it grows: a log file, or /dev/kmsg.

Both readers return as soon as there are lines and wait for the given time at most. What they could not
read (a gap, a line that is too long, a file that is missing) is kept as Problems for ``take_problems``.
"""

from __future__ import annotations

import errno
import os
import select
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from collector.kernel_log.context import SOURCE
from collector.kernel_log.notify import FileWatch, watch
from collector.kernel_log.text import MAX_LINE_BYTES
from fleet.clock import Clock, SystemClock
from fleet.observations import Problem, ProblemReason

_READ_BYTES = 64 * 1024
_MAX_READS = 16  # per call: a storm must not keep the caller from its other work
_MIN_SLEEP_SECONDS = 0.005
_MAX_SLEEP_SECONDS = 0.025  # the price of a wake-up is what an idle agent costs
_LOOK_EVERY_SECONDS = 0.2  # how often the path is compared with the open file
_KMSG_RECORD_BYTES = 16 * 1024  # an extended record is at most 8 KiB (CONSOLE_EXT_LOG_MAX)
_MAX_RECORDS = 1000


class LineSource(Protocol):
    """Lines of a log as they are written."""

    def read_lines(self, timeout_seconds: float) -> list[bytes]:
        """Complete lines without their newline; empty when none came in time. Never raises OSError."""
        ...

    def take_problems(self) -> list[Problem]:
        """What could not be read since the last call."""
        ...

    def close(self) -> None: ...


def open_source(path: str | Path, *, from_end: bool = True, clock: Clock | None = None) -> LineSource:
    """A KmsgReader for a character device, else a FileTail (the file may appear later)."""
    try:
        is_device = stat.S_ISCHR(Path(path).stat().st_mode)
    except OSError:
        is_device = False
    return (
        KmsgReader(path, from_end=from_end) if is_device else FileTail(path, from_end=from_end, clock=clock)
    )


def _problem(reason: ProblemReason, message: str) -> Problem:
    return Problem(source=SOURCE, reason=reason, message=message)


class _Problems:
    """Problems of a source, each told once until it is over."""

    def __init__(self) -> None:
        self._found: list[Problem] = []
        self._standing: ProblemReason | None = None

    def add(self, reason: ProblemReason, message: str) -> None:
        self._found.append(_problem(reason, message))

    def stand(self, reason: ProblemReason, message: str) -> None:
        if self._standing is not reason:
            self._standing = reason
            self.add(reason, message)

    def over(self) -> None:
        self._standing = None

    def take(self) -> list[Problem]:
        found, self._found = self._found, []
        return found


class FileTail:
    """``tail -F``: follows ``path`` through rotation by rename and by truncation.

    A partial last line waits for its newline. A file that is missing at first is read from its beginning
    once it appears. Not seen: a truncation after which the file has already outgrown our position.

    With the system's clock it is woken by inotify (and looks every 0.2 s, for file systems that do not
    tell); with an injected clock, or without inotify, it asks every 5 to 25 ms.
    """

    def __init__(self, path: str | Path, *, from_end: bool = True, clock: Clock | None = None) -> None:
        self._path = Path(path)
        self._notified = clock is None or isinstance(clock, SystemClock)
        self._clock = clock if clock is not None else SystemClock()
        self._fd: int | None = None
        self._watch: FileWatch | None = None
        self._identity: tuple[int, int] | None = None
        self._position = 0
        self._partial = b""
        self._overlong = False
        self._sleep = _MAX_SLEEP_SECONDS
        self._looked_at = self._clock.monotonic()
        self._problems = _Problems()
        self._open(at_end=from_end)

    def read_lines(self, timeout_seconds: float) -> list[bytes]:
        deadline = self._clock.monotonic() + timeout_seconds
        while True:
            lines = self._read_available()
            now = self._clock.monotonic()
            if not lines and now - self._looked_at >= _LOOK_EVERY_SECONDS:
                self._looked_at = now
                lines = self._look_at_path()
            if lines:
                self._sleep = _MIN_SLEEP_SECONDS
                return lines
            if now >= deadline:
                return []
            self._wait(deadline - now)

    def _wait(self, seconds: float) -> None:
        if self._watch is not None:
            self._watch.wait(min(seconds, _LOOK_EVERY_SECONDS))
            return
        self._clock.sleep(min(self._sleep, seconds))
        self._sleep = min(self._sleep * 1.2, _MAX_SLEEP_SECONDS)

    def take_problems(self) -> list[Problem]:
        return self._problems.take()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self, *, at_end: bool) -> None:
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            reason = ProblemReason.PERMISSION_DENIED if _denied(error) else ProblemReason.UNREADABLE
            self._problems.stand(reason, f"cannot open the kernel log {self._path}: {error.strerror}")
            return
        self._problems.over()
        found = os.fstat(fd)
        self._fd, self._identity, self._position = fd, (found.st_dev, found.st_ino), 0
        if at_end and stat.S_ISREG(found.st_mode):
            self._position = os.lseek(fd, 0, os.SEEK_END)
        if self._notified and stat.S_ISREG(found.st_mode):
            self._watch = watch(fd)

    def _read_available(self) -> list[bytes]:
        lines: list[bytes] = []
        reads = 0
        while reads < _MAX_READS and (chunk := self._read_chunk()):
            reads += 1
            self._position += len(chunk)
            lines.extend(self._split(chunk))
        return lines

    def _read_chunk(self) -> bytes:
        if self._fd is None:
            return b""
        try:
            return os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return b""
        except OSError as error:
            self._problems.stand(ProblemReason.UNREADABLE, f"cannot read {self._path}: {error.strerror}")
            self.close()
            return b""

    def _split(self, chunk: bytes) -> list[bytes]:
        *whole, rest = (self._partial + chunk).split(b"\n")
        if self._overlong and whole:
            del whole[0]  # the end of a line whose beginning was given up
            self._overlong = False
        lines = []
        for line in whole:
            if len(line) > MAX_LINE_BYTES:
                self._give_up_line()
            else:
                lines.append(line)
        if self._overlong:
            rest = b""
        elif len(rest) > MAX_LINE_BYTES:
            self._give_up_line()
            self._overlong, rest = True, b""
        self._partial = rest
        return lines

    def _give_up_line(self) -> None:
        self._problems.add(ProblemReason.TOO_LARGE, f"a line longer than 64 KiB in {self._path} was skipped")

    def _look_at_path(self) -> list[bytes]:
        """Nothing to read: is this still the file the path names, and has it shrunk?"""
        try:
            found = self._path.stat()
        except OSError:
            # Between rename and re-creation the path names nothing; what we hold open may still grow.
            if self._fd is None:
                self._open(at_end=False)
            return []
        if self._fd is None or (found.st_dev, found.st_ino) != self._identity:
            lines = self._read_available()
            if self._partial:
                lines.append(self._partial)  # its writer has moved on: no newline will come
            self.close()
            self._forget_line()
            self._open(at_end=False)
            return lines or self._read_available()
        if stat.S_ISREG(found.st_mode) and found.st_size < self._position:
            self._forget_line()
            self._position = os.lseek(self._fd, 0, os.SEEK_SET)
            return self._read_available()
        return []

    def _forget_line(self) -> None:
        self._partial, self._overlong = b"", False


class KmsgReader:
    """/dev/kmsg: one record per read (Documentation/ABI/testing/dev-kmsg).

    A record's dictionary lines are returned as lines of their own, as a capture of the device has them.
    ``read`` is the system call, replaceable because no test can overwrite the kernel's ring buffer.
    """

    def __init__(
        self,
        path: str | Path = "/dev/kmsg",
        *,
        from_end: bool = True,
        read: Callable[[int, int], bytes] = os.read,
    ) -> None:
        self._path = Path(path)
        self._from_end = from_end
        self._read = read
        self._fd: int | None = None
        self._poll = select.poll()
        self._problems = _Problems()
        self._delivered = False
        self._open()

    def read_lines(self, timeout_seconds: float) -> list[bytes]:
        lines = self._read_available()
        if lines:
            return lines
        if self._fd is None:
            select.select([], [], [], timeout_seconds)
            self._open()
            return []
        self._poll.poll(timeout_seconds * 1000)
        return self._read_available()

    def take_problems(self) -> list[Problem]:
        return self._problems.take()

    def close(self) -> None:
        if self._fd is not None:
            self._poll.unregister(self._fd)
            os.close(self._fd)
            self._fd = None

    def _open(self) -> None:
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            reason = ProblemReason.PERMISSION_DENIED if _denied(error) else ProblemReason.UNREADABLE
            advice = "; run as root or grant CAP_SYSLOG" if _denied(error) else ""
            self._problems.stand(reason, f"cannot open {self._path}: {error.strerror}{advice}")
            return
        if self._from_end:
            with suppress(OSError):  # a pipe in the device's place has no end to go to
                os.lseek(fd, 0, os.SEEK_END)
        self._problems.over()
        self._fd = fd
        self._poll.register(fd, select.POLLIN)

    def _read_available(self) -> list[bytes]:
        lines: list[bytes] = []
        for _ in range(_MAX_RECORDS):
            if self._fd is None:
                break
            try:
                record = self._read(self._fd, _KMSG_RECORD_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno == errno.EPIPE:  # overwritten before we read it; the next read goes on
                    self._tell_lost()
                    continue
                reason = ProblemReason.PERMISSION_DENIED if _denied(error) else ProblemReason.UNREADABLE
                self._problems.stand(reason, f"cannot read {self._path}: {error.strerror}")
                self.close()
                break
            if not record:
                break
            self._delivered = True
            lines.extend(line for line in record.split(b"\n") if line)
        return lines

    def _tell_lost(self) -> None:
        """Records were overwritten. Between two that were read, their sequence numbers tell how many."""
        if not self._delivered:
            message = "the kernel overwrote records before the first one was read"
            self._problems.add(ProblemReason.PARTIAL, message)


def _denied(error: OSError) -> bool:
    return error.errno in (errno.EACCES, errno.EPERM)
