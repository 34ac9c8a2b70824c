"""The configuration of a whole Slurm cluster on one machine.

Debian builds Slurm with multiple-slurmd: ``slurmd -N node`` serves one of several nodes on one host
(slurm.conf(5), NodeHostname and Port).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# The parent of RebootProgram's parent is the slurmd: RebootProgram runs as `sh -c PROGRAM`, with no
# node name in its environment. Looking no further up keeps a stranger's "-N" out.
_REBOOT_PROGRAM = """#!/bin/bash
slurmd=$(awk '{{print $4}}' "/proc/$PPID/stat")
node=$(tr '\\0' '\\n' < "/proc/$slurmd/cmdline" | grep -A1 -x -e -N | tail -n 1)
echo "$(date +%s.%N) $node" >> {log}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLayout:
    """Where everything of one cluster lives. Unix socket paths are short (108 bytes): so is ``base``."""

    base: Path

    @property
    def slurm_conf(self) -> Path:
        return self.base / "etc/slurm.conf"

    @property
    def gres_conf(self) -> Path:
        return self.base / "etc/gres.conf"

    @property
    def reboot_program(self) -> Path:
        return self.base / "etc/reboot"

    @property
    def reboot_log(self) -> Path:
        return self.base / "log/reboot.log"

    @property
    def munge_socket(self) -> Path:
        return self.base / "munge/munge.sock"

    @property
    def jobs(self) -> Path:
        return self.base / "jobs"

    def node(self, name: str) -> Path:
        return self.base / "nodes" / name

    def log(self, name: str) -> Path:
        return self.base / "log" / name

    def make_directories(self, nodes: Sequence[str]) -> None:
        for folder in ("etc", "munge", "run", "log", "state", "spool", "jobs", "nodes"):
            (self.base / folder).mkdir(parents=True, exist_ok=True)
        for name in nodes:
            (self.base / "spool" / name).mkdir(exist_ok=True)
            self.node(name).mkdir(exist_ok=True)
        self.base.chmod(0o755)
        (self.base / "munge").chmod(0o711)
        self.jobs.chmod(0o1777)

    def write_reboot_program(self) -> None:
        self.reboot_program.write_text(_REBOOT_PROGRAM.format(log=self.reboot_log))
        self.reboot_program.chmod(0o755)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """What varies between test clusters; ``render`` gives slurm.conf's text.

    ``cred_expire_seconds``: a requeued job begins a credential lifetime (Slurm's default: 120 s) after
    its requeue; 5 keeps tests short, None keeps Slurm's default.
    """

    host: str
    controller_port: int
    node_ports: Mapping[str, int]
    user: str
    gpus: int
    gpu_type: str
    slurmd_timeout_seconds: int
    message_timeout_seconds: int
    cred_expire_seconds: int | None
    return_to_service: int
    extra: str

    def render(self, layout: ClusterLayout) -> str:
        base = layout.base
        credential = "" if self.cred_expire_seconds is None else f",cred_expire={self.cred_expire_seconds}"
        lines = [
            "ClusterName=sickbaytest",
            f"SlurmctldHost={self.host}(127.0.0.1)",
            f"SlurmctldPort={self.controller_port}",
            f"SlurmUser={self.user}",
            f"SlurmdUser={self.user}",
            "AuthType=auth/munge",
            f"AuthInfo=socket={layout.munge_socket}{credential}",
            "CredType=cred/munge",
            # No cgroups and no accounting: neither is there in a container.
            "MpiDefault=none",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "JobAcctGatherType=jobacct_gather/none",
            "AccountingStorageType=accounting_storage/none",
            "SwitchType=switch/none",
            f"ReturnToService={self.return_to_service}",
            "JobRequeue=1",
            "SchedulerType=sched/backfill",
            "SchedulerParameters=sched_min_interval=0,sched_interval=1,bf_interval=2,batch_sched_delay=0",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core",
            "GresTypes=gpu",
            f"StateSaveLocation={base}/state",
            f"SlurmdSpoolDir={base}/spool/%n",
            f"SlurmctldPidFile={base}/run/slurmctld.pid",
            f"SlurmdPidFile={base}/run/slurmd.%n.pid",
            f"SlurmctldLogFile={base}/log/slurmctld.log",
            f"SlurmdLogFile={base}/log/slurmd.%n.log",
            "SlurmctldTimeout=10",
            f"SlurmdTimeout={self.slurmd_timeout_seconds}",
            "InactiveLimit=0",
            "KillWait=2",
            "MinJobAge=3600",
            "Waittime=0",
            "ResumeTimeout=60",
            f"MessageTimeout={self.message_timeout_seconds}",
            f"RebootProgram={layout.reboot_program}",
            # A small machine may claim the CPUs and memory of a GPU node.
            "SlurmdParameters=config_overrides",
        ]
        if self.extra:
            lines.append(self.extra)
        lines += [
            f"NodeName={name} NodeHostname={self.host} NodeAddr=127.0.0.1 Port={port} "
            "CPUs=64 Sockets=2 CoresPerSocket=32 ThreadsPerCore=1 RealMemory=512000 "
            f"Gres=gpu:{self.gpu_type}:{self.gpus} State=UNKNOWN"
            for name, port in self.node_ports.items()
        ]
        lines.append(
            f"PartitionName=gpu Nodes={','.join(self.node_ports)} Default=YES MaxTime=INFINITE State=UP"
        )
        return "\n".join(lines) + "\n"


def render_gres(files: Mapping[str, Sequence[str]], gpu_type: str) -> str:
    """gres.conf: the device file of every GPU of every node (gres.conf(5), one File= each)."""
    lines = ["AutoDetect=off"]
    for node, devices in files.items():
        lines += [f"NodeName={node} Name=gpu Type={gpu_type} File={device}" for device in devices]
    return "\n".join(lines) + "\n"
