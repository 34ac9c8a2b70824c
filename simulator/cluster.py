"""A whole simulated cluster in one piece, driven by one ``tick``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from fleet.clock import Clock
from simulator.agents import SimulatedAgents
from simulator.faults import Fault, FaultScript
from simulator.fleet import SimulatedFleet
from simulator.kernel_log import LogShape
from simulator.ports import FleetScheduler
from simulator.scheduler import DEFAULT_REBOOT_SECONDS, SimulatedScheduler
from simulator.telemetry import SimulatedTelemetry
from simulator.workload import Workload

S_co = TypeVar("S_co", bound=FleetScheduler, covariant=True)


class ClusterOf(Generic[S_co]):
    """Fleet, some scheduler over it, agents, users and a fault script under the fleet's clock.

    ``started_at`` (epoch seconds) is what ``Fault.at_seconds`` counts from; ``script.applied`` holds
    (time, fault) of what has happened.
    """

    def __init__(
        self,
        fleet: SimulatedFleet,
        scheduler: S_co,
        *,
        seed: int = 1,
        faults: Sequence[Fault] = (),
        busy_share: float = 0.75,
    ) -> None:
        self.clock = fleet.clock
        self.fleet = fleet
        self.scheduler = scheduler
        self.agents = SimulatedAgents(fleet)
        self.telemetry = SimulatedTelemetry(fleet, scheduler, seed=seed)
        self._boots = {name: fleet.node(name).boot_id for name in fleet.names}
        self.workload = Workload(scheduler, clock=self.clock, seed=seed, busy_share=busy_share)
        self.script = FaultScript(faults)
        self.started_at = self.clock.now()

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


#: A cluster of which nobody needs to know whose semantics its scheduler has.
AnyCluster = ClusterOf[FleetScheduler]


class SimulatedCluster(ClusterOf[SimulatedScheduler]):
    """The one with Slurm's semantics."""

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
        fleet = SimulatedFleet(
            clock=clock, nodes=nodes, gpus_per_node=gpus_per_node, seed=seed, log_shape=log_shape
        )
        scheduler = SimulatedScheduler(fleet, reboot_seconds=reboot_seconds)
        super().__init__(fleet, scheduler, seed=seed, faults=faults, busy_share=busy_share)
