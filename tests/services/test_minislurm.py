"""The real Slurm cluster that the tests use: what they rely on."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.support.minislurm import MiniSlurm
from tests.support.processes import processes_with_environment

pytestmark = pytest.mark.services


def test_two_clusters_run_side_by_side_and_leave_nothing_behind(
    make_slurm_cluster: Callable[..., MiniSlurm],
) -> None:
    first = make_slurm_cluster(nodes=1)
    with MiniSlurm(nodes=2) as second:
        job = second.sbatch("-N2", "--gres=gpu:8")
        second.wait(lambda: second.job(job)[0] == "RUNNING", timeout=10, what="the job")
        assert first.job(job)[0] == ""
        assert first.nodes_in("idle") == {"n1"}
        conf = second.layout.slurm_conf
        assert processes_with_environment("SLURM_CONF", str(conf))
    assert processes_with_environment("SLURM_CONF", str(conf)) == []
    assert not conf.exists()


def test_reboots_missing_gpus_and_a_dead_controller(make_slurm_cluster: Callable[..., MiniSlurm]) -> None:
    cluster = make_slurm_cluster(nodes=2)
    boots = {name: cluster.boot_id(name) for name in cluster.names}

    with cluster.serve_reboots(downtime_seconds=0.1) as reboots:
        cluster.run("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=ours")
        cluster.run("scontrol", "reboot", "n1")
        cluster.wait(lambda: reboots.served == ["n1"], timeout=10, what="the reboot")
        cluster.wait(lambda: cluster.node_state("n1") == "drained", timeout=10, what="n1 to register")
    assert cluster.node_reason("n1") == "ours : reboot issued"
    assert cluster.boot_id("n1") != boots["n1"]
    assert cluster.boot_id("n2") == boots["n2"]
    assert "kernel: [    0.000000] Linux version" in cluster.kernel_log("n1").read_text().splitlines()[-1]

    cluster.start_node_with_gpus("n2", 7)
    cluster.wait(lambda: cluster.node_state("n2") == "inval", timeout=10, what="n2 to be invalid")
    assert cluster.node_reason("n2") == "gres/gpu count reported lower than configured (7 < 8)"

    cluster.kill_controller(signal.SIGTERM)  # SIGKILL would lose what it has not saved yet
    assert not cluster.controller_answers()
    cluster.start_controller()
    assert cluster.node_reason("n1") == "ours : reboot issued"
