"""A whole simulated cluster in one piece, driven by one ``tick``."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.clock import Clock
from simulator.agents import SimulatedAgents
from simulator.faults import Fault, FaultScript
from simulator.fleet import SimulatedFleet
from simulator.kernel_log import LogShape
from simulator.scheduler import DEFAULT_REBOOT_SECONDS, SimulatedScheduler
from simulator.telemetry import SimulatedTelemetry
from simulator.workload import Workload


class SimulatedCluster:
    """Fleet, scheduler, agents, users and a fault script under one clock.

    ``started_at`` (epoch seconds) is what ``Fault.at_seconds`` counts from; ``script.applied`` holds
    (time, fault) of what has happened.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        nodes: int = 16,
        gpus_per_node: int = 8,
        seed: int = 1,
        faults: Sequence[Fault] = (),
        busy_share: float = 0.75,
        reboot_seconds: float = DEFAULT_REBOOT_SECONDS,
        log_shape: LogShape = LogShape.RSYSLOG,
    ) -> None:
        self.clock = clock
        self.fleet = SimulatedFleet(
            clock=clock, nodes=nodes, gpus_per_node=gpus_per_node, seed=seed, log_shape=log_shape
        )
        self.scheduler = SimulatedScheduler(self.fleet, reboot_seconds=reboot_seconds)
        self.agents = SimulatedAgents(self.fleet)
        self.telemetry = SimulatedTelemetry(self.fleet, self.scheduler, seed=seed)
        self._boots = {name: self.fleet.node(name).boot_id for name in self.fleet.names}
        self.workload = Workload(self.scheduler, clock=clock, seed=seed, busy_share=busy_share)
        self.script = FaultScript(faults)
        self.started_at = clock.now()

    def tick(self) -> list[Fault]:
        """Bring everything to the clock's present; the faults that happened now."""
        self.scheduler.tick()
        self.workload.tick()
        self._notice_boots()
        now = self.clock.now()
        happened = list(self.script.due(now - self.started_at))
        for fault in happened:
            fault.apply(self.fleet, self.scheduler, self.telemetry)
            self.script.applied.append((now, fault))
        return happened

    def _notice_boots(self) -> None:
        """A boot resets volatile counters and applies pending row remaps."""
        for name, before in self._boots.items():
            now = self.fleet.node(name).boot_id
            if now != before:
                self._boots[name] = now
                self.telemetry.booted(name)
