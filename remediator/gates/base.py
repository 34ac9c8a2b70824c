"""What a gate is given and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fleet.findings import Finding, GateName, Mode, Step
from fleet.scheduler import NodeRecord
from remediator.policy import Policy, Pool
from remediator.records import AgentContact, IncidentRecord, Lease, Word
from remediator.sight import MetricSight

#: Steps that take something out of service, or disturb what runs: harm a limit may have to stop.
TAKING = (Step.CORDON,)
#: Steps that write to a node or scheduler at all.
WRITING = (
    Step.CORDON,
    Step.REQUEUE,
    Step.RESET_GPU,
    Step.REBOOT,
    Step.POWER_CYCLE,
    Step.UNCORDON,
)


@dataclass(frozen=True, slots=True)
class GateResult:
    """``reason`` is a full sentence either way: why it blocks, or what it saw when it let pass."""

    gate: GateName
    blocks: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendHealth:
    """How the scheduler has answered lately. ``failing_since`` is None when the last call succeeded."""

    failing_since: float | None = None
    last_error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateInput:
    """Everything the gates look at. None means unknown, and unknown blocks.

    ``pool_nodes`` are the pool's members in the scheduler's last answer, ``pool_names`` their names,
    ``pool_unavailable`` those out of service (None: to be counted from ``pool_nodes``);
    ``incidents`` all open ones, ``recent`` those opened within the burst window, closed ones too;
    ``snapshot_at`` when the scheduler last answered in full; ``sight`` what the metric path saw last;
    ``alerts_heard_at`` when Alertmanager last spoke; ``cordons_in_window`` what we cordoned in
    this pool within its rate window.
    """

    incident: IncidentRecord
    policy: Policy
    pool: Pool
    mode: Mode
    mode_source: str
    now: float
    node: NodeRecord | None
    snapshot_at: float | None
    pool_nodes: tuple[NodeRecord, ...] = ()
    pool_names: frozenset[str] = frozenset()
    pool_unavailable: frozenset[str] | None = None
    incidents: tuple[IncidentRecord, ...] = ()
    recent: tuple[IncidentRecord, ...] = ()
    findings: tuple[Finding, ...] = ()
    words: tuple[Word, ...] = ()
    agent: AgentContact | None = None
    sight: MetricSight | None = None
    alerts_heard_at: float | None = None
    cordons_in_window: int = 0
    backend: BackendHealth = BackendHealth()
    lease: Lease | None = None
    holder: str = ""

    def in_pool(self, other: IncidentRecord) -> bool:
        """Its node is in the pool now, or was when it opened: configurations and partitions change."""
        return other.node in self.pool_names or other.pool == self.incident.pool


def blocked(gate: GateName, reason: str) -> GateResult:
    return GateResult(gate, blocks=True, reason=reason)


def passes(gate: GateName, reason: str) -> GateResult:
    return GateResult(gate, blocks=False, reason=reason)


class Gate(Protocol):
    name: GateName

    def applies_to(self, step: Step) -> bool: ...

    def check(self, given: GateInput) -> GateResult: ...
