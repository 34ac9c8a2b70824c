"""Scripted faults with known truth. A fault is data; ``apply`` makes it happen in a simulated cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from simulator.fleet import SimulatedFleet
from simulator.ports import FleetScheduler
from simulator.telemetry import SimulatedTelemetry


class FaultKind(StrEnum):
    """XID: a driver message of any code. GPU_LOST: XID 79, and the GPU is gone until a reboot at least.

    APP_XID: one job's own mistake (XID 31, say) on every GPU it holds on the node; the job fails.
    """

    XID = "xid"
    GPU_LOST = "gpu_lost"
    APP_XID = "app_xid"
    AGENT_SILENT = "agent_silent"
    ADMIN_DRAIN = "admin_drain"
    SCHEDULER_AWAY = "scheduler_away"
    HEAT = "heat"
    POWER_BRAKE = "power_brake"
    ECC_UNCORRECTED = "ecc_uncorrected"
    ROW_REMAP_FAILED = "row_remap_failed"
    EXPORTER_AWAY = "exporter_away"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One scripted fault. ``at_seconds`` counts from the script's start; ``scene`` names it for people.

    ``expected`` is the truth to compare with: what the service should do about it, in the script
    author's words. Fields that a kind doesn't use are ignored: ``code``, ``gpu_index``, ``message``,
    ``process`` (XIDs), ``back_after_reboot`` (GPU_LOST), ``seconds`` (silence, absence), ``reason`` and
    ``user`` (ADMIN_DRAIN). ``node`` is ignored by SCHEDULER_AWAY only.
    """

    at_seconds: float
    node: str
    scene: str
    kind: FaultKind
    expected: str = ""
    gpu_index: int = 0
    code: int = 79
    message: str | None = None
    process: str = "python3"
    back_after_reboot: bool = True
    seconds: float = 0.0
    reason: str = ""
    user: str = "root"

    def apply(self, fleet: SimulatedFleet, scheduler: FleetScheduler, telemetry: SimulatedTelemetry) -> None:
        """Make it happen now."""
        if not self._on_telemetry(telemetry):
            self._on_cluster(fleet, scheduler)

    def _on_telemetry(self, telemetry: SimulatedTelemetry) -> bool:
        """True when the fault is one that only the metrics show."""
        match self.kind:
            case FaultKind.HEAT:
                telemetry.slow_by_heat(self.node, self.gpu_index, self.seconds)
            case FaultKind.POWER_BRAKE:
                telemetry.brake_power(self.node, self.gpu_index, self.seconds)
            case FaultKind.ECC_UNCORRECTED:
                telemetry.add_uncorrected_errors(self.node, self.gpu_index)
            case FaultKind.ROW_REMAP_FAILED:
                telemetry.fail_row_remap(self.node, self.gpu_index)
            case FaultKind.EXPORTER_AWAY:
                telemetry.exporter_away(self.node, self.seconds)
            case _:
                return False
        return True

    def _on_cluster(self, fleet: SimulatedFleet, scheduler: FleetScheduler) -> None:
        match self.kind:
            case FaultKind.XID:
                fleet.log_xid(
                    self.node, self.gpu_index, self.code, message=self.message, process=self.process
                )
            case FaultKind.GPU_LOST:
                fleet.lose_gpu(self.node, self.gpu_index, back_after_reboot=self.back_after_reboot)
            case FaultKind.APP_XID:
                self._fail_job(fleet, scheduler)
            case FaultKind.AGENT_SILENT:
                fleet.silence_agent(self.node, self.seconds)
            case FaultKind.ADMIN_DRAIN:
                scheduler.admin_drain(self.node, self.reason, self.user)
            case FaultKind.SCHEDULER_AWAY:
                scheduler.be_unavailable(self.seconds)

    def _fail_job(self, fleet: SimulatedFleet, scheduler: FleetScheduler) -> None:
        jobs = scheduler.jobs_on(self.node)
        gpus = jobs[0].gpus_per_node if jobs else 1
        for index in range(max(1, gpus)):
            fleet.log_xid(self.node, index, self.code, message=self.message, process=self.process, pid=41_177)
        if jobs:
            scheduler.fail_job(jobs[0].id)


@dataclass(slots=True)
class FaultScript:
    """Faults in order of time; ``due`` gives each one once."""

    faults: Sequence[Fault]
    applied: list[tuple[float, Fault]] = field(default_factory=list)
    _waiting: list[Fault] = field(init=False)

    def __post_init__(self) -> None:
        self._waiting = sorted(self.faults, key=lambda fault: fault.at_seconds)

    def due(self, elapsed_seconds: float) -> Iterable[Fault]:
        """The faults whose time has come and that were not given yet."""
        ready = [fault for fault in self._waiting if fault.at_seconds <= elapsed_seconds]
        self._waiting = self._waiting[len(ready) :]
        return ready

    @property
    def finished(self) -> bool:
        return not self._waiting
