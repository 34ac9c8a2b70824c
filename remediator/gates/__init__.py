"""The gates: reasons not to act now. Each is a pure check with a name and a sentence, and fails closed.

``evaluate`` runs those that apply to a step. A gate never acts, never waits and never asks the outside:
what it needs is in ``GateInput``, and what is missing there blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleet.findings import GateName, Step
from remediator.gates.base import Gate, GateInput, GateResult
from remediator.gates.human import Cooldown, Hold, ModeGate, Pause
from remediator.gates.limits import Budget, Burst, Rate, Settle
from remediator.gates.scheduler import Backend, ForeignOwner, Freshness, LeaseGate, Maintenance

#: In the order in which a person wants to read them.
ALL_GATES: tuple[Gate, ...] = (
    ModeGate(),
    Pause(),
    Hold(),
    Cooldown(),
    ForeignOwner(),
    Maintenance(),
    Freshness(),
    Settle(),
    Burst(),
    Budget(),
    Rate(),
    Backend(),
    LeaseGate(),
)


def evaluate(step: Step, given: GateInput) -> tuple[GateResult, ...]:
    """The verdict of every gate that applies to ``step``."""
    return tuple(gate.check(given) for gate in ALL_GATES if gate.applies_to(step))


def evaluate_letting_go(given: GateInput) -> tuple[GateResult, ...]:
    """What may keep us from releasing a job that we hold ourselves: no lease, or a scheduler that fails.

    Neither pause nor hold nor observe mode does: they stop what we do to others, and this undoes it.
    """
    return tuple(gate.check(given) for gate in ALL_GATES if gate.name in (GateName.BACKEND, GateName.LEASE))


def blocking(results: Sequence[GateResult]) -> tuple[GateResult, ...]:
    return tuple(result for result in results if result.blocks)


__all__ = ["ALL_GATES", "Gate", "GateInput", "GateResult", "blocking", "evaluate", "evaluate_letting_go"]
