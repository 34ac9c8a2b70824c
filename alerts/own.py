"""Alerts about sickbay itself: is it there, does it see, does it decide, does it wait for somebody."""

from __future__ import annotations

from collections.abc import Iterator

from alerts.model import HOLD_SECONDS, Alert, Group, runbook
from fleet.findings import Severity
from fleet.metric_names import (
    PLANNED_STATES,
    STALE_AGENT_SECONDS,
    STALE_EVALUATION_SECONDS,
    STALE_PASS_SECONDS,
    STALE_SCHEDULER_SECONDS,
)

INTERVAL_SECONDS = 15.0
WATCHDOG = "SickbayWatchdog"
DOWN = "SickbayDown"
FINDING = "SickbayFinding"
_UP = "group by (cluster) (sickbay_build_info)"
_SEEN = "group by (cluster) (last_over_time(sickbay_build_info[6h]))"


def group() -> Group:
    return Group(
        name="sickbay-self",
        interval_seconds=INTERVAL_SECONDS,
        rules=(_watchdog(), *_controller(), *_eyes(), *_metric_path(), *_findings(), *_waiting()),
    )


def _alert(
    name: str,
    severity: Severity,
    expr: str,
    summary: str,
    description: str,
    *,
    after: float = 0.0,
    hold: float = 0.0,
) -> Alert:
    return Alert(
        name=name,
        expr=expr,
        severity=severity,
        summary=summary,
        description=description,
        runbook=runbook(name),
        for_seconds=after,
        keep_firing_seconds=hold,
    )


def _one(metric: str) -> str:
    """A leader and a standby export the same fleet: each number once."""
    return f"max without (instance, pod) ({metric})"


def _watchdog() -> Alert:
    return _alert(
        WATCHDOG,
        Severity.INFO,
        "vector(1)",
        "The alerting path works.",
        "This alert always fires. A receiver outside that stops hearing it knows that alerting is broken.",
    )


def _controller() -> tuple[Alert, ...]:
    return (
        _alert(
            DOWN,
            Severity.CRITICAL,
            f"({_SEEN} unless on (cluster) {_UP})\nor (absent(sickbay_build_info) unless on () {_SEEN})",
            "No sickbay controller answers.",
            "Prometheus has no metrics of a controller in {{ $labels.cluster }}: no fault is acted on.",
            after=120,
        ),
        _alert(
            "SickbayLoopNotPassing",
            Severity.CRITICAL,
            f"time() - max by (cluster) (sickbay_last_pass_timestamp_seconds) > {STALE_PASS_SECONDS:g}",
            "The control loop does not pass.",
            "The controller of {{ $labels.cluster }} answers but completes no pass: it decides nothing.",
            after=60,
        ),
        _alert(
            "SickbayPassesFail",
            Severity.WARNING,
            "sum by (cluster) (increase(sickbay_pass_failures_total[10m])) > 2.5",
            "Passes of the control loop end in errors.",
            "Passes in {{ $labels.cluster }} failed within ten minutes; the controller's log says why.",
            hold=HOLD_SECONDS,
        ),
        _alert(
            "SickbayNoLeader",
            Severity.CRITICAL,
            "sum by (cluster) (sickbay_leader) < 0.5",
            "No controller holds the lease.",
            "Controllers of {{ $labels.cluster }} run, but none may act.",
            after=120,
        ),
        _alert(
            "SickbayPaged",
            Severity.CRITICAL,
            # A gauge that starts at 0 with the process and only grows: increase reads restarts right.
            "sum by (cluster) (increase(sickbay_pages[10m])) > 0.5",
            "sickbay asks for a person.",
            "The controller of {{ $labels.cluster }} has raised a page; its log has the text.",
        ),
        _alert(
            "SickbayInboxBacklog",
            Severity.WARNING,
            "min_over_time(sickbay_inbox_pending[10m]) > 100",
            "Stored pushes wait to be weighed.",
            "More than 100 pushes have waited for ten minutes in {{ $labels.cluster }}: the loop is behind.",
        ),
    )


def _eyes() -> tuple[Alert, ...]:
    silent = f"time() - sickbay_agent_last_push_timestamp_seconds > {STALE_AGENT_SECONDS:g}"
    return (
        _alert(
            "SickbaySchedulerNotRead",
            Severity.CRITICAL,
            "time() - max by (cluster) (sickbay_scheduler_last_read_timestamp_seconds) > "
            f"{STALE_SCHEDULER_SECONDS:g}",
            "The scheduler has not answered for long.",
            "What the controller of {{ $labels.cluster }} knows of nodes is old: it acts on nothing.",
            after=60,
        ),
        _alert(
            "SickbayAgentSilent",
            Severity.WARNING,
            # An agent that was never answered has no such timestamp: it is silent as well.
            f"({silent})\nor (max without (version) (sickbay_agent_build_info)"
            " unless on (cluster, instance) sickbay_agent_last_push_timestamp_seconds)",
            "An agent's pushes are not answered.",
            "The agent at {{ $labels.instance }} ({{ $labels.node }}) runs, but is not heard.",
            after=120,
            hold=HOLD_SECONDS,
        ),
        _alert(
            "SickbayNodesUnknown",
            Severity.WARNING,
            "sum by (cluster, pool) ("
            + _one(f'sickbay_nodes{{verdict="unknown", state!~"{PLANNED_STATES}"}}')
            + ") > 0",
            "Nodes are unknown: nobody reports on them.",
            "Nodes of pool {{ $labels.pool }} in {{ $labels.cluster }} are neither known healthy nor sick.",
            after=600,
        ),
        _alert(
            "SickbayEventsDropped",
            Severity.WARNING,
            "increase(sickbay_agent_spool_dropped_events_total[1h]) > 0.5",
            "An agent gave up events.",
            "The spool of the agent at {{ $labels.instance }} ({{ $labels.node }}) was full.",
        ),
        _alert(
            "SickbayEventsRejected",
            Severity.WARNING,
            'sum by (cluster) (increase(sickbay_events_received_total{result="rejected"}[1h])) > 0.5',
            "The controller refuses events.",
            "Events pushed in {{ $labels.cluster }} were refused for good; the agents' logs say why.",
        ),
    )


def _metric_path() -> tuple[Alert, ...]:
    up = _one("sickbay_scrape_target_up")
    judged = _one("max_over_time(sickbay_rule_targets_judged[1d])")
    return (
        _alert(
            "SickbayMetricsNotEvaluated",
            Severity.CRITICAL,
            # 0: this controller evaluates no metrics (metrics.source: prometheus).
            "time() - max by (cluster) (sickbay_metric_last_evaluation_timestamp_seconds > 0)"
            f" > {STALE_EVALUATION_SECONDS:g}",
            "The metric rules are not evaluated.",
            "The controller of {{ $labels.cluster }} scrapes exporters but judges nothing of it.",
            after=60,
        ),
        _alert(
            "SickbayMetricPathFails",
            Severity.WARNING,
            "sum by (cluster) (increase(sickbay_metric_evaluation_failures_total[10m])) > 2.5",
            "Passes of the metric path end in errors.",
            "Passes over exporters in {{ $labels.cluster }} failed; the controller's log says why.",
            hold=HOLD_SECONDS,
        ),
        _alert(
            "SickbayExportersSilent",
            Severity.WARNING,
            f"count by (cluster) ({up} == 0) > 0",
            "Exporters of GPU nodes do not answer.",
            "Exporters in {{ $labels.cluster }} give no samples: metric rules know nothing of their nodes.",
            after=600,
            hold=HOLD_SECONDS,
        ),
        _alert(
            "SickbayRuleBlind",
            Severity.INFO,
            # Over a day: rules that look at busy GPUs judge nothing while the fleet is idle.
            f"{_one('sickbay_rule_targets')} > 0\nunless {judged} > 0",
            "A metric rule has judged nothing for a day.",
            "No exporter in {{ $labels.cluster }} reports what {{ $labels.rule }} looks at.",
            after=3600,
        ),
    )


def _findings() -> Iterator[Alert]:
    """What sickbay found and no rule of Prometheus says: kernel log, scheduler, or its own scrape.

    The rule's name goes into ``found_by``: an alert with ``rule`` is news for sickbay, and this is none.
    """
    for severity in (Severity.CRITICAL, Severity.WARNING, Severity.INFO):
        told = 'ALERTS{alertstate="firing", alertname!~"Sickbay.+"}'
        found = f'sickbay_finding{{severity="{severity.value}"}}'
        named = f"label_replace(\n    {found}\n    unless on (cluster, node, uuid, rule) {told},\n"
        yield _alert(
            FINDING,
            severity,
            f'max without (instance, pod, rule) (\n  {named}    "found_by", "$1", "rule", "(.+)"\n  )\n)',
            "sickbay has an open finding.",
            "{{ $labels.found_by }} on {{ $labels.node }}: sickbay why {{ $labels.node }} tells the rest.",
            hold=HOLD_SECONDS,
        )


def _waiting() -> tuple[Alert, ...]:
    return (
        _alert(
            "SickbayIncidentsBlocked",
            Severity.WARNING,
            # In observe mode the gate "mode" blocks by intent, and settling lasts seconds.
            "sum by (cluster, gate) (" + _one('sickbay_incidents_blocked{gate!~"mode|settle"}') + ") > 0",
            "A gate keeps incidents from their next step.",
            "Incidents in {{ $labels.cluster }} wait at the gate {{ $labels.gate }}; see sickbay why NODE.",
            after=900,
            hold=HOLD_SECONDS,
        ),
        _alert(
            "SickbayApprovalWaiting",
            Severity.WARNING,
            "sum by (cluster, pool) (" + _one('sickbay_incidents_open{state="awaiting_approval"}') + ") > 0",
            "Incidents wait for a person's approval.",
            "Pool {{ $labels.pool }} in {{ $labels.cluster }} has incidents to approve or to cancel.",
            after=900,
            hold=HOLD_SECONDS,
        ),
    )
