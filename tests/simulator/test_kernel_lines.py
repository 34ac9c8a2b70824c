"""The simulated kernel lines are read by the real reader as what they are meant to be."""

from __future__ import annotations

import pytest

from collector.kernel_log.context import LogContext
from collector.kernel_log.parser import read_kernel_log
from fleet.clock import ManualClock
from fleet.observations import EventKind
from simulator.fleet import SimulatedFleet
from simulator.kernel_log import LogShape


@pytest.mark.parametrize("shape", list(LogShape))
@pytest.mark.parametrize("code", [13, 31, 43, 45, 48, 63, 64, 74, 79, 94, 95, 119, 154, 999])
def test_every_xid_is_understood(shape: LogShape, code: int) -> None:
    clock = ManualClock()
    fleet = SimulatedFleet(clock=clock, nodes=2, log_shape=shape)
    node = fleet.node("n02")
    fleet.log_xid("n02", 3, code, process="python3", pid=4711)
    data = b"\n".join(fleet.drain_kernel_lines("n02")) + b"\n"
    context = LogContext(node="n02", now=clock.now(), boot_time=node.boot_time, boot_id=node.boot_id)

    reading = read_kernel_log(data, context)

    assert reading.problems == ()
    (event,) = reading.events
    assert (event.kind, event.code, event.node, event.pci) == (EventKind.XID, code, "n02", node.gpus[3].pci)
    assert event.time == pytest.approx(clock.now(), abs=0.001)
    assert event.boot_id == node.boot_id
    assert not event.uncertain


@pytest.mark.parametrize("shape", list(LogShape))
def test_a_lost_gpu_and_the_boot_after_it(shape: LogShape) -> None:
    clock = ManualClock()
    fleet = SimulatedFleet(clock=clock, nodes=1, log_shape=shape)
    node = fleet.node("n01")
    fleet.lose_gpu("n01", 0)
    lost = fleet.drain_kernel_lines("n01")
    fleet.reboot("n01", 60.0)
    clock.advance(60.0)
    fleet.tick()
    booted = fleet.drain_kernel_lines("n01")
    context = LogContext(node="n01", now=clock.now(), boot_time=node.boot_time, boot_id=node.boot_id)

    events = read_kernel_log(b"\n".join(lost), context).events
    assert {event.pci for event in events} == {node.gpus[0].pci}
    assert [event.code for event in events if event.kind is EventKind.XID] == [79]
    assert read_kernel_log(b"\n".join(booted), context).problems == ()
