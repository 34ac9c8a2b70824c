"""sickbay itself: well, away, standing still, in trouble, waiting."""

from __future__ import annotations

from alerts.scenarios.words import Expect, Labels, Scenario

_CONTROLLER = 'cluster="alpha", instance="sickbay:8470", job="sickbay"'
_AGENT = 'cluster="alpha", instance="n01:9870", job="sickbay-agent", node="n01"'
_ALPHA: Labels = {"cluster": "alpha"}
_AGENT_LABELS: Labels = {
    "cluster": "alpha",
    "instance": "n01:9870",
    "job": "sickbay-agent",
    "node": "n01",
}
_WELL = {
    f'sickbay_build_info{{{_CONTROLLER}, version="1"}}': "1x200",
    f"sickbay_last_pass_timestamp_seconds{{{_CONTROLLER}}}": "0+15x200",
    f"sickbay_scheduler_last_read_timestamp_seconds{{{_CONTROLLER}}}": "0+15x200",
    f"sickbay_leader{{{_CONTROLLER}}}": "1x200",
    f"sickbay_pages{{{_CONTROLLER}}}": "3x200",
    f"sickbay_pass_failures_total{{{_CONTROLLER}}}": "7x200",
    f"sickbay_inbox_pending{{{_CONTROLLER}}}": "0x200",
    f'sickbay_events_received_total{{{_CONTROLLER}, result="rejected"}}': "2x200",
    f'sickbay_nodes{{{_CONTROLLER}, pool="gpu", state="idle", verdict="healthy"}}': "16x200",
    f'sickbay_nodes{{{_CONTROLLER}, pool="gpu", state="powered_down", verdict="unknown"}}': "2x200",
    f'sickbay_incidents_blocked{{{_CONTROLLER}, gate="mode"}}': "1x200",
    f"sickbay_metric_last_evaluation_timestamp_seconds{{{_CONTROLLER}}}": "0+15x200",
    f"sickbay_metric_evaluation_failures_total{{{_CONTROLLER}}}": "2x200",
    f'sickbay_scrape_target_up{{{_CONTROLLER}, node="n01"}}': "1x200",
    f'sickbay_rule_targets{{{_CONTROLLER}, rule="gpu-vanished"}}': "8x200",
    f'sickbay_rule_targets_judged{{{_CONTROLLER}, rule="gpu-vanished"}}': "8x200",
    # Nobody has such a GPU: a rule about nothing is not blind.
    f'sickbay_rule_targets{{{_CONTROLLER}, rule="site-rule"}}': "0x200",
    f'sickbay_agent_build_info{{{_AGENT}, version="1"}}': "1x200",
    f"sickbay_agent_last_push_timestamp_seconds{{{_AGENT}}}": "0+15x200",
    f"sickbay_agent_spool_dropped_events_total{{{_AGENT}}}": "4x200",
}
_SELF_ALERTS = (
    "SickbayDown",
    "SickbayLoopNotPassing",
    "SickbayPassesFail",
    "SickbayNoLeader",
    "SickbayPaged",
    "SickbayInboxBacklog",
    "SickbaySchedulerNotRead",
    "SickbayAgentSilent",
    "SickbayNodesUnknown",
    "SickbayEventsDropped",
    "SickbayEventsRejected",
    "SickbayMetricsNotEvaluated",
    "SickbayMetricPathFails",
    "SickbayExportersSilent",
    "SickbayRuleBlind",
    "SickbayFinding",
    "SickbayIncidentsBlocked",
    "SickbayApprovalWaiting",
)


def own() -> tuple[Scenario, ...]:
    return (
        Scenario(
            name="all is well: nothing fires but the watchdog",
            series=_WELL,
            expects=(
                Expect(alert="SickbayWatchdog", at=0, firing=({},)),
                *(Expect(alert=alert, at=at) for alert in _SELF_ALERTS for at in (600, 2400)),
            ),
        ),
        _gone(),
        _never_there(),
        _stalled(),
        _trouble(),
        _waits(),
        _metric_path(),
        _metrics_elsewhere(),
        _findings(),
    )


def _gone() -> Scenario:
    return Scenario(
        name="the controller's metrics end at 5:00",
        series={f'sickbay_build_info{{{_CONTROLLER}, version="1"}}': "1x20 stale"},
        expects=(
            Expect(alert="SickbayDown", at=390),
            Expect(alert="SickbayDown", at=480, firing=(_ALPHA,)),
        ),
    )


def _never_there() -> Scenario:
    return Scenario(
        name="no controller was ever seen",
        series={"unrelated": "1x60"},
        expects=(
            Expect(alert="SickbayDown", at=60),
            Expect(alert="SickbayDown", at=300, firing=({},)),
        ),
    )


def _stalled() -> Scenario:
    """From 5:00 on the loop, the scheduler's answers and the agent's pushes stand still, and nobody leads."""
    return Scenario(
        name="everything still answers and nothing moves",
        series={
            f"sickbay_last_pass_timestamp_seconds{{{_CONTROLLER}}}": "0+15x20 300x80",
            f"sickbay_scheduler_last_read_timestamp_seconds{{{_CONTROLLER}}}": "0+15x20 300x80",
            f"sickbay_leader{{{_CONTROLLER}}}": "1x20 0x80",
            f'sickbay_agent_build_info{{{_AGENT}, version="1"}}': "1x100",
            f"sickbay_agent_last_push_timestamp_seconds{{{_AGENT}}}": "0+15x20 300x80",
        },
        expects=(
            Expect(alert="SickbayLoopNotPassing", at=360),
            Expect(alert="SickbayLoopNotPassing", at=480, firing=(_ALPHA,)),
            Expect(alert="SickbaySchedulerNotRead", at=420),
            Expect(alert="SickbaySchedulerNotRead", at=600, firing=(_ALPHA,)),
            Expect(alert="SickbayNoLeader", at=390),
            Expect(alert="SickbayNoLeader", at=480, firing=(_ALPHA,)),
            Expect(alert="SickbayAgentSilent", at=420),
            Expect(alert="SickbayAgentSilent", at=600, firing=(_AGENT_LABELS,)),
        ),
    )


def _trouble() -> Scenario:
    """Errors from 5:00 on, and an agent that has never been answered."""
    return Scenario(
        name="failing passes, a page, a backlog, lost events, a silent agent",
        series={
            f"sickbay_pass_failures_total{{{_CONTROLLER}}}": "0x20 4x80",
            f"sickbay_pages{{{_CONTROLLER}}}": "0x20 1x80",
            f"sickbay_inbox_pending{{{_CONTROLLER}}}": "0x20 500x80",
            f'sickbay_events_received_total{{{_CONTROLLER}, result="rejected"}}': "0x20 3x80",
            f"sickbay_agent_spool_dropped_events_total{{{_AGENT}}}": "0x20 9x80",
            f'sickbay_agent_build_info{{{_AGENT}, version="1"}}': "1x100",
        },
        expects=(
            Expect(alert="SickbayPassesFail", at=270),
            Expect(alert="SickbayPassesFail", at=480, firing=(_ALPHA,)),
            Expect(alert="SickbayPaged", at=270),
            Expect(alert="SickbayPaged", at=480, firing=(_ALPHA,)),
            Expect(alert="SickbayPaged", at=1200),
            Expect(alert="SickbayInboxBacklog", at=600),
            Expect(
                alert="SickbayInboxBacklog",
                at=1000,
                firing=({"cluster": "alpha", "instance": "sickbay:8470", "job": "sickbay"},),
            ),
            Expect(alert="SickbayEventsRejected", at=270),
            Expect(alert="SickbayEventsRejected", at=480, firing=(_ALPHA,)),
            Expect(alert="SickbayEventsDropped", at=270),
            Expect(alert="SickbayEventsDropped", at=480, firing=(_AGENT_LABELS,)),
            Expect(alert="SickbayAgentSilent", at=60),
            Expect(alert="SickbayAgentSilent", at=300, firing=(_AGENT_LABELS,)),
        ),
    )


def _waits() -> Scenario:
    """Nodes unknown and incidents waiting from 5:00 on, said by a leader and its standby."""
    series = {}
    for instance in ("a:8470", "b:8470"):
        who = f'cluster="alpha", instance="{instance}", job="sickbay"'
        series[f'sickbay_nodes{{{who}, pool="gpu", state="idle", verdict="unknown"}}'] = "_x20 3x120"
        series[f'sickbay_incidents_blocked{{{who}, gate="budget"}}'] = "_x20 1x120"
        series[f'sickbay_incidents_open{{{who}, pool="gpu", state="awaiting_approval"}}'] = "_x20 1x120"
    pool = {"cluster": "alpha", "pool": "gpu"}
    return Scenario(
        name="unknown nodes, blocked and unapproved incidents",
        series=series,
        expects=(
            Expect(alert="SickbayNodesUnknown", at=840),
            Expect(alert="SickbayNodesUnknown", at=1000, firing=(pool,)),
            Expect(alert="SickbayIncidentsBlocked", at=1100),
            Expect(
                alert="SickbayIncidentsBlocked", at=1300, firing=({"cluster": "alpha", "gate": "budget"},)
            ),
            Expect(alert="SickbayApprovalWaiting", at=1100),
            Expect(alert="SickbayApprovalWaiting", at=1300, firing=(pool,)),
        ),
    )


def _metric_path() -> Scenario:
    """From 5:00 on nothing is evaluated, passes fail, an exporter is silent; a rule sees nothing."""
    standby = 'cluster="alpha", instance="standby:8470", job="sickbay"'
    return Scenario(
        name="the metric path stands still, fails, hears one exporter less, and has a blind rule",
        series={
            f"sickbay_metric_last_evaluation_timestamp_seconds{{{_CONTROLLER}}}": "0+15x20 300x400",
            f"sickbay_metric_evaluation_failures_total{{{_CONTROLLER}}}": "0x20 4x400",
            f'sickbay_scrape_target_up{{{_CONTROLLER}, node="n01"}}': "1x400",
            f'sickbay_scrape_target_up{{{_CONTROLLER}, node="n02"}}': "1x20 0x400",
            f'sickbay_scrape_target_up{{{standby}, node="n02"}}': "1x20 0x400",
            # The standby hears what the leader does not: somebody sees it.
            f'sickbay_scrape_target_up{{{_CONTROLLER}, node="n03"}}': "1x20 0x400",
            f'sickbay_scrape_target_up{{{standby}, node="n03"}}': "1x400",
            f'sickbay_rule_targets{{{_CONTROLLER}, rule="gpu-power-brake"}}': "8x400",
            f'sickbay_rule_targets_judged{{{_CONTROLLER}, rule="gpu-power-brake"}}': "0x400",
            # Judged once, at 10:00: idle since, and not blind.
            f'sickbay_rule_targets{{{_CONTROLLER}, rule="gpu-thermal-hw-slowdown"}}': "8x400",
            f'sickbay_rule_targets_judged{{{_CONTROLLER}, rule="gpu-thermal-hw-slowdown"}}': "0x39 8 0x360",
        },
        expects=(
            Expect(alert="SickbayMetricsNotEvaluated", at=420),
            Expect(alert="SickbayMetricsNotEvaluated", at=600, firing=(_ALPHA,)),
            Expect(alert="SickbayMetricPathFails", at=270),
            Expect(alert="SickbayMetricPathFails", at=480, firing=(_ALPHA,)),
            Expect(alert="SickbayExportersSilent", at=840),
            Expect(alert="SickbayExportersSilent", at=1000, firing=(_ALPHA,)),
            Expect(alert="SickbayRuleBlind", at=3000),
            Expect(
                alert="SickbayRuleBlind",
                at=5400,
                firing=({"cluster": "alpha", "job": "sickbay", "rule": "gpu-power-brake"},),
            ),
        ),
    )


def _metrics_elsewhere() -> Scenario:
    return Scenario(
        name="a controller that leaves metrics to Prometheus is not late with them",
        series={f"sickbay_metric_last_evaluation_timestamp_seconds{{{_CONTROLLER}}}": "0x100"},
        expects=(Expect(alert="SickbayMetricsNotEvaluated", at=900),),
    )


def _findings() -> Scenario:
    """From the kernel log; the same fault that an alert of the catalogue tells already is not told twice."""
    bus = 'gpu="0000:3b:00.0", uuid="GPU-1", kind="gpu_lost", rule="gpu-fell-off-bus", severity="critical"'
    hot = (
        'gpu="0000:5d:00.0", uuid="GPU-2", kind="thermal", rule="gpu-thermal-sw-slowdown", severity="warning"'
    )
    told = 'alertname="GpuThermalSwSlowdown", alertstate="firing", gpu="2", uuid="GPU-2", node="n01"'
    series = {
        f'ALERTS{{cluster="alpha", {told}, rule="gpu-thermal-sw-slowdown", severity="warning"}}': "_x20 1x40",
    }
    for instance in ("a:8470", "b:8470"):
        who = f'cluster="alpha", instance="{instance}", job="sickbay", node="n01"'
        series[f"sickbay_finding{{{who}, {bus}}}"] = "_x20 1x120"
        series[f"sickbay_finding{{{who}, {hot}}}"] = "_x20 1x120"
    seen = {"cluster": "alpha", "job": "sickbay", "node": "n01"}
    lost = {"gpu": "0000:3b:00.0", "uuid": "GPU-1", "kind": "gpu_lost", "found_by": "gpu-fell-off-bus"}
    warm = {"gpu": "0000:5d:00.0", "uuid": "GPU-2", "kind": "thermal"}
    lost_alert = {**seen, **lost, "severity": "critical"}
    warm_alert = {**seen, **warm, "found_by": "gpu-thermal-sw-slowdown", "severity": "warning"}
    return Scenario(
        name="open findings, each told once",
        series=series,
        expects=(
            Expect(alert="SickbayFinding", at=270),
            Expect(alert="SickbayFinding", at=480, firing=(lost_alert,)),
            # Prometheus has resolved its alert, the finding is still open.
            Expect(alert="SickbayFinding", at=1500, firing=(lost_alert, warm_alert)),
        ),
    )
