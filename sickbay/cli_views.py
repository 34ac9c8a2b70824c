"""The API's answers as tables for people. Pure: JSON in, something Rich can print out.

An answer may have grown keys and may lack some (another version on the other side): what is missing is
shown as ``-``. Every text comes from outside and is shown without control characters and without markup.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from sickbay.duration import format_duration

_NONE = "-"
_PIPE_COLUMNS = 200
_NOTES = 5
_STYLES: Mapping[str, str] = {
    "healthy": "green",
    "unhealthy": "bold red",
    "unknown": "yellow",
    "critical": "bold red",
    "warning": "yellow",
    "info": "cyan",
    "foreign": "magenta",
    "down": "red",
    "draining": "yellow",
    "drained": "yellow",
    "rebooting": "yellow",
    "returned": "green",
    "cancelled": "dim",
    "handed_over": "magenta",
    "awaiting_approval": "bold yellow",
    "done": "green",
    "already": "green",
    "refused": "red",
    "failed": "red",
    "abandoned": "dim",
    "in_progress": "cyan",
    "intent": "cyan",
    "decision": "dim",
}


def console() -> Console:
    """Where tables go. In a pipe, wide enough that no name is cut."""
    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=_PIPE_COLUMNS if piped else None, markup=False, highlight=False, emoji=False)


def plain(text: str) -> RenderableType:
    return Text(_clean(text))


def nodes(answer: Mapping[str, Any]) -> RenderableType:
    rows = _rows(answer, "items")
    if not rows:
        return plain("no nodes: the scheduler has not been read yet, or has none")
    table = _table("node", "state", "verdict", "owner", "pool", "incident")
    for row in rows:
        table.add_row(
            *(_word(row.get(key)) for key in ("name", "state", "verdict", "owner", "pool", "incident"))
        )
    sick = sum(row.get("verdict") == "unhealthy" for row in rows)
    unknown = sum(row.get("verdict") == "unknown" for row in rows)
    return Group(table, plain(f"{len(rows)} nodes, {sick} unhealthy, {unknown} unknown"))


def incidents(answer: Mapping[str, Any], now: float) -> RenderableType:
    rows = _rows(answer, "items")
    if not rows:
        return plain("no incidents")
    table = _table("incident", "node", "state", "blocked by", "opened", "closed", "rules")
    for row in rows:
        table.add_row(
            _word(row.get("id")),
            _word(row.get("node")),
            _word(row.get("state")),
            _list(row.get("blocked_by")),
            _when(row.get("opened_at"), now),
            _when(row.get("closed_at"), now),
            _list(row.get("rules")),
        )
    return table


def why(answer: Mapping[str, Any], now: float) -> RenderableType:
    """Verdict first, then what it rests on, what comes next, and every gate with its sentence."""
    head = Text.assemble(
        (_text(answer.get("node")), "bold"),
        " is ",
        _word(answer.get("verdict")),
        _owned_by(answer.get("owner")),
    )
    because = answer.get("because")
    parts: list[RenderableType] = [head, *([plain(f"because: {_text(because)}")] if because else []), Text()]
    findings = _rows(answer, "findings")
    parts += [_findings(findings, now)] if findings else [plain("no findings")]
    parts += _metrics(answer.get("metrics"))
    parts += [Text(), _incident_line(answer.get("incident"), answer.get("last_incident"))]
    parts += [_next_step(answer.get("next_step"), answer.get("waiting")), Text()]
    gates = _rows(answer, "gates")
    if gates:
        parts.append(_gates(gates))
    # A storm of alerts notes one sentence often: each is shown once, when it was said last.
    notes = list({_text(row.get("reason")): row for row in _rows(answer, "notes")}.values())[-_NOTES:]
    if notes:
        parts += [Text(), _noted(notes)]
    return Group(*parts)


def incident(answer: Mapping[str, Any], now: float) -> RenderableType:
    """One incident's history as a timeline."""
    head = Text.assemble(
        (_text(answer.get("id")), "bold"),
        " on ",
        (_text(answer.get("node")), "bold"),
        ": ",
        _word(answer.get("state")),
    )
    blocked = answer.get("blocked_by")
    if blocked:
        head.append_text(Text.assemble(", blocked by ", _list(blocked)))
    parts: list[RenderableType] = [head, Text()]
    findings = _rows(answer, "findings")
    if findings:
        parts += [_findings(findings, now), Text()]
    steps = _rows(answer, "steps")
    parts.append(_timeline(steps) if steps else plain("nothing has been written about it yet"))
    return Group(*parts)


def _findings(rows: Sequence[Mapping[str, Any]], now: float) -> Table:
    table = _table("severity", "rule", "gpu", "since", "asks for", "evidence")
    for row in rows:
        table.add_row(
            _word(row.get("severity")),
            _word(row.get("rule")),
            _word(row.get("gpu") if row.get("gpu") is not None else row.get("uuid")),
            _when(row.get("since"), now),
            _word(row.get("response")),
            Text(_evidence(row.get("evidence"))),
        )
    return table


def _metrics(value: Any) -> list[RenderableType]:
    """What the metric rules are about to find, and what they cannot judge."""
    if not isinstance(value, Mapping):
        return []
    lines: list[RenderableType] = []
    for key, label in (("pending", "not yet a finding"), ("unknown", "cannot be judged")):
        sentences = value.get(key)
        if isinstance(sentences, list):
            lines += [plain(f"{label}: {_text(sentence)}") for sentence in sentences]
    return lines


def _noted(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("noted", "")
    for row in rows:
        table.add_row(Text(_clock(row.get("at"))), Text(_text(row.get("reason"))))
    return table


def _gates(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("gate", "", "why")
    for row in rows:
        mark = Text("block", "bold red") if row.get("blocks") else Text("pass", "green")
        table.add_row(_word(row.get("gate")), mark, Text(_text(row.get("reason"))))
    return table


def _timeline(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("time", "after", "phase", "step", "outcome", "by", "why")
    first = next((row["at"] for row in rows if _is_number(row.get("at"))), None)
    for row in rows:
        at = row.get("at")
        after = (
            f"+{format_duration(at - first)}" if first is not None and _is_number(at) and at > first else ""
        )
        table.add_row(
            Text(_clock(at)),
            Text(after, "dim"),
            _word(row.get("phase")),
            _word(row.get("step")),
            _word(row.get("outcome")),
            _word(row.get("actor")),
            Text(_text(row.get("reason"))),
        )
    return table


def _incident_line(value: Any, last: Any) -> Text:
    """The open incident; without one, how the last one ended: a handed-over node waits for the reader."""
    if not isinstance(value, Mapping):
        if not isinstance(last, Mapping):
            return Text("incident: none")
        line = Text.assemble("incident: none; the last one, ", (_text(last.get("id")), "bold"), ", is ")
        return line.append_text(Text.assemble(_word(last.get("state")), f": {_text(last.get('reason'))}"))
    line = Text.assemble("incident: ", (_text(value.get("id")), "bold"), ", ", _word(value.get("state")))
    if value.get("blocked_by"):
        line.append_text(Text.assemble(", blocked by ", _list(value["blocked_by"])))
    return line


def _next_step(value: Any, waiting: Any) -> Text:
    if not isinstance(value, Mapping):
        return Text("next step: none" + (f" - {_text(waiting)}" if waiting else ""))
    step = value.get("step")
    reason = _text(value.get("reason"))
    return Text.assemble("next step: ", (_text(step) if step is not None else "wait", "bold"), f" - {reason}")


def _owned_by(owner: Any) -> Text:
    if owner == "sickbay":
        return Text(", drained by sickbay")
    if owner == "foreign":
        return Text(", drained by somebody else", "magenta")
    return Text()


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        # Names are what people copy: they wrap, they are never cut.
        table.add_column(column, overflow="fold")
    return table


def _rows(answer: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    rows = answer.get(key)
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


def _word(value: Any) -> Text:
    text = _text(value)
    return Text(text, _STYLES.get(text, ""))


def _list(value: Any) -> Text:
    if not isinstance(value, list) or not value:
        return Text(_NONE)
    return Text(", ".join(_text(item) for item in value))


def _text(value: Any) -> str:
    return _NONE if value is None or value == "" else _clean(str(value))


def _clean(text: str) -> str:
    """Escape sequences in a kernel's message must not reach a terminal."""
    return "".join(char if char.isprintable() else " " if char.isspace() else "\ufffd" for char in text)


def _evidence(value: Any) -> str:
    if not isinstance(value, Mapping):
        return _text(value)
    return (
        _clean(", ".join(f"{key}={_compact(item)}" for key, item in value.items() if item is not None))
        or _NONE
    )


def _compact(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _clock(value: Any) -> str:
    try:
        return datetime.fromtimestamp(value, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (TypeError, ValueError, OverflowError, OSError):
        return _NONE


def _when(value: Any, now: float) -> Text:
    """Local time and age."""
    clock = _clock(value)
    if clock == _NONE or value > now:
        return Text(clock)
    return Text.assemble(clock, (f" ({format_duration(now - value)} ago)", "dim"))
