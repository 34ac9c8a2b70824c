"""The bench over a real Slurm cluster. What the backend sends is read from a wrapper around scontrol."""

from __future__ import annotations

import re
import shutil
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from collector.slurm.client import SlurmClient
from fleet.clock import SystemClock
from fleet.scheduler import SchedulerBackend
from remediator.backends.slurm import SlurmBackend
from tests.support.bench import Capability, JobView, NodeView
from tests.support.minislurm import MiniSlurm, search_path
from tests.support.processes import free_ports, wait_until

_READS = ("show", "ping", "--version", "version", "-V")
_PATIENCE_SECONDS = 45.0
_RECORDER = """#!/bin/sh
printf '%s\\n' "$*" >> {log}
exec {program} "$@"
"""


class SlurmBench:
    """A running cluster of four nodes (see ``tests.support.bench.Bench``); ``reset`` between tests."""

    kind = "slurm"
    cannot: Mapping[Capability, str] = MappingProxyType({})
    unknown_job = "999999"

    def __init__(self, cluster: MiniSlurm) -> None:
        self._cluster = cluster
        self.nodes = cluster.names
        self._recorded = cluster.layout.base / "scontrol.log"
        self._recorder = self._make_recorder()
        self._markers: dict[str, Path] = {}
        self._short: set[str] = set()
        self._boots: dict[str, list[str]] = {}
        self.backend: SchedulerBackend = self._make_backend(cluster.layout.slurm_conf)

    def submit(
        self, *, count: int = 1, requeue: bool = True, held: bool = False, exclude: Sequence[str] = ()
    ) -> str:
        options = [f"-N{count}", "--gres=gpu:8", "--exclusive", "--requeue" if requeue else "--no-requeue"]
        if exclude:
            options.append(f"--exclude={','.join(exclude)}")
        if held:
            options.append("--hold")
        return self._sbatch(*options)

    def submit_array(self, tasks: int) -> list[str]:
        job = self._sbatch("-N1", "--gres=gpu:8", "--exclusive", "--requeue", f"--array=0-{tasks - 1}")
        return [f"{job}_{task}" for task in range(tasks)]

    def finish(self, job: str) -> None:
        self._markers[job.partition("_")[0]].touch()

    def job(self, job: str) -> JobView:
        state, reason, nodes = self._cluster.job(job)
        shown = self._cluster.run("scontrol", "show", "hostnames", nodes).stdout.split() if nodes else []
        return JobView(state.lower(), tuple(shown), reason)

    def runs(self, job: str) -> bool:
        # A requeue that meets a batch step while slurmd launches it may leave the step alone for many
        # seconds (seen on 22.05.8), so RUNNING alone is not enough.
        job_id, _, task = job.partition("_")
        started = Path(f"{self._markers[job_id]}.started.{task or 0}")
        return self.job(job).state == "running" and started.exists()

    def node(self, node: str) -> NodeView:
        shown = self._cluster.run("scontrol", "show", "node", node).stdout
        state = re.search(r"State=(\S+)", shown)
        comment = re.search(r"^\s*Comment=(.*)$", shown, re.MULTILINE)
        assert state, shown
        return NodeView(
            "DRAIN" in state[1].split("+"),
            self._cluster.node_reason(node),
            comment[1].strip() if comment else "",
        )

    def admin_drain(self, node: str, reason: str) -> None:
        self._cluster.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")

    def admin_undrain(self, node: str) -> None:
        self._cluster.run("scontrol", "update", f"NodeName={node}", "State=UNDRAIN")

    def admin_comment(self, node: str, text: str) -> None:
        self._cluster.run("scontrol", "update", f"NodeName={node}", f"Comment={text}")

    def register_with_gpus(self, node: str, count: int) -> None:
        self._short.discard(node)
        if count < self._cluster.gpus:
            self._short.add(node)
        self._cluster.start_node_with_gpus(node, count)

    def hold(self, job: str) -> None:
        self._cluster.run("scontrol", "uhold", job)

    def now(self) -> float:
        return time.time()

    def boots(self, node: str) -> int:
        seen = self._boots.setdefault(node, [])
        boot_id = self._cluster.boot_id(node)
        if boot_id not in seen:
            seen.append(boot_id)
        return len(seen)

    def writes(self) -> list[str]:
        lines = self._recorded.read_text().splitlines() if self._recorded.exists() else []
        return [line for line in lines if not any(word in _READS for word in line.split()[:3])]

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        try:
            wait_until(condition, timeout=_PATIENCE_SECONDS, what=what, interval=0.05)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; the cluster then:\n{self._picture()}") from None

    def without_controller(self) -> SchedulerBackend:
        text = self._cluster.layout.slurm_conf.read_text()
        text = re.sub(r"^SlurmctldPort=.*$", f"SlurmctldPort={free_ports(1)[0]}", text, flags=re.MULTILINE)
        text = re.sub(r"^MessageTimeout=.*$", "MessageTimeout=2", text, flags=re.MULTILINE)
        conf = self._cluster.layout.base / "etc/nobody.conf"
        conf.write_text(text)
        return self._make_backend(conf)

    def reset(self) -> None:
        """Cancel all jobs, undrain all nodes, wait until the cluster is idle."""
        self._cluster.run("scancel", "--partition=gpu", check=False)
        self.wait(lambda: not self._queue(), "the queue to be empty")
        self.wait(lambda: not self._rebooting(), "reboots to end")
        for name in tuple(self._short):
            self.register_with_gpus(name, self._cluster.gpus)
        self.wait(lambda: "inval" not in self._states(), "all GPUs to be registered")
        for name in self.nodes:
            if self.node(name).drained:
                self.admin_undrain(name)
                self._cluster.restart_node(name)  # an undrained node is idle* until it registers again
            self.admin_comment(name, "")
        self.wait(self._is_idle, "the cluster to be idle")

    # -- inside

    def _picture(self) -> str:
        shown = [
            self._cluster.run("sinfo", "-N", "-o", "%N %T %E", check=False).stdout,
            self._cluster.run("squeue", "-a", "-t", "PD,R,CG", "-o", "%i %T %r %N %x %S", check=False).stdout,
            self._cluster.layout.log("slurmctld.log").read_text(errors="replace")[-3000:],
        ]
        return "\n".join(shown)

    def _is_idle(self) -> bool:
        return all(state == "idle" for state in self._states())

    def _rebooting(self) -> bool:
        return any(state.startswith("reboot") or "^" in state or "@" in state for state in self._states())

    def _states(self) -> list[str]:
        return self._cluster.run("sinfo", "-h", "-N", "-o", "%T").stdout.split()

    def _queue(self) -> list[str]:
        return self._cluster.run("squeue", "-h", "-o", "%i").stdout.split()

    def _sbatch(self, *options: str) -> str:
        marker = self._cluster.layout.jobs / f"finish-{uuid.uuid4()}"
        script = f"""touch {marker}.started.${{SLURM_ARRAY_TASK_ID:-0}}
while [ ! -e {marker} ]; do sleep 0.1; done"""
        job = self._cluster.sbatch(*options, script=script)
        self._markers[job] = marker
        return job

    def _make_recorder(self) -> Path:
        folder = self._cluster.layout.base / "recorder"
        folder.mkdir(exist_ok=True)
        program = shutil.which("scontrol", path=search_path())
        recorder = folder / "scontrol"
        recorder.write_text(_RECORDER.format(log=self._recorded, program=program))
        recorder.chmod(0o755)
        return folder

    def _make_backend(self, conf: Path) -> SchedulerBackend:
        env = {"SLURM_CONF": str(conf), "PATH": f"{self._recorder}:{search_path()}"}
        clock = SystemClock()
        client = SlurmClient(
            env=env,
            timeout_seconds=5.0,
            read_rpc_per_second=1000.0,
            action_rpc_per_second=1000.0,
            clock=clock,
        )
        return SlurmBackend(client, clock, our_user=self._cluster.config.user)
