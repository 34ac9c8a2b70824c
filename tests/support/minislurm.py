"""A real Slurm cluster on one machine, from Debian's packages, for tests.

Every daemon is a foreground child of this process under its own key, sockets, ports and folders, so
several clusters run side by side and stopping is by process id. What slurmd starts (slurmstepd, jobs)
outlives it by design and is found by the SLURM_CONF in its environment.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from tests.support.processes import (
    end_processes_with_environment,
    free_ports,
    wait_until,
)
from tests.support.reboots import RebootServer
from tests.support.slurm_config import ClusterConfig, ClusterLayout, render_gres

T = TypeVar("T")

_PROGRAMS = ("slurmctld", "slurmd", "scontrol", "sinfo", "squeue", "sbatch", "scancel", "munged")
_SBIN = "/usr/sbin:/sbin"
_FOREIGN_PREFIXES = ("SLURM", "SBATCH", "SQUEUE", "SINFO", "SALLOC", "SACCT", "SCANCEL")


def search_path() -> str:
    """PATH with the folders of daemons, which a user's PATH may lack."""
    return f"{os.environ.get('PATH', '/usr/bin:/bin')}:{_SBIN}"


def missing_programs() -> list[str]:
    """The programs of Slurm and munge that this machine lacks; empty when a cluster can be started."""
    return [name for name in _PROGRAMS if shutil.which(name, path=search_path()) is None]


class MiniSlurm:
    """One cluster: slurmctld, ``nodes`` x slurmd, munged. ``with MiniSlurm(...) as cluster: ...``

    ``base``: a short folder name that all users may enter; None makes one under the system's temporary
    folder and removes it afterwards. ``names``: the node names ``n1``..; ``env``: what Slurm's commands
    need. Per node, ``boot_id_file`` and ``kernel_log`` are what an agent of that node would read.

    ``slurmd_timeout_seconds`` is Slurm's own default. slurmctld pings every third of it, and with
    ReturnToService=2 a ping that is answered while a reboot is under way leaves the node
    IDLE+DRAIN+REBOOT_ISSUED until ResumeTimeout (seen on 22.05.8): a short timeout is for tests of silent
    nodes only.
    """

    def __init__(
        self,
        base: Path | None = None,
        nodes: int = 4,
        gpus: int = 8,
        *,
        gpu_type: str = "h100",
        prefix: str = "n",
        slurmd_timeout_seconds: int = 300,
        message_timeout_seconds: int = 10,
        cred_expire_seconds: int | None = 5,
        return_to_service: int = 2,
        extra_conf: str = "",
    ) -> None:
        self._own_base = base is None
        self.layout = ClusterLayout(base=base or Path(tempfile.mkdtemp(prefix="sb-")))
        self.names = tuple(f"{prefix}{number}" for number in range(1, nodes + 1))
        self.gpus = gpus
        self._gpus_present = dict.fromkeys(self.names, gpus)
        ports = free_ports(nodes + 1)
        self.config = ClusterConfig(
            host=socket.gethostname().split(".")[0],
            controller_port=ports[0],
            node_ports=dict(zip(self.names, ports[1:], strict=True)),
            user=pwd.getpwuid(os.geteuid()).pw_name,
            gpus=gpus,
            gpu_type=gpu_type,
            slurmd_timeout_seconds=slurmd_timeout_seconds,
            message_timeout_seconds=message_timeout_seconds,
            cred_expire_seconds=cred_expire_seconds,
            return_to_service=return_to_service,
            extra=extra_conf,
        )
        self.env = clean_environment(self.layout.slurm_conf)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.RLock()

    # -- life

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Write the configuration, start everything, return when all nodes are idle."""
        self._write()
        self._start_munged()
        self.start_controller(wait=False)
        for name in self.names:
            self.start_node(name)
        self.wait(lambda: self.nodes_in("idle") == set(self.names), timeout=30, what="all nodes to be idle")

    def stop(self) -> None:
        """End every process of this cluster and remove a base folder that we made. Idempotent."""
        with self._lock:
            # munged last: the others need it until their end.
            order = sorted(self._processes.items(), key=lambda item: item[0] == "munged")
            self._processes.clear()
        for _, process in order:
            if process.poll() is None:
                process.terminate()
        for _, process in order:
            _reap(process, timeout=5)
        end_processes_with_environment("SLURM_CONF", str(self.layout.slurm_conf))
        if self._own_base:
            shutil.rmtree(self.layout.base, ignore_errors=True)

    # -- daemons

    def start_controller(self, *, wait: bool = True) -> None:
        self._spawn("slurmctld", ["slurmctld", "-D", "-f", str(self.layout.slurm_conf)])
        if wait:
            self.wait(self.controller_answers, timeout=15, what="slurmctld to answer")

    def kill_controller(self, sig: signal.Signals = signal.SIGKILL) -> None:
        """End slurmctld. SIGKILL loses what it has not saved yet (the last seconds); SIGTERM saves first."""
        self._kill("slurmctld", sig)

    def controller_answers(self) -> bool:
        # ping returns at once with rc 1 when nobody listens; sinfo would wait for MessageTimeout.
        return self.run("scontrol", "ping", check=False).returncode == 0

    def start_node(self, node: str, *flags: str) -> None:
        """Start ``node``'s slurmd; ``-b`` reports a fresh boot (slurmd(8))."""
        self._spawn(node, ["slurmd", "-D", "-N", node, "-f", str(self.layout.slurm_conf), *flags])

    def kill_node(self, node: str, sig: signal.Signals = signal.SIGKILL) -> None:
        """End ``node``'s slurmd; its jobs go on, as after a crash of slurmd."""
        self._kill(node, sig)

    def restart_node(self, node: str) -> None:
        """Restart ``node``'s slurmd: it registers at once, whatever slurmctld was waiting for."""
        with self._lock:
            self.kill_node(node, signal.SIGTERM)
            self.start_node(node)

    def start_node_with_gpus(self, node: str, count: int) -> None:
        """Restart ``node``'s slurmd so that it finds ``count`` GPUs: fewer than configured is INVALID_REG."""
        self._gpus_present[node] = count
        self._write_gres()
        with self._lock:
            if node in self._processes:
                self.kill_node(node, signal.SIGTERM)
            self.start_node(node)

    def set_gpus_at_next_boot(self, node: str, count: int) -> None:
        """The number of GPUs that ``node`` finds when its slurmd starts again."""
        self._gpus_present[node] = count
        self._write_gres()

    @contextlib.contextmanager
    def serve_reboots(self, *, downtime_seconds: float = 0.5) -> Iterator[RebootServer]:
        """While open, every node whose RebootProgram ran goes down and comes back with a new boot id."""
        server = RebootServer(self, downtime_seconds=downtime_seconds)
        server.start()
        try:
            yield server
        finally:
            server.stop()

    # -- what an agent reads

    def boot_id_file(self, node: str) -> Path:
        return self.layout.node(node) / "boot_id"

    def boot_id(self, node: str) -> str:
        return self.boot_id_file(node).read_text().strip()

    def kernel_log(self, node: str) -> Path:
        return self.layout.node(node) / "kern.log"

    def new_boot(self, node: str) -> str:
        """Give ``node`` a new boot id and the first line of its kernel's log."""
        boot_id = str(uuid.uuid4())
        fresh = self.boot_id_file(node).with_suffix(".new")
        fresh.write_text(boot_id + "\n")
        fresh.replace(self.boot_id_file(node))
        self.write_kernel_line(
            node, "Linux version 6.1.0-28-amd64 (debian-kernel@lists.debian.org)", uptime=0
        )
        return boot_id

    def write_kernel_line(self, node: str, text: str, *, uptime: float = 3600.0) -> None:
        """Append a line to ``node``'s kernel log in rsyslog's ISO shape (RSYSLOG_FileFormat, tag kernel)."""
        stamp = datetime.now(UTC).isoformat(timespec="microseconds")
        with self.kernel_log(node).open("a", encoding="utf-8") as log:
            log.write(f"{stamp} {node} kernel: [{uptime:12.6f}] {text}\n")

    # -- commands

    def run(
        self,
        *argv: str,
        check: bool = True,
        timeout: float = 30,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm's against this cluster; its output is text."""
        return subprocess.run(
            argv, capture_output=True, text=True, env=env or self.env, timeout=timeout, check=check
        )

    def sbatch(self, *options: str, script: str = "exec sleep 600") -> str:
        """Submit a batch script; the job id."""
        out = str(self.layout.jobs / "%j.out")
        submitted = self.run("sbatch", "--parsable", "-o", out, "-e", out, *options, "--wrap", script)
        return submitted.stdout.strip()

    def job(self, job: str) -> tuple[str, str, str]:
        """(state, reason, node list) of a job, in squeue's words; empty strings when it is not known."""
        shown = self.run("squeue", "-h", "-a", "-j", job, "-t", "all", "-o", "%T|%r|%N", check=False).stdout
        state, _, rest = shown.strip().partition("|")
        reason, _, nodes = rest.partition("|")
        return state, reason, nodes

    def node_state(self, node: str) -> str:
        """sinfo's long word for the node (``%T``), its suffix included."""
        return self.run("sinfo", "-h", "-N", "-n", node, "-o", "%T").stdout.strip()

    def node_reason(self, node: str) -> str:
        shown = self.run("scontrol", "show", "node", node).stdout
        found = [line.strip() for line in shown.splitlines() if line.strip().startswith("Reason=")]
        return found[0].removeprefix("Reason=").rsplit(" [", 1)[0] if found else ""

    def nodes_in(self, state: str) -> set[str]:
        return set(self.run("sinfo", "-h", "-N", "-t", state, "-o", "%N", check=False).stdout.split())

    def wait(self, condition: Callable[[], T], *, timeout: float, what: str) -> T:
        """Poll until ``condition()`` is truthy; a daemon that has died ends the wait with its last words."""

        def checked() -> T:
            self._check_daemons()
            return condition()

        return wait_until(checked, timeout=timeout, what=what)

    # -- inside

    def _write(self) -> None:
        self.layout.make_directories(self.names)
        key = self.layout.base / "munge/munge.key"
        if not key.exists():
            key.write_bytes(os.urandom(1024))
            key.chmod(0o400)
        self.layout.write_reboot_program()
        self.layout.slurm_conf.write_text(self.config.render(self.layout))
        self.layout.slurm_conf.chmod(0o644)
        self._devices = gpu_devices(self.gpus, self.layout.base)
        self._write_gres()
        for name in self.names:
            self.kernel_log(name).touch()
            if not self.boot_id_file(name).exists():
                self.new_boot(name)

    def _write_gres(self) -> None:
        files = {name: self._devices[:count] for name, count in self._gpus_present.items()}
        self.layout.gres_conf.write_text(render_gres(files, self.config.gpu_type))
        self.layout.gres_conf.chmod(0o644)

    def _start_munged(self) -> None:
        munge = self.layout.base / "munge"
        self._spawn(
            "munged",
            [
                "munged",
                "--foreground",
                "--force",
                f"--key-file={munge / 'munge.key'}",
                f"--socket={self.layout.munge_socket}",
                f"--pid-file={munge / 'munged.pid'}",
                f"--log-file={munge / 'munged.log'}",
                f"--seed-file={munge / 'munged.seed'}",
            ],
        )
        self.wait(self.layout.munge_socket.exists, timeout=5, what="munged's socket")

    def _spawn(self, name: str, argv: Sequence[str]) -> None:
        with self._lock, self.layout.log(f"{name}.out").open("ab") as output:
            self._processes[name] = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self.env,
                cwd="/",
                start_new_session=True,
            )

    def _kill(self, name: str, sig: signal.Signals) -> None:
        with self._lock:
            process = self._processes.pop(name)
        process.send_signal(sig)
        _reap(process, timeout=20)

    def _check_daemons(self) -> None:
        with self._lock:
            dead = {n: p.returncode for n, p in self._processes.items() if p.poll() is not None}
        for name, code in dead.items():
            words = self.layout.log(f"{name}.out").read_text(errors="replace").splitlines()[-5:]
            raise RuntimeError(f"{name} ended with status {code}: {' / '.join(words)}")


def clean_environment(slurm_conf: Path) -> dict[str, str]:
    """This process's environment without anything that changes what Slurm's commands do or print."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN_PREFIXES)}
    return {**kept, "PATH": search_path(), "SLURM_CONF": str(slurm_conf), "LC_ALL": "C", "TZ": "UTC"}


def gpu_devices(count: int, base: Path) -> list[str]:
    """``count`` distinct character devices to stand for GPUs; slurmd insists on such files.

    Consoles need no privilege; where there are none (some containers) root makes nodes of its own.
    """
    consoles = [Path(f"/dev/tty{index}") for index in range(count)]
    if all(path.is_char_device() for path in consoles):
        return [str(path) for path in consoles]
    made = [base / "dev" / f"gpu{index}" for index in range(count)]
    made[0].parent.mkdir(exist_ok=True)
    for path in made:
        if not path.exists():
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    return [str(path) for path in made]


def _reap(process: subprocess.Popen[bytes], *, timeout: float) -> None:
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
