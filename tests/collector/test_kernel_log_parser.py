"""The parser as an agent uses it, trust and time line by line, and any bytes at all."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.kernel_log import KernelLogParser, LogContext, read_kernel_log
from fleet.clock import ManualClock
from fleet.observations import Event, EventKind, Problem, ProblemReason, Reading, TimeSource

NOW = datetime(2026, 3, 15, tzinfo=UTC).timestamp()
XID79 = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=x, GPU has fallen off the bus."
LOST = "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus."
SPLIT = (
    "NVRM: The NVIDIA GPU 0000:3b:00.0",
    "NVRM: (PCI ID: 10de:2330) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
)


def read(*lines: str, **context: Any) -> Reading:
    return read_kernel_log(
        "\n".join(lines).encode(), LogContext(**{"node": None, "now": NOW, "tz": UTC, **context})
    )


def kmsg(sequence: int, seconds: float, text: str, *, priority: int = 3) -> bytes:
    return f"{priority},{sequence},{int(seconds * 1e6)},-;{text}".encode()


class Agent:
    """A parser on a manual clock whose boot ID can change."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        self.boot_id = "boot-1"
        self.parser = KernelLogParser(
            lambda: LogContext(
                node="n01", now=self.clock.now(), boot_time=NOW - self.clock.monotonic(), boot_id=self.boot_id
            )
        )

    def feed(self, line: bytes) -> list[tuple[str, int | None, int]]:
        return self.told(self.parser.feed(line))

    def flush(self) -> list[tuple[str, int | None, int]]:
        return self.told(self.parser.flush())

    @staticmethod
    def told(records: list[Event | Problem]) -> list[tuple[str, int | None, int]]:
        return [
            (r.kind.value, r.code, r.count) if isinstance(r, Event) else (r.reason.value, None, r.count)
            for r in records
        ]


def test_the_first_occurrence_is_told_at_once_and_repeats_later_in_one() -> None:
    agent = Agent()
    assert agent.feed(kmsg(1, 10.0, XID79)) == [("xid", 79, 1)]
    for number in range(2, 1002):
        assert agent.feed(kmsg(number, 10.0 + number / 1000, XID79)) == []
    assert agent.flush() == []
    agent.clock.advance(5)
    assert agent.flush() == [("xid", 79, 1000)]
    assert agent.flush() == []


def test_a_storm_that_goes_on_is_told_every_five_seconds() -> None:
    agent = Agent()
    told = []
    for second in range(60):
        told += agent.feed(kmsg(second, second, XID79))
        agent.clock.advance(1)
        told += agent.flush()
    told += agent.told(agent.parser.close())
    assert sum(count for _, _, count in told) == 60
    assert len(told) <= 13


def test_a_repeat_after_the_window_is_a_new_occurrence() -> None:
    agent = Agent()
    assert agent.feed(kmsg(1, 10.0, XID79)) == [("xid", 79, 1)]
    assert agent.feed(kmsg(2, 15.1, XID79)) == [("xid", 79, 1)]


def test_something_worse_is_no_repeat() -> None:
    changed = "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from"
    reading = read(
        f"[1.0] {changed} 0x0 (None) to 0x1 (GPU Reset Required)",
        f"[1.1] {changed} 0x1 (GPU Reset Required) to 0x2 (Node Reboot Required)",
        "[1.2] NVRM: Xid (PCI:0000:3b:00): 145, RLW_CTRL Nonfatal XC0 i0 Link 03 (0x1 0x2)",
        "[1.3] NVRM: Xid (PCI:0000:3b:00): 145, RLW_CTRL Fatal XC0 i0 Link 03 (0x1 0x2)",
        "[1.4] NVRM: Xid (PCI:0000:3c:00): 79",
        "[1.5] NVRM: Xid (PCI:0000:3c:00): 79, GPU has fallen off the bus.",
    )
    assert [e.count for e in reading.events] == [1] * 6


def test_the_boot_id_is_the_one_at_the_time_of_the_line() -> None:
    agent = Agent()
    (first,) = agent.parser.feed(kmsg(1, 10.0, XID79))
    agent.boot_id = "boot-2"
    (second,) = agent.parser.feed(kmsg(1, 10.0, XID79))
    assert isinstance(first, Event)
    assert isinstance(second, Event)
    assert (first.boot_id, second.boot_id) == ("boot-1", "boot-2")


def test_the_uuid_is_printed_once_per_boot() -> None:
    mapping = "NVRM: GPU at PCI:0000:3b:00: GPU-00000000-0000-0000-0000-000000000001"
    reading = read(
        f"[1.0] {mapping}",
        f"[2.0] {XID79}",
        "[0.0] Linux version 6.1.0-18-amd64 (debian-kernel@lists.debian.org)",
        f"[9.0] {XID79}",
    )
    lost, boot, again = reading.events
    assert lost.gpu == "GPU-00000000-0000-0000-0000-000000000001"
    assert boot.kind is EventKind.BOOT
    assert again.gpu is None


def test_a_split_loss_is_joined_as_it_comes() -> None:
    agent = Agent()
    assert agent.feed(kmsg(1, 1.0, SPLIT[0])) == []
    assert agent.feed(kmsg(2, 1.0, "mlx5_core 0000:ac:00.0 mlx5_6: Port: 1 Link ACTIVE")) == []
    assert agent.feed(kmsg(3, 1.0, SPLIT[1])) == []
    assert agent.feed(kmsg(4, 1.0, SPLIT[2])) == [("gpu_lost", None, 1)]


def test_two_losses_may_interleave() -> None:
    other = SPLIT[0].replace("3b", "3c")
    reading = read(SPLIT[0], other, SPLIT[1], SPLIT[2], SPLIT[1], SPLIT[2])
    assert [(e.pci, e.uncertain) for e in reading.events] == [
        ("0000:3b:00.0", False),
        ("0000:3c:00.0", False),
    ]


def test_a_torn_loss_is_uncertain_after_a_while_and_gives_way_to_a_whole_one() -> None:
    agent = Agent()
    agent.feed(kmsg(1, 1.0, SPLIT[0]))
    assert agent.flush() == []
    agent.clock.advance(2.5)
    (torn,) = agent.parser.flush()
    assert isinstance(torn, Event)
    assert torn.uncertain
    assert agent.feed(kmsg(2, 4.0, LOST)) == [("gpu_lost", None, 1)]


def test_not_supported_is_a_driver_fault() -> None:
    (event,) = read(
        SPLIT[0], "NVRM: (PCI ID: 10de:1eb8) installed in this system is not supported by the"
    ).events
    assert (event.kind, event.pci) == (EventKind.DRIVER_FAULT, "0000:3b:00.0")


def test_the_end_of_a_loss_without_its_beginning_is_a_problem() -> None:
    reading = read(SPLIT[2])
    assert not reading.events
    assert [p.reason for p in reading.problems] == [ProblemReason.TRUNCATED]


@pytest.mark.parametrize("order", [(XID79, LOST), (LOST, XID79), (SPLIT[0], XID79)])
def test_a_loss_and_its_xid_are_one_event(order: tuple[str, str]) -> None:
    (event,) = read(f"[1.0] {order[0]}", f"[61.0] {order[1]}").events
    assert (event.kind, event.code, event.count) == (EventKind.XID, 79, 1)


def test_a_loss_hours_later_is_another() -> None:
    assert len(read(f"[1.0] {XID79}", f"[9000.0] {LOST}").events) == 2


def test_the_agent_tells_a_loss_once() -> None:
    agent = Agent()
    assert agent.feed(kmsg(1, 1.0, LOST)) == [("gpu_lost", None, 1)]
    assert agent.feed(kmsg(2, 1.1, XID79)) == []
    agent.clock.advance(5)
    assert agent.flush() == [("xid", 79, 1)]  # its number, later


def test_a_gap_in_the_ring_buffer_is_a_problem() -> None:
    agent = Agent()
    agent.feed(kmsg(10, 1.0, "usb 1-1: new device"))
    assert agent.feed(kmsg(11, 1.0, "usb 1-1: new device")) == []
    assert agent.feed(kmsg(15, 1.0, XID79)) == [("partial", None, 3), ("xid", 79, 1)]
    assert agent.feed(kmsg(3, 1.0, "Linux again")) == []  # a new boot starts over


def test_problems_are_told_at_once_and_then_once_a_minute() -> None:
    agent = Agent()
    forged = kmsg(1, 1.0, XID79, priority=11)
    assert agent.feed(forged) == [("untrusted", None, 1)]
    for _ in range(500):
        assert agent.feed(forged) == []
    agent.clock.advance(60)
    assert agent.flush() == [("untrusted", None, 500)]


TRUST = [
    (XID79, True),
    (f"<3>{XID79}", True),
    (f"<11>{XID79}", False),
    (f"<3>[  9.1] {XID79}", True),
    (f"<11>[  9.1] {XID79}", False),
    (f"3,1,2,-;{XID79}", True),
    (f"3,1,2,c,caller=T12;{XID79}", True),
    (f"12,1,2,-;{XID79}", False),
    (f"[    9.1] {XID79}", True),
    (f"[    9.1][  T123] {XID79}", True),
    (f"[    9.1 <    0.000012>] {XID79}", True),
    (f"kern  :err   : [    9.1] {XID79}", True),
    (f"user  :err   : [    9.1] {XID79}", False),
    (f"Feb  7 03:15:18 n01 kernel: {XID79}", True),
    (f"Feb  7 03:15:18.022134 n01 kernel: {XID79}", True),
    (f"<3>Feb  7 03:15:18 n01 kernel: {XID79}", True),
    (f"<11>Feb  7 03:15:18 n01 kernel: {XID79}", False),
    (f"Feb  7 03:15:18 n01 kernel[1]: {XID79}", False),
    (f"Feb  7 03:15:18 n01 Kernel: {XID79}", False),
    (f"Feb  7 03:15:18 n01 kernel:evil: {XID79}", False),
    (f"Feb  7 03:15:18 n01 bob: kernel: {XID79}", False),
    (f"Feb  7 03:15:18 n01 {XID79}", False),
    (f"<3>1 2026-02-07T04:15:18+01:00 n01 kernel - - - {XID79}", True),
    (f'<3>1 2026-02-07T04:15:18+01:00 n01 kernel - - [a b="]"][c d="\\""] {XID79}', True),
    (f"<3>1 2026-02-07T04:15:18+01:00 n01 kernel 12 - - {XID79}", False),
    (f"<11>1 2026-02-07T04:15:18+01:00 n01 kernel - - - {XID79}", False),
    (f"<3>1 2026-02-07T04:15:18+01:00 n01 bob - - - {XID79}", False),
    (f"2026-02-07T03:15:18.022134+00:00 n01 kernel: {XID79}", True),
    (f"2026-02-07T03:15:18+0000 n01 kernel: {XID79}", True),
    (f"Sat 2026-02-07 03:15:18 UTC n01 kernel: {XID79}", True),
    (f"2026-02-07T03:15:18.022134+00:00 n01 bob[7]: {XID79}", False),
    (f"2026-02-07T03:15:18,022134+00:00 {XID79}", True),
    (f"2026-02-07T03:15:18,022134+00:00 bob: {XID79}", False),
    (f"bob: {XID79}", False),
    (f"2026/02/07 03:15:18 n01 kernel: {XID79}", False),
    (f"Feb  7 03:15:18 n01 bob[4242]: {LOST}", False),
    ("myapp: handled Xid (PCI:0000:3b:00) 79 gracefully", None),
    ("Feb  7 03:15:18 n01 bob[1]: Linux version 6.1.0-18 is out", None),
]


@pytest.mark.parametrize(("line", "trusted"), TRUST, ids=lambda value: str(value)[:60])
def test_trust(line: str, trusted: bool | None) -> None:
    reading = read(line)
    assert len(reading.events) == (trusted is True)
    assert [p.reason for p in reading.problems] == [ProblemReason.UNTRUSTED] * (trusted is False)


def journal(**fields: object) -> str:
    return json.dumps({"_TRANSPORT": "kernel", "MESSAGE": XID79, **fields})


JOURNAL = [
    (journal(), True),
    (journal(SYSLOG_FACILITY="0"), True),
    (journal(SYSLOG_FACILITY="1"), False),
    (journal(SYSLOG_FACILITY=["0", "1"]), False),
    (journal(_TRANSPORT="syslog", SYSLOG_IDENTIFIER="kernel", SYSLOG_FACILITY="0"), False),
    (journal(_TRANSPORT=["kernel"]), False),
    (journal(MESSAGE=list(XID79.encode())), True),
    (journal(MESSAGE=f"bob\n{XID79}"), False),
]


@pytest.mark.parametrize(("line", "trusted"), JOURNAL)
def test_trust_in_the_journal(line: str, trusted: bool) -> None:
    reading = read(line)
    assert len(reading.events) == trusted
    assert [p.reason for p in reading.problems] == [ProblemReason.UNTRUSTED] * (not trusted)


def test_journald_messages_that_are_not_utf8_or_missing() -> None:
    name = list(b"NVRM: Xid (PCI:0000:3b:00): 31, pid=5, name=\xff\xfe, Ch 00000001")
    (event,) = read(journal(MESSAGE=name)).events
    assert event.process == "\ufffd\ufffd"
    assert [p.reason for p in read(journal(MESSAGE=None)).problems] == [ProblemReason.TOO_LARGE]
    for broken in ('{"MESSAGE": "NVRM: Xid (PCI:0000:3b', '{"a": 1}', "{" * 100_00, journal(MESSAGE=7)):
        reading = read(broken)
        assert [p.reason for p in reading.problems] == [ProblemReason.UNREADABLE]
        assert not reading.ok


def test_a_forged_record_inside_a_continuation_is_not_believed() -> None:
    reading = read("[1.0] foo: label=a", f"           {XID79}")
    assert not reading.events
    assert [p.reason for p in reading.problems] == [ProblemReason.UNTRUSTED]


def test_an_indented_copy_of_bare_lines_is_read() -> None:
    assert [e.code for e in read(f"  {XID79}", f"  {XID79.replace('3b', '3c')}").events] == [79, 79]


@pytest.mark.parametrize(
    ("stamp", "now", "expected"),
    [
        (
            "Dec 31 23:59:58",
            datetime(2026, 1, 1, 0, 1, tzinfo=UTC),
            datetime(2025, 12, 31, 23, 59, 58, tzinfo=UTC),
        ),
        (
            "Jan  1 00:00:05",
            datetime(2025, 12, 31, 23, 59, tzinfo=UTC),
            datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC),
        ),
        ("Feb 29 12:00:00", datetime(2026, 3, 1, tzinfo=UTC), datetime(2024, 2, 29, 12, tzinfo=UTC)),
    ],
)
def test_a_stamp_without_a_year_gets_the_latest_one_that_fits(
    stamp: str, now: datetime, expected: datetime
) -> None:
    (event,) = read(f"{stamp} n01 kernel: {XID79}", now=now.timestamp()).events
    assert event.time == expected.timestamp()


def test_stamps_without_a_zone_are_local() -> None:
    line = f"[Sat Feb  7 03:15:18 2026] {XID79}"
    (here,) = read(line, tz=ZoneInfo("Europe/Berlin")).events
    assert here.time == datetime(2026, 2, 7, 2, 15, 18, tzinfo=UTC).timestamp()


@pytest.mark.parametrize("stamp", ["Feb 31 03:15:18 n01 kernel:", "Feb  7 25:15:18 n01 kernel:"])
def test_a_date_that_does_not_exist_is_no_date(stamp: str) -> None:
    for zone in (UTC, None):
        (event,) = read(f"{stamp} {XID79}", tz=zone).events
        assert (event.time, event.time_source) == (NOW, TimeSource.RECEIVED)


def test_node_wins_over_the_lines_host_and_a_hostlist_is_no_host() -> None:
    line = f"Feb  7 03:15:18 n02 kernel: {XID79}"
    assert read(line).events[0].node == "n02"
    assert read(line, node="n01").events[0].node == "n01"
    assert read(line.replace("n02", "n[1-4]")).events[0].node is None


def test_repeat_notices_count_only_what_they_repeat() -> None:
    reading = read(
        f"Feb  1 00:00:00 n01 kernel: {XID79}",
        "Feb  1 00:00:01 n01 kernel: usb 1-1: new device",
        "Feb  1 00:00:40 n01 last message repeated 4 times",
        "Feb  1 00:00:41 n02 last message repeated 9 times",
        f"Feb  1 00:00:42 n01 kernel: message repeated 0 times: [ {XID79}]",
        f"Feb  1 00:00:43 n01 bob: message repeated 7 times: [ {XID79}]",
    )
    assert [e.count for e in reading.events] == [1]


def test_a_repeat_notice_may_quote_the_kernels_stamp() -> None:
    reading = read(
        f"Feb  1 00:00:00 n01 kernel: [  918.022134] {XID79}",
        f"Feb  1 00:00:30 n01 kernel: message repeated 3 times: [ [  918.022134] {XID79}]",
    )
    assert [e.count for e in reading.events] == [4]


def test_dated_uptime_and_dated_lines_share_one_window() -> None:
    reading = read(
        f"2026-03-14T23:00:10+00:00 n01 kernel: {XID79}",
        f"3,1,9000000,-;{XID79}",
        node="n01",
        boot_time=datetime(2026, 3, 14, 23, tzinfo=UTC).timestamp(),
    )
    assert [(e.time_source, e.count) for e in reading.events] == [(TimeSource.LINE, 1)]


@pytest.mark.parametrize(
    ("tail", "pid", "process"),
    [
        ("79, pid=7, name=a b, c, d, Ch 00000001", 7, "a b, c, d"),
        ("79, pid=7, name=x, something new", 7, "x"),
        ("79, pid='<unknown>', name=<unknown>, Ch 00000001", None, None),
        ("79, pid=7, name=x", 7, "x"),
        ("79, pid=7", 7, None),
        ("79, name=x, Ch 00000001", None, "x"),
        ("79, pid=99999999999999, name=x, Ch 00000001", None, None),
    ],
)
def test_process_names(tail: str, pid: int | None, process: str | None) -> None:
    (event,) = read(f"NVRM: Xid (PCI:0000:3b:00): {tail}").events
    assert (event.pid, event.process) == (pid, process)


def test_a_whole_line_too_long_is_told_and_the_next_is_read() -> None:
    reading = read("x" * 70_000, XID79)
    assert [e.code for e in reading.events] == [79]
    assert [p.reason for p in reading.problems] == [ProblemReason.TOO_LARGE]


def test_nothing_is_a_valid_log_and_binary_is_not() -> None:
    assert read_kernel_log(b"", LogContext(None, NOW)) == Reading()
    assert read("[1.0] usb 1-1: new device") == Reading()
    binary = read_kernel_log(bytes(range(128, 256)) * 4, LogContext(None, NOW))
    assert not binary.ok
    assert [p.reason for p in binary.problems] == [ProblemReason.UNREADABLE]


PIECES = st.sampled_from(
    [
        XID79,
        LOST,
        *SPLIT,
        "NVRM: Xid (PCI:0000:3b:00): ",
        "[  1.5] ",
        "<3>",
        "3,1,2,-;",
        "Feb  7 03:15:18 n01 kernel: ",
        "2026-02-07T03:15:18,022134+00:00 ",
        '{"_TRANSPORT":"kernel","MESSAGE":"',
        '"}',
        "\\x0a",
        "#012",
        "\x1b[31m",
        "\x00",
        "\r\n",
        "\n",
        "message repeated 3 times: [ ",
        "last message repeated 2 times",
        "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12028, Fatal, Link 3",
        "pcieport 0000:00:05.0: AER: Corrected error received: 0000:17:00.0",
        "EDAC MC0: 1 UE memory",
        "145, RLW_CTRL Fatal XC0 i0 Link -1 (0x1",
        "154, GPU recovery action changed from 0x0 (None) to 0x",
    ]
).map(str.encode)
ANY_LOG = st.lists(PIECES | st.binary(max_size=40), max_size=30).map(b"".join)


@settings(max_examples=300, deadline=None)
@given(ANY_LOG)
def test_any_bytes_are_events_or_problems(data: bytes) -> None:
    context = LogContext(node="n01", now=NOW, tz=UTC)
    reading = read_kernel_log(data, context)
    parser = KernelLogParser(context)
    told = [record for line in data.split(b"\n") for record in parser.feed(line)]
    told += parser.close()
    for record in (*reading.records, *told):
        assert isinstance(record, Event | Problem)
        assert record.count >= 1
        record.message.encode()
        assert not set(record.message) & set("\x00\r\n\x1b")
    certain = {(e.kind, e.code, e.pci) for e in reading.events if not e.uncertain}
    assert certain <= {(e.kind, e.code, e.pci) for e in told if isinstance(e, Event)}


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=80), st.booleans())
def test_what_is_not_the_kernels_is_never_an_event(text: str, forged: bool) -> None:
    body = (XID79 if forged else text).replace("\n", " ")
    reading = read(f"Feb  7 03:15:18 n01 logger[5]: {body}")
    assert not reading.events
