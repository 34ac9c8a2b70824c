"""A real deployment on a real Slurm cluster: ``sickbay serve`` and an agent per node, as processes."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import httpx
import yaml

from sickbay.tokens import agent_token
from tests.support.minislurm import MiniSlurm, search_path
from tests.support.processes import free_ports, wait_until

SICKBAY = Path(sys.executable).with_name("sickbay")
OPERATOR_TOKEN = "operator-token-of-the-test"
ALERTS_TOKEN = "alerts-token-of-the-test"
SECRET = "agent-secret-of-the-test-cluster"
XID_79 = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."

# Stands before the real scontrol on PATH: writes down every call, and can kill its caller (the controller)
# right before or right after one, once per pattern. The controller starts it as a direct child.
_WRAPPER = """#!/bin/sh
calls={folder}/calls.log
echo "$(date +%s.%N) $*" >> "$calls"
for rule in {folder}/kill/*; do
    [ -e "$rule" ] || continue
    read -r when pattern < "$rule"
    case "$*" in
        $pattern)
            rm -f "$rule"
            if [ "$when" = before ]; then kill -9 $PPID; exit 1; fi
            {scontrol} "$@" > /dev/null 2>&1
            kill -9 $PPID
            exit 1;;
    esac
done
exec {scontrol} "$@"
"""


class Deployment:
    """``with Deployment(cluster, folder) as sickbay``. The controller is restarted whenever it dies."""

    def __init__(
        self, cluster: MiniSlurm, folder: Path, *, nodes: Sequence[str] = (), **changes: Any
    ) -> None:
        self.cluster = cluster
        self.folder = folder
        self.nodes = tuple(nodes) or cluster.names
        self.port = free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        self.restarts = 0
        self._changes = changes
        self._controller: subprocess.Popen[bytes] | None = None
        self._agents: dict[str, subprocess.Popen[bytes]] = {}
        self._stopping = threading.Event()
        self._keeper = threading.Thread(target=self._keep_alive, daemon=True)
        self.api = httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {OPERATOR_TOKEN}"}, timeout=10.0
        )

    # -- life

    def __enter__(self) -> Self:
        self._write_files()
        self._start_controller()
        wait_until(self._ready, timeout=30, what="the controller to be ready")
        self._keeper.start()
        for node in self.nodes:
            self.start_agent(node)
        wait_until(
            lambda: all(self.get(f"/api/v1/nodes/{node}")["agent"] for node in self.nodes),
            timeout=30,
            what="every agent to have spoken",
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._keeper.join(10)
        for process in (*self._agents.values(), self._controller):
            if process is not None and process.poll() is None:
                process.terminate()
                process.wait(15)
        self.api.close()

    def start_agent(self, node: str) -> None:
        self._agents[node] = self._spawn(f"agent-{node}", "agent", "--config", str(self._agent_config(node)))

    def kill_agent(self, node: str) -> None:
        process = self._agents.pop(node)
        process.kill()
        process.wait(10)

    def _keep_alive(self) -> None:
        while not self._stopping.wait(0.1):
            if self._controller is not None and self._controller.poll() is not None:
                self.restarts += 1
                self._start_controller()

    def _start_controller(self) -> None:
        self._controller = self._spawn("serve", "serve", "--config", str(self.folder / "sickbay.yaml"))

    def kill_controller(self) -> None:
        assert self._controller is not None
        self._controller.send_signal(signal.SIGKILL)

    def _spawn(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{name}.log").open("ab")
        with log:
            return subprocess.Popen(
                [str(SICKBAY), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "TZ": "UTC"},
            )

    def _ready(self) -> bool:
        try:
            return self.api.get("/-/ready").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    # -- asking

    def get(self, path: str) -> Any:
        return self.api.get(path).raise_for_status().json()

    def post(self, path: str, **body: Any) -> Any:
        return self.api.post(path, json=body).raise_for_status().json()

    def incidents(self, node: str) -> list[Any]:
        """The node's incidents, newest first; empty while the controller is away."""
        try:
            return list(self.get(f"/api/v1/incidents?node={node}")["items"])
        except httpx.TransportError:
            return []

    def wait_for_state(self, node: str, *states: str, timeout: float = 60) -> Any:
        def reached() -> Any:
            return next((i for i in self.incidents(node)[:1] if i["state"] in states), None)

        try:
            found = wait_until(
                reached, timeout=timeout, what=f"{node} to be {' or '.join(states)}", interval=0.1
            )
        except TimeoutError as error:
            shown = self.cluster.run("scontrol", "show", "node", node).stdout
            calls = "\n".join(self.calls())
            raise TimeoutError(
                f"{error}; {self.incidents(node)}\n{shown}\n{calls}\n{self.log_tail()}"
            ) from error
        return self.get(f"/api/v1/incidents/{found['id']}")

    def wait_for_no_incident(self, *, seconds: float) -> None:
        """Watch for a while that nothing is opened."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            found = self.get("/api/v1/incidents")["items"]
            assert found == [], found
            threading.Event().wait(0.2)

    def log_tail(self, name: str = "serve", lines: int = 40) -> str:
        return "\n".join((self.folder / f"{name}.log").read_text(errors="replace").splitlines()[-lines:])

    # -- scontrol

    def calls(self) -> list[str]:
        """Every scontrol call of the controller, in order, its arguments joined by blanks."""
        return [call for _, call in self.timed_calls()]

    def timed_calls(self) -> list[tuple[float, str]]:
        """The same with the epoch seconds of each."""
        log = self.folder / "calls.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [(float(line.partition(" ")[0]), line.partition(" ")[2]) for line in lines]

    def kill_at(self, when: str, pattern: str) -> None:
        """Kill the controller ``before`` or ``after`` the next scontrol call that matches (sh pattern)."""
        rules = self.folder / "kill"
        (rules / f"{time.monotonic_ns()}").write_text(f"{when} {pattern}\n")

    def kills_left(self) -> int:
        return len(list((self.folder / "kill").iterdir()))

    # -- files

    def _write_files(self) -> None:
        (self.folder / "kill").mkdir(parents=True)
        (self.folder / "bin").mkdir()
        real = _which("scontrol")
        wrapper = self.folder / "bin" / "scontrol"
        wrapper.write_text(_WRAPPER.format(folder=self.folder, scontrol=real))
        wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
        self._secret("secret", SECRET)
        self._secret("operator", OPERATOR_TOKEN)
        self._secret("alerts", ALERTS_TOKEN)
        (self.folder / "sickbay.yaml").write_text(yaml.safe_dump(self._config()))

    def _secret(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    def _config(self) -> dict[str, Any]:
        config: dict[str, Any] = {
            "cluster": "lab",
            "mode": "auto",
            "store": {"url": f"sqlite:///{self.folder}/sickbay.db"},
            "lease": {"duration_seconds": 4},
            "scheduler": {
                "kind": "slurm",
                "slurm": {
                    "env": {
                        "SLURM_CONF": str(self.cluster.layout.slurm_conf),
                        "PATH": f"{self.folder}/bin:{search_path()}",
                    },
                    "timeout_seconds": 3,
                    "read_rpc_per_second": 20,
                },
            },
            "metrics": {"source": "scrape", "scrape": {"targets": []}},
            "interval_seconds": 2,
            "settle_seconds": 0.5,
            "pools": [
                {
                    "name": "gpu",
                    "match": {"partition": "gpu"},
                    "budget": {"max_in_flight": 2, "max_unavailable_percent": 50},
                }
            ],
            "verify": {"probation_seconds": 2, "command": ["sh", "-c", 'test -n "$SICKBAY_NODE"']},
            "http": {
                "listen": f"127.0.0.1:{self.port}",
                "agent_secret_file": str(self.folder / "secret"),
                "tokens": [
                    {"name": "alice", "role": "operator", "token_file": str(self.folder / "operator")},
                    {"name": "am", "role": "alertmanager", "token_file": str(self.folder / "alerts")},
                ],
            },
        }
        return config | self._changes

    def _agent_config(self, node: str) -> Path:
        token = self._secret(f"token-{node}", agent_token(SECRET.encode(), node))
        path = self.folder / f"agent-{node}.yaml"
        agent = {
            "node": node,
            "controller": self.url,
            "token_file": str(token),
            "kernel_log": str(self.cluster.kernel_log(node)),
            "boot_id_file": str(self.cluster.boot_id_file(node)),
            "sources": [],
            "listen": None,
            "spool_dir": str(self.folder / f"spool-{node}"),
        }
        path.write_text(yaml.safe_dump({"agent": agent}))
        return path


def _which(program: str) -> str:
    found = shutil.which(program, path=search_path())
    assert found is not None, f"{program} is not installed"
    return found
