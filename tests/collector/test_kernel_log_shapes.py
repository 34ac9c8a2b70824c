"""What real tools print around a kernel message: each shape read whole, and believed only where it may be."""

from __future__ import annotations

import csv
import gzip
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from collector.kernel_log import LogContext, read_kernel_log
from collector.kernel_log.parser import read_kernel_log_file
from fleet.observations import EventKind, ProblemReason, Reading

NOW = datetime(2026, 3, 15, tzinfo=UTC).timestamp()
BOOTED = datetime(2026, 2, 7, 3, tzinfo=UTC).timestamp()
AT = datetime(2026, 2, 7, 3, 15, 18, tzinfo=UTC).timestamp()
XID = "NVRM: Xid (PCI:0000:3B:00): 79, pid=1234, name=python3, GPU has fallen off the bus."
BOOT_ID = "d64a1d86d93d5947bbfe193078c56ea9"
BANNER = "Linux version 6.8.0-31-generic (buildd@lcy02) #31-Ubuntu SMP"
RECORD: dict[str, Any] = {
    "__CURSOR": "s=1;i=2",
    "__REALTIME_TIMESTAMP": "1770434118022134",
    "_SOURCE_MONOTONIC_TIMESTAMP": "918022134",
    "_BOOT_ID": BOOT_ID,
    "_TRANSPORT": "kernel",
    "SYSLOG_FACILITY": "0",
    "_HOSTNAME": "n07",
    "MESSAGE": XID,
}
DMESG_JSON = """{
   "dmesg": [
      {
         "pri": 5,
         "time":     0.000000,
         "msg": "Linux version 6.8.0-31-generic (buildd@lcy02) #31-Ubuntu SMP"
      },{
         "pri": 3,
         "time":   918.022134,
         "msg": "TEXT"
      },{
         "pri": 11,
         "time":   919.000000,
         "msg": "TEXT"
      }
   ]
}
""".replace("TEXT", XID)
DMESG_JSON_DECODED = """{
   "dmesg": [
      {
         "fac": "kern",
         "pri": "err",
         "time":   918.022134,
         "msg": "TEXT"
      },{
         "fac": "user",
         "pri": "err",
         "time":   919.000000,
         "msg": "TEXT"
      }
   ]
}
""".replace("TEXT", XID)
FRAME = f"<3>1 2026-02-07T04:15:18.022134+01:00 n07 kernel - - - {XID}"
OTHER_FRAME = FRAME.replace("3B", "3C")


def read(text: str | bytes, **context: Any) -> Reading:
    data = text.encode() if isinstance(text, str) else text
    return read_kernel_log(data, LogContext(**{"node": None, "now": NOW, "tz": UTC, **context}))


def reasons(reading: Reading) -> list[tuple[ProblemReason, int]]:
    return [(p.reason, p.count) for p in reading.problems]


# shape, text, host, time, time source
BELIEVED: list[tuple[str, str, str | None, float, str]] = [
    ("journalctl -o json-pretty", json.dumps(RECORD, indent="\t"), "n07", AT + 0.022134, "line"),
    ("journalctl -o json-sse", f"data: {json.dumps(RECORD)}\n\n", "n07", AT + 0.022134, "line"),
    ("journalctl -o json-seq", f"\x1e{json.dumps(RECORD)}\n", "n07", AT + 0.022134, "line"),
    ("journal as an array", json.dumps([RECORD]), "n07", AT + 0.022134, "line"),
    ("journal as an array, pretty", json.dumps([RECORD], indent=2), "n07", AT + 0.022134, "line"),
    ("a shipper's array by lines", f"[{json.dumps(RECORD)},\n", "n07", AT + 0.022134, "line"),
    (
        "numbers for times",
        json.dumps({**RECORD, "__REALTIME_TIMESTAMP": 1770434118022134}),
        "n07",
        AT + 0.022134,
        "line",
    ),
    (
        "bytes, pretty",
        json.dumps({**RECORD, "MESSAGE": list(XID.encode())}, indent=2),
        "n07",
        AT + 0.022134,
        "line",
    ),
    (
        "only a monotonic stamp",
        json.dumps({k: v for k, v in RECORD.items() if k != "__REALTIME_TIMESTAMP"}),
        "n07",
        AT + 0.022134,
        "uptime",
    ),
    ("dmesg", f"[  918.022134] {XID}", None, AT + 0.022134, "uptime"),
    ("dmesg with the caller", f"[  918.022134] [ T1234] {XID}", None, AT + 0.022134, "uptime"),
    ("dmesg -r", f"<3>[  918.022134] {XID}", None, AT + 0.022134, "uptime"),
    ("dmesg -d", f"[  918.022134 <    0.000012>] {XID}", None, AT + 0.022134, "uptime"),
    ("dmesg -x", f"kern  :err   : [  918.022134] {XID}", None, AT + 0.022134, "uptime"),
    ("dmesg -x without stamps", f"kern  :err   : {XID}", None, NOW, "received"),
    ("dmesg -T", f"[Sat Feb  7 03:15:18 2026] {XID}", None, AT, "line"),
    ("dmesg -T -x", f"kern  :err   : [Sat Feb  7 03:15:18 2026] {XID}", None, AT, "line"),
    ("dmesg -T -d", f"[Sat Feb  7 03:15:18 2026 <    0.000012>] {XID}", None, AT, "line"),
    ("dmesg -T with the caller", f"[Sat Feb  7 03:15:18 2026][ T1234] {XID}", None, AT, "line"),
    ("dmesg -T in German", f"[Sa Mär  7 03:15:18 2026] {XID}", None, NOW, "received"),
    ("dmesg -T in Chinese", f"[六 2月  7 03:15:18 2026] {XID}", None, NOW, "received"),
    ("dmesg ISO", f"2026-02-07T04:15:18,022134+01:00 {XID}", None, AT + 0.022134, "line"),
    ("dmesg ISO -x", f"kern  :err   : 2026-02-07T03:15:18,022134+00:00 {XID}", None, AT + 0.022134, "line"),
    (
        "dmesg -L=always",
        f"\x1b[32m[  918.022134] \x1b[0m\x1b[33mNVRM: \x1b[0m\x1b[31m{XID[6:]}\x1b[0m",
        None,
        AT + 0.022134,
        "uptime",
    ),
    ("journalctl -o short-monotonic", f"[  918.022134] n07 kernel: {XID}", "n07", AT + 0.022134, "uptime"),
    ("journalctl -o short-unix", f"1770434118.022134 n07 kernel: {XID}", "n07", AT + 0.022134, "line"),
    ("journalctl -o short-full", f"Sat 2026-02-07 03:15:18 UTC n07 kernel: {XID}", "n07", AT, "line"),
    ("journalctl -o short-full, local", f"Sat 2026-02-07 03:15:18 CET n07 kernel: {XID}", "n07", AT, "line"),
    ("journalctl -o short-iso", f"2026-02-07T04:15:18+0100 n07 kernel: {XID}", "n07", AT, "line"),
    ("journalctl -k", f"Feb 07 03:15:18 n07 kernel: {XID}", "n07", AT, "line"),
    ("RHEL messages", f"Feb  7 03:15:18 n07 kernel: {XID}", "n07", AT, "line"),
    (
        "Ubuntu 24.04 kern.log",
        f"2026-02-07T03:15:18.022134+00:00 n07 kernel: {XID}",
        "n07",
        AT + 0.022134,
        "line",
    ),
    (
        "SLES messages",
        f"2026-02-07T04:15:18.022134+01:00 n07 kernel: [  918.022134][ T1234] {XID}",
        "n07",
        AT + 0.022134,
        "line",
    ),
    ("syslog with a year", f"Feb  7 2026 03:15:18 n07 kernel: {XID}", "n07", AT, "line"),
    ("syslog with the year first", f"2026 Feb  7 03:15:18 n07 kernel: {XID}", "n07", AT, "line"),
    ("syslog without a host", f"<3>Feb  7 03:15:18 kernel: {XID}", None, AT, "line"),
    ("BusyBox syslogd", f"Feb  7 03:15:18 n07 kern.err kernel: {XID}", "n07", AT, "line"),
    ("syslog of a fully named host", f"Feb  7 03:15:18 n07.a.b kernel: {XID}", "n07.a.b", AT, "line"),
    ("RFC 5424", FRAME, "n07", AT + 0.022134, "line"),
    ("RFC 5424 without its PRI", FRAME[3:], "n07", AT + 0.022134, "line"),
    (
        "RFC 5424, structured data, BOM",
        f'<3>1 2026-02-07T03:15:18Z n07 kernel - - [a@1 x="y\\]\\"z"][timeQuality tzKnown="1"] \ufeff{XID}',
        "n07",
        AT,
        "line",
    ),
    ("RFC 5424 of nils", f"<3>1 - - kernel - - - {XID}", None, NOW, "received"),
    ("RFC 6587", f"{len(FRAME)} {FRAME}", "n07", AT + 0.022134, "line"),
    ("Windows line ends", f"Feb  7 03:15:18 n07 kernel: {XID}\r\n", "n07", AT, "line"),
]


@pytest.mark.parametrize(
    ("text", "host", "moment", "source"), [pytest.param(*b[1:], id=b[0]) for b in BELIEVED]
)
def test_a_shape_that_is_believed(text: str, host: str | None, moment: float, source: str) -> None:
    reading = read(text, boot_time=BOOTED)
    assert reasons(reading) == []
    assert [
        (e.kind, e.code, e.node, e.pci, e.pid, e.process, e.count, e.message) for e in reading.events
    ] == [(EventKind.XID, 79, host, "0000:3b:00.0", 1234, "python3", 1, XID)]
    assert reading.events[0].time == pytest.approx(moment, abs=1e-5)
    assert reading.events[0].time_source == source


REFUSED = [
    ("a container's JSON log", json.dumps({"log": f"[1.0] {XID}\n", "stream": "stdout", "time": "2026"})),
    ("CRI", f"2026-02-07T03:15:18.022134567Z stdout F [  918.022134] {XID}"),
    ("CRI of a kernel tag", f"2026-02-07T03:15:18.022134567Z stderr F kernel: {XID}"),
    ("kubectl logs --timestamps", f"2026-02-07T03:15:18.022134567Z [  918.022134] {XID}"),
    ("kubectl logs --prefix", f"[pod/dmesg-abc/dmesg] [  918.022134] {XID}"),
    ("dmesg -x of a user", f"user  :err   : [  918.022134] {XID}"),
    ("dmesg -x -T of a user", f"user  :err   : [Sat Feb  7 03:15:18 2026] {XID}"),
    ("BusyBox, a user's facility", f"Feb  7 03:15:18 n07 user.err kernel: {XID}"),
    ("RFC 5424 with a pid", f"<3>1 2026-02-07T03:15:18Z n07 kernel 0 - - {XID}"),
    ("RFC 6587 of a user", f"{len(FRAME) + 1} {FRAME.replace('<3>', '<11>')}"),
    ("a line break inside a user's text", f"Feb  7 03:15:18 n07 bob[12]: hello\n{XID}"),
    ("a line break, and lines between", f"Feb  7 03:15:18 n07 bob[12]: hello\nworld\n\n{XID}"),
    ("a journal field that only looks so", json.dumps({**RECORD, "_TRANSPORT": "stdout"}, indent=1)),
]


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in REFUSED])
def test_a_shape_that_is_not_believed(text: str) -> None:
    reading = read(text, boot_time=BOOTED)
    assert reading.events == ()
    assert reasons(reading) == [(ProblemReason.UNTRUSTED, 1)]


def test_a_host_is_never_a_stream_of_a_container() -> None:
    (problem,) = read(f"2026-02-07T03:15:18.022134567Z stdout F {XID}").problems
    assert problem.node is None


def test_a_bare_line_behind_a_kernel_record_is_believed() -> None:
    reading = read(f"Feb  7 03:15:18 n07 kernel: usb 1-1: new device\n{XID}\n")
    assert [e.code for e in reading.events] == [79]


@pytest.mark.parametrize(
    "text", [DMESG_JSON, json.dumps(json.loads(DMESG_JSON)), DMESG_JSON.replace("\n", "\r\n")]
)
def test_dmesg_json(text: str) -> None:
    reading = read(text, boot_time=BOOTED)
    assert [(e.kind, e.code, round(e.time - BOOTED, 6)) for e in reading.events] == [
        (EventKind.BOOT, None, 0.0),
        (EventKind.XID, 79, 918.022134),
    ]
    assert reasons(reading) == [(ProblemReason.UNTRUSTED, 1)]


def test_dmesg_json_with_facilities() -> None:
    reading = read(DMESG_JSON_DECODED, boot_time=BOOTED)
    assert [(e.code, e.count) for e in reading.events] == [(79, 1)]
    assert reasons(reading) == [(ProblemReason.UNTRUSTED, 1)]


def test_dmesg_json_that_is_cut_off_keeps_what_is_whole() -> None:
    whole = DMESG_JSON.index('"pri": 11')
    reading = read(DMESG_JSON[: whole + 30], boot_time=BOOTED)
    assert [e.code for e in reading.events] == [None, 79]
    assert reasons(reading) == [(ProblemReason.UNREADABLE, 1)]


def test_a_pretty_record_that_breaks_off_costs_itself_alone() -> None:
    torn = json.dumps(RECORD, indent="\t").splitlines()[:4]
    reading = read("\n".join([*torn, f"[  918.0] {XID}"]))
    assert [e.code for e in reading.events] == [79]
    assert reasons(reading) == [(ProblemReason.UNREADABLE, 1)]


def test_dmesg_with_relative_stamps() -> None:
    reading = read(
        "[Feb 7 03:15] usb 1-1: new device\n[  +0.500000] usb 1-1: more\n"
        f"[  +1.250000] {XID}\n[ +60.000000] {XID.replace('3B', '3C')}\n"
    )
    assert [round(e.time - (AT - 18), 6) for e in reading.events] == [1.75, 61.75]


def test_frames_without_line_feeds() -> None:
    user = FRAME.replace("<3>", "<11>").replace("3B", "3D")
    stream = "".join(f"{len(frame.encode())} {frame}" for frame in (FRAME, user, OTHER_FRAME))
    reading = read(stream)
    assert [(e.pci, e.code) for e in reading.events] == [("0000:3b:00.0", 79), ("0000:3c:00.0", 79)]
    assert reasons(reading) == [(ProblemReason.UNTRUSTED, 1)]


def test_two_records_run_into_one_line_are_told() -> None:
    reading = read(f"[  1.0] NVRM: Xid (PCI:0000:17:00): 48, pid=1[  1.1] {XID}")
    assert [(e.pci, e.code) for e in reading.events] == [("0000:17:00.0", 48)]
    assert reasons(reading) == [(ProblemReason.UNREADABLE, 1)]


def test_loggers_say_when_they_missed_something() -> None:
    reading = read(
        "Feb  7 03:15:18 n07 systemd-journald[432]: Missed 16 kernel messages\n"
        "[  918.0] ** 5 printk messages dropped **\n",
        node="n07",
    )
    assert reasons(reading) == [(ProblemReason.PARTIAL, 21)]


def test_a_compressed_log_is_read_and_a_damaged_one_as_far_as_it_goes() -> None:
    text = f"[  918.0] {XID}\n".encode() + b"[  919.0] usb 1-1: new device\n" * 20_000
    packed = gzip.compress(text)
    assert [e.code for e in read(packed).events] == [79]
    assert read(packed).problems == ()
    torn = read(packed[: len(packed) // 2])
    assert reasons(torn) == [(ProblemReason.UNREADABLE, 1)]
    assert not read(b"\x1f\x8b\x08\x00 no gzip at all").ok


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_a_log_that_a_windows_shell_has_saved(encoding: str) -> None:
    text = f"\ufeff[  918.0] {XID}\r\n" if encoding == "utf-16-be" else f"[  918.0] {XID}\r\n"
    assert [(e.code, e.message) for e in read(text.encode(encoding)).events] == [(79, XID)]


def test_a_file_is_read_like_its_bytes() -> None:
    text = (f"[  918.0] {XID}\n" + "[  919.0] usb 1-1: new device\n" * 9_000 + "x" * 200_000).encode()
    context = LogContext(node=None, now=NOW, tz=UTC)
    assert read_kernel_log_file(io.BytesIO(text), context) == read_kernel_log(text, context)
    assert reasons(read_kernel_log(text, context)) == [(ProblemReason.TOO_LARGE, 1)]


@pytest.mark.parametrize(
    ("stamp", "zone", "expected"),
    [
        ("Oct 25 01:59:59", "Europe/Berlin", datetime(2025, 10, 24, 23, 59, 59, tzinfo=UTC)),
        ("Oct 27 03:00:00", "Europe/Berlin", datetime(2025, 10, 27, 2, tzinfo=UTC)),
        ("Mar 14 12:00:00", "America/New_York", datetime(2026, 3, 14, 16, tzinfo=UTC)),
        ("Jan 14 12:00:00", "America/New_York", datetime(2026, 1, 14, 17, tzinfo=UTC)),
    ],
)
def test_local_stamps_know_summer_time(stamp: str, zone: str, expected: datetime) -> None:
    (event,) = read(f"{stamp} n07 kernel: {XID}", tz=ZoneInfo(zone)).events
    assert event.time == expected.timestamp()


def codes() -> list[int]:
    with (Path(__file__).parents[2] / "rules" / "data" / "xid_catalog.csv").open(newline="") as file:
        return [int(row["code"]) for row in csv.DictReader(file)]


HEADS = ("pid=1234, name=python3, ", "pid='<unknown>', name=<unknown>, ", "pid=77, ", "")


@pytest.mark.parametrize("code", codes())
def test_every_code_of_the_catalogue_reads_as_itself(code: int) -> None:
    lines = [
        f"NVRM: Xid ({device}): {code}, {head}Ch 00000008, intr 00000000"
        for device in ("PCI:0000:3b:00", "PCI:0000:3b:00 GPU-I:05 GPU-CI:02", "0000:3b:00")
        for head in HEADS
    ]
    for line in lines:
        (event,) = read(line).events
        assert (event.kind, event.code, event.uncertain) == (EventKind.XID, code, False)
