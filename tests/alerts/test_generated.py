"""What the generated rules say: every rule of the catalogue, its labels, known names, texts and runbooks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts import alertmanager, normalise, own, promql, scenarios
from alerts.availability import BURNS
from alerts.build import files, groups
from alerts.model import Alert, Recording, duration
from collector.dcgm.fields import find_field, load_fields
from collector.signals import SignalTarget, load_signals
from fleet.metric_names import EXPORTED_METRICS, RECORDED_METRICS, names_in
from rules.catalogue import load_catalogue
from rules.metrics.conditions import Absence, Threshold

ROOT = Path(__file__).parents[2]
CATALOGUE = load_catalogue()
GROUPS = groups(CATALOGUE)
FILES = files(CATALOGUE)
ALERTS = [alert for file in GROUPS.values() for group in file for alert in group.alerts]
RULES = {alert.labels["rule"]: alert for alert in ALERTS if "rule" in alert.labels}
# Prometheus' own.
FOREIGN = {"ALERTS"}
SITE = """\
rules:
  - id: {id}
    kind: nic
    severity: warning
    response: notify
    repair: none
    mode: auto
    clear_on: operator
    summary: A site's rule
    why: A site's reason
    when:
      {when}
"""


def rules() -> Iterator[Recording | Alert]:
    for file in GROUPS.values():
        for group in file:
            yield from group.rules


# -- the catalogue


def test_every_metric_rule_has_one_alert_with_its_labels() -> None:
    assert len(CATALOGUE.metric_rules) > 8
    assert set(RULES) == {rule.id for rule in CATALOGUE.metric_rules}
    for rule in CATALOGUE.metric_rules:
        assert RULES[rule.id].all_labels == {
            "severity": rule.severity.value,
            "rule": rule.id,
            "kind": rule.kind,
            "response": rule.response.value,
        }


def test_alerts_wait_as_long_as_the_rule() -> None:
    for rule in CATALOGUE.metric_rules:
        assert rule.when is not None
        test = rule.when.test
        waits = test.for_seconds if isinstance(test, Threshold | Absence) else 0.0
        assert RULES[rule.id].for_seconds == waits
        clear = rule.when.clear.seconds if rule.when.clear else 0.0
        assert RULES[rule.id].keep_firing_seconds == max(300.0, clear)


def test_an_alert_keeps_the_labels_that_sickbay_resolves() -> None:
    """Nothing in an expression drops node, gpu or uuid of what it starts from."""
    for alert in RULES.values():
        for clause in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", alert.expr):
            labels = {label.strip() for label in clause.split(",")}
            assert labels >= {"cluster", "node"} or labels == {"cluster", "uuid"}, alert.name


EXPRESSIONS = (
    (
        'threshold: {signal: gpu_temperature_celsius, op: ">", value: 90, for_seconds: 60}',
        "sickbay_gpu_temperature_celsius > 90",
    ),
    (
        'threshold: {signal: gpu_fabric_state, op: "==", value: [1, 2], for_seconds: 60}',
        "(\n  sickbay_gpu_fabric_state == 1\n  or sickbay_gpu_fabric_state == 2\n)",
    ),
    (
        'threshold: {signal: gpu_pcie_link_width, op: "<", value: 16, for_seconds: 60}\n'
        '      while: {signals: [gpu_utilization_ratio], op: ">", value: 0.5}\n'
        '      unless: {signals: [gpu_row_remap_pending], op: ">", value: 0}',
        "sickbay_gpu_pcie_link_width < 16\n"
        'and on (cluster, node, gpu, uuid) (sickbay_gpu_utilization_ratio{gi=""} > 0.5)\n'
        "and on (cluster, node, gpu, uuid) (sickbay_gpu_row_remap_pending)\n"
        "unless on (cluster, node, gpu, uuid) (sickbay_gpu_row_remap_pending > 0)",
    ),
    (
        "increase: {signal: nic_link_downed_total, above: 2.5, window_seconds: 3600}",
        "increase(sickbay_nic_link_downed_total[1h]) > 2.5\nand sickbay_nic_link_downed_total",
    ),
    (
        "absence: {for_seconds: 90, min_siblings: 3}",
        "last_over_time(gpu:sickbay_gpu_present:group[6h])\n"
        "unless on (cluster, uuid) gpu:sickbay_gpu_present:group\n"
        "and on (cluster, node) node:sickbay_gpu_present:count >= 3\n"
        "and on (cluster, node) node:sickbay_gpu_present:count"
        " < max_over_time(node:sickbay_gpu_present:count[6h])",
    ),
    (
        "share: {signal: gpu_clock_event_reasons, mask: 0x60, above: 0.25, window_seconds: 1800,"
        " min_seconds: 600}",
        "avg_over_time(gpu:sickbay_site_rule:bit[30m]) > 0.25\n"
        "and count_over_time(gpu:sickbay_site_rule:bit[30m]) >= 40\n"
        "and gpu:sickbay_site_rule:bit",
    ),
)


@pytest.mark.parametrize(("when", "expected"), EXPRESSIONS, ids=[when[:9] for when, _ in EXPRESSIONS])
def test_a_site_rule_compiles(when: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(SITE.format(id="site-rule", when=when))
    catalogue = load_catalogue([tmp_path])
    (alert,) = [a for a in promql.group(catalogue).alerts if a.labels["rule"] == "site-rule"]
    assert alert.expr == expected
    assert alert.name == "SiteRule"
    of_node = "nic_" in when
    assert alert.description.startswith("Node {{ $labels.node }}" if of_node else "GPU {{ $labels.gpu }}")
    assert files(catalogue)["tests/gpu-rules_test.yml"] == FILES["tests/gpu-rules_test.yml"]


def test_two_bits_count_once(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(SITE.format(id="site-rule", when=EXPRESSIONS[-1][0]))
    recorded = {
        rule.record: rule.expr
        for rule in promql.group(load_catalogue([tmp_path])).rules
        if isinstance(rule, Recording)
    }
    assert recorded["gpu:sickbay_site_rule:bit"] == (
        "clamp_max((floor(sickbay_gpu_clock_event_reasons / 32) % 2)"
        " + (floor(sickbay_gpu_clock_event_reasons / 64) % 2), 1)"
    )


# -- names


def test_every_name_is_in_a_catalogue() -> None:
    fields = load_fields()
    known = {signal.metric_name for signal in load_signals().values()} | FOREIGN
    known |= {series for metric in EXPORTED_METRICS for series in metric.series}
    recorded = {rule.record for rule in rules() if isinstance(rule, Recording)}
    for name, content in GROUPS.items():
        for group in content:
            for rule in group.rules:
                asked = set(names_in(rule.expr))
                if name == "normalise-dcgm.yml":
                    listed = re.findall(r'__name__=~"([^"]*)"', rule.expr)
                    asked |= {part for text in listed for part in text.split("|")}
                    assert asked
                    assert [part for part in asked if find_field(fields, part) is None] == []
                else:
                    assert asked <= known | recorded, rule


def test_only_the_normalising_rules_know_foreign_names() -> None:
    for name, content in GROUPS.items():
        text = " ".join(rule.expr for group in content for rule in group.rules)
        assert bool(re.search("dcgm_gpu|DCGM_", text)) is (name == "normalise-dcgm.yml")


def test_what_is_recorded_is_in_the_catalogues_once() -> None:
    recorded = Counter(rule.record for rule in rules() if isinstance(rule, Recording))
    assert [name for name, count in recorded.items() if count > 1] == []
    signals = {signal.metric_name for signal in load_signals().values()}
    ours = {name for name in recorded if name not in signals and not name.endswith(":bit")}
    assert ours == {metric.name for metric in RECORDED_METRICS}


def test_every_signal_that_dcgm_gives_is_recorded() -> None:
    recorded = {rule.record for rule in normalise.group().rules if isinstance(rule, Recording)}
    given = {
        signal.metric_name
        for signal in load_signals().values()
        if signal.target is SignalTarget.GPU and signal.dcgm_names
    }
    assert given <= recorded
    assert len(given) > 45


def test_series_that_differ_by_a_label_keep_it() -> None:
    by_name = {rule.record: rule.expr for rule in normalise.group().rules if isinstance(rule, Recording)}
    for name, label in (
        ("sickbay_gpu_nvlink_replay_errors_total", "nvlink"),
        ("sickbay_gpu_xid_errors_total", "xid"),
        ("sickbay_gpu_clock_event_window_count", "clock_event, window_seconds"),
        ("sickbay_gpu_sm_active_ratio", "gi"),
    ):
        assert by_name[name].startswith(f"max by (cluster, node, gpu, uuid, {label}) ("), name


# -- texts


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: f"{alert.name}-{alert.severity.value}")
def test_an_alert_is_written_by_the_rules_of_the_trade(alert: Alert) -> None:
    assert re.fullmatch(r"(?:[A-Z][a-z0-9]+)+", alert.name)
    assert alert.severity.value in {"critical", "warning", "info"}
    assert alert.summary.endswith(".")
    assert "{{" not in alert.summary
    assert alert.description.endswith(".")
    assert "$value" not in alert.description, "a text that changes is a new notification each time"
    page, _, anchor = alert.runbook.partition("#")
    text = (ROOT / page).read_text()
    if anchor:
        headings = [line.lstrip("# ").lower() for line in text.splitlines() if line.startswith("#")]
        assert anchor in headings


def test_labels_that_texts_name_are_there() -> None:
    """promtool's stories check it for real; this one covers a label nobody sets."""
    known = {"cluster", "node", "gpu", "uuid", "pool", "gate", "instance", "rule", "found_by"}
    for alert in ALERTS:
        assert set(re.findall(r"\$labels\.(\w+)", alert.description)) <= known


def test_every_alert_has_a_story_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    fires, silent = set(), set()
    for document in scenarios.documents(GROUPS, "").values():
        for test in document["tests"]:
            for expected in test.get("alert_rule_test", ()):
                kind = fires if expected["exp_alerts"] else silent
                kind.add(expected["alertname"])
    names = {alert.name for alert in ALERTS}
    assert fires == names
    assert silent == names - {own.WATCHDOG}


def test_burn_rates_can_be_reached() -> None:
    assert [(burn.factor, burn.long, burn.short) for burn in BURNS] == [
        (14.4, "1h", "5m"),
        (6.0, "6h", "30m"),
        (3.0, "1d", "2h"),
        (1.0, "3d", "6h"),
    ]
    limits = [
        float(number)
        for a in ALERTS
        if a.name == "FleetErrorBudgetBurn"
        for number in a.expr.split()
        if re.fullmatch(r"0\.\d+", number)
    ]
    assert limits == [0.72, 0.72, 0.3, 0.3, 0.15, 0.15, 0.05, 0.05]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (45, "45s"), (60, "1m"), (90, "90s"), (3600, "1h"), (172_800, "2d")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize("seconds", [-1, 0.5])
def test_durations_that_prometheus_has_not(seconds: float) -> None:
    with pytest.raises(ValueError, match="whole seconds"):
        duration(seconds)


def test_a_docs_url_goes_before_every_runbook() -> None:
    text = files(CATALOGUE, docs_url="https://docs.example/")["prometheus/fleet.yml"]
    found = re.findall(r"runbook_url: (\S+)", text)
    assert found
    assert all(url.startswith("https://docs.example/docs/") for url in found)


# -- Alertmanager


def test_the_committed_configuration_is_what_the_code_says() -> None:
    loaded: Mapping[str, Any] = yaml.safe_load(FILES["alertmanager/alertmanager.yml"])
    assert loaded == alertmanager.document()


def test_no_alert_of_the_catalogue_is_inhibited() -> None:
    """sickbay hears each of them: what one hides from people, another would hide from sickbay."""
    for inhibition in alertmanager.document()["inhibit_rules"]:
        names = [m for m in inhibition["target_matchers"] if m.startswith("alertname=")]
        assert len(names) == 1
        pattern = re.compile(names[0].split('"')[1])
        assert not any(pattern.fullmatch(alert.name) for alert in RULES.values())


def test_the_watchdog_speaks_often_enough() -> None:
    """A repeat is sent at the first flush after its interval: two flushes of 30 s, before five minutes."""
    every = alertmanager.document()["route"]["routes"]
    routes = [route for route in every if route.get("matchers") == [f'alertname="{own.WATCHDOG}"']]
    assert [route["receiver"] for route in routes] == ["sickbay", "watchdog"]
    for route in routes:
        assert (route["group_interval"], route["repeat_interval"]) == ("30s", "45s")
