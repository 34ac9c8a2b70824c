"""Findings, incidents' closed lists, modes: the words of decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


class Response(StrEnum):
    """What a finding asks for, weakest first. DRAIN: requeue now; CORDON_AFTER_JOB: let jobs finish."""

    OBSERVE = "observe"
    NOTIFY = "notify"
    RESET_WHEN_IDLE = "reset_when_idle"
    CORDON_AFTER_JOB = "cordon_after_job"
    DRAIN = "drain"

    @property
    def rank(self) -> int:
        return list(Response).index(self)

    @property
    def acts(self) -> bool:
        """True when this response changes the scheduler."""
        return self.rank >= Response.RESET_WHEN_IDLE.rank


class Repair(StrEnum):
    """The repair ladder, gentlest first."""

    NONE = "none"
    RESET_GPU = "reset_gpu"
    REBOOT = "reboot"
    POWER_CYCLE = "power_cycle"
    HAND_OVER = "hand_over"

    @property
    def rank(self) -> int:
        return list(Repair).index(self)


class Mode(StrEnum):
    """A ceiling: the effective mode is the most cautious of cluster, pool and rule."""

    OBSERVE = "observe"
    APPROVE = "approve"
    AUTO = "auto"

    @property
    def rank(self) -> int:
        return list(Mode).index(self)


def most_cautious(*modes: Mode | None) -> Mode:
    """The lowest ceiling of those given (None: no say); OBSERVE when nobody says anything."""
    given = [mode for mode in modes if mode is not None]
    return min(given, key=lambda mode: mode.rank, default=Mode.OBSERVE)


class ClearOn(StrEnum):
    """How a finding ends. Never by silence, and never by our restart."""

    BELOW_THRESHOLD_FOR = "below_threshold_for"
    RECOVERY_ACTION_NONE = "recovery_action_none"
    NEW_EPOCH_AND_GPU_COUNT = "new_epoch_and_gpu_count"
    VERIFIED = "verified"
    CLOSING_EVENT = "closing_event"
    OPERATOR = "operator"


class Verdict(StrEnum):
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    UNKNOWN = "unknown"


class IncidentState(StrEnum):
    SUSPECTED = "suspected"
    CONFIRMED = "confirmed"
    AWAITING_APPROVAL = "awaiting_approval"
    CORDONING = "cordoning"
    DRAINING = "draining"
    DRAINED = "drained"
    REPAIRING = "repairing"
    VERIFYING = "verifying"
    PROBATION = "probation"
    RETURNED = "returned"
    CANCELLED = "cancelled"
    HANDED_OVER = "handed_over"

    @property
    def is_closed(self) -> bool:
        return self in (IncidentState.RETURNED, IncidentState.CANCELLED, IncidentState.HANDED_OVER)

    @property
    def holds_node(self) -> bool:
        """We keep (or are about to keep) the node out of service in this state."""
        return self in (
            IncidentState.CORDONING,
            IncidentState.DRAINING,
            IncidentState.DRAINED,
            IncidentState.REPAIRING,
            IncidentState.VERIFYING,
        )


class Step(StrEnum):
    CORDON = "cordon"
    DRAIN = "drain"
    REQUEUE = "requeue"
    RESET_GPU = "reset_gpu"
    REBOOT = "reboot"
    POWER_CYCLE = "power_cycle"
    VERIFY = "verify"
    UNCORDON = "uncordon"
    HAND_OVER = "hand_over"


class GateName(StrEnum):
    MODE = "mode"
    BUDGET = "budget"
    RATE = "rate"
    BURST = "burst"
    SETTLE = "settle"
    FRESHNESS = "freshness"
    FOREIGN_OWNER = "foreign_owner"
    MAINTENANCE = "maintenance"
    COOLDOWN = "cooldown"
    HOLD = "hold"
    PAUSE = "pause"
    LEASE = "lease"
    BACKEND = "backend"
    CAPACITY = "capacity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A rule holds for a target, since when, with evidence.

    ``boot_id`` is the epoch it belongs to: a finding of an earlier boot never triggers. ``source`` says
    who reported it (``agent``, ``alertmanager``): the freshness gate judges that source.
    """

    id: str
    rule: str
    kind: str
    node: str
    severity: Severity
    response: Response
    repair: Repair
    clear_on: ClearOn
    since: float
    mode: Mode = Mode.AUTO
    gpu: str | None = None
    uuid: str | None = None
    boot_id: str | None = None
    source: str = "agent"
    sentence: str = ""
    evidence: Mapping[str, object] = field(default_factory=dict)
