"""``when`` in a rule file: what is read, and every mistake with its line."""

from __future__ import annotations

import pytest

from rules.metrics.conditions import Absence, Clearing, Guard, Increase, MetricCondition, Op, Share, Threshold
from rules.rulefile import parse_rule_file

HEAD = """\
rules:
  - id: site-rule
    kind: thermal
    severity: warning
    response: notify
    repair: none
    clear_on: below_threshold_for
    summary: A summary
    why: A reason
    when:
"""
THRESHOLD = "{signal: gpu_temperature_celsius, op: '>', value: 85.5, for_seconds: 60}"
SHARE = "{signal: gpu_clock_event_reasons, mask: 0x40, above: 0.5, window_seconds: 600, min_seconds: 300}"
INCREASE = "{signal: gpu_pcie_replays_total, above: 0.5, window_seconds: 60}"
ABSENCE = "{for_seconds: 60, min_siblings: 1}"
CLEAR = "clear: {seconds: 30}"


def rule_file(*lines: str) -> str:
    return HEAD + "".join(f"      {line}\n" for line in lines)


def read(text: str) -> MetricCondition:
    rules, problems = parse_rule_file(text.encode(), "f.yaml")
    assert [str(problem) for problem in problems] == []
    (rule,) = rules
    assert rule.compiles
    assert rule.on == ()
    assert rule.when is not None
    return rule.when


def test_all_four_kinds() -> None:
    threshold = read(rule_file(f"threshold: {THRESHOLD}", CLEAR))
    assert threshold == MetricCondition(
        test=Threshold(signal="gpu_temperature_celsius", op=Op.GT, values=(85.5,), for_seconds=60),
        clear=Clearing(seconds=30),
    )
    share = read(
        rule_file(
            f"share: {SHARE}",
            "while: {signals: [gpu_sm_active_ratio, gpu_utilization_ratio], op: '>', value: 0.1}",
            "unless: {signals: [gpu_power_watts], op: '<', value: 100}",
            "clear: {seconds: 600, level: 0.1}",
        )
    )
    assert share.test == Share(
        signal="gpu_clock_event_reasons", mask=64, above=0.5, window_seconds=600, min_seconds=300
    )
    assert share.only_while == Guard(
        signals=("gpu_sm_active_ratio", "gpu_utilization_ratio"), op=Op.GT, value=0.1
    )
    assert share.signals == (
        "gpu_clock_event_reasons",
        "gpu_sm_active_ratio",
        "gpu_utilization_ratio",
        "gpu_power_watts",
    )
    assert share.clear == Clearing(seconds=600, level=0.1)
    assert (share.kind, share.history_seconds) == ("share", 600)
    increase = read(rule_file(f"increase: {INCREASE}", CLEAR))
    assert increase.test == Increase(signal="gpu_pcie_replays_total", above=0.5, window_seconds=60)
    absence = read(rule_file(f"absence: {ABSENCE}").replace("below_threshold_for", "operator"))
    assert absence.test == Absence(for_seconds=60, min_siblings=1)
    assert absence.signals == ()


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([CLEAR], "exactly one of threshold, share, increase, absence"),
        ([f"threshold: {THRESHOLD}", f"share: {SHARE}", CLEAR], "exactly one of"),
        ([f"threshold: {THRESHOLD}", "clear: {seconds: 30}", "untill: {}"], "when has no key 'untill'"),
        (["threshold: {signal: gpu_power_watts, op: '>', value: 1}", CLEAR], "threshold lacks for_seconds"),
        ([f"threshold: {THRESHOLD}".replace("gpu_temp", "gpu_tmp"), CLEAR], "no signal is called 'gpu_tmpe"),
        ([f"threshold: {THRESHOLD}".replace("'>'", "'=>'"), CLEAR], "op must be one of >, >=, <, <=, ==, !="),
        ([f"threshold: {THRESHOLD}".replace("85.5", "hot"), CLEAR], "value must be a number"),
        ([f"threshold: {THRESHOLD}".replace("85.5", ".nan"), CLEAR], "value must be a number"),
        ([f"threshold: {THRESHOLD}".replace("85.5", "1e400"), CLEAR], "value must be"),
        ([f"threshold: {THRESHOLD}".replace("85.5", "[1, 2]"), CLEAR], "a list of values needs op: '=='"),
        ([f"threshold: {THRESHOLD}".replace("60", "1000000"), CLEAR], "for_seconds must be a number from 0"),
        ([f"threshold: {THRESHOLD}", "clear: {seconds: 9, level: 90}"], "on the bad side of the threshold"),
        ([f"threshold: {THRESHOLD}".replace("'>'", "'=='"), "clear: {seconds: 9, level: 1}"], "no meaning"),
        ([f"threshold: {THRESHOLD}", "clear: {level: 80}"], "clear lacks seconds"),
        ([f"share: {SHARE}".replace("0x40", "0"), CLEAR], "mask must be a bit mask such as 0x40"),
        ([f"share: {SHARE}".replace("0x40", "heat"), CLEAR], "mask must be a bit mask"),
        ([f"share: {SHARE}".replace("0.5", "60"), CLEAR], "above must be a number from 0 to 0.999"),
        ([f"share: {SHARE}".replace("300", "900"), CLEAR], "longer than window_seconds"),
        ([f"share: {SHARE}".replace("clock_event_reasons", "power_watts"), CLEAR], "a bitmask is needed"),
        ([f"share: {SHARE}", "clear: {seconds: 9, level: 0.9}"], "above the rule's own threshold"),
        (
            [f"increase: {INCREASE}".replace("pcie_replays_total", "power_watts"), CLEAR],
            "a counter is needed",
        ),
        ([f"increase: {INCREASE}"], "needs when.clear with its seconds"),
        ([f"absence: {ABSENCE}", CLEAR], "a lost GPU ends by new_epoch_and_gpu_count or operator"),
        ([f"absence: {ABSENCE}".replace("1}", "0}"), CLEAR], "min_siblings must be a whole number from 1"),
        (["absence: 3", CLEAR], "absence must be a mapping"),
        ([f"share: {SHARE}", "while: {signals: [], op: '>', value: 0}", CLEAR], "signals must be a list"),
        (
            [f"absence: {ABSENCE}", "while: {signals: [gpu_power_watts], op: '>', value: 0}", CLEAR],
            "absence takes no while",
        ),
    ],
)
def test_mistakes_name_their_line(lines: list[str], words: str) -> None:
    rules, problems = parse_rule_file(rule_file(*lines).encode(), "f.yaml")
    assert rules == []
    assert any(words in problem.message for problem in problems), [str(p) for p in problems]
    assert all(problem.line >= 2 for problem in problems)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("    when:\n", "    on: [{event: xid}]\n    when:\n", "needs either on (events) or when"),
        ("clear_on: below_threshold_for", "clear_on: operator", "when.clear has no meaning"),
        ("clear_on: below_threshold_for", "clear_on: closing_event", "belong to rules on events"),
        (
            "    why: A reason\n",
            "    why: A reason\n    closed_by: [{event: xid}]\n",
            "belong to rules on events",
        ),
    ],
)
def test_a_rule_holds_on_one_thing(old: str, new: str, words: str) -> None:
    text = rule_file(f"threshold: {THRESHOLD}", CLEAR).replace(old, new)
    rules, problems = parse_rule_file(text.encode(), "f.yaml")
    assert rules == []
    assert any(words in problem.message for problem in problems), [str(p) for p in problems]


def test_neither_events_nor_metrics() -> None:
    rules, problems = parse_rule_file(HEAD.replace("    when:\n", "").encode(), "f.yaml")
    assert rules == []
    assert "needs either on (events) or when" in problems[0].message
