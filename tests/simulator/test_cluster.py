"""Scripted faults and the whole simulated cluster."""

from __future__ import annotations

import pytest

from fleet.clock import ManualClock
from fleet.errors import UnavailableError
from fleet.scheduler import NodeState, Owner
from simulator.cluster import SimulatedCluster
from simulator.faults import Fault, FaultKind, FaultScript


def _cluster(*faults: Fault, nodes: int = 8, seed: int = 1, busy_share: float = 0.75) -> SimulatedCluster:
    return SimulatedCluster(clock=ManualClock(), nodes=nodes, seed=seed, faults=faults, busy_share=busy_share)


def _advance(cluster: SimulatedCluster, seconds: float, step: float = 1.0) -> list[Fault]:
    happened: list[Fault] = []
    clock = cluster.clock
    end = clock.now() + seconds
    while clock.now() < end:
        clock.sleep(step)
        happened += cluster.tick()
    return happened


def test_the_workload_keeps_the_fleet_busy_with_work_of_many_kinds() -> None:
    cluster = _cluster(nodes=16)
    cluster.tick()
    jobs = cluster.scheduler.observe().jobs
    running = sum(job.gpus or 0 for job in jobs if job.state == "running")

    assert running >= 0.5 * 16 * 8
    _advance(cluster, 6 * 3600, step=30.0)
    jobs = cluster.scheduler.observe().jobs
    assert max(int(job.id) for job in jobs) > 20
    assert {job.requeue for job in jobs} == {True, False}
    assert len({job.gpus for job in jobs}) >= 4
    assert any(len(job.nodes) > 1 for job in jobs)


def test_equal_seeds_live_equal_lives() -> None:
    def life(seed: int) -> list[tuple[str, str, tuple[str, ...]]]:
        cluster = _cluster(seed=seed)
        _advance(cluster, 1800, step=10.0)
        return [(job.id, job.state, job.nodes) for job in cluster.scheduler.observe().jobs]

    assert life(3) == life(3)
    assert life(3) != life(4)


def test_faults_happen_once_at_their_time() -> None:
    late = Fault(at_seconds=10, node="n02", scene="late", kind=FaultKind.XID, code=999)
    early = Fault(at_seconds=5, node="n01", scene="early", kind=FaultKind.GPU_LOST, gpu_index=3)
    cluster = _cluster(late, early)

    assert _advance(cluster, 4) == []
    assert _advance(cluster, 1) == [early]
    still_waiting = not cluster.script.finished
    assert still_waiting
    assert _advance(cluster, 20) == [late]

    assert cluster.script.finished
    assert [(at - cluster.started_at, fault.scene) for at, fault in cluster.script.applied] == [
        (5.0, "early"),
        (10.0, "late"),
    ]
    assert b": 79, " in cluster.agents.kernel_lines("n01")[0]
    assert b": 999, " in cluster.agents.kernel_lines("n02")[0]
    contact = cluster.agents.contact("n01")
    assert contact is not None
    assert len(contact["gpus"]) == 7


def test_an_application_xid_shows_on_every_gpu_of_its_job_and_fails_it() -> None:
    fault = Fault(at_seconds=1, node="n01", scene="bad job", kind=FaultKind.APP_XID, code=31)
    cluster = _cluster(fault, busy_share=1.0)
    cluster.tick()
    (job, *_) = cluster.scheduler.jobs_on("n01")

    _advance(cluster, 3)

    lines = cluster.agents.kernel_lines("n01")
    assert len(lines) == job.gpus_per_node
    assert all(b": 31, pid=41177, name=python3, " in line for line in lines)
    record = next(found for found in cluster.scheduler.observe().jobs if found.id == job.id)
    assert (record.state, record.exit_code) == ("failed", 1)


def test_people_silence_and_an_absent_scheduler() -> None:
    cluster = _cluster(
        Fault(
            at_seconds=1,
            node="n01",
            scene="admin",
            kind=FaultKind.ADMIN_DRAIN,
            reason="bad dimm",
            user="carol",
        ),
        Fault(at_seconds=1, node="n02", scene="silent", kind=FaultKind.AGENT_SILENT, seconds=60),
        Fault(at_seconds=2, node="", scene="away", kind=FaultKind.SCHEDULER_AWAY, seconds=10),
    )
    _advance(cluster, 1)
    node = cluster.scheduler.observe_node("n01")
    assert node.owner is Owner.FOREIGN
    assert node.reason is not None
    assert (node.reason.text, node.reason.user) == ("bad dimm", "carol")
    assert node.state in (NodeState.DRAINING, NodeState.DRAINED)
    assert cluster.agents.contact("n02") is None

    _advance(cluster, 1)
    with pytest.raises(UnavailableError):
        cluster.scheduler.observe()
    _advance(cluster, 60)

    assert cluster.scheduler.observe().nodes
    assert cluster.agents.contact("n02") is not None
    assert cluster.scheduler.our_actions == []


def test_a_script_gives_each_fault_once() -> None:
    fault = Fault(at_seconds=0, node="n01", scene="now", kind=FaultKind.XID)
    script = FaultScript([fault])

    assert list(script.due(0.0)) == [fault]
    assert list(script.due(100.0)) == []
