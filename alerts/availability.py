"""Availability of the fleet, and its error budget by burn rates (Google's SRE workbook, chapter 5).

A burn rate can exceed a factor f only where the objective is above 1 - 1/f: with 14.4, above 93.06 %.
"""

from __future__ import annotations

from dataclasses import dataclass

from alerts.model import Alert, Group, Recording, runbook
from fleet.findings import Severity
from fleet.metric_names import AVAILABILITY_OBJECTIVE, BURN_WINDOWS, PLANNED_STATES, SERVING_STATES

INTERVAL_SECONDS = 30.0
AVAILABLE = "cluster:sickbay_nodes_available:ratio"
NAME = "FleetErrorBudgetBurn"


@dataclass(frozen=True, slots=True)
class Burn:
    """Both windows burn faster than ``factor``: the long one is the evidence, the short one the present."""

    factor: float
    long: str
    short: str
    severity: Severity


BURNS = (
    Burn(14.4, "1h", "5m", Severity.CRITICAL),
    Burn(6.0, "6h", "30m", Severity.CRITICAL),
    Burn(3.0, "1d", "2h", Severity.WARNING),
    Burn(1.0, "3d", "6h", Severity.WARNING),
)


def group() -> Group:
    """The ratio, its means over the windows, and one alert per burn rate."""
    return Group(
        name="sickbay-availability",
        interval_seconds=INTERVAL_SECONDS,
        rules=(
            Recording(record=AVAILABLE, expr=_available()),
            *(
                Recording(record=unavailable(window), expr=f"1 - avg_over_time({AVAILABLE}[{window}])")
                for window in BURN_WINDOWS
            ),
            *(_alert(burn) for burn in BURNS if 1 - 1 / burn.factor < AVAILABILITY_OBJECTIVE),
        ),
    )


def unavailable(window: str) -> str:
    return f"cluster:sickbay_nodes_unavailable:ratio_avg{window}"


def _available() -> str:
    # A standby exports the same nodes: both count once. No healthy node at all is a zero, not a gap.
    nodes = "max without (instance, pod) (sickbay_nodes{%s})"
    serving = nodes % f'verdict="healthy", state=~"{SERVING_STATES}"'
    promised = "sum by (cluster) (" + nodes % f'state!~"{PLANNED_STATES}"' + ")"
    return f"(\n  sum by (cluster) ({serving})\n  or 0 * {promised}\n)\n/ {promised}"


def _alert(burn: Burn) -> Alert:
    limit = round(burn.factor * (1 - AVAILABILITY_OBJECTIVE), 6)
    return Alert(
        name=NAME,
        expr=f"{unavailable(burn.long)} > {limit:g}\nand {unavailable(burn.short)} > {limit:g}",
        severity=burn.severity,
        summary="The fleet is unavailable more than its objective allows.",
        description=(
            f"Availability of {{{{ $labels.cluster }}}} over {burn.long} and {burn.short} uses the error "
            f"budget {burn.factor:g} times faster than allowed."
        ),
        runbook=runbook(NAME),
        labels={"long": burn.long, "short": burn.short},
    )
