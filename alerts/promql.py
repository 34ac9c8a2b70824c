"""Metric rules of the catalogue as PromQL: the same condition, in Prometheus' own semantics.

What differs from our engine, by Prometheus' nature (docs/alerts.md tells it to users):

- ``for`` counts evaluations: one empty evaluation starts it again, where the engine holds a gap as unknown
  (a share or an increase looks at its window, so a gap there costs only what it hides);
- ``increase`` extrapolates to the window's edges: half-integer thresholds on whole counters agree;
- a finding's end by repair, epoch or a person is not in the metrics: the alert ends with its condition, or
  ``keep_firing_for`` later; the clearing ``level`` is not expressed;
- Prometheus knows no boots: a card that was taken out is remembered until the node has as many as before.

Values of MIG instances say nothing of the board, here as there (``gi=""``).
"""

from __future__ import annotations

from typing import assert_never

from alerts.model import HOLD_SECONDS, Alert, Group, Recording, duration
from alerts.normalise import PRINTED, per_instance
from rules.metrics.conditions import Absence, Guard, Increase, MetricCondition, Share, Threshold
from rules.model import Catalogue, Rule

INTERVAL_SECONDS = 15.0
IDENTITY = "cluster, node, gpu, uuid"
PRESENT = "gpu:sickbay_gpu_present:group"
PRESENT_COUNT = "node:sickbay_gpu_present:count"
# A GPU that vanished is remembered so long; then the alert ends although nothing is mended.
MEMORY_SECONDS = 6 * 3600.0
# Named by dcgm-exporter, with or without a usable value; or by an exporter that speaks our names.
_PRESENCE = (
    PRINTED,
    "sickbay_gpu_temperature_celsius",
    "sickbay_gpu_power_watts",
    "sickbay_gpu_sm_clock_hertz",
)


def group(catalogue: Catalogue) -> Group:
    """One alert per rule that compiles, and before them the series they need."""
    recordings = [
        Recording(record=PRESENT, expr=f"group by ({IDENTITY}) (\n  " + "\n  or ".join(_PRESENCE) + "\n)"),
        Recording(record=PRESENT_COUNT, expr=f"count by (cluster, node) ({PRESENT})"),
    ]
    alerts = []
    for rule in sorted(catalogue.metric_rules, key=lambda rule: rule.id):
        assert rule.when is not None  # noqa: S101 - metric_rules has no other
        if isinstance(rule.when.test, Share):
            recordings.append(Recording(record=_bit_series(rule), expr=_bit(rule.when, rule.when.test)))
        alerts.append(alert(rule, rule.when))
    return Group(name="sickbay-gpu-rules", interval_seconds=INTERVAL_SECONDS, rules=(*recordings, *alerts))


def alert(rule: Rule, condition: MetricCondition) -> Alert:
    """The alert of one rule. Labels say which rule it is and what we would do, for routing."""
    says = rule.says or f"meets the rule {rule.id}"
    return Alert(
        name=alert_name(rule.id),
        expr=_expression(rule, condition),
        severity=rule.severity,
        summary=f"{rule.summary.rstrip('.')}.",
        description=f"{_subject(condition)} {says}.",
        runbook=rule.runbook or f"docs/runbooks/{rule.id}.md",
        for_seconds=_for(condition),
        keep_firing_seconds=max(HOLD_SECONDS, condition.clear.seconds if condition.clear else 0.0),
        labels={"rule": rule.id, "kind": rule.kind, "response": rule.response.value},
    )


def _subject(condition: MetricCondition) -> str:
    test = condition.test
    if isinstance(test, Absence) or test.signal.startswith("gpu_"):
        return "GPU {{ $labels.gpu }} ({{ $labels.uuid }}) of {{ $labels.node }}"
    return "Node {{ $labels.node }}"


def alert_name(rule_id: str) -> str:
    """``gpu-thermal-hw-slowdown`` -> ``GpuThermalHwSlowdown``."""
    return "".join(part[:1].upper() + part[1:] for part in rule_id.split("-"))


def _for(condition: MetricCondition) -> float:
    test = condition.test
    return test.for_seconds if isinstance(test, Threshold | Absence) else 0.0


def _expression(rule: Rule, condition: MetricCondition) -> str:
    test = condition.test
    if isinstance(test, Threshold):
        return _guarded(_threshold(test), condition)
    if isinstance(test, Share):
        return _share(rule, test)
    if isinstance(test, Increase):
        metric = _metric(test.signal)
        # The counter itself: what is not reported any more has not grown just now.
        grown = f"increase({metric}[{duration(test.window_seconds)}]) > {test.above:g}\nand {metric}"
        return _guarded(grown, condition)
    if isinstance(test, Absence):
        return _absence(test)
    assert_never(test)


def _metric(signal: str) -> str:
    return f'sickbay_{signal}{{gi=""}}' if per_instance(signal) else f"sickbay_{signal}"


def _threshold(test: Threshold) -> str:
    tests = [f"{_metric(test.signal)} {test.op.value} {value:g}" for value in test.values]
    return tests[0] if len(tests) == 1 else "(\n  " + "\n  or ".join(tests) + "\n)"


def _guarded(expression: str, condition: MetricCondition) -> str:
    lines = [expression]
    if condition.only_while is not None:
        lines.append(f"and on ({IDENTITY}) {_guard(condition.only_while)}")
    if condition.unless is not None:
        # Known and not so: where the guard itself is unknown nothing is judged.
        lines.append(f"and on ({IDENTITY}) ({' or '.join(map(_metric, condition.unless.signals))})")
        lines.append(f"unless on ({IDENTITY}) {_guard(condition.unless)}")
    return "\n".join(lines)


def _guard(guard: Guard) -> str:
    """Any of the signals is enough."""
    return (
        "("
        + " or ".join(f"{_metric(signal)} {guard.op.value} {guard.value:g}" for signal in guard.signals)
        + ")"
    )


def _bit_series(rule: Rule) -> str:
    return f"gpu:sickbay_{rule.id.replace('-', '_')}:bit"


def _bit(condition: MetricCondition, test: Share) -> str:
    """1 where a bit of the mask is set, 0 where none is; absent where the guards do not let it be judged."""
    bits = [1 << place for place in range(test.mask.bit_length()) if test.mask >> place & 1]
    parts = [f"(floor({_metric(test.signal)} / {bit}) % 2)" for bit in bits]
    return _guarded(parts[0] if len(parts) == 1 else f"clamp_max({' + '.join(parts)}, 1)", condition)


def _share(rule: Rule, test: Share) -> str:
    """Judged now, in enough evaluations of the window, and true in more than the share of them."""
    series, window = _bit_series(rule), duration(test.window_seconds)
    enough = test.min_seconds / INTERVAL_SECONDS
    return (
        f"avg_over_time({series}[{window}]) > {test.above:g}\n"
        f"and count_over_time({series}[{window}]) >= {enough:g}\n"
        f"and {series}"
    )


def _absence(test: Absence) -> str:
    """Seen within the memory and not now, here or on another node, while enough siblings report.

    And fewer report than did within the memory: where a card was replaced, the old one is not missed.
    """
    memory = duration(MEMORY_SECONDS)
    return (
        f"last_over_time({PRESENT}[{memory}])\n"
        f"unless on (cluster, uuid) {PRESENT}\n"
        f"and on (cluster, node) {PRESENT_COUNT} >= {test.min_siblings}\n"
        f"and on (cluster, node) {PRESENT_COUNT} < max_over_time({PRESENT_COUNT}[{memory}])"
    )
