"""The simulated hardware: names, boots, lost GPUs, kernel logs."""

from __future__ import annotations

import re

import pytest

from fleet.clock import ManualClock
from fleet.errors import NotFoundError
from fleet.identity import is_node_name, normalise_pci
from simulator.agents import SimulatedAgents
from simulator.fleet import SimulatedFleet
from simulator.kernel_log import LogShape


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fleet(clock: ManualClock) -> SimulatedFleet:
    return SimulatedFleet(clock=clock, nodes=16)


def test_names_racks_and_gpus_are_in_normal_form(fleet: SimulatedFleet) -> None:
    assert fleet.names[0] == "n01"
    assert fleet.names[-1] == "n16"
    assert all(is_node_name(name) for name in fleet.names)
    assert list(fleet.racks) == ["rack1", "rack2"]
    assert {len(names) for names in fleet.racks.values()} == {8}
    gpus = [gpu for name in fleet.names for gpu in fleet.node(name).gpus]
    assert len({gpu.uuid for gpu in gpus}) == 16 * 8
    assert all(normalise_pci(gpu.pci) == gpu.pci for gpu in gpus)
    assert len({gpu.pci for gpu in fleet.node("n01").gpus}) == 8


def test_equal_seeds_make_equal_fleets(clock: ManualClock) -> None:
    def identities(seed: int) -> list[tuple[str, str]]:
        fleet = SimulatedFleet(clock=clock, nodes=3, seed=seed)
        return [(fleet.node(name).boot_id, gpu.uuid) for name in fleet.names for gpu in fleet.node(name).gpus]

    assert identities(7) == identities(7)
    assert identities(7) != identities(8)


def test_a_lost_gpu_is_gone_for_the_agent_until_the_reboot(fleet: SimulatedFleet, clock: ManualClock) -> None:
    agents = SimulatedAgents(fleet)
    before = agents.contact("n03")
    assert before is not None
    fleet.lose_gpu("n03", 3)

    after = agents.contact("n03")
    assert after is not None
    assert set(before["gpus"]) - set(after["gpus"]) == {fleet.node("n03").gpus[3].uuid}
    assert after["boot_id"] == before["boot_id"]

    fleet.reboot("n03", 180.0)
    assert agents.contact("n03") is None
    clock.advance(179.0)
    fleet.tick()
    assert agents.contact("n03") is None
    clock.advance(1.0)
    fleet.tick()
    back = agents.contact("n03")
    assert back is not None
    assert back["gpus"] == before["gpus"]
    assert back["boot_id"] != before["boot_id"]
    assert agents.boot_time("n03") == clock.now()


def test_a_broken_gpu_does_not_come_back(fleet: SimulatedFleet, clock: ManualClock) -> None:
    fleet.lose_gpu("n03", 3, back_after_reboot=False)
    fleet.reboot("n03", 10.0)
    clock.advance(10.0)
    fleet.tick()

    contact = SimulatedAgents(fleet).contact("n03")

    assert contact is not None
    assert len(contact["gpus"]) == 7


def test_a_silent_agent_reads_its_lines_later(fleet: SimulatedFleet, clock: ManualClock) -> None:
    agents = SimulatedAgents(fleet)
    fleet.silence_agent("n02", 60.0)
    fleet.log_xid("n02", 0, 79)
    assert agents.contact("n02") is None
    assert agents.kernel_lines("n02") == []

    clock.advance(60.0)

    assert agents.contact("n02") is not None
    assert len(agents.kernel_lines("n02")) == 1
    assert agents.kernel_lines("n02") == []


def test_rsyslog_lines_carry_the_injected_time(fleet: SimulatedFleet) -> None:
    fleet.log_xid("n03", 1, 79)

    (line,) = fleet.drain_kernel_lines("n03")

    assert re.fullmatch(
        rb"2026-01-01T00:00:00\.000000\+00:00 n03 kernel: \[ *\d+\.\d{6}\] "
        rb"NVRM: Xid \(PCI:0000:3b:00\): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus\.",
        line,
    )


def test_kmsg_records_count_from_the_boot(clock: ManualClock) -> None:
    fleet = SimulatedFleet(clock=clock, nodes=1, log_shape=LogShape.KMSG)
    node = fleet.node("n01")
    fleet.log_xid("n01", 0, 31, process="train.py", pid=77)
    fleet.log_xid("n01", 0, 999)

    first, second = fleet.drain_kernel_lines("n01")

    prefix, text = first.split(b";", 1)
    priority, sequence, offset, flags = prefix.split(b",")
    assert (priority, sequence, flags) == (b"3", b"0", b"-")
    assert int(offset) == round((clock.now() - node.boot_time) * 1e6)
    assert text.startswith(b"NVRM: Xid (PCI:0000:1a:00): 31, pid=77, name=train.py, Ch 00000008")
    assert b": 999, " in second


def test_a_node_that_is_down_logs_nothing(fleet: SimulatedFleet) -> None:
    fleet.reboot("n01", 60.0)
    fleet.log_xid("n01", 0, 79)

    assert fleet.drain_kernel_lines("n01") == []


def test_an_unknown_node_is_not_found(fleet: SimulatedFleet) -> None:
    with pytest.raises(NotFoundError):
        fleet.log_xid("n[01-16]", 0, 79)
