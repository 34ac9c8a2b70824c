"""Captured logs with their right answer: each file of tests/data/kernel_log is one awkward input."""

from __future__ import annotations

import csv
import itertools
from datetime import UTC, datetime
from pathlib import Path

import pytest

from collector.kernel_log import KernelLogParser, LogContext, read_kernel_log
from fleet.identity import MigInstance
from fleet.observations import Event, EventKind, Problem, ProblemReason, Reading, RecoveryAction, TimeSource

DATA = Path(__file__).parents[1] / "data" / "kernel_log"
NOW = datetime(2026, 3, 15, tzinfo=UTC).timestamp()
BOOTED = datetime(2026, 2, 7, 3, tzinfo=UTC).timestamp()
AT = datetime(2026, 2, 7, 3, 15, 18, tzinfo=UTC).timestamp()


def read(name: str, *, boot_time: float | None = None, accept_any_facility: bool = False) -> Reading:
    context = LogContext(
        node=None, now=NOW, boot_time=boot_time, tz=UTC, accept_any_facility=accept_any_facility
    )
    return read_kernel_log((DATA / name).read_bytes(), context)


def brief(reading: Reading, kind: EventKind = EventKind.XID) -> list[tuple[str | None, int | None, int]]:
    return [(e.pci, e.code, e.count) for e in reading.events if e.kind is kind]


def tsv_rows() -> list[list[str]]:
    with (DATA / "xid_log_lines.tsv").open(newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    return [[*row, "", "", "", ""][:6] for row in rows]


@pytest.mark.parametrize("row", tsv_rows(), ids=lambda row: row[0])
def test_every_known_line_shape(row: list[str]) -> None:
    _, line, code, pci, pid, name = row
    reading = read_kernel_log(line.encode(), LogContext(node=None, now=NOW, tz=UTC))
    assert not reading.problems
    if code == "none":
        assert not reading.events
        return
    (event,) = reading.events
    assert (event.pci or "").removesuffix(".0") == pci.removesuffix(".0")
    assert (event.pid, event.process) == (int(pid) if pid else None, name or None)
    if code == "79*":
        assert (event.kind, event.code) == (EventKind.GPU_LOST, None)
    elif code.startswith("SX"):
        assert (event.kind, event.code) == (EventKind.SXID, int(code[2:]))
    else:
        assert (event.kind, event.code) == (EventKind.XID, int(code))


def test_a_lone_first_line_of_a_loss_message_is_uncertain() -> None:
    line = b"NVRM: The NVIDIA GPU 0000:18:00.0"
    (event,) = read_kernel_log(line, LogContext(node=None, now=NOW)).events
    assert event.uncertain


ENCODINGS = sorted(path.name for path in (DATA / "C-01-same-event-eight-encodings").iterdir())


@pytest.mark.parametrize("name", ENCODINGS)
def test_one_xid_in_every_encoding(name: str) -> None:
    (event,) = read(f"C-01-same-event-eight-encodings/{name}", boot_time=BOOTED).events
    assert (event.code, event.pci, event.pid, event.process) == (119, "0000:9a:00.0", 31877, "nvidia-smi")
    assert int(event.time) == AT
    by_uptime = name in ("input.dmesg.log", "input.kmsg.log")
    assert event.time_source is (TimeSource.UPTIME if by_uptime else TimeSource.LINE)
    assert event.message.startswith("NVRM: Xid (PCI:0000:9A:00): 119, ")


@pytest.mark.parametrize("name", ["input.dmesg.log", "input.kmsg.log"])
def test_an_uptime_without_a_boot_time_is_no_date(name: str) -> None:
    (event,) = read(f"C-01-same-event-eight-encodings/{name}").events
    assert (event.time, event.time_source) == (NOW, TimeSource.RECEIVED)


def test_the_journal_names_its_boot_in_the_kernels_form() -> None:
    (event,) = read("C-01-same-event-eight-encodings/input.journal.json").events
    assert event.boot_id == "d64a1d86-d93d-5947-bbfe-193078c56ea9"


def test_pci_address_forms() -> None:
    reading = read("C-02-pci-address-forms/input.log")
    assert [(e.code, e.pci, e.mig) for e in reading.events] == [
        (14, "0000:04:00.0", None),
        (48, "0000:17:00.0", None),
        (79, "0000:17:00.0", None),
        (79, "0018:01:00.0", None),
        (94, "0000:17:00.0", MigInstance(5)),
        (31, "0000:17:00.0", MigInstance(5, 2)),
        (13, "000f:01:00.0", None),
        (46, "0000:3f:00.0", None),
    ]
    assert [e.code for e in reading.events if e.uncertain] == [46]


@pytest.mark.parametrize(
    "shape", ["dmesg.log", "kmsg.log", "rsyslog.log", "journal-split.log", "journal.json"]
)
def test_a_loss_without_an_xid_is_one_event(shape: str) -> None:
    reading = read(f"C-04-fallen-off-bus-without-xid/input.{shape}")
    (event,) = reading.events
    assert (event.kind, event.code, event.pci) == (EventKind.GPU_LOST, None, "0000:c6:00.0")
    assert not event.uncertain
    assert "fallen off the bus" in event.message
    assert not reading.problems


def test_a_loss_in_one_line() -> None:
    (event,) = read("C-04-fallen-off-bus-without-xid/input.single.log").events
    assert (event.kind, event.pci) == (EventKind.GPU_LOST, "0000:2a:00.0")


def test_a_storm_is_a_count() -> None:
    reading = read("C-05-xid79-storm/input.log")
    assert brief(reading) == [("0000:65:00.0", 79, 41), ("0000:65:00.0", 45, 6), ("0000:65:00.0", 79, 1)]
    assert {e.gpu for e in reading.events} == {"GPU-34c80321-8263-5034-8568-0de3c0328255"}
    assert not [e for e in reading.events if e.kind is EventKind.GPU_LOST]


def test_a_loggers_repeat_notices_are_counters() -> None:
    assert brief(read("C-05-xid79-storm/input.syslog-repeat.log")) == [("0000:65:00.0", 79, 816)]


def test_recovery_actions_by_value() -> None:
    reading = read("C-07-xid154-recovery-action/input.log")
    assert {e.pci: e.recovery_action for e in reading.events} == {
        "0009:01:00.0": RecoveryAction.DRAIN_AND_RESET,
        "0019:01:00.0": RecoveryAction.GPU_RESET,
        "0008:01:00.0": RecoveryAction.RECOVER_IMEX_DOMAIN,
        "0018:01:00.0": RecoveryAction.NONE,
        "0000:01:00.0": RecoveryAction.UNKNOWN,
        "0000:02:00.0": RecoveryAction.UNKNOWN,
        "0000:03:00.0": RecoveryAction.UNKNOWN,
    }
    assert all(e.code == 154 for e in reading.events)


def test_an_rpc_dump_is_no_crowd_of_events() -> None:
    reading = read("C-08-xid119-rpc-history-dump/input.log")
    assert brief(reading) == [("0000:a3:00.0", 119, 1)] * 3
    limited, hung = (e for e in reading.events if e.kind is EventKind.OTHER)
    assert limited.pci == "0000:a3:00.0"
    assert (hung.pid, hung.process) == (655020, "cache_svc_event")
    assert len(reading.events) == 5


def test_nvswitch_errors() -> None:
    reading = read("C-09-sxid-variants/input.log")
    assert [(e.code, e.pci, e.fatal, e.link, e.count) for e in reading.events] == [
        (24007, "0000:c5:00.0", True, 31, 1),
        (20009, "0000:06:00.0", False, 7, 1),
        (28006, "0000:c1:00.0", False, 41, 1),
        (26008, "0003:00:00.0", None, None, 1),
        (26006, "0003:00:00.0", None, None, 1),
        (20009, "0000:06:00.0", False, None, 1),
        (42, "0000:c2:00.0", True, 2, 1),
    ]
    assert [(p.reason, p.count) for p in reading.problems] == [(ProblemReason.UNREADABLE, 1)]


def test_nvlink5_register_dumps() -> None:
    reading = read("C-10-nvlink5-register-dump/input.log")
    assert [(e.pci, e.code, e.unit, e.fatal, e.link, e.registers[:2]) for e in reading.events] == [
        ("0018:01:00.0", 145, "RLW_RXPIPE", False, 10, ("0x040940c2", "0x00000008")),
        ("0019:01:00.0", 145, "RLW_SRC_TRACK", False, 9, ("0x040928e2", "0x00000008")),
        ("0009:01:00.0", 149, "NETIR_LINK_EVT", True, 5, ("0x0214a5c6", "0x00000000")),
        ("0028:01:00.0", 149, "NETIR", True, None, ("0x000fe406", "0x00000000")),
        ("0018:01:00.0", 149, "NETIR_BER_EVENT", False, 6, ("0x0008c226", "0x00000001")),
        ("0000:5a:00.0", 149, "NETIR_LINK_EVT", True, 2, ("0x026041c6", "0x00000000")),
        ("0000:5a:00.0", 150, "MSE_WATCHDOG", True, 0, ("0x00000000", "0x00000000")),
        ("0000:c8:00.0", 145, "RLW_SRC_TRACK", False, 15, ("0x0409e507", "0x00000004")),
    ]
    assert [len(e.registers) for e in reading.events] == [6, 6, 6, 6, 6, 6, 4, 6]
    assert reading.events[0].process == "ray::ActorPool"


def test_one_user_fault_prints_many_lines() -> None:
    assert brief(read("C-12-application-xids-burst/input.log")) == [
        ("0000:d6:00.0", 13, 3),
        ("0000:d6:00.0", 43, 1),
        ("0000:17:00.0", 31, 1),
    ]
    assert brief(read("C-12-application-xids-burst/input.repeat.log")) == [("0000:d6:00.0", 13, 1)] * 7


def test_an_ecc_chain_keeps_its_cause() -> None:
    reading = read("C-13-ecc-incident-chain/input.a.log")
    assert [(e.code, e.pid, e.cause) for e in reading.events] == [
        (48, None, None),
        (63, None, None),
        (94, 5121, None),
        (45, 5121, 94),
    ]
    assert [e.code for e in read("C-13-ecc-incident-chain/input.b.log").events] == [95, 64]
    assert [e.code for e in read("C-13-ecc-incident-chain/input.c.log").events] == [92, 63]


def test_pcie_errors_are_told_once_and_only_of_gpus_and_their_ports() -> None:
    reading = read("C-14-aer-pcie-errors/input.log")
    aer = [(e.pci, e.fatal, e.count) for e in reading.events if e.kind is EventKind.PCIE_AER]
    assert aer == [
        ("0000:17:00.0", False, 1),
        ("0000:00:05.0", True, 1),
        ("0000:3d:00.0", True, 1),
        ("0000:00:03.0", False, 1),
    ]
    assert brief(reading) == [("0000:3d:00.0", 79, 1)]


def test_host_memory_errors() -> None:
    reading = read("C-15-mce-edac-corrected-vs-uncorrected/input.log")
    assert all(e.kind is EventKind.MACHINE_CHECK and e.pci is None for e in reading.events)
    by_severity = {
        fatal: sum(e.count for e in reading.events if e.fatal is fatal) for fatal in (True, False, None)
    }
    assert by_severity == {False: 32768, True: 1, None: 1}


def test_a_driver_that_cannot_start() -> None:
    reading = read("C-16-driver-init-failures/input.log")
    faults = [(e.pci, e.count) for e in reading.events if e.kind is EventKind.DRIVER_FAULT]
    assert faults == [("0000:9c:00.0", 2), ("0000:5e:00.0", 1), ("0000:62:00.0", 1), (None, 1)]
    assert brief(reading) == []
    (hint,) = (e for e in reading.events if e.kind is EventKind.OTHER)
    assert "NV_ERR_RESET_REQUIRED" in hint.message


def test_user_space_is_not_believed() -> None:
    journal = read("C-17-forged-user-space-messages/input.journal.json")
    assert brief(journal) == [("0000:3d:00.0", 79, 1)]
    assert [(p.reason, p.count) for p in journal.problems] == [(ProblemReason.UNTRUSTED, 4)]
    syslog = read("C-17-forged-user-space-messages/input.syslog.log")
    assert brief(syslog) == [("0000:17:00.0", 79, 1)]
    assert [(p.reason, p.count) for p in syslog.problems] == [(ProblemReason.UNTRUSTED, 2)]


def test_injected_test_events_are_believed_only_when_asked_for() -> None:
    reading = read("C-17-forged-user-space-messages/input.journal.json", accept_any_facility=True)
    assert brief(reading) == [("0000:3d:00.0", 79, 1), ("0000:60:00.0", 79, 1)]
    assert [(p.reason, p.count) for p in reading.problems] == [(ProblemReason.UNTRUSTED, 3)]


def test_broken_bytes_cost_only_their_own_line() -> None:
    reading = read("C-19-truncated-interleaved-binary/input.log")
    assert [(e.pci, e.code, e.uncertain) for e in reading.events] == [
        ("0000:17:00.0", 31, False),
        ("0000:3d:00.0", 7, True),
        ("0000:70:00.0", 94, False),
        ("0000:b1:00.0", 63, False),
        ("0000:c1:00.0", 79, False),
    ]
    assert [(p.reason, p.count) for p in reading.problems] == [(ProblemReason.UNREADABLE, 3)]
    assert not {"\x00", "\r", "\x1b"} & set("".join(e.message + (e.process or "") for e in reading.events))


def test_codes_outside_every_table() -> None:
    reading = read("C-21-unknown-and-zero-codes/input.log")
    assert [e.code for e in reading.events] == [999, 171, 79]
    assert [(p.reason, p.count) for p in reading.problems] == [(ProblemReason.UNREADABLE, 2)]


ALL_CASES = sorted(str(path.relative_to(DATA)) for path in DATA.glob("*/input*"))


@pytest.mark.parametrize("name", ALL_CASES)
def test_line_by_line_counts_the_same_as_whole(name: str) -> None:
    """The agent's view: the sum of counts of each fault is that of the batch."""
    parser = KernelLogParser(LogContext(node=None, now=NOW, tz=UTC))
    told: list[Event | Problem] = []
    for line in (DATA / name).read_bytes().split(b"\n"):
        told.extend(parser.feed(line))
    told.extend(parser.close())
    whole = read(name)
    foreign = "0000:84:00.0"  # told at once, before the line that says it is no GPU

    def sums(events: list[Event]) -> dict[tuple[object, ...], int]:
        ordered = sorted((str((e.kind, e.code, e.pci, e.fatal, e.recovery_action)), e.count) for e in events)
        return {(k,): sum(n for _, n in g) for k, g in itertools.groupby(ordered, key=lambda pair: pair[0])}

    one_by_one = [e for e in told if isinstance(e, Event) and e.pci != foreign]
    assert sums(one_by_one) == sums(list(whole.events))
    problems = [p for p in told if isinstance(p, Problem)]
    assert sum(p.count for p in problems) == sum(p.count for p in whole.problems)
