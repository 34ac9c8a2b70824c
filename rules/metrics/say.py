"""Sentences and evidence of metric findings: numbers that a person can check at 3 am."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from rules.metrics.conditions import Absence, Increase, MetricCondition, Op, Share, Threshold
from rules.metrics.intake import Target
from rules.model import Rule
from rules.sentences import clean, consequence, first_clause, sentence

_SHORT_UUID = 12
_LONG_SECONDS = 120.0
_MAX_NAME_CHARS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was measured of one target. ``alike``: GPUs of the node for which the rule holds now."""

    target: Target
    index: int | None
    pci: str | None
    measure: float
    held: float
    since: float
    samples: int
    siblings: int
    alike: int
    timer_restarted: bool


def place(target: Target, index: int | None) -> str:
    """``GPU 3 (GPU-ab12...) on n07``; ``port=1 of n07``; ``n07``."""
    node = clean(target.node, _MAX_NAME_CHARS)
    if target.gpu is None:
        return f"{clean(target.part, _MAX_NAME_CHARS)} of {node}" if target.part else node
    uuid = clean(target.gpu, _MAX_NAME_CHARS)
    short = uuid if len(uuid) <= _SHORT_UUID + 3 else f"{uuid[:_SHORT_UUID]}..."
    return f"GPU {index} ({short}) on {node}" if index is not None else f"{short} on {node}"


def duration(seconds: float) -> str:
    """``90 s``, ``10 minutes``, ``7.5 minutes``."""
    return f"{seconds:.0f} s" if seconds < _LONG_SECONDS else f"{round(seconds / 60, 1):g} minutes"


def clause(rule: Rule, condition: MetricCondition, facts: Facts) -> str:
    """What is wrong, with its numbers."""
    says = rule.says or first_clause(rule.summary)
    test = condition.test
    if isinstance(test, Threshold):
        return f"{says} ({test.signal} is {facts.measure:g}, for {duration(facts.held)})"
    if isinstance(test, Share):
        minutes = duration(facts.held)
        busy = minutes.replace(" ", " busy ", 1) if condition.only_while is not None else minutes
        return f"{says} for {100 * facts.measure:.0f} % of {busy}"
    if isinstance(test, Increase):
        return f"{says}: {facts.measure:g} new within {duration(test.window_seconds)}"
    if isinstance(test, Absence):
        noun = "GPU reports" if facts.siblings == 1 else "GPUs report"
        return f"{says} {duration(facts.measure)} ago, while {facts.siblings} other {noun} from the node"
    assert_never(test)


def finding_sentence(rule: Rule, condition: MetricCondition, facts: Facts) -> str:
    """Place, fault with numbers, consequence: one short line."""
    head = f"{place(facts.target, facts.index)} {clause(rule, condition, facts)}"
    return sentence(head, consequence(rule.response, rule.repair))


def threshold_text(condition: MetricCondition) -> str:
    """The condition as a person writes it."""
    test = condition.test
    if isinstance(test, Threshold):
        wanted = " or ".join(f"{value:g}" for value in test.values)
        op = "is" if test.op is Op.EQ else test.op.value
        return f"{test.signal} {op} {wanted} for {duration(test.for_seconds)}"
    if isinstance(test, Share):
        return (
            f"{test.signal} & {test.mask:#x} in > {100 * test.above:g} % of {duration(test.window_seconds)}"
        )
    if isinstance(test, Increase):
        return f"{test.signal} grows by > {test.above:g} within {duration(test.window_seconds)}"
    if isinstance(test, Absence):
        return f"missing for {duration(test.for_seconds)} while {test.min_siblings} or more siblings report"
    assert_never(test)


def condition_texts(condition: MetricCondition) -> dict[str, str]:
    """The whole condition in lines for a page: ``when``, and where given ``while``, ``unless``, ``ends``."""
    texts = {"when": threshold_text(condition)}
    for name, guard in (("while", condition.only_while), ("unless", condition.unless)):
        if guard is not None:
            texts[name] = f"{' or '.join(guard.signals)} {guard.op.value} {guard.value:g}"
    clear = condition.clear
    if clear is not None:
        level = "the condition does not hold" if clear.level is None else f"at most {clear.level:g}"
        texts["ends"] = level + (f" for {duration(clear.seconds)}" if clear.seconds else ", at once")
    return texts


def evidence(condition: MetricCondition, facts: Facts, *, detected_at: float) -> dict[str, object]:
    """What speaks for the finding, JSON-ready. ``timer_restarted``: it may have begun before we watched."""
    test = condition.test
    values: dict[str, object] = {
        "condition": threshold_text(condition),
        "signal": None if isinstance(test, Absence) else test.signal,
        "value": round(facts.measure, 6),
        "threshold": list(test.values)
        if isinstance(test, Threshold)
        else test.for_seconds
        if isinstance(test, Absence)
        else test.above,
        "window_seconds": condition.history_seconds,
        "held_seconds": round(facts.held, 3),
        "samples": facts.samples,
        "since": facts.since,
        "detected_at": detected_at,
        "index": facts.index,
        "pci": clean(facts.pci, _MAX_NAME_CHARS) if facts.pci is not None else None,
        "part": facts.target.part or None,
        "siblings": facts.siblings if isinstance(test, Absence) else None,
        "alike_on_node": facts.alike,
        "timer_restarted": facts.timer_restarted,
    }
    return {key: value for key, value in values.items() if value is not None}
