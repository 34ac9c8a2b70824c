"""How a step ended: what hands and commands give back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet.scheduler import NodeRecord
from remediator.records import Outcome


@dataclass(frozen=True, slots=True)
class StepResult:
    """How a step ended. ``node`` is the node as read back, where it was, ``at`` when (epoch seconds)."""

    outcome: Outcome
    reason: str
    node: NodeRecord | None = None
    payload: Mapping[str, object] = field(default_factory=dict)
    at: float | None = None
