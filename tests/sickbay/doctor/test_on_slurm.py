"""The doctor at a real Slurm cluster: what it sees, which commands it runs, and what it leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.minislurm import MiniSlurm

pytestmark = pytest.mark.services
SICKBAY = Path(sys.executable).with_name("sickbay")
READS = (
    "scontrol ping",
    "scontrol --version",
    "scontrol show config",
    "sinfo --all --json",
    "squeue --all --states=all --json",
    "scontrol --all show nodes --json",
)


class Doctor:
    """Runs ``sickbay doctor`` with Slurm's commands recorded on their way to the real ones."""

    def __init__(self, cluster: MiniSlurm, folder: Path) -> None:
        self.cluster = cluster
        self._folder = folder
        self._calls = folder / "calls"
        self._bin = folder / "bin"
        self._bin.mkdir()
        for name in ("scontrol", "sinfo", "squeue", "sacctmgr", "scancel"):
            program = self._bin / name
            program.write_text(
                f'#!/bin/sh\necho "{name} $*" >> {self._calls}\n'
                f'PATH="{cluster.env["PATH"]}" exec {name} "$@"\n'
            )
            program.chmod(0o755)

    def look(self, *, mode: str = "auto", partition: str = "gpu") -> tuple[int, dict[str, Any]]:
        """(exit code, checks by name)."""
        path = self._folder / "sickbay.yaml"
        path.write_text(
            f"""\
cluster: alpha
mode: {mode}
store: {{url: "sqlite:///./x.db"}}
scheduler:
  kind: slurm
  slurm: {{env: {{SLURM_CONF: "{self.cluster.layout.slurm_conf}"}}}}
metrics: {{source: scrape}}
pools: [{{name: gpu, match: {{partition: {partition}}}}}]
http: {{listen: "127.0.0.1:0"}}
"""
        )
        env = {**os.environ, "PATH": f"{self._bin}:{self.cluster.env['PATH']}"}
        done = subprocess.run(
            [str(SICKBAY), "doctor", "--config", str(path), "--json"],
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )
        found = json.loads(done.stdout)
        assert found["ok"] is (done.returncode == 0)
        return done.returncode, {one["name"]: one for one in found["checks"]}

    @property
    def calls(self) -> list[str]:
        return [line.strip() for line in self._calls.read_text().splitlines()]


def test_a_cluster_that_is_well_and_stays_as_it_was(slurm_cluster: MiniSlurm, tmp_path: Path) -> None:
    doctor = Doctor(slurm_cluster, tmp_path)
    before = slurm_cluster.run("sinfo", "-N", "-h", "-o", "%N %T %E").stdout
    code, found = doctor.look()
    assert code == 0, found
    for name in ("answers", "version", "rights", "reboot_program", "job_requeue", "private_data", "clock"):
        assert found[f"slurm.{name}"]["status"] == "ok", found[f"slurm.{name}"]
    assert found["scheduler.pool.gpu"]["sentence"] == "4 nodes, 4 with GPUs"
    assert found["scheduler.gpus"]["sentence"] == "32 GPUs on 4 nodes"
    assert found["slurm.return_to_service"]["status"] == "warn"
    assert doctor.calls
    assert set(doctor.calls) <= set(READS)
    assert slurm_cluster.run("sinfo", "-N", "-h", "-o", "%N %T %E").stdout == before


def test_drains_of_both_owners_and_a_wrong_partition(slurm_cluster: MiniSlurm, tmp_path: Path) -> None:
    first, second, *_ = slurm_cluster.names
    reasons = {first: "bad dimm", second: "sickbay:i-9:gpu-fell-off-bus XID 79"}
    for node, reason in reasons.items():
        slurm_cluster.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")
    try:
        code, found = Doctor(slurm_cluster, tmp_path).look(partition="gpuu")
    finally:
        for node in reasons:
            slurm_cluster.run("scontrol", "update", f"NodeName={node}", "State=UNDRAIN")
    assert code == 1
    assert "partitions with nodes: gpu" in found["scheduler.pool.gpu"]["sentence"]
    assert "1 node out of service by sickbay, 1 by others" in found["scheduler.drains"]["sentence"]
    assert "bad dimm" in found["scheduler.drains"]["sentence"]
    assert second in found["scheduler.left_overs"]["sentence"]


def test_a_controller_that_is_down(make_slurm_cluster: Callable[..., MiniSlurm], tmp_path: Path) -> None:
    """22.05's lists exit 0 with nothing in them then: they must not read as an empty cluster."""
    cluster = make_slurm_cluster(nodes=1, message_timeout_seconds=3)
    cluster.kill_controller()
    code, found = Doctor(cluster, tmp_path).look()
    assert code == 1
    assert found["slurm.answers"]["status"] == "fail"
    for name in ("slurm.rights", "scheduler.nodes", "scheduler.pools", "scheduler.gpus"):
        assert found[name]["status"] == "unknown", found[name]
    assert found["store.schema"]["status"] == "ok"


def test_settings_that_hurt(make_slurm_cluster: Callable[..., MiniSlurm], tmp_path: Path) -> None:
    cluster = make_slurm_cluster(
        nodes=1,
        message_timeout_seconds=30,
        extra_conf="HealthCheckProgram=/bin/true\nHealthCheckInterval=300\nProlog=/bin/true\nPrivateData=jobs",
    )
    _, found = Doctor(cluster, tmp_path).look()
    assert found["slurm.message_timeout"]["status"] == "warn"
    assert found["slurm.health_check"]["status"] == "warn"
    assert found["slurm.prolog"]["status"] == "warn"
    assert found["slurm.private_data"]["status"] == "ok"  # root and SlurmUser see everything
