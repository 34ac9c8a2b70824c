"""Can the board be believed: how fresh is what it shows, and does sickbay itself keep up."""

from __future__ import annotations

from dashboards.grafana import (
    GREEN,
    ORANGE,
    RED,
    YELLOW,
    Panel,
    Query,
    Row,
    Step,
    stat,
    timeseries,
    value_names,
)
from dashboards.queries import age, at_most, none_is_good, of_cluster, once, or_zero
from fleet.metric_names import (
    STALE_AGENT_SECONDS,
    STALE_EVALUATION_SECONDS,
    STALE_PASS_SECONDS,
    STALE_SCHEDULER_SECONDS,
)


def rows() -> tuple[Row, ...]:
    return (Row("Can this be believed", _loop()), Row("Metric path", _metric_path()))


def _loop() -> tuple[Panel, ...]:
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


def _metric_path() -> tuple[Panel, ...]:
    up, judged = once("sickbay_scrape_target_up"), once("sickbay_rule_targets_judged")
    evaluated = of_cluster("sickbay_metric_last_evaluation_timestamp_seconds")
    return (
        stat(
            "Last evaluation",
            "Age of the last evaluation of the metric rules. No data where the controller scrapes nothing "
            "itself: then Prometheus evaluates them.",
            unit="s",
            query=Query(expr=f"time() - max({evaluated} > 0)"),
            steps=at_most(STALE_EVALUATION_SECONDS),
        ),
        stat(
            "Exporters that answer",
            "Share of the scraped exporters that gave samples in the last pass. A silent node is unknown.",
            unit="percentunit",
            decimals=1,
            query=Query(expr=f"avg({up})"),
            steps=(Step(None, RED), Step(0.9, YELLOW), Step(1, GREEN)),
        ),
        stat(
            "Rules that see nothing",
            "Metric rules that could judge none of their targets just now: the signal is not reported, or "
            "they look at busy GPUs and none is busy.",
            unit="short",
            query=Query(
                expr=or_zero(
                    f"count({once('sickbay_rule_targets')} > 0 unless {judged} > 0)",
                    "sickbay_rule_targets",
                )
            ),
            steps=none_is_good(ORANGE),
        ),
        timeseries(
            "Exporters without an answer",
            "Of those the controller scrapes itself.",
            unit="short",
            minimum=0,
            queries=[Query(expr=f"sum by (cluster) (1 - {up})", legend="{{cluster}} silent")],
        ),
        timeseries(
            "Duration of a pass over all exporters",
            "Median and 99th percentile. Near the interval of scraping the controller is at its limit.",
            unit="s",
            minimum=0,
            queries=[
                Query(
                    expr=f"histogram_quantile({quantile}, "
                    f"{_rate('sickbay_scrape_pass_duration_seconds_bucket', 'le')})",
                    legend=legend,
                )
                for quantile, legend in ((0.5, "p50"), (0.99, "p99"))
            ],
        ),
        timeseries(
            "Evaluations of metric rules",
            "Those that ran, were put off since the one before was not stored yet, or ended in an error.",
            unit="cps",
            minimum=0,
            queries=[
                Query(expr=_rate("sickbay_metric_evaluations_total"), legend="evaluated"),
                Query(expr=_rate("sickbay_metric_evaluations_postponed_total"), legend="put off"),
                Query(expr=_rate("sickbay_metric_evaluation_failures_total"), legend="failed"),
            ],
        ),
        timeseries(
            "Share of targets a rule could judge",
            "By rule. Rules on busy GPUs judge busy GPUs only.",
            unit="percentunit",
            minimum=0,
            maximum=1,
            queries=[
                Query(
                    expr=f"sum by (rule) ({judged}) / (sum by (rule) ({once('sickbay_rule_targets')}) > 0)",
                    legend="{{rule}}",
                )
            ],
        ),
    )
