"""The contract of a scheduler backend, reboots: only a node that is ours and empty, and the cordon stays."""

from __future__ import annotations

import pytest

from fleet.errors import ConflictError
from fleet.marks import Mark
from fleet.scheduler import NodeState, Owner
from tests.support.bench import Bench, Capability, let_time_pass, needs, wait_rebooted, wait_running

MARK = Mark("inc-1", "gpu-xid", "GPU 3 fell off the bus (XID 79).")


def test_a_reboot_keeps_our_cordon_and_the_node_can_return(bench: Bench) -> None:
    needs(bench, Capability.REBOOT)
    node = bench.nodes[0]
    boots = bench.boots(node)
    bench.backend.cordon(node, MARK)

    ordered = bench.backend.reboot(node, MARK, ordered_at=bench.now())

    assert ordered.is_cordoned
    record = wait_rebooted(bench, node, boots)
    assert bench.boots(node) == boots + 1
    assert (record.state, record.owner) == (NodeState.DRAINED, Owner.SICKBAY)
    assert record.reason is not None
    assert MARK.owns(record.reason.text)
    assert not bench.backend.uncordon(node, MARK).is_cordoned


def test_a_reboot_in_progress_is_not_ordered_again(bench: Bench) -> None:
    needs(bench, Capability.REBOOT)
    node = bench.nodes[0]
    boots = bench.boots(node)
    bench.backend.cordon(node, MARK)
    ordered_at = bench.now()
    bench.backend.reboot(node, MARK, ordered_at=ordered_at)
    written = bench.writes()

    bench.backend.reboot(node, MARK, ordered_at=ordered_at)

    assert bench.writes() == written
    wait_rebooted(bench, node, boots)
    bench.backend.reboot(node, MARK, ordered_at=ordered_at)  # as after a crash before it was recorded
    assert bench.writes() == written
    assert bench.boots(node) == boots + 1


def test_a_later_order_is_another_reboot(bench: Bench) -> None:
    needs(bench, Capability.REBOOT)
    node = bench.nodes[0]
    bench.backend.cordon(node, MARK)
    for _ in range(2):
        boots = bench.boots(node)
        ordered_at = bench.now()
        bench.backend.reboot(node, MARK, ordered_at=ordered_at)
        record = wait_rebooted(bench, node, boots)
        assert record.owner is Owner.SICKBAY
        let_time_pass(bench, 2.0)


def test_a_node_in_service_is_not_rebooted(bench: Bench) -> None:
    written = bench.writes()

    with pytest.raises(ConflictError):
        bench.backend.reboot(bench.nodes[0], MARK, ordered_at=bench.now())

    assert bench.writes() == written


def test_a_node_with_a_job_is_not_rebooted(bench: Bench) -> None:
    job = bench.submit()
    (node,) = wait_running(bench, job)
    bench.backend.cordon(node, MARK)
    written = bench.writes()

    with pytest.raises(ConflictError):
        bench.backend.reboot(node, MARK, ordered_at=bench.now())

    assert bench.writes() == written
    assert bench.job(job).state == "running"


def test_a_node_under_another_incident_is_not_rebooted(bench: Bench) -> None:
    node = bench.nodes[0]
    bench.backend.cordon(node, Mark("inc-2", "gpu-xid", "Other."))
    written = bench.writes()

    with pytest.raises(ConflictError):
        bench.backend.reboot(node, MARK, ordered_at=bench.now())

    assert bench.writes() == written
