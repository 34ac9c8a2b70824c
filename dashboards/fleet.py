"""Fleet & SLA overview: is the fleet well, what is wrong, is the promise kept, can this be believed."""

from __future__ import annotations

from dashboards import trust
from dashboards.grafana import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    YELLOW,
    Board,
    Panel,
    Query,
    Row,
    Step,
    stat,
    table,
    timeseries,
)
from dashboards.queries import (
    CLUSTER_VARIABLE,
    POOL_VARIABLE,
    at_least,
    none_is_good,
    of_cluster,
    of_pool,
    once,
    or_zero,
    promised,
    serving,
)
from fleet.metric_names import (
    AVAILABILITY_OBJECTIVE,
)

UID = "sickbay-fleet"
TO_NODE = (
    "/d/sickbay-node?${datasource:queryparam}&${cluster:queryparam}"
    "&var-node=${__value.text}&${__url_time_range}"
)
_UP = "sickbay_build_info"
_VERDICTS = {"healthy": GREEN, "unhealthy": RED, "unknown": GREY}
_STATES = {
    "idle": GREEN,
    "allocated": BLUE,
    "mixed": "light-blue",
    "reserved": "purple",
    "draining": YELLOW,
    "drained": ORANGE,
    "down": RED,
    "rebooting": "light-orange",
    "maintenance": "light-purple",
    "powered_down": "#404040",
    "unknown": GREY,
}


def board() -> Board:
    return Board(
        uid=UID,
        title="Fleet & SLA overview",
        description="Is the fleet well, what is wrong, is the promise kept, and can this be believed.",
        variables=(CLUSTER_VARIABLE, POOL_VARIABLE),
        rows=(
            Row("Now", _now()),
            Row("What is wrong", _wrong()),
            Row("Promise", _promise()),
            *trust.rows(),
        ),
    )


def _now() -> tuple[Panel, ...]:
    nodes = of_pool("sickbay_nodes")
    return (
        stat(
            "Availability",
            "Nodes in service and healthy, over all nodes but those in planned maintenance or powered down. "
            "A node whose state nobody knows does not count as available.",
            unit="percentunit",
            decimals=1,
            query=Query(expr=f"{serving()} / {promised()}"),
            steps=at_least(AVAILABILITY_OBJECTIVE),
        ),
        stat(
            "Nodes",
            "All nodes of the inventory, in the chosen pools.",
            unit="short",
            query=Query(expr=f"sum({nodes})"),
        ),
        stat(
            "Unhealthy",
            "Nodes with a finding against them: sickbay why NODE says which.",
            unit="short",
            query=Query(expr=or_zero(f"sum({of_pool('sickbay_nodes', _verdict('unhealthy'))})", _UP)),
            steps=none_is_good(),
        ),
        stat(
            "Unknown",
            "Nodes nobody reports on: neither healthy nor sick. Nothing is done to them on that account.",
            unit="short",
            query=Query(expr=or_zero(f"sum({of_pool('sickbay_nodes', _verdict('unknown'))})", _UP)),
            steps=none_is_good(ORANGE),
        ),
        stat(
            "Open incidents",
            "Fault episodes that are neither returned, cancelled nor handed over.",
            unit="short",
            query=Query(expr=or_zero(f"sum({of_pool('sickbay_incidents_open')})", _UP)),
            steps=none_is_good(YELLOW),
        ),
        stat(
            "Pages since start",
            "Pages this controller has raised since it started; its log has the text of each.",
            unit="short",
            query=Query(expr=f"sum({of_cluster('sickbay_pages')})"),
            steps=none_is_good(),
        ),
        timeseries(
            "Nodes by state",
            "What the scheduler says. Stacked: the parts make up the whole fleet.",
            unit="short",
            stacked=True,
            minimum=0,
            colors=_STATES,
            queries=[Query(expr=f"sum by (state) ({nodes})", legend="{{state}}")],
        ),
        timeseries(
            "Nodes by verdict",
            "What sickbay says. Stacked like the states. Unknown is neither healthy nor sick.",
            unit="short",
            stacked=True,
            minimum=0,
            colors=_VERDICTS,
            queries=[Query(expr=f"sum by (verdict) ({nodes})", legend="{{verdict}}")],
        ),
    )


def _verdict(word: str) -> str:
    return f'verdict="{word}"'


def _wrong() -> tuple[Panel, ...]:
    return (
        table(
            "Open findings",
            "What sickbay holds against a node or one of its GPUs, by the rule that says so. All pools. "
            "sickbay why NODE gives the sentence, sickbay rules show RULE the reason.",
            unit="short",
            query=Query(expr=f"max by ({_OF_FINDING}) ({once('sickbay_finding')})"),
            columns={
                "cluster": "Cluster",
                "node": "Node",
                "rule": "Rule",
                "severity": "Severity",
                "gpu": "GPU (PCI)",
                "uuid": "UUID",
                "Value": "Open",
            },
            steps=(Step(None, RED),),
            links={"Node": TO_NODE},
            width=24,
        ),
        table(
            "Open incidents by state",
            "Where each open incident stands. sickbay incidents lists them one by one.",
            unit="short",
            query=Query(expr=f"sum by (cluster, pool, state) ({of_pool('sickbay_incidents_open')})"),
            columns={"cluster": "Cluster", "pool": "Pool", "state": "State", "Value": "Incidents"},
        ),
        table(
            "Blocked by gate",
            "Open incidents that a gate keeps from their next step. One incident may be blocked "
            "by several. All pools.",
            unit="short",
            query=Query(expr=f"sum by (cluster, gate) ({once('sickbay_incidents_blocked')})"),
            columns={"cluster": "Cluster", "gate": "Gate", "Value": "Incidents"},
            steps=(Step(None, ORANGE),),
        ),
        table(
            "Nodes that are not well",
            "Nodes by state and verdict, the healthy ones left out.",
            unit="short",
            query=Query(
                expr=f"sum by (cluster, pool, state, verdict) ({of_pool('sickbay_nodes', _NOT_WELL)})",
                instant=True,
            ),
            columns={
                "cluster": "Cluster",
                "pool": "Pool",
                "state": "State",
                "verdict": "Verdict",
                "Value": "Nodes",
            },
            steps=(Step(None, RED),),
        ),
        table(
            "Nodes whose GPUs show a fault",
            "GPUs per node with a failed or pending row remap, uncorrected errors since the driver was "
            "loaded, or a step that their driver asks for. From metrics alone, whatever sickbay makes of it.",
            unit="short",
            query=Query(expr=_faulty()),
            columns={"cluster": "Cluster", "node": "Node", "Value": "GPUs"},
            links={"Node": TO_NODE},
            steps=(Step(None, RED),),
        ),
    )


_OF_FINDING = "cluster, node, rule, severity, gpu, uuid"


def _faulty() -> str:
    signs = (
        "sickbay_gpu_row_remap_failed",
        "sickbay_gpu_row_remap_pending",
        "sickbay_gpu_ecc_uncorrected_volatile_total",
        "sickbay_gpu_recovery_action",
    )
    either = " or ".join(f"{of_cluster(sign)} > 0" for sign in signs)
    return f"count by (cluster, node) (group by (cluster, node, gpu, uuid) ({either}))"


_NOT_WELL = 'verdict!="healthy"'


def _promise() -> tuple[Panel, ...]:
    return (
        timeseries(
            "Availability against the objective",
            "Share of nodes in service and healthy, planned maintenance left out; the line across is the "
            "objective. Counted in nodes, over all pools: a node of eight GPUs weighs as "
            "much as one of four.",
            unit="percentunit",
            minimum=0,
            maximum=1,
            steps=(Step(None, RED), Step(AVAILABILITY_OBJECTIVE, GREEN)),
            queries=[Query(expr=of_cluster("cluster:sickbay_nodes_available:ratio"), legend="{{cluster}}")],
        ),
        timeseries(
            "Burn rate of the error budget",
            "How many times faster than allowed the budget is used, over all pools. Pages at "
            "14.4 (1 h) and 6 (6 h).",
            unit="none",
            minimum=0,
            steps=(Step(None, GREEN), Step(1, YELLOW), Step(6, ORANGE), Step(14.4, RED)),
            queries=[
                Query(
                    expr=f"{of_cluster(f'cluster:sickbay_nodes_unavailable:ratio_avg{window}')}"
                    f" / {_ALLOWANCE:g}",
                    legend=f"{{{{cluster}}}} {window}",
                )
                for window in ("1h", "6h", "3d")
            ],
        ),
    )


_ALLOWANCE = round(1 - AVAILABILITY_OBJECTIVE, 6)
