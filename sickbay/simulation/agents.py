"""The real node agent, once per simulated node: it reads that node's simulated kernel log and pushes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collector.agent.agent import Agent
from collector.agent.build import build_agent
from collector.agent.inventory import GpuIdentity
from collector.agent.settings import AgentSettings
from collector.agent.stats import PushFailure
from collector.agent.transport import Answer, HttpTransport, PushError
from fleet.clock import SystemClock
from fleet.observations import Problem
from sickbay import __version__
from sickbay.simulation.plant import Plant
from sickbay.tokens import agent_token
from simulator.agents import SimulatedAgents
from simulator.fleet import SimulatedFleet

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.2
_STOP_SECONDS = 5.0


class NodeAgents:
    """One agent per node of ``plant``, each in threads of its own, until ``stop``.

    ``folder`` holds their boot IDs and spools; ``secret`` is the cluster's agent secret (None: no tokens).
    ``listen``: host and first port of their metrics, one port per node in order of names; None: nowhere.
    """

    def __init__(
        self,
        plant: Plant,
        *,
        controller: str,
        folder: Path,
        secret: bytes | None,
        listen: tuple[str, int] | None,
        heartbeat_seconds: float = 15.0,
    ) -> None:
        self._fleet = plant.fleet
        self._folder = folder
        self._boots: dict[str, str] = {}
        self._write_boots()
        plant.after_each_tick(self._write_boots)
        self._agents: list[tuple[str, Agent]] = []
        for number, node in enumerate(plant.fleet.names):
            settings = AgentSettings(
                node=node,
                controller=controller,
                token=None if secret is None else agent_token(secret, node),
                boot_id_file=self._boot_file(node),
                listen=None if listen is None else _address(listen[0], listen[1] + number),
                spool_dir=folder / "spool",
                heartbeat_seconds=heartbeat_seconds,
                version=f"{__version__}-simulated",
            )
            self._agents.append((node, _agent(settings, plant)))
        self._threads = [
            threading.Thread(target=agent.run, name=f"agent-{node}", daemon=True)
            for node, agent in self._agents
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        for _, agent in self._agents:
            agent.stop()
        for thread in self._threads:
            thread.join(_STOP_SECONDS)

    def _boot_file(self, node: str) -> Path:
        return self._folder / f"{node}.boot-id"

    def _write_boots(self) -> None:
        """What /proc/sys/kernel/random/boot_id would say on each node."""
        for node in self._fleet.names:
            boot = self._fleet.node(node).boot_id
            if self._boots.get(node) == boot:
                continue
            new = self._folder / f"{node}.boot-id.new"
            new.write_text(f"{boot}\n", encoding="ascii")
            new.replace(self._boot_file(node))
            self._boots[node] = boot


def _agent(settings: AgentSettings, plant: Plant) -> Agent:
    clock, node = SystemClock(), settings.node
    return build_agent(
        settings,
        clock=clock,
        source=lambda: _KernelLog(plant.cluster.agents, node),
        transport=_Wire(HttpTransport(settings, clock), plant.cluster.agents, node),
        inventory=_Gpus(plant.fleet, node),
    )


class _KernelLog:
    """A LineSource: the kernel lines of one simulated node."""

    def __init__(self, agents: SimulatedAgents, node: str) -> None:
        self._agents = agents
        self._node = node
        self._closed = threading.Event()

    def read_lines(self, timeout_seconds: float) -> list[bytes]:
        left = timeout_seconds
        while True:
            lines = self._agents.kernel_lines(self._node)
            if lines or left <= 0 or self._closed.wait(min(left, _LOOK_SECONDS)):
                return lines
            left -= _LOOK_SECONDS

    def take_problems(self) -> list[Problem]:
        return []

    def close(self) -> None:
        self._closed.set()


class _Wire:
    """A Transport that carries nothing while its node is down or its agent is meant to be silent."""

    def __init__(self, real: HttpTransport, agents: SimulatedAgents, node: str) -> None:
        self._real = real
        self._agents = agents
        self._node = node

    def post(self, payload: Mapping[str, Any], token: str | None) -> Answer:
        if self._agents.contact(self._node) is None:
            raise PushError(PushFailure.UNREACHABLE, f"{self._node} is down or silent", detail="simulated")
        return self._real.post(payload, token)

    def close(self) -> None:
        self._real.close()


class _Gpus:
    """A GpuInventory: the GPUs that the simulated driver lists now."""

    def __init__(self, fleet: SimulatedFleet, node: str) -> None:
        self._fleet = fleet
        self._node = node

    def current(self, boot_id: str) -> tuple[GpuIdentity, ...] | None:
        machine = self._fleet.node(self._node)
        if machine.boot_id != boot_id:
            return None
        return tuple(GpuIdentity(gpu.uuid, gpu.index, gpu.pci) for gpu in machine.present_gpus)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
