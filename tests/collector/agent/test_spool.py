"""The spool: what it promises, at any instant and on any disk."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector.agent.spool import (
    COMPACT_AFTER,
    DISK_RETRY_SECONDS,
    NewEvent,
    Spool,
    SpoolBusyError,
    least_valuable,
    make_entry,
)
from fleet.clock import ManualClock
from fleet.observations import Problem, ProblemReason

pytestmark = pytest.mark.slow


class Disk:
    """A folder and a clock, over any number of agents' lives."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.problems: list[Problem] = []

    def spool(self, limit: int = 10_000) -> Spool:
        return Spool(self.path, clock=self.clock, report=self.problems.append, limit=limit)

    @property
    def journal(self) -> Path:
        return self.path / "events.jsonl"

    def reasons(self) -> list[ProblemReason]:
        return [problem.reason for problem in self.problems]


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "spool")


def new(number: int, boot: str = "boot-a", kind: str = "xid", **more: object) -> NewEvent:
    return NewEvent(boot_id=boot, event={"kind": kind, "code": 79, "n": number, **more})


def numbers(spool: Spool) -> list[int]:
    return [entry.event["n"] for entry in spool.peek(10**6)]


def test_an_event_is_on_the_disk_before_it_is_handed_out(disk: Disk) -> None:
    (entry,) = disk.spool().add([new(1)])
    lines = [json.loads(line) for line in disk.journal.read_text().splitlines()]
    assert lines[-1] == {"sequence": entry.sequence, "boot_id": "boot-a", "event": dict(entry.event)}


def test_events_survive_a_restart_in_order_with_their_own_epoch_and_sequence(disk: Disk) -> None:
    first = disk.spool()
    before = first.add([new(1), new(2)]) + first.add([new(3, boot="boot-b")])
    first.close()
    second = disk.spool()
    assert second.peek(10) == before
    (later,) = second.add([new(4)])
    assert later.sequence > before[-1].sequence
    assert disk.problems == []


def test_settled_events_do_not_come_back(disk: Disk) -> None:
    first = disk.spool()
    entries = first.add([new(n) for n in range(4)])
    first.settle([entries[0].sequence, entries[2].sequence, 12345])
    first.close()
    assert numbers(disk.spool()) == [1, 3]


def test_sequence_grows_although_every_event_was_settled_and_the_clock_ran_back(disk: Disk) -> None:
    last = 0
    for _ in range(5):
        spool = disk.spool()
        (entry,) = spool.add([new(1)])
        assert entry.sequence > last
        last = entry.sequence
        spool.settle([last])
        spool.close()
        disk.clock.step_wall_clock(-86_400.0)


def test_sequence_grows_although_the_folder_was_wiped(disk: Disk) -> None:
    spool = disk.spool()
    entries = spool.add([new(n) for n in range(500)])
    spool.close()
    for file in disk.path.iterdir():
        file.unlink()
    disk.clock.advance(1.0)
    (after,) = disk.spool().add([new(1)])
    assert after.sequence > entries[-1].sequence


def test_a_second_agent_on_the_same_folder_is_refused_in_one_line(disk: Disk) -> None:
    first = disk.spool()
    with pytest.raises(SpoolBusyError, match="another sickbay agent"):
        disk.spool()
    first.close()
    disk.spool().close()


def test_cut_at_every_byte_it_loses_a_tail_at_most(disk: Disk) -> None:
    spool = disk.spool()
    entries = spool.add([new(n) for n in range(3)])
    spool.settle([entries[0].sequence])
    entries += spool.add([new(3), new(4, text="\udcff\u00e9")])
    spool.settle([entries[1].sequence])
    spool.close()
    whole = disk.journal.read_bytes()
    order = [entry.sequence for entry in entries]
    highest = order[-1]
    for size in range(len(whole) + 1):
        disk.journal.write_bytes(whole[:size])
        disk.problems.clear()
        again = disk.spool()
        kept = [entry.sequence for entry in again.peek(100)]
        assert kept == [number for number in order if number in kept], "order is lost"
        wanted = {order[3], order[4], order[2]}
        assert len(wanted - set(kept)) == 0 or size < len(whole), "an unsettled event is lost"
        torn = size > 0 and whole[size - 1 : size] != b"\n"
        assert (ProblemReason.TRUNCATED in disk.reasons()) == torn
        (fresh,) = again.add([new(9)])
        assert fresh.sequence > highest, "a sequence is used twice"
        highest = fresh.sequence
        again.close()
        reopened = disk.spool()
        assert numbers(reopened)[-1] == 9, "what follows a torn record is unreadable"
        reopened.close()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(junk=st.binary(max_size=200), data=st.data())
def test_any_bytes_in_the_middle_cost_themselves_only(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, data: st.DataObject
) -> None:
    disk = Disk(tmp_path_factory.mktemp("spool"))
    spool = disk.spool()
    entries = spool.add([new(n) for n in range(3)])
    spool.close()
    lines = disk.journal.read_bytes().splitlines(keepends=True)
    at = data.draw(st.integers(0, len(lines)))
    disk.journal.write_bytes(b"".join([*lines[:at], junk + b"\n", *lines[at:]]))
    (disk.path / "sequence").write_bytes(junk)
    again = disk.spool()
    found = {entry.sequence for entry in again.peek(100)}
    assert {entry.sequence for entry in entries} <= found
    (fresh,) = again.add([new(9)])
    assert fresh.sequence > entries[-1].sequence
    again.close()


def test_an_unwritable_folder_leaves_memory_and_says_so_once_a_try(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    disk = Disk(blocker / "spool")
    spool = disk.spool()
    assert not spool.durable
    entries = spool.add([new(1), new(2)])
    assert entries[0].sequence >= int(disk.clock.now() * 1000)
    assert numbers(spool) == [1, 2]
    assert disk.reasons() == [ProblemReason.PARTIAL]
    assert "memory" in disk.problems[0].message


def test_a_disk_that_comes_back_gets_everything(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    disk = Disk(blocker / "spool")
    spool = disk.spool()
    spool.add([new(1)])
    blocker.unlink()
    spool.add([new(2)])
    assert not spool.durable, "the disk is not asked for each event"
    disk.clock.advance(DISK_RETRY_SECONDS)
    spool.add([new(3)])
    assert spool.durable
    spool.close()
    assert numbers(disk.spool()) == [1, 2, 3]


def test_a_disk_that_fills_up_in_the_middle_of_a_record(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = disk.spool()
    (first,) = spool.add([new(1)])
    real_write = os.write

    def full(descriptor: int, data: bytes) -> int:
        if len(data) > 10:
            return real_write(descriptor, data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("collector.agent.journal.os.write", full)
    (second,) = spool.add([new(2)])
    monkeypatch.undo()
    assert not spool.durable
    assert "No space left" in disk.problems[-1].message
    disk.clock.advance(DISK_RETRY_SECONDS)
    (third,) = spool.add([new(3)])
    assert spool.durable
    assert first.sequence < second.sequence < third.sequence
    spool.close()
    assert numbers(disk.spool()) == [1, 2, 3]


def test_it_stays_small_on_the_disk(disk: Disk) -> None:
    spool = disk.spool()
    for _ in range(3 * COMPACT_AFTER // 100):
        spool.settle([entry.sequence for entry in spool.add([new(n) for n in range(100)])])
    assert disk.journal.stat().st_size < 2 * COMPACT_AFTER * 100
    assert spool.depth == 0
    last = spool.add([new(1)])[0].sequence
    spool.close()
    assert disk.spool().peek(1)[0].sequence == last


def test_a_full_spool_gives_up_repeats_and_keeps_every_fault(disk: Disk) -> None:
    spool = disk.spool(limit=100)
    spool.add([new(0), new(1, kind="pcie_aer"), new(2, kind="gpu_lost", fatal=True)])
    spool.add([new(n, kind="pcie_aer") for n in range(100, 300)])
    assert spool.depth <= 100
    assert numbers(spool)[:3] == [0, 1, 2]
    assert numbers(spool)[-1] == 299
    assert sum(problem.count for problem in disk.problems) == spool.dropped == 203 - spool.depth
    assert set(disk.reasons()) == {ProblemReason.TOO_LARGE}
    spool.close()
    assert numbers(disk.spool(limit=100))[:3] == [0, 1, 2]


@pytest.mark.parametrize(
    ("events", "first_to_go"),
    [
        ([("pcie_aer", None), ("xid", 79), ("xid", 79), ("pcie_aer", None)], [3, 2, 0, 1]),
        ([("xid", 79), ("xid", 31), ("xid", 79), ("xid", 31)], [2, 3, 0, 1]),
        ([("nic", None), ("gpu_lost", None), ("other", None)], [0, 2, 1]),
    ],
)
def test_what_a_full_spool_gives_up_first(
    events: list[tuple[str, int | None]], first_to_go: list[int]
) -> None:
    entries = [
        make_entry(n, NewEvent(boot_id="b", event={"kind": kind, "code": code}))
        for n, (kind, code) in enumerate(events)
    ]
    assert least_valuable(entries, len(entries)) == first_to_go


def test_repeats_of_another_boot_or_gpu_are_faults_of_their_own() -> None:
    faults = [("a", "0000:01:00.0"), ("b", "0000:01:00.0"), ("b", "0000:02:00.0"), ("b", "0000:02:00.0")]
    entries = [
        make_entry(n, NewEvent(boot_id=boot, event={"kind": "xid", "code": 79, "pci": pci}))
        for n, (boot, pci) in enumerate(faults)
    ]
    assert least_valuable(entries, 1) == [3]
