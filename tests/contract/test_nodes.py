"""The contract of a scheduler backend, nodes: observe, cordon, uncordon, annotate."""

from __future__ import annotations

import pytest

from fleet.errors import (
    BackendError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    RefusedError,
    UnavailableError,
)
from fleet.marks import Mark
from fleet.scheduler import NodeState, Owner
from tests.support.bench import Bench, Capability, needs, wait_running

MARK = Mark("inc-1", "gpu-xid", "GPU 3 fell off the bus (XID 79).")
OTHER_MARK = Mark("inc-2", "gpu-xid", "GPU 0 fell off the bus (XID 79).")


def test_observe_names_every_node_with_its_gpus_and_its_job(bench: Bench) -> None:
    job = bench.submit()
    (busy,) = wait_running(bench, job)

    snapshot = bench.backend.observe()

    assert set(snapshot.nodes) == set(bench.nodes)
    assert snapshot.problems == ()
    for name, node in snapshot.nodes.items():
        assert node.name == name
        assert node.gpus_total == 8
        assert node.partitions == (() if Capability.PARTITIONS in bench.cannot else ("gpu",))
        assert node.owner is Owner.NONE
        assert not node.is_cordoned
        assert node.gpus_allocated == (8 if name == busy else 0)
        assert node.schedulable
    assert snapshot.nodes[busy].state in (NodeState.ALLOCATED, NodeState.MIXED)
    assert {node.state for name, node in snapshot.nodes.items() if name != busy} == {NodeState.IDLE}
    (record,) = snapshot.jobs_on(busy)
    assert (record.id, record.state, record.nodes, record.gpus) == (job, "running", (busy,), 8)
    assert record.requeue is True
    assert record.restarts == 0
    assert record.submitted_at is not None


def test_cordon_of_an_idle_node(bench: Bench) -> None:
    node = bench.nodes[0]

    record = bench.backend.cordon(node, MARK)

    assert (record.name, record.state, record.owner) == (node, NodeState.DRAINED, Owner.SICKBAY)
    assert record.is_cordoned
    assert not record.schedulable
    assert record.reason is not None
    assert MARK.owns(record.reason.text)
    assert bench.node(node).reason == MARK.reason()
    assert not any(bench.node(other).drained for other in bench.nodes[1:])


def test_cordon_of_a_busy_node_leaves_its_job_alone(bench: Bench) -> None:
    job = bench.submit()
    (node,) = wait_running(bench, job)

    record = bench.backend.cordon(node, MARK)

    assert (record.state, record.owner) == (NodeState.DRAINING, Owner.SICKBAY)
    assert bench.job(job).state == "running"
    bench.finish(job)
    bench.wait(lambda: bench.backend.observe_node(node).state is NodeState.DRAINED, "the node to be empty")


def test_cordoning_twice_writes_once(bench: Bench) -> None:
    node = bench.nodes[0]
    first = bench.backend.cordon(node, MARK)
    written = bench.writes()

    second = bench.backend.cordon(node, MARK)

    assert bench.writes() == written
    assert second.reason == first.reason
    assert second.owner is Owner.SICKBAY


def test_a_foreign_drain_is_a_conflict_and_keeps_its_words(bench: Bench) -> None:
    node = bench.nodes[0]
    bench.admin_drain(node, "bad dimm, ticket 4711")
    written = bench.writes()

    with pytest.raises(ConflictError):
        bench.backend.cordon(node, MARK)
    with pytest.raises(ConflictError):
        bench.backend.uncordon(node, MARK)
    with pytest.raises(ConflictError):
        bench.backend.reboot(node, MARK, ordered_at=bench.now())

    record = bench.backend.observe_node(node)
    assert (record.owner, record.state) == (Owner.FOREIGN, NodeState.DRAINED)
    assert record.reason is not None
    assert record.reason.text == "bad dimm, ticket 4711"
    assert bench.node(node).reason == "bad dimm, ticket 4711"
    assert bench.writes() == written


def test_the_cordon_of_another_incident_is_a_conflict(bench: Bench) -> None:
    node = bench.nodes[0]
    bench.backend.cordon(node, OTHER_MARK)

    with pytest.raises(ConflictError):
        bench.backend.cordon(node, MARK)
    with pytest.raises(ConflictError):
        bench.backend.uncordon(node, MARK)

    assert bench.node(node).reason == OTHER_MARK.reason()


def test_uncordon_returns_our_node_to_service(bench: Bench) -> None:
    node = bench.nodes[0]
    bench.backend.cordon(node, MARK)

    record = bench.backend.uncordon(node, MARK)

    assert not record.is_cordoned
    assert record.owner is Owner.NONE
    assert not bench.node(node).drained
    bench.wait(lambda: bench.backend.observe_node(node).state is NodeState.IDLE, "the node to be in service")
    written = bench.writes()
    assert not bench.backend.uncordon(node, MARK).is_cordoned
    assert bench.writes() == written


def test_a_reason_that_an_admin_overwrote_is_no_longer_ours(bench: Bench) -> None:
    node = bench.nodes[0]
    bench.backend.cordon(node, MARK)
    bench.admin_drain(node, "I take this one")

    assert bench.backend.observe_node(node).owner is Owner.FOREIGN
    with pytest.raises(ConflictError):
        bench.backend.uncordon(node, MARK)
    with pytest.raises(ConflictError):
        bench.backend.cordon(node, MARK)
    with pytest.raises(ConflictError):
        bench.backend.reboot(node, MARK, ordered_at=bench.now())

    assert bench.node(node).drained
    assert bench.node(node).reason == "I take this one"


@pytest.mark.parametrize(
    "reason",
    [
        "see sickbay:inc-1:gpu-xid",
        "sickbay:inc-1",
        "sickbay:inc-10:gpu-xid GPU 3 fell off the bus (XID 79).",
        "sickbay:inc-1:gpu-xid2 GPU 3",
    ],
)
def test_a_reason_that_only_resembles_our_mark_is_not_ours(bench: Bench, reason: str) -> None:
    node = bench.nodes[0]
    bench.admin_drain(node, reason)

    with pytest.raises(ConflictError):
        bench.backend.uncordon(node, MARK)

    assert bench.node(node).reason == reason
    assert bench.node(node).drained


def test_an_admin_who_undrains_our_cordon_is_seen(bench: Bench) -> None:
    node = bench.nodes[0]
    bench.backend.cordon(node, MARK)

    bench.admin_undrain(node)

    record = bench.backend.observe_node(node)
    assert not record.is_cordoned
    assert record.owner is Owner.NONE


def test_annotate_writes_beside_a_foreign_drain(bench: Bench) -> None:
    node = bench.nodes[0]
    bench.admin_drain(node, "bad dimm")

    record = bench.backend.annotate(node, "sickbay: inc-1 observed XID 79 on GPU 3")

    assert record.comment == "sickbay: inc-1 observed XID 79 on GPU 3"
    assert bench.node(node).comment == "sickbay: inc-1 observed XID 79 on GPU 3"
    assert bench.node(node).reason == "bad dimm"
    assert record.owner is Owner.FOREIGN
    written = bench.writes()
    bench.backend.annotate(node, "sickbay: inc-1 observed XID 79 on GPU 3")
    assert bench.writes() == written


def test_annotate_overwrites_nobodys_comment(bench: Bench) -> None:
    node = bench.nodes[0]
    bench.admin_comment(node, "loaned to physics until May")

    with pytest.raises((ConflictError, RefusedError)):
        bench.backend.annotate(node, "sickbay: inc-1 observed XID 79 on GPU 3")

    assert bench.node(node).comment == "loaned to physics until May"


def test_a_node_that_misses_a_gpu_cannot_be_returned(bench: Bench) -> None:
    needs(bench, Capability.GPU_REGISTRATION)
    node = bench.nodes[0]
    bench.backend.cordon(node, MARK)
    bench.register_with_gpus(node, 7)
    bench.wait(lambda: bench.backend.observe_node(node).has("INVALID_REG"), "the short registration")

    with pytest.raises(BackendError):
        bench.backend.uncordon(node, MARK)

    record = bench.backend.observe_node(node)
    assert (record.is_cordoned, record.schedulable, record.owner) == (True, False, Owner.SICKBAY)
    bench.register_with_gpus(node, 8)
    bench.wait(lambda: not bench.backend.observe_node(node).has("INVALID_REG"), "the full registration")
    assert not bench.backend.uncordon(node, MARK).is_cordoned


def test_a_node_that_slurm_itself_drained_is_not_ours(bench: Bench) -> None:
    needs(bench, Capability.GPU_REGISTRATION)
    node = bench.nodes[0]
    bench.register_with_gpus(node, 7)
    bench.wait(lambda: bench.backend.observe_node(node).has("INVALID_REG"), "the short registration")
    reason = bench.node(node).reason

    with pytest.raises(ConflictError):
        bench.backend.cordon(node, MARK)

    assert bench.backend.observe_node(node).owner is Owner.FOREIGN
    assert bench.node(node).reason == reason == "gres/gpu count reported lower than configured (7 < 8)"
    bench.register_with_gpus(node, 8)


def test_an_unknown_node_is_not_found(bench: Bench) -> None:
    with pytest.raises(NotFoundError):
        bench.backend.observe_node("n99")
    with pytest.raises(NotFoundError):
        bench.backend.cordon("n99", MARK)
    with pytest.raises(NotFoundError):
        bench.backend.uncordon("n99", MARK)
    with pytest.raises(NotFoundError):
        bench.backend.reboot("n99", MARK, ordered_at=bench.now())
    assert not any("n99" in write for write in bench.writes())


def test_a_hostlist_names_no_node(bench: Bench) -> None:
    prefix = bench.nodes[0].rstrip("0123456789")
    both = ",".join(bench.nodes[:2])
    for name in (f"{prefix}[1-4]", f"{prefix}[01-04]", both, "ALL", "", " ", f"{bench.nodes[0]} State=DOWN"):
        with pytest.raises((NotFoundError, RefusedError, InvalidInputError)):
            bench.backend.cordon(name, MARK)
        with pytest.raises((NotFoundError, RefusedError, InvalidInputError)):
            bench.backend.observe_node(name)
    assert not any(bench.node(name).drained for name in bench.nodes)


def test_a_silent_controller_is_unavailable_and_not_an_empty_cluster(bench: Bench) -> None:
    backend = bench.without_controller()

    with pytest.raises(UnavailableError):
        backend.observe()
    with pytest.raises(UnavailableError):
        backend.cordon(bench.nodes[0], MARK)

    assert not bench.node(bench.nodes[0]).drained
