"""One rule file: strict YAML to rules, every complaint with its line and what to do.

A rule holds either on events (``on``) or on metrics (``when``).
"""

from __future__ import annotations

import yaml

from fleet.findings import ClearOn, Mode, Repair, Response, Severity
from fleet.observations import EventKind
from rules.errors import CatalogueProblem
from rules.metrics.conditions import Absence, MetricCondition
from rules.metrics.parse import parse_condition
from rules.model import ENDED_BY_METRICS, KINDS, Escalation, FatalWord, Pattern, Rule
from rules.reader import Reader
from rules.variants import VARIANTS

_REQUIRED = ("id", "kind", "severity", "response", "repair", "clear_on", "summary", "why")
_OPTIONAL = ("on", "when", "mode", "runbook", "says", "closed_by", "escalate")
_PATTERN_KEYS = ("event", "codes", "when", "fatal", "located", "contains")
_ESCALATE_KEYS = ("rule", "distinct_jobs", "window_seconds")
_MAX_XID = 2**32 - 1


def parse_rule_file(data: bytes, file: str) -> tuple[list[Rule], list[CatalogueProblem]]:
    """The rules of one file (``rules: [...]``) and everything that is wrong with it. Never raises.

    A rule with a problem is left out; the good ones beside it are kept.
    """
    reader = Reader(file)
    root = reader.compose(data)
    if root is None:
        return [], reader.problems
    top = reader.mapping(root, "a rule file", required=("rules",))
    listed = reader.sequence(top["rules"], "rules") if "rules" in top else []
    rules = [rule for node in listed if (rule := _rule(reader, node)) is not None]
    return rules, reader.problems


def _rule(reader: Reader, node: yaml.Node) -> Rule | None:
    before = len(reader.problems)
    fields = reader.mapping(node, "a rule", required=_REQUIRED, optional=_OPTIONAL)
    if len(reader.problems) > before:
        return None
    rule = Rule(
        id=reader.identifier(fields["id"], "id"),
        kind=reader.one_of(fields["kind"], "kind", sorted(KINDS)),
        severity=reader.enum(fields["severity"], "severity", Severity, Severity.INFO),
        response=reader.enum(fields["response"], "response", Response, Response.OBSERVE),
        repair=reader.enum(fields["repair"], "repair", Repair, Repair.NONE),
        mode=reader.enum(fields["mode"], "mode", Mode, Mode.OBSERVE) if "mode" in fields else Mode.AUTO,
        clear_on=reader.enum(fields["clear_on"], "clear_on", ClearOn, ClearOn.OPERATOR),
        summary=reader.text(fields["summary"], "summary"),
        why=reader.text(fields["why"], "why"),
        runbook=reader.text(fields["runbook"], "runbook") if "runbook" in fields else None,
        says=reader.text(fields["says"], "says") if "says" in fields else None,
        on=_patterns(reader, fields["on"], "on") if "on" in fields else (),
        when=parse_condition(reader, fields["when"]) if "when" in fields else None,
        closed_by=_patterns(reader, fields["closed_by"], "closed_by") if "closed_by" in fields else (),
        escalate=_escalation(reader, fields["escalate"]) if "escalate" in fields else None,
        origin=f"{reader.file}:{node.start_mark.line + 1}",
    )
    _contradictions(reader, node, rule)
    return rule if len(reader.problems) == before else None


def _contradictions(reader: Reader, node: yaml.Node, rule: Rule) -> None:
    if not rule.response.acts and rule.repair is not Repair.NONE:
        reader.complain(
            node, f"rule {rule.id}: response {rule.response} never repairs; set repair to none, or act"
        )
    if bool(rule.on) is (rule.when is not None):
        reader.complain(node, f"rule {rule.id} needs either on (events) or when (a metric condition)")
    elif rule.when is None:
        _event_contradictions(reader, node, rule)
    else:
        _metric_contradictions(reader, node, rule, rule.when)


def _event_contradictions(reader: Reader, node: yaml.Node, rule: Rule) -> None:
    if rule.clear_on is ClearOn.BELOW_THRESHOLD_FOR:
        reader.complain(
            node,
            f"rule {rule.id}: a finding from an event never ends by silence; use another clear_on",
        )
    if rule.clear_on is ClearOn.CLOSING_EVENT and not rule.closed_by:
        reader.complain(node, f"rule {rule.id}: clear_on closing_event needs closed_by")


def _metric_contradictions(reader: Reader, node: yaml.Node, rule: Rule, when: MetricCondition) -> None:
    ends = rule.clear_on in ENDED_BY_METRICS
    if ends and when.clear is None:
        reader.complain(node, f"rule {rule.id}: clear_on {rule.clear_on} needs when.clear with its seconds")
    if not ends and when.clear is not None:
        reader.complain(node, f"rule {rule.id}: when.clear has no meaning with clear_on {rule.clear_on}")
    if ends and isinstance(when.test, Absence):
        reader.complain(node, f"rule {rule.id}: a lost GPU ends by new_epoch_and_gpu_count or operator")
    if rule.clear_on is ClearOn.CLOSING_EVENT or rule.closed_by or rule.escalate is not None:
        reader.complain(node, f"rule {rule.id}: closed_by and escalate belong to rules on events")


def _patterns(reader: Reader, node: yaml.Node, where: str) -> tuple[Pattern, ...]:
    return tuple(_pattern(reader, item, where) for item in reader.sequence(node, where))


def _pattern(reader: Reader, node: yaml.Node, where: str) -> Pattern:
    fields = reader.mapping(node, f"an entry of {where}", required=("event",), optional=_PATTERN_KEYS)
    kind = EventKind.OTHER
    if "event" in fields:
        kind = reader.enum(fields["event"], "event", EventKind, EventKind.OTHER)
    if "when" in fields and "codes" not in fields:
        reader.complain(fields["when"], "when needs codes beside it")
    codes = reader.sequence(fields["codes"], "codes") if "codes" in fields else []
    when = reader.sequence(fields["when"], "when") if "when" in fields else []
    return Pattern(
        event=kind,
        codes=tuple(reader.integer(code, "a code", 0, _MAX_XID) for code in codes),
        when=tuple(reader.one_of(word, "when", sorted(VARIANTS)) for word in when),
        fatal=reader.enum(fields["fatal"], "fatal", FatalWord, FatalWord.UNKNOWN)
        if "fatal" in fields
        else None,
        located=reader.boolean(fields["located"], "located") if "located" in fields else None,
        contains=reader.text(fields["contains"], "contains") if "contains" in fields else None,
    )


def _escalation(reader: Reader, node: yaml.Node) -> Escalation | None:
    fields = reader.mapping(node, "escalate", required=_ESCALATE_KEYS)
    if len(fields) < len(_ESCALATE_KEYS):
        return None
    return Escalation(
        rule=reader.identifier(fields["rule"], "rule"),
        distinct_jobs=reader.integer(fields["distinct_jobs"], "distinct_jobs", 2, 1000),
        window_seconds=float(reader.integer(fields["window_seconds"], "window_seconds", 1, 31 * 86400)),
    )
