"""The engineer who comes late: finds, takes out, boots, gives back; each once, each at its time."""

from __future__ import annotations

import pytest

from fleet.clock import ManualClock
from fleet.scheduler import NodeState
from simulator.cluster import SimulatedCluster
from simulator.engineer import BOOT_SECONDS, Engineer
from simulator.jobs import JobSpec


@pytest.fixture
def cluster():
    one = SimulatedCluster(clock=ManualClock(), nodes=2, busy_share=0.0)
    one.scheduler.submit(JobSpec(seconds=86_400.0, requeue=False))
    one.tick()
    return one


def work(cluster: SimulatedCluster, engineer: Engineer, seconds: int) -> None:
    for _ in range(seconds // 10):
        cluster.clock.advance(10.0)
        cluster.tick()
        engineer.step()


def verbs(cluster: SimulatedCluster) -> list[str]:
    return [action.verb for action in cluster.scheduler.actions if action.verb != "submit"]


def test_a_lost_gpu_is_mended_hours_later(cluster):
    [node] = [name for name in cluster.fleet.names if cluster.scheduler.jobs_on(name)]
    cluster.fleet.lose_gpu(node, 3, back_after_reboot=True)
    now, engineer = cluster.clock.now(), Engineer(cluster.scheduler)
    boot = cluster.fleet.node(node).boot_id
    engineer.plan(node, found_at=now + 600, back_at=now + 1200)
    work(cluster, engineer, 590)
    assert (verbs(cluster), engineer.done) == ([], False)
    assert cluster.scheduler.observe_node(node).state is NodeState.ALLOCATED, "nobody has seen it"
    work(cluster, engineer, 20)
    assert verbs(cluster) == ["drain", "fail"]
    assert cluster.fleet.node(node).boot_id == boot
    work(cluster, engineer, 600 + int(BOOT_SECONDS))
    assert verbs(cluster) == ["drain", "fail", "undrain"]
    assert cluster.fleet.node(node).boot_id != boot
    assert not cluster.fleet.node(node).lost
    assert cluster.scheduler.observe_node(node).state is NodeState.IDLE
    engineer.plan(node, found_at=now + 600, back_at=now + 1200)
    work(cluster, engineer, 600)
    assert (verbs(cluster), engineer.done) == (["drain", "fail", "undrain"], True), "not done again"


def test_a_node_that_needs_a_card_stays_out(cluster):
    now, engineer = cluster.clock.now(), Engineer(cluster.scheduler)
    engineer.plan("n02", found_at=now + 60, back_at=now + 600)
    engineer.plan("n02", found_at=now + 60, back_at=None)  # worse than was thought
    work(cluster, engineer, 2400)
    assert engineer.done
    assert cluster.scheduler.observe_node("n02").state is NodeState.DRAINED
