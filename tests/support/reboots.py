"""What the hardware does when Slurm's RebootProgram has run: go down, come back as a new boot."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Protocol


class RebootableCluster(Protocol):
    """What a reboot needs of a cluster (MiniSlurm)."""

    @property
    def layout(self) -> _Layout: ...

    def kill_node(self, node: str, sig: signal.Signals = ...) -> None: ...

    def start_node(self, node: str, *flags: str) -> None: ...

    def new_boot(self, node: str) -> str: ...


class _Layout(Protocol):
    @property
    def reboot_log(self) -> Path: ...


class RebootServer:
    """Follows the reboot log in a thread. ``served`` lists the nodes in the order they came back."""

    def __init__(self, cluster: RebootableCluster, *, downtime_seconds: float) -> None:
        self._cluster = cluster
        self._downtime = downtime_seconds
        self._seen = len(self._lines())
        self._down: dict[str, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="reboots", daemon=True)
        self.served: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a node that is down now stays down."""
        self._ended.set()
        self._thread.join(10)

    def requested(self) -> list[str]:
        """Every node whose RebootProgram ran, in order, since the cluster was made."""
        return [line.split()[1] for line in self._lines()]

    def _lines(self) -> list[str]:
        try:
            return self._cluster.layout.reboot_log.read_text().splitlines()
        except FileNotFoundError:
            return []

    def _serve(self) -> None:
        while not self._ended.wait(0.05):
            requested = self.requested()
            for node in requested[self._seen :]:
                self._cluster.kill_node(node, signal.SIGTERM)
                self._down[node] = time.monotonic() + self._downtime
            self._seen = len(requested)
            for node in [name for name, due in self._down.items() if time.monotonic() >= due]:
                del self._down[node]
                self._cluster.new_boot(node)
                # Without -b the node would stay REBOOT_ISSUED: this machine itself did not boot.
                self._cluster.start_node(node, "-b")
                self.served.append(node)
