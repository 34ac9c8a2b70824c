"""Following a growing log: rotation, truncation, torn and endless lines, /dev/kmsg."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collector.kernel_log.follow import FileTail, KmsgReader, LineSource, open_source
from fleet.clock import Clock, ManualClock
from fleet.observations import ProblemReason


@pytest.fixture(params=["inotify", "polling"])
def clock(request: pytest.FixtureRequest) -> Clock | None:
    return None if request.param == "inotify" else ManualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kern.log"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def reasons(source: LineSource) -> list[ProblemReason]:
    return [problem.reason for problem in source.take_problems()]


def test_only_what_comes_after_the_opening_is_read(path: Path, clock: Clock | None) -> None:
    append(path, b"old\n")
    tail = FileTail(path, clock=clock)
    assert tail.read_lines(0) == []
    append(path, b"new\nnewer\n")
    assert tail.read_lines(1) == [b"new", b"newer"]
    assert FileTail(path, from_end=False, clock=clock).read_lines(0) == [b"old", b"new", b"newer"]
    tail.close()


def test_a_partial_line_waits_for_its_newline(path: Path, clock: Clock | None) -> None:
    append(path, b"")
    tail = FileTail(path, clock=clock)
    append(path, b"NVRM: Xid (PCI:0000:3b:00): 7")
    assert tail.read_lines(0.1) == []
    append(path, b"9, gone\n")
    assert tail.read_lines(1) == [b"NVRM: Xid (PCI:0000:3b:00): 79, gone"]
    tail.close()


def test_rotation_by_rename_loses_nothing(path: Path, clock: Clock | None) -> None:
    append(path, b"")
    tail = FileTail(path, clock=clock)
    append(path, b"one\n")
    assert tail.read_lines(1) == [b"one"]
    path.rename(path.with_suffix(".1"))
    append(path.with_suffix(".1"), b"two\nlast words")
    assert tail.read_lines(0.5) == [b"two"]
    append(path, b"three\n")
    assert tail.read_lines(1) == [b"last words"]
    assert tail.read_lines(1) == [b"three"]
    tail.close()


def test_rotation_by_truncation_starts_over(path: Path, clock: Clock | None) -> None:
    append(path, b"a long first line\n")
    tail = FileTail(path, clock=clock)
    path.write_bytes(b"")
    assert tail.read_lines(0.5) == []
    append(path, b"next\n")
    assert tail.read_lines(1) == [b"next"]
    tail.close()


def test_a_file_that_appears_later_is_read_from_its_beginning(path: Path, clock: Clock | None) -> None:
    tail = FileTail(path, clock=clock)
    assert tail.read_lines(0.5) == []
    assert reasons(tail) == [ProblemReason.UNREADABLE]
    append(path, b"first\n")
    assert tail.read_lines(1) == [b"first"]
    assert reasons(tail) == []
    tail.close()


@pytest.mark.parametrize("at_once", [True, False])
def test_an_endless_line_is_given_up_and_the_next_is_read(
    path: Path, clock: Clock | None, *, at_once: bool
) -> None:
    append(path, b"")
    tail = FileTail(path, clock=clock)
    append(path, b"x" * 100_000)
    if not at_once:
        assert tail.read_lines(0.1) == []
    append(path, b"x\nnext\n")
    assert tail.read_lines(1) == [b"next"]
    assert reasons(tail) == [ProblemReason.TOO_LARGE]
    tail.close()


def test_a_line_is_there_within_milliseconds(path: Path) -> None:
    append(path, b"")
    tail = FileTail(path)
    writer = threading.Timer(0.2, append, (path, b"line\n"))
    writer.start()
    started = time.monotonic()
    assert tail.read_lines(10) == [b"line"]
    assert time.monotonic() - started < 2  # it came when the line did, not when the time was up
    writer.join()
    tail.close()


def test_the_kind_of_the_path_picks_the_reader(path: Path) -> None:
    append(path, b"")
    assert isinstance(open_source(path), FileTail)
    assert isinstance(open_source(path.with_name("missing")), FileTail)
    device = open_source("/dev/null")
    assert isinstance(device, KmsgReader)
    assert device.read_lines(0) == []
    device.close()


def records(*answers: bytes | OSError) -> Callable[[int, int], bytes]:
    """What read(2) on /dev/kmsg would do, one answer per call; then nothing is there."""
    left: Iterator[bytes | OSError] = iter(answers)

    def read(_fd: int, size: int) -> bytes:
        answer = next(left, BlockingIOError())
        if isinstance(answer, OSError):
            raise answer
        assert size > len(answer)
        return answer

    return read


def test_kmsg_records_are_read_one_by_one() -> None:
    read = records(b"3,1,5,-;one\n SUBSYSTEM=pci\n", b"3,2,6,-;two\n")
    reader = KmsgReader("/dev/null", read=read)
    assert reader.read_lines(0) == [b"3,1,5,-;one", b" SUBSYSTEM=pci", b"3,2,6,-;two"]
    assert reader.read_lines(0) == []
    assert reasons(reader) == []
    reader.close()


def test_overwritten_kmsg_records_are_a_problem_and_reading_goes_on() -> None:
    reader = KmsgReader("/dev/null", read=records(OSError(errno.EPIPE, "gone"), b"3,9,5,-;next\n"))
    assert reader.read_lines(0) == [b"3,9,5,-;next"]
    assert reasons(reader) == [ProblemReason.PARTIAL]
    reader.close()


def test_a_kmsg_that_fails_is_told_once_and_opened_again() -> None:
    reader = KmsgReader("/dev/null", read=records(OSError(errno.EIO, "broken"), b"3,9,5,-;next\n"))
    assert reader.read_lines(0) == []
    assert reasons(reader) == [ProblemReason.UNREADABLE]
    assert reader.read_lines(0) == [b"3,9,5,-;next"]
    reader.close()


def test_a_kmsg_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    reader = KmsgReader()
    assert reader.read_lines(0) == []
    (problem,) = reader.take_problems()
    assert problem.reason is ProblemReason.PERMISSION_DENIED
    assert "CAP_SYSLOG" in problem.message
    reader.close()
