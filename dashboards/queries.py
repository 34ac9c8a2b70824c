"""Selectors and thresholds that the boards share."""

from __future__ import annotations

from dashboards.grafana import GREEN, RED, YELLOW, Step, Variable
from fleet.metric_names import PLANNED_STATES, SERVING_STATES

CLUSTER = 'cluster=~"$cluster"'
NODE = f'{CLUSTER},node=~"$node"'

CLUSTER_VARIABLE = Variable(
    name="cluster",
    label="Cluster",
    query="label_values(sickbay_build_info, cluster)",
    matches_absent=True,
)


POOL = 'pool=~"$pool"'
POOL_VARIABLE = Variable(
    name="pool",
    label="Pool",
    query=f"label_values(sickbay_nodes{{{CLUSTER}}}, pool)",
    matches_absent=True,
)


def of_cluster(metric: str, matchers: str = "") -> str:
    """``metric`` in the chosen clusters."""
    return f"{metric}{{{CLUSTER}{',' if matchers else ''}{matchers}}}"


def once(metric: str, matchers: str = "") -> str:
    """A fleet number in the chosen clusters. A leader and a standby export the same: each counts once."""
    return f"max without (instance, pod) ({of_cluster(metric, matchers)})"


def of_pool(metric: str, matchers: str = "") -> str:
    """``once``, in the chosen pools: for what is counted by pool."""
    return once(metric, f"{POOL}{',' if matchers else ''}{matchers}")


def of_node(metric: str, matchers: str = "") -> str:
    """``metric`` on the chosen nodes."""
    return f"{metric}{{{NODE}{',' if matchers else ''}{matchers}}}"


def promised() -> str:
    """How many nodes the promise is about: all but those in planned maintenance or powered down."""
    planned = f'state!~"{PLANNED_STATES}"'
    return f"sum({of_pool('sickbay_nodes', planned)})"


def serving() -> str:
    """How many of them are in service and healthy; none is a zero, not a gap."""
    healthy = f'verdict="healthy",state=~"{SERVING_STATES}"'
    return f"(sum({of_pool('sickbay_nodes', healthy)}) or 0 * {promised()})"


def age(metric: str) -> str:
    """Seconds since the newest of a ``_timestamp_seconds`` in the chosen clusters."""
    return f"time() - max({of_cluster(metric)})"


def or_zero(expression: str, witness: str) -> str:
    """Zero where nothing matches although ``witness`` is there; no data where that is absent too.

    A gauge built per scrape has no series for what does not occur: with the controller up that is a zero,
    with the controller away it is unknown.
    """
    return f"{expression} or 0 * max({of_cluster(witness)})"


def at_most(limit: float) -> tuple[Step, ...]:
    """Green below ``limit``, red from there."""
    return (Step(None, GREEN), Step(limit, RED))


def none_is_good(color: str = RED) -> tuple[Step, ...]:
    """Green at zero, ``color`` from one on."""
    return (Step(None, GREEN), Step(1, color))


def at_least(objective: float) -> tuple[Step, ...]:
    """Green from the objective on, yellow while less than twice its allowance is used, red below."""
    return (Step(None, RED), Step(round(1 - 2 * (1 - objective), 6), YELLOW), Step(objective, GREEN))
