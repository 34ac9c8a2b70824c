"""The promise and its error budget."""

from __future__ import annotations

from alerts.scenarios.words import Expect, Labels, Scenario, Value


def availability() -> tuple[Scenario, ...]:
    """Twenty nodes in each cluster; so many of them are down, after five minutes without fault."""
    down = {"a": 18, "b": 8, "c": 4, "d": 2, "e": 1}
    series: dict[str, str] = {}
    for cluster, count in down.items():
        at = f'cluster="{cluster}", pool="gpu", instance="sickbay:8470"'
        series[f'sickbay_nodes{{{at}, state="idle", verdict="healthy"}}'] = f"20x5 {20 - count}x420"
        series[f'sickbay_nodes{{{at}, state="down", verdict="unhealthy"}}'] = f"0x5 {count}x420"
        # Planned work and a standby's copy change nothing.
        series[f'sickbay_nodes{{{at}, state="maintenance", verdict="unknown"}}'] = "7x425"
    standby = 'cluster="e", pool="gpu", instance="standby:8470"'
    series[f'sickbay_nodes{{{standby}, state="idle", verdict="healthy"}}'] = "20x5 19x420"
    fast = _burns("1h", "5m"), _burns("6h", "30m")
    slow = _burns("1d", "2h"), _burns("3d", "6h")
    return (
        Scenario(
            name="burn rates of 18, 8, 4, 2 and 1 times the allowance",
            step_seconds=60,
            series=series,
            expects=(
                Expect(alert="FleetErrorBudgetBurn", at=240),
                Expect(
                    alert="FleetErrorBudgetBurn",
                    at=25_200,
                    firing=tuple(
                        {"cluster": cluster, **windows}
                        for cluster, burning in (
                            ("a", (*fast, *slow)),
                            ("b", (fast[1], *slow)),
                            ("c", slow),
                            ("d", slow[1:]),
                        )
                        for windows in burning
                    ),
                ),
            ),
            values=(
                Value(
                    expr="cluster:sickbay_nodes_available:ratio",
                    at=21_600,
                    samples={
                        f'cluster:sickbay_nodes_available:ratio{{cluster="{cluster}"}}': (20 - count) / 20
                        for cluster, count in down.items()
                    },
                ),
            ),
        ),
        Scenario(
            name="no healthy node is an availability of zero, no node at all is no data",
            series={
                'sickbay_nodes{cluster="a", pool="gpu", state="down", verdict="unhealthy"}': "4x10",
                'sickbay_nodes{cluster="b", pool="gpu", state="maintenance", verdict="unknown"}': "4x10",
            },
            values=(
                Value(
                    expr="cluster:sickbay_nodes_available:ratio",
                    at=120,
                    samples={'cluster:sickbay_nodes_available:ratio{cluster="a"}': 0},
                ),
            ),
        ),
    )


def _burns(long: str, short: str) -> Labels:
    return {"long": long, "short": short}
