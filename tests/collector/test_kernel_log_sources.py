"""Several captures of one log, several boots in one capture: one event each, with its boot and time."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.kernel_log import KernelLogParser, LogContext, read_kernel_log
from collector.kernel_log.follow import KmsgReader
from fleet.observations import EventKind, Problem, ProblemReason, Reading, TimeSource

DATA = Path(__file__).parents[1] / "data" / "kernel_log"
NOW = datetime(2026, 3, 15, tzinfo=UTC).timestamp()
BOOTED = datetime(2026, 2, 7, 3, tzinfo=UTC).timestamp()
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, GPU has fallen off the bus."
MMU = XID.replace("79", "31")
LOST = "NVRM: GPU 0000:3c:00.0: GPU has fallen off the bus."
BANNER = "Linux version 6.8.0-31-generic (buildd@lcy02) #31-Ubuntu SMP"
FIRST, SECOND = "d64a1d86d93d5947bbfe193078c56ea9", "e64a1d86d93d5947bbfe193078c56ea9"


def read(*lines: str, **context: Any) -> Reading:
    data = "\n".join(lines).encode() + b"\n"
    return read_kernel_log(data, LogContext(**{"node": None, "now": NOW, "tz": UTC, **context}))


def brief(reading: Reading) -> list[tuple[str, int | None, str | None, int]]:
    return [(e.kind.value, e.code, e.node, e.count) for e in reading.events]


# seconds since boot, text
STORY = [
    (918.0, XID),
    (918.2, XID),
    (919.0, XID),
    (1200.5, LOST),
    (1201.0, LOST.replace("GPU 0000:3c:00.0: GPU", "Xid (PCI:0000:3c:00): 79, GPU")),
    (1800.0, MMU),
    (2400.0, MMU),
]
TOLD = [("xid", 79, 3), ("xid", 79, 1), ("xid", 31, 1), ("xid", 31, 1)]


def clock(seconds: float) -> str:
    return datetime.fromtimestamp(BOOTED + seconds, UTC).strftime("%b %e %H:%M:%S")


def kern_log() -> list[str]:
    return [f"{clock(at)} n07 kernel: {text}" for at, text in STORY]


def stamped_kern_log() -> list[str]:
    return [f"{clock(at)} n07 kernel: [{at:12.6f}] {text}" for at, text in STORY]


def dmesg() -> list[str]:
    return [f"[{at:12.6f}] {text}" for at, text in STORY]


def kmsg() -> list[str]:
    return [f"3,{number},{int(at * 1e6)},-;{text}" for number, (at, text) in enumerate(STORY)]


PAIRS = {
    "kern.log and dmesg": (kern_log, dmesg),
    "dmesg and kern.log": (dmesg, kern_log),
    "kern.log and syslog": (kern_log, kern_log),
    "kmsg and kern.log": (kmsg, kern_log),
    "kmsg and dmesg": (kmsg, dmesg),
}


@pytest.mark.parametrize("name", PAIRS)
def test_two_captures_of_one_log_tell_each_event_once(name: str) -> None:
    one, other = PAIRS[name]
    reading = read(*one(), *other(), boot_time=BOOTED)
    assert [(e.kind.value, e.code, e.count) for e in reading.events] == TOLD
    assert reading.problems == ()


@pytest.mark.parametrize("name", PAIRS)
def test_two_readers_in_step_tell_each_event_once(name: str) -> None:
    one, other = PAIRS[name]
    if one is other:
        return  # one reader, each line twice: two occurrences
    lines = [line for pair in zip(one(), other(), strict=True) for line in pair]
    reading = read(*lines, boot_time=BOOTED)
    assert [(e.kind.value, e.code, e.count) for e in reading.events] == TOLD


def test_what_one_capture_does_not_know_the_other_adds() -> None:
    reading = read(*dmesg(), *kern_log(), boot_time=BOOTED)
    assert {e.node for e in reading.events} == {"n07"}


@pytest.mark.parametrize("order", [1, -1])
def test_uptimes_that_nobody_can_date_are_joined_by_the_kernels_own_clock(order: int) -> None:
    captures = [kmsg(), stamped_kern_log()][::order]
    reading = read(*captures[0], *captures[1])
    assert [(e.kind.value, e.code, e.count) for e in reading.events] == TOLD
    assert {(e.node, e.time_source) for e in reading.events} == {("n07", TimeSource.LINE)}


@pytest.mark.parametrize("context", [{"boot_time": BOOTED}, {}, {"boot_time": BOOTED, "node": "n07"}])
@pytest.mark.parametrize("order", [1, -1])
def test_one_xid_in_ten_encodings_is_one_event(context: dict[str, Any], order: int) -> None:
    files = sorted((DATA / "C-01-same-event-eight-encodings").iterdir())[::order]
    data = b"\n".join(path.read_bytes().rstrip(b"\n") for path in files)
    reading = read_kernel_log(data, LogContext(**{"node": None, "now": NOW, "tz": UTC, **context}))
    (event,) = reading.events
    assert (event.code, event.pci, event.count) == (119, "0000:9a:00.0", 1)
    assert event.node in ("tarn-g07", "n07")
    assert event.boot_id == "d64a1d86-d93d-5947-bbfe-193078c56ea9"
    assert int(event.time) == BOOTED + 918


def test_two_hosts_are_two_whatever_the_moment() -> None:
    reading = read(f"Feb  7 03:15:18 n07 kernel: {XID}", f"2026-02-07T03:15:18+00:00 n08 kernel: {XID}")
    assert brief(reading) == [("xid", 79, "n07", 1), ("xid", 79, "n08", 1)]


def test_a_log_printed_backwards_keeps_its_counts() -> None:
    reading = read(*reversed(kern_log()))
    assert sorted((e.kind.value, e.code or 0, e.count) for e in reading.events) == sorted(TOLD)


def test_a_long_storm_in_two_captures_is_counted_once() -> None:
    one = [f"[{900 + second}.0] {XID}" for second in range(120)]
    other = [f"{clock(900 + second)} n07 kernel: {XID}" for second in range(120)]
    assert brief(read(*one, *other, boot_time=BOOTED)) == [("xid", 79, "n07", 120)]
    assert brief(read(*other, *one, boot_time=BOOTED)) == [("xid", 79, "n07", 120)]


def test_the_boot_time_dates_the_last_boot_only() -> None:
    reading = read(
        f"[    0.000000] {BANNER}",
        f"[  100.000000] {XID}",
        f"[    0.000000] {BANNER}",
        f"[  100.500000] {XID}",
        boot_time=BOOTED,
    )
    assert [(e.kind, e.time_source, e.time) for e in reading.events] == [
        (EventKind.BOOT, TimeSource.RECEIVED, NOW),
        (EventKind.XID, TimeSource.RECEIVED, NOW),
        (EventKind.BOOT, TimeSource.UPTIME, BOOTED),
        (EventKind.XID, TimeSource.UPTIME, BOOTED + 100.5),
    ]


def test_two_captures_of_one_boot_are_no_two_boots() -> None:
    banner = f"[    0.000000] {BANNER}"
    reading = read(banner, *dmesg(), f"5,0,0,-;{BANNER}", *kmsg(), boot_time=BOOTED)
    assert [e.time_source for e in reading.events] == [TimeSource.UPTIME] * 5
    assert [e.kind for e in reading.events].count(EventKind.BOOT) == 1


def test_boots_of_a_dated_log_keep_their_dates_and_stay_apart() -> None:
    reading = read(
        f"Feb  7 03:15:18 n07 kernel: {XID}",
        f"Feb  7 03:15:20 n07 kernel: [    0.000000] {BANNER}",
        f"Feb  7 03:15:21 n07 kernel: {XID}",
    )
    assert brief(reading) == [("xid", 79, "n07", 1), ("boot", None, "n07", 1), ("xid", 79, "n07", 1)]
    assert {e.time_source for e in reading.events} == {TimeSource.LINE}


def test_boots_of_the_journal() -> None:
    reading = read(
        "-- Logs begin at Mon 2026-02-02 00:00:00 UTC, end at Sat 2026-02-07 03:20:00 UTC. --",
        f"-- Boot {FIRST} --",
        f"Feb 07 03:15:18 n07 kernel: {XID}",
        f"-- Boot {SECOND} --",
        f"Feb 07 03:15:19 n07 kernel: {XID}",
        "-- No entries --",
    )
    boots = [e.boot_id for e in reading.events]
    assert boots == ["d64a1d86-d93d-5947-bbfe-193078c56ea9", "e64a1d86-d93d-5947-bbfe-193078c56ea9"]
    assert reading.problems == ()


def test_events_of_two_boots_never_join() -> None:
    lines = [
        f'{{"_TRANSPORT":"kernel","_BOOT_ID":"{boot}","__REALTIME_TIMESTAMP":"{1770434118000000 + number}",'
        f'"_HOSTNAME":"n07","MESSAGE":"{XID}"}}'
        for number, boot in enumerate((FIRST, SECOND))
    ]
    assert brief(read(*lines)) == [("xid", 79, "n07", 1)] * 2


def test_overwritten_records_are_counted_once() -> None:
    """EPIPE between two records: their numbers say how many are missing. Before the first, nobody knows."""
    answers: Iterator[bytes | OSError] = iter(
        (
            OSError(errno.EPIPE, "gone"),
            f"3,10,5,-;{XID}\n".encode(),
            OSError(errno.EPIPE, "gone"),
            b"6,50,6,-;usb 1-1: new device\n",
            b"6,51,7,-;usb 1-1: new device\n",
        )
    )

    def read_record(_fd: int, _size: int) -> bytes:
        answer = next(answers, BlockingIOError())
        if isinstance(answer, OSError):
            raise answer
        return answer

    reader = KmsgReader("/dev/null", read=read_record)
    lines = reader.read_lines(0)
    reader.close()
    assert [(p.reason, p.count) for p in reader.take_problems()] == [(ProblemReason.PARTIAL, 1)]
    reading = read_kernel_log(b"\n".join(lines), LogContext(node="n07", now=NOW))
    assert [e.code for e in reading.events] == [79]
    assert [(p.reason, p.count) for p in reading.problems] == [(ProblemReason.PARTIAL, 39)]


def test_an_agent_counts_a_gap_between_dull_records() -> None:
    parser = KernelLogParser(LogContext(node="n07", now=NOW))
    told = [r for n in (1, 2, 3, 9, 10) for r in parser.feed(b"6,%d,5,-;usb 1-1: new device" % n)]
    told += parser.close()
    assert [(r.reason, r.count) for r in told if isinstance(r, Problem)] == [(ProblemReason.PARTIAL, 5)]


LINES = st.sampled_from(
    [
        *kern_log(),
        *dmesg(),
        *kmsg(),
        f"[    0.000000] {BANNER}",
        "Feb  7 03:20:00 n07 kernel: usb 1-1: new device",
        "Feb  7 03:20:00 n07 bob[1]: hello",
        "[  920.000000] usb 1-1: new device",
        "6,77,920000000,-;usb 1-1: new device",
        '{"_TRANSPORT":"kernel","MESSAGE":"usb 1-1: new device"}',
        "Feb  7 03:21:00 n07 last message repeated 2 times",
        " SUBSYSTEM=pci",
        "              NVRM: installed in this system has",
        XID,
        "{",
        "},{",
        '"pri": 3,',
        '"msg": "NVRM: Xid (PCI:0000:3b:00): 79, x"',
        "}",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(LINES, max_size=25))
def test_passing_dull_lines_by_changes_nothing(lines: list[str]) -> None:
    """The quick way and the full one say the same: one byte that is no plain text forces the full one."""
    context = LogContext(node=None, now=NOW, boot_time=BOOTED, tz=UTC)
    text = "\n".join([*lines, "[  999.000000] usb 1-1: the last line"])
    quick = read_kernel_log(text.encode(), context)
    full = read_kernel_log(f"{text}\x00".encode(), context)
    assert quick.records == full.records
