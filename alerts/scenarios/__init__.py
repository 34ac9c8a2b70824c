"""Stories for ``promtool test rules``: what is measured, which alerts must and must not fire when.

Only the texts of the alerts are filled in from the rules; when an alert fires and with which labels is
written here by hand. promtool is the real rule manager in virtual time (its clock starts at 0).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from alerts.model import Alert, Group, duration
from alerts.scenarios import availability, dcgm, gpu, own
from alerts.scenarios.words import Expect, Labels, Scenario

_LABEL = re.compile(r"\{\{ \$labels\.(\w+) \}\}")


def documents(groups: Mapping[str, Sequence[Group]], docs_url: str) -> Mapping[str, Mapping[str, Any]]:
    """Test file -> its document. An alert of a site's own catalogue has no story here and is left out."""
    alerts: dict[str, list[Alert]] = {}
    for group in chain.from_iterable(groups.values()):
        for alert in group.alerts:
            alerts.setdefault(alert.name, []).append(alert)
    dcgm_file, fleet, own_rules = "normalise-dcgm.yml", "fleet.yml", "sickbay.yml"
    return {
        name: {
            "rule_files": [f"../prometheus/{rule_file}" for rule_file in rule_files],
            "evaluation_interval": duration(scenarios[0].step_seconds),
            "tests": [_test(scenario, alerts, docs_url) for scenario in scenarios],
        }
        for name, rule_files, scenarios in (
            ("normalise-dcgm_test.yml", (dcgm_file,), dcgm.normalised()),
            ("gpu-rules_test.yml", (dcgm_file, fleet), gpu.gpu_rules()),
            ("availability_test.yml", (fleet,), availability.availability()),
            ("sickbay_test.yml", (own_rules,), own.own()),
        )
    }


def _test(scenario: Scenario, alerts: Mapping[str, Sequence[Alert]], docs_url: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": scenario.name,
        "interval": duration(scenario.step_seconds),
        "input_series": [{"series": series, "values": values} for series, values in scenario.series.items()],
    }
    expected = [
        _expected(expect, alerts[expect.alert], docs_url)
        for expect in scenario.expects
        if expect.alert in alerts
    ]
    if expected:
        found["alert_rule_test"] = expected
    if scenario.values:
        found["promql_expr_test"] = [
            {
                "expr": value.expr,
                "eval_time": duration(value.at),
                "exp_samples": [
                    {"labels": labels, "value": number} for labels, number in value.samples.items()
                ],
            }
            for value in scenario.values
        ]
    return found


def _expected(expect: Expect, rules: Sequence[Alert], docs_url: str) -> dict[str, Any]:
    return {
        "eval_time": duration(expect.at),
        "alertname": expect.alert,
        "exp_alerts": [
            {
                "exp_labels": {**labels, **rule.all_labels},
                "exp_annotations": dict(_filled(rule.annotations(docs_url), {**labels, **rule.all_labels})),
            }
            for labels in expect.firing
            for rule in [_rule_of(labels, rules)]
        ],
    }


def _rule_of(labels: Labels, rules: Sequence[Alert]) -> Alert:
    """Of several rules with one alert name, the one whose own labels the series has."""
    told = labels.items()
    return next(
        rule
        for rule in rules
        if len(rules) == 1 or (rule.labels and rule.labels.items() <= told) or rule.all_labels.items() <= told
    )


def _filled(annotations: Mapping[str, str], labels: Labels) -> Iterator[tuple[str, str]]:
    for name, text in annotations.items():
        yield name, _LABEL.sub(lambda match: labels.get(match[1], ""), text)
