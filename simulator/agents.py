"""What the nodes' agents would push: who they are, which boot, which GPUs, and their new kernel lines."""

from __future__ import annotations

from typing import TypedDict

from simulator.fleet import SimulatedFleet

AGENT_VERSION = "simulated"


class AgentContact(TypedDict):
    """The ``agent`` object of ``POST /api/v1/events``; ``gpus`` are the UUIDs that the driver lists now."""

    node: str
    version: str
    boot_id: str
    gpus: list[str]


class SimulatedAgents:
    """One agent per node. A node that is down, or whose agent is silent, says nothing (None)."""

    def __init__(self, fleet: SimulatedFleet) -> None:
        self._fleet = fleet

    @property
    def nodes(self) -> tuple[str, ...]:
        return self._fleet.names

    def contact(self, node: str) -> AgentContact | None:
        """What ``node``'s agent says about itself now; None while it is silent."""
        machine = self._fleet.node(node)
        if not self._speaks(node):
            return None
        return AgentContact(
            node=node,
            version=AGENT_VERSION,
            boot_id=machine.boot_id,
            gpus=[gpu.uuid for gpu in machine.present_gpus],
        )

    def boot_time(self, node: str) -> float:
        """Epoch seconds of the present boot: what kmsg's offsets count from."""
        return self._fleet.node(node).boot_time

    def kernel_lines(self, node: str) -> list[bytes]:
        """The kernel lines that ``node``'s agent has not read yet; a silent agent reads them later."""
        return self._fleet.drain_kernel_lines(node) if self._speaks(node) else []

    def _speaks(self, node: str) -> bool:
        machine = self._fleet.node(node)
        return machine.up and self._fleet.clock.now() >= machine.silent_until
