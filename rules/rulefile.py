"""One rule file: strict YAML to rules, every complaint with its line and what to do.

The YAML is only composed (nodes with marks), never constructed: unknown keys, duplicates, wrong types
and values outside a closed list are all reported, not just the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TypeVar

import yaml

from fleet.findings import ClearOn, Mode, Repair, Response, Severity
from fleet.observations import EventKind
from rules.errors import CatalogueProblem
from rules.model import KINDS, Escalation, FatalWord, Pattern, Rule
from rules.variants import VARIANTS

MAX_FILE_BYTES = 1 << 20
_RULE_ID = re.compile(r"^[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?$")
_REQUIRED = ("id", "kind", "severity", "response", "repair", "clear_on", "summary", "why", "on")
_OPTIONAL = ("mode", "runbook", "says", "closed_by", "escalate")
_PATTERN_KEYS = ("event", "codes", "when", "fatal", "located", "contains")
_ESCALATE_KEYS = ("rule", "distinct_jobs", "window_seconds")
_MAX_XID = 2**32 - 1

E = TypeVar("E", bound=StrEnum)


def parse_rule_file(data: bytes, file: str) -> tuple[list[Rule], list[CatalogueProblem]]:
    """The rules of one file (``rules: [...]``) and everything that is wrong with it. Never raises.

    A rule with a problem is left out; the good ones beside it are kept.
    """
    reader = _Reader(file)
    root = reader.compose(data)
    if root is None:
        return [], reader.problems
    top = reader.mapping(root, "a rule file", required=("rules",))
    listed = reader.sequence(top["rules"], "rules") if "rules" in top else []
    rules = [rule for node in listed if (rule := _rule(reader, node)) is not None]
    return rules, reader.problems


def _rule(reader: _Reader, node: yaml.Node) -> Rule | None:
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
        on=_patterns(reader, fields["on"], "on"),
        closed_by=_patterns(reader, fields["closed_by"], "closed_by") if "closed_by" in fields else (),
        escalate=_escalation(reader, fields["escalate"]) if "escalate" in fields else None,
        origin=f"{reader.file}:{node.start_mark.line + 1}",
    )
    _contradictions(reader, node, rule)
    return rule if len(reader.problems) == before else None


def _contradictions(reader: _Reader, node: yaml.Node, rule: Rule) -> None:
    if not rule.response.acts and rule.repair is not Repair.NONE:
        reader.complain(
            node, f"rule {rule.id}: response {rule.response} never repairs; set repair to none, or act"
        )
    if rule.clear_on is ClearOn.BELOW_THRESHOLD_FOR:
        reader.complain(
            node,
            f"rule {rule.id}: a finding from an event never ends by silence; use another clear_on",
        )
    if rule.clear_on is ClearOn.CLOSING_EVENT and not rule.closed_by:
        reader.complain(node, f"rule {rule.id}: clear_on closing_event needs closed_by")


def _patterns(reader: _Reader, node: yaml.Node, where: str) -> tuple[Pattern, ...]:
    return tuple(_pattern(reader, item, where) for item in reader.sequence(node, where))


def _pattern(reader: _Reader, node: yaml.Node, where: str) -> Pattern:
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


def _escalation(reader: _Reader, node: yaml.Node) -> Escalation | None:
    fields = reader.mapping(node, "escalate", required=_ESCALATE_KEYS)
    if len(fields) < len(_ESCALATE_KEYS):
        return None
    return Escalation(
        rule=reader.identifier(fields["rule"], "rule"),
        distinct_jobs=reader.integer(fields["distinct_jobs"], "distinct_jobs", 2, 1000),
        window_seconds=float(reader.integer(fields["window_seconds"], "window_seconds", 1, 31 * 86400)),
    )


class _Reader:
    """Typed access to YAML nodes of one file. A complaint is recorded and a harmless value returned."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[CatalogueProblem] = []

    def complain(self, node: yaml.Node, message: str) -> None:
        self.problems.append(CatalogueProblem(self.file, node.start_mark.line + 1, message))

    def compose(self, data: bytes) -> yaml.Node | None:
        if len(data) > MAX_FILE_BYTES:
            self.problems.append(CatalogueProblem(self.file, 0, f"larger than {MAX_FILE_BYTES} bytes"))
            return None
        try:
            text = data.decode("utf-8")
            node = yaml.compose(text, Loader=yaml.SafeLoader)
        except UnicodeDecodeError as error:
            line = data[: error.start].count(b"\n") + 1
            self.problems.append(CatalogueProblem(self.file, line, "not UTF-8; save the file as UTF-8"))
            return None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark is not None else 0
            self.problems.append(CatalogueProblem(self.file, line, f"no YAML: {error.problem}"))
            return None
        except yaml.YAMLError as error:
            self.problems.append(CatalogueProblem(self.file, 0, f"no YAML: {' '.join(str(error).split())}"))
            return None
        except RecursionError:
            self.problems.append(CatalogueProblem(self.file, 0, "nested too deeply to be a rule file"))
            return None
        if node is None:
            self.problems.append(CatalogueProblem(self.file, 0, "empty; it must hold a list `rules:`"))
        return node

    def mapping(
        self, node: yaml.Node, what: str, *, required: Iterable[str], optional: Iterable[str] = ()
    ) -> Mapping[str, yaml.Node]:
        """The known keys of a mapping; unknown, duplicate and missing ones are complaints."""
        if not isinstance(node, yaml.MappingNode):
            self.complain(node, f"{what} must be a mapping (key: value)")
            return {}
        required, known = tuple(required), {*required, *optional}
        found: dict[str, yaml.Node] = {}
        for key_node, value in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else ""
            if key not in known:
                allowed = ", ".join(sorted(known))
                self.complain(key_node, f"{what} has no key {_short(key)}; known: {allowed}")
            elif key in found:
                self.complain(key_node, f"key {key} is given twice; keep one")
            else:
                found[key] = value
        missing = [key for key in required if key not in found]
        if missing:
            self.complain(node, f"{what} lacks {', '.join(missing)}")
        return found

    def sequence(self, node: yaml.Node, what: str) -> list[yaml.Node]:
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            self.complain(node, f"{what} must be a list with at least one entry")
            return []
        return list(node.value)

    def text(self, node: yaml.Node, what: str) -> str:
        value = self._scalar(node)
        if value is None or not value.strip():
            self.complain(node, f"{what} must be text")
            return ""
        return " ".join(value.split())

    def identifier(self, node: yaml.Node, what: str) -> str:
        value = self._scalar(node) or ""
        if not _RULE_ID.match(value):
            self.complain(node, f"{what} must be 1 to 64 of a-z, 0-9 and -, not {_short(value)}")
        return value

    def one_of(self, node: yaml.Node, what: str, allowed: Iterable[str]) -> str:
        value = self._scalar(node)
        if value is None or value not in (allowed := tuple(allowed)):
            self.complain(node, f"{what} must be one of {', '.join(allowed)}, not {_short(value)}")
            return ""
        return value

    def enum(self, node: yaml.Node, what: str, kind: type[E], fallback: E) -> E:
        value = self.one_of(node, what, [member.value for member in kind])
        return kind(value) if value else fallback

    def integer(self, node: yaml.Node, what: str, low: int, high: int) -> int:
        value = self._scalar(node) or ""
        if node.tag.endswith(":int") and value.isascii() and value.isdigit() and len(value) <= 10:  # noqa: PLR2004
            number = int(value)
            if low <= number <= high:
                return number
        self.complain(node, f"{what} must be a whole number from {low} to {high}, not {_short(value)}")
        return low

    def boolean(self, node: yaml.Node, what: str) -> bool:
        value = (self._scalar(node) or "").lower()
        if value not in ("true", "false"):
            self.complain(node, f"{what} must be true or false")
        return value == "true"

    @staticmethod
    def _scalar(node: yaml.Node) -> str | None:
        return str(node.value) if isinstance(node, yaml.ScalarNode) else None


def _short(value: object) -> str:
    text = "a list or mapping" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."  # noqa: PLR2004 - one line on a terminal
