"""Fleet & SLA overview: is the fleet well, what is wrong, is the promise kept, can this be believed."""

from __future__ import annotations

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
    value_names,
)
from dashboards.queries import (
    CLUSTER_VARIABLE,
    age,
    at_least,
    at_most,
    none_is_good,
    of_cluster,
    once,
    or_zero,
    promised,
    serving,
)
from fleet.metric_names import (
    AVAILABILITY_OBJECTIVE,
    STALE_AGENT_SECONDS,
    STALE_PASS_SECONDS,
    STALE_SCHEDULER_SECONDS,
)

UID = "sickbay-fleet"
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
        variables=(CLUSTER_VARIABLE,),
        rows=(
            Row("Now", _now()),
            Row("What is wrong", _wrong()),
            Row("Promise", _promise()),
            Row("Can this be believed", _trust()),
        ),
    )


def _now() -> tuple[Panel, ...]:
    nodes = once("sickbay_nodes")
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
            "All nodes of the inventory.",
            unit="short",
            query=Query(expr=f"sum({nodes})", instant=True),
        ),
        stat(
            "Unhealthy",
            "Nodes with a finding against them: sickbay why NODE says which.",
            unit="short",
            query=Query(expr=or_zero(f"sum({once('sickbay_nodes', _verdict('unhealthy'))})", _UP)),
            steps=none_is_good(),
        ),
        stat(
            "Unknown",
            "Nodes nobody reports on: neither healthy nor sick. Nothing is done to them on that account.",
            unit="short",
            query=Query(expr=or_zero(f"sum({once('sickbay_nodes', _verdict('unknown'))})", _UP)),
            steps=none_is_good(ORANGE),
        ),
        stat(
            "Open incidents",
            "Fault episodes that are neither returned, cancelled nor handed over.",
            unit="short",
            query=Query(expr=or_zero(f"sum({once('sickbay_incidents_open')})", _UP)),
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
            "What the scheduler says, all pools. Stacked: the parts make up the whole fleet.",
            unit="short",
            stacked=True,
            minimum=0,
            colors=_STATES,
            queries=[Query(expr=f"sum by (state) ({nodes})", legend="{{state}}")],
        ),
        timeseries(
            "Nodes by verdict",
            "What sickbay says, all pools. Stacked like the states. Unknown is neither healthy nor sick.",
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
            "Open incidents by state",
            "Where each open incident stands. sickbay incidents lists them one by one.",
            unit="short",
            query=Query(
                expr=f"sum by (cluster, pool, state) ({once('sickbay_incidents_open')})", instant=True
            ),
            columns={"cluster": "Cluster", "pool": "Pool", "state": "State", "Value": "Incidents"},
        ),
        table(
            "Blocked by gate",
            "Open incidents that a gate keeps from their next step. One incident may be blocked by several.",
            unit="short",
            query=Query(expr=f"sum by (cluster, gate) ({once('sickbay_incidents_blocked')})", instant=True),
            columns={"cluster": "Cluster", "gate": "Gate", "Value": "Incidents"},
            steps=(Step(None, ORANGE),),
        ),
        table(
            "Nodes that are not well",
            "Nodes by state and verdict, the healthy ones left out.",
            unit="short",
            query=Query(
                expr=f"sum by (cluster, pool, state, verdict) ({once('sickbay_nodes', _NOT_WELL)})",
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
            query=Query(expr=_faulty(), instant=True),
            columns={"cluster": "Cluster", "node": "Node", "Value": "GPUs"},
            links={
                "Node": "/d/sickbay-node?${cluster:queryparam}&var-node=${__value.text}&${__url_time_range}"
            },
            steps=(Step(None, RED),),
        ),
    )


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
            "objective. Counted in nodes: a fleet of mixed sizes weighs each node the same here.",
            unit="percentunit",
            minimum=0,
            maximum=1,
            steps=(Step(None, RED), Step(AVAILABILITY_OBJECTIVE, GREEN)),
            queries=[Query(expr=of_cluster("cluster:sickbay_nodes_available:ratio"), legend="{{cluster}}")],
        ),
        timeseries(
            "Burn rate of the error budget",
            "How many times faster than allowed the budget is used. Pages at 14.4 (1 h) and 6 (6 h).",
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


def _trust() -> tuple[Panel, ...]:
    return (
        stat(
            "Last pass",
            "Age of the control loop's last pass. Above the limit nothing is decided.",
            unit="s",
            query=Query(expr=age("sickbay_last_pass_timestamp_seconds")),
            steps=at_most(STALE_PASS_SECONDS),
        ),
        stat(
            "Scheduler last read",
            "Age of the scheduler's last full answer. Above the limit every state on this board is old.",
            unit="s",
            query=Query(expr=age("sickbay_scheduler_last_read_timestamp_seconds")),
            steps=at_most(STALE_SCHEDULER_SECONDS),
        ),
        stat(
            "Agents heard",
            f"Agents whose last push was answered within {STALE_AGENT_SECONDS:.0f} s, of those Prometheus "
            "scrapes. An agent that is gone shows as an unknown node above.",
            unit="short",
            query=Query(
                expr=f"count(time() - {of_cluster('sickbay_agent_last_push_timestamp_seconds')}"
                f" < {STALE_AGENT_SECONDS:g})"
            ),
        ),
        stat(
            "Oldest agent push",
            "The agent that has been without an answer the longest.",
            unit="s",
            query=Query(
                expr=f"time() - min({of_cluster('sickbay_agent_last_push_timestamp_seconds')})",
            ),
            steps=at_most(STALE_AGENT_SECONDS),
        ),
        stat(
            "Leader",
            "Controllers that hold the lease: exactly one is right.",
            unit="short",
            query=Query(expr=f"sum({of_cluster('sickbay_leader')})"),
            steps=(Step(None, RED), Step(1, GREEN), Step(2, RED)),
            mappings=(value_names({0: ("none", RED)}),),
        ),
        stat(
            "Inbox",
            "Stored pushes that are not weighed yet: above zero for long means a loop that does not keep up.",
            unit="short",
            query=Query(expr=f"sum({of_cluster('sickbay_inbox_pending')})"),
            steps=(Step(None, GREEN), Step(100, YELLOW), Step(1000, RED)),
        ),
        *_trends(),
    )


def _trends() -> tuple[Panel, ...]:
    return (
        timeseries(
            "Events and alerts at the door",
            "What agents and Alertmanager pushed, by what became of it. Duplicates are repeats that were "
            "already stored; rejected ones stand in the sender's log.",
            unit="cps",
            minimum=0,
            queries=[
                Query(expr=_rate("sickbay_events_received_total", "result"), legend="events {{result}}"),
                Query(expr=_rate("sickbay_alerts_received_total", "result"), legend="alerts {{result}}"),
            ],
        ),
        timeseries(
            "Duration of a pass",
            "Median and 99th percentile of the control loop's passes.",
            unit="s",
            minimum=0,
            queries=[
                Query(
                    expr=f"histogram_quantile({quantile}, "
                    f"{_rate('sickbay_pass_duration_seconds_bucket', 'le')})",
                    legend=legend,
                )
                for quantile, legend in ((0.5, "p50"), (0.99, "p99"))
            ],
        ),
        timeseries(
            "Failures of our own",
            "Passes that ended in an error, scheduler reads that failed, pushes of agents without an answer.",
            unit="cps",
            minimum=0,
            queries=[
                Query(expr=_rate("sickbay_pass_failures_total"), legend="passes"),
                Query(expr=_rate("sickbay_scheduler_read_failures_total"), legend="scheduler reads"),
                Query(expr=_rate("sickbay_agent_push_failures_total", "reason"), legend="pushes {{reason}}"),
            ],
        ),
        timeseries(
            "From kernel line to answer",
            "How long an event took from the kernel log line to the controller's answer, all agents.",
            unit="s",
            minimum=0,
            queries=[
                Query(
                    expr=f"histogram_quantile({quantile}, "
                    f"{_rate('sickbay_agent_line_to_push_seconds_bucket', 'le')})",
                    legend=legend,
                )
                for quantile, legend in ((0.5, "p50"), (0.99, "p99"))
            ],
        ),
    )


def _rate(counter: str, by: str = "") -> str:
    grouping = f" by ({by})" if by else ""
    return f"sum{grouping} (rate({of_cluster(counter)}[$__rate_interval]))"
