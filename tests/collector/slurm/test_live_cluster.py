"""A live look at a real cluster: what the user's environment holds must not change what is read."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from collector.slurm.live import read_live
from tests.support.minislurm import MiniSlurm, missing_programs

pytestmark = [
    pytest.mark.services,
    pytest.mark.skipif(bool(missing_programs()), reason="Slurm is not installed"),
]
# sinfo(1), squeue(1), scontrol(1), sacct(1): environment variables.
HOSTILE = {
    "SLURM_TIME_FORMAT": "relative",
    "SINFO_FORMAT": "%P",
    "SINFO_PARTITION": "nope",
    "SINFO_STATES": "down",
    "SQUEUE_FORMAT": "%i",
    "SQUEUE_FORMAT2": "jobid",
    "SQUEUE_STATES": "COMPLETED",
    "SQUEUE_USERS": "nobody",
    "SQUEUE_PARTITION": "nope",
    "SQUEUE_SORT": "-i",
    "SLURM_BITSTR_LEN": "1",
    "SLURM_DEBUG_FLAGS": "all",
    "SLURM_CLUSTERS": "elsewhere",
    "SCONTROL_ALL": "0",
    "TZ": "Asia/Tokyo",
    "LC_ALL": "de_DE.UTF-8",
    "LANG": "de_DE.UTF-8",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniSlurm]:
    with MiniSlurm(nodes=2) as running:
        yield running


def test_the_environment_changes_nothing(cluster: MiniSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in cluster.env.items():
        monkeypatch.setenv(name, value)
    submit = ["sbatch", "-o", "/dev/null", "-J", "a|b", "--gpus=2", "--hold", "--array=1-3", "--wrap", "true"]
    subprocess.run(submit, check=True, capture_output=True)
    drain = ["scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=bad dimm"]
    subprocess.run(drain, check=True, capture_output=True)
    plain = read_live(20.0)
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value)
    hostile = read_live(20.0)

    assert plain.ok
    assert plain.problems == hostile.problems == ()
    assert [node.name for node in plain.nodes] == ["n1", "n2"]
    assert [node.reason for node in plain.nodes] == [node.reason for node in hostile.nodes]
    assert [(node.name, node.state, node.gpus_total) for node in plain.nodes] == [
        (node.name, node.state, node.gpus_total) for node in hostile.nodes
    ]
    assert plain.jobs == hostile.jobs
    (job,) = plain.jobs
    assert (job.id, job.name, job.gpus, job.state) == ("1_[1-3]", "a|b", 2, "pending")
