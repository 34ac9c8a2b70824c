"""The exporter command on a real Slurm cluster, against what Slurm itself shows; clean for promtool."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from fleet.marks import Mark
from tests.support.minislurm import MiniSlurm, search_path
from tests.support.processes import free_ports, wait_until

pytestmark = [pytest.mark.services, pytest.mark.timeout(240)]
SICKBAY = Path(sys.executable).with_name("sickbay")
# A second partition over nodes of the first one: what would double every count that adds up rows of sinfo.
CONF = "PartitionName=debug Nodes=n1,n2 MaxTime=30"


class Scraped:
    """One answer of /metrics."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._samples = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]

    def value(self, name: str, **labels: str) -> float | None:
        found = [one.value for one in self._samples if one.name == name and one.labels == labels]
        return found[0] if found else None

    def total(self, name: str, **labels: str) -> float:
        return sum(
            one.value for one in self._samples if one.name == name and labels.items() <= one.labels.items()
        )


@contextmanager
def exporter(cluster: MiniSlurm, folder: Path) -> Iterator[Callable[[], Scraped]]:
    """The command as a process; the function scrapes it."""
    config = folder / "exporter.yaml"
    env = {"SLURM_CONF": str(cluster.layout.slurm_conf)}
    config.write_text(yaml.safe_dump({"scheduler": {"kind": "slurm", "slurm": {"env": env}}}))
    port = free_ports(1)[0]
    with (folder / "exporter.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(str(SICKBAY), "exporter", "slurm", "--config", str(config)),
                *("--listen", f"127.0.0.1:{port}", "--interval", "1s"),
            ],
            env={"PATH": search_path()},
            stderr=log,
        )

    def scrape() -> Scraped:
        return Scraped(httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=5).text)

    def answers() -> bool:
        try:
            return scrape().value("sickbay_scheduler_exporter_up") == 1
        except httpx.TransportError:
            return False

    try:
        wait_until(answers, timeout=30, what="the exporter to have read Slurm")
        yield scrape
    finally:
        process.terminate()
        assert process.wait(10) == 0


def drained_twice(cluster: MiniSlurm) -> None:
    mark = Mark("inc-1", "gpu-xid", "GPU 3 fell off the bus (XID 79).")
    cluster.run("scontrol", "update", "NodeName=n3", "State=DRAIN", f"Reason={mark.reason()}")
    cluster.run("scontrol", "update", "NodeName=n4", "State=DRAIN", "Reason=bad dimm")


def seconds_waited(cluster: MiniSlurm, task: str) -> float:
    """Start minus eligible, as ``scontrol show job`` prints them."""
    shown = cluster.run("scontrol", "show", "job", task).stdout
    eligible, start = (
        datetime.fromisoformat(found[1]).timestamp()
        for name in ("EligibleTime", "StartTime")
        if (found := re.search(rf"\b{name}=(\S+)", shown))
    )
    return start - eligible


def test_a_real_cluster(make_slurm_cluster: Callable[..., MiniSlurm], tmp_path: Path) -> None:
    cluster = make_slurm_cluster(extra_conf=CONF)
    promtool = shutil.which("promtool")
    assert promtool is not None, "promtool is missing: apt-get install prometheus"
    drained_twice(cluster)
    with exporter(cluster, tmp_path) as scrape:

        def until(condition: Callable[[Scraped], bool], what: str) -> Scraped:
            return wait_until(lambda: seen if condition(seen := scrape()) else None, timeout=60, what=what)

        # What waits and what runs: three GPUs on a shared node, an array's rest, a gang nobody can place.
        running = cluster.sbatch("-p", "gpu", "-N1", "--gres=gpu:3", "-w", "n1")
        array = cluster.sbatch("-p", "gpu", "-N1", "--gres=gpu:8", "--exclusive", "-w", "n1", "--array=0-4")
        cluster.sbatch("-p", "gpu,debug", "-N2", "--gres=gpu:8", "--exclusive")
        cluster.sbatch("-p", "gpu", "-N1", "--gres=gpu:1", "--hold")
        seen = until(
            lambda one: (
                one.value("sickbay_scheduler_jobs", state="running") == 1
                and one.value("sickbay_scheduler_jobs", state="pending") == 7
            ),
            "one running job and seven that wait",
        )

        assert seen.total("sickbay_scheduler_nodes") == 4
        assert seen.total("sickbay_scheduler_gpus") == 32
        assert seen.total("sickbay_scheduler_gpus", status="allocated") == 3
        assert seen.total("sickbay_scheduler_gpus", status="idle") == 13
        assert seen.total("sickbay_scheduler_gpus", reason="drained_by_sickbay") == 8
        assert seen.total("sickbay_scheduler_gpus", reason="drained_by_others") == 8
        assert seen.total("sickbay_partition_gpus", partition="gpu") == 32
        assert seen.total("sickbay_partition_gpus", partition="debug") == 16
        assert seen.value("sickbay_scheduler_pending_jobs", reason="held") == 1
        assert seen.value("sickbay_scheduler_pending_gpus", size="2-8") == 40
        assert seen.value("sickbay_scheduler_pending_gpus", size="9-64") == 16
        assert seen.value("sickbay_partition_pending_gpus", partition="debug", size="9-64") == 16
        assert seen.value("sickbay_scheduler_exporter_unreadable_records") == 0
        done = subprocess.run(
            [promtool, "check", "metrics"], input=seen.text, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

        # The wait of a task that starts now is what Slurm itself says: start minus eligible.
        oldest = seen.value("sickbay_partition_oldest_pending_timestamp_seconds", partition="gpu", size="2-8")
        assert oldest is not None
        wait_until(lambda: time.time() - oldest > 3.0, timeout=30, what="the array to have waited")
        cluster.run("scancel", running)
        wait = {"partition": "gpu", "size": "2-8"}
        seen = until(
            lambda one: one.value("sickbay_partition_queue_wait_seconds_count", **wait) == 2,
            "a task of the array to start, after the job that held its node",
        )
        waited = seen.value("sickbay_partition_queue_wait_seconds_sum", **wait)
        assert seconds_waited(cluster, f"{array}_0") >= 2.0
        assert waited == sum(seconds_waited(cluster, job) for job in (running, f"{array}_0"))

        # slurmctld goes: its numbers go, the age stays; it comes back: so do they.
        read_at = seen.value("sickbay_scheduler_exporter_last_read_timestamp_seconds")
        cluster.kill_controller()
        gone = until(lambda one: one.value("sickbay_scheduler_exporter_up") == 0, "the loss to be seen")
        assert "sickbay_scheduler_gpus{" not in gone.text
        assert "sickbay_scheduler_nodes{" not in gone.text
        last = gone.value("sickbay_scheduler_exporter_last_read_timestamp_seconds")
        assert read_at is not None
        assert last is not None
        assert last >= read_at
        before = gone.value("sickbay_partition_queue_wait_seconds_count", **wait)
        cluster.start_controller()
        back = until(lambda one: one.value("sickbay_scheduler_exporter_up") == 1, "Slurm to be back")
        assert back.total("sickbay_scheduler_gpus") == 32
        assert back.value("sickbay_partition_queue_wait_seconds_count", **wait) == before
