"""``sickbay xid`` and ``sickbay rules``: what a code means, what the catalogue holds, is a directory good."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fleet.clock import SystemClock
from fleet.findings import Repair, Response
from rules.catalogue import Catalogue, CatalogueError, Rule, check_directory, load_catalogue
from rules.metrics.say import condition_texts
from rules.model import Pattern, PolicyLine
from rules.sentences import clean, consequence
from rules.xid import LineReading, XidAnswer, explain

_MAX_DIGITS = 10

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
RulesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--rules", metavar="DIR", help="A directory of rule files over the shipped ones; repeatable."
    ),
]


def register(app: typer.Typer) -> None:
    """Add ``xid`` and ``rules list|show|check``."""
    app.command("xid")(xid)
    group = typer.Typer(help="The catalogue: list, show, check.", no_args_is_help=True)
    group.command("list")(list_rules)
    group.command("show")(show_rule)
    group.command("check")(check_rules)
    app.add_typer(group, name="rules")


def xid(
    code: Annotated[str, typer.Argument(metavar="CODE", help="The number after `Xid (...):`.")],
    line: Annotated[
        str | None, typer.Option("--line", metavar="LOGLINE", help="Judge this very kernel log line as well.")
    ] = None,
    *,
    rules: RulesOption = None,
    as_json: JsonFlag = False,
) -> None:
    """What an XID means, what sickbay does about it and why."""
    if not (code.isascii() and code.isdigit() and len(code.lstrip("0")) <= _MAX_DIGITS):
        _stop(f"{clean(code, 40)!r} is no XID code: give the number, as in `sickbay xid 79`", status=2)
    catalogue = _catalogue(rules)
    data = os.fsencode(line) if line is not None else None
    answer = explain(int(code), catalogue, data, now=SystemClock().now())
    if as_json:
        _print_json(answer.as_json())
    else:
        _show_xid(answer, catalogue)


def list_rules(*, rules: RulesOption = None, as_json: JsonFlag = False) -> None:
    """Every rule: what it does and in which mode."""
    catalogue = _catalogue(rules)
    if as_json:
        _print_json({"items": [_rule_json(rule) for rule in catalogue.rules]})
        return
    table = Table()
    table.add_column("rule", no_wrap=True)
    for column in ("severity", "response, repair", "mode", "summary"):
        table.add_column(column, overflow="fold")
    for rule in catalogue.rules:
        done = rule.response if rule.repair is Repair.NONE else f"{rule.response}, {rule.repair}"
        cells = (rule.id, rule.severity, done, rule.mode, rule.summary)
        table.add_row(*(Text(str(cell)) for cell in cells))
    Console().print(table)


def show_rule(
    rule_id: Annotated[str, typer.Argument(metavar="ID", help="A rule's id, as `rules list` shows it.")],
    *,
    rules: RulesOption = None,
    as_json: JsonFlag = False,
) -> None:
    """One rule in full: its events, its codes, its reason."""
    catalogue = _catalogue(rules)
    rule = catalogue.by_id.get(rule_id)
    if rule is None:
        _stop(f"no rule is called {clean(rule_id, 64)!r}; `sickbay rules list` names them all")
    lines = sorted(
        (p for p in catalogue.policy.values() if p.rule == rule.id), key=lambda p: (p.code, p.when)
    )
    if as_json:
        _print_json(_full_rule_json(rule, lines))
    else:
        _show_rule(rule, lines)


def check_rules(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A directory of .yaml rule files.")],
    *,
    as_json: JsonFlag = False,
) -> None:
    """Check a directory of rule files: every mistake with its file and line."""
    found, problems = check_directory(directory)
    if as_json:
        listed = [{"file": p.file, "line": p.line, "message": p.message} for p in problems]
        _print_json({"ok": not problems, "rules": [rule.id for rule in found], "problems": listed})
    for problem in problems:
        typer.echo(str(problem), err=True)
    if problems:
        raise typer.Exit(1)
    if not as_json:
        shipped = load_catalogue().by_id
        replaced = [rule.id for rule in found if rule.id in shipped]
        note = f", of which in place of shipped ones: {', '.join(replaced)}" if replaced else ""
        typer.echo(f"{directory}: {len(found)} rules, all good{note}")


# -- for programs -----------------------------------------------------------------------------------


def _rule_json(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "kind": rule.kind,
        "severity": rule.severity.value,
        "response": rule.response.value,
        "repair": rule.repair.value,
        "mode": rule.mode.value,
        "clear_on": rule.clear_on.value,
        "compiles": rule.compiles,
        "summary": rule.summary,
    }


def _full_rule_json(rule: Rule, lines: list[PolicyLine]) -> dict[str, Any]:
    return {
        **_rule_json(rule),
        "why": rule.why,
        "runbook": rule.runbook,
        "origin": rule.origin,
        "condition": None if rule.when is None else condition_texts(rule.when),
        "on": [_pattern_text(pattern) for pattern in rule.on],
        "closed_by": [_pattern_text(pattern) for pattern in rule.closed_by],
        "codes": [{"code": line.code, "when": line.when, "why": line.why} for line in lines],
    }


def _print_json(value: dict[str, Any]) -> None:
    typer.echo(json.dumps(value))


# -- for people -------------------------------------------------------------------------------------


def _show_xid(answer: XidAnswer, catalogue: Catalogue) -> None:
    policy = answer.policy
    table = _facts_table(f"XID {policy.code} {policy.mnemonic or '(unknown)'}")
    table.add_row("what it means", Text(policy.summary))
    if policy.known:
        table.add_row("severity, cause", Text(f"{policy.severity}, {policy.cause}"))
    table.add_row("what sickbay does", Text(_does(policy.response, policy.repair, policy.rule)))
    table.add_row("why", Text(policy.why))
    for variant in answer.variants:
        text = f"{_does(variant.response, variant.repair, variant.rule)}. {variant.why}"
        table.add_row(Text(f"if {variant.when.replace('_', ' ')}"), Text(text))
    table.add_row("next step", Text(_next_step(answer)))
    console = Console()
    console.print(table)
    if answer.line is not None:
        console.print(_line_table(answer.line, policy.code, catalogue))


def _line_table(line: LineReading, code: int, catalogue: Catalogue) -> Table:
    table = _facts_table("This line")
    for problem in line.problems:
        table.add_row("not usable", Text(f"{problem.reason}: {clean(problem.message)}"))
    event, weighed = line.event, line.weighed
    if event is None or weighed is None:
        table.add_row("decision", "no event in it, so nothing is done")
        return table
    if event.code != code:
        table.add_row("note", Text(f"the line says {event.kind.value} {event.code}, not {code}"))
    values = {
        "device": event.pci,
        "process": event.process,
        "pid": event.pid,
        "caused by": event.cause,
        "link": event.link,
        "unit": event.unit,
        "fatal": event.fatal,
        "recovery action": event.recovery_action,
        "registers": " ".join(event.registers) or None,
    }
    known = [f"{name} {clean(str(value), 120)}" for name, value in values.items() if value is not None]
    table.add_row("understood", Text("; ".join([f"{event.kind.value} {event.code}", *known])))
    table.add_row("decision", Text(weighed.sentence))
    rule = catalogue.by_id.get(weighed.rule or "")
    if rule is not None:
        table.add_row("by rule", Text(f"{rule.id}: {rule.why}"))
    if weighed.closes:
        table.add_row("ends findings of", Text(", ".join(weighed.closes)))
    return table


def _show_rule(rule: Rule, lines: list[PolicyLine]) -> None:
    table = _facts_table(rule.id)
    table.add_row("summary", Text(rule.summary))
    table.add_row("kind, severity", Text(f"{rule.kind}, {rule.severity}"))
    table.add_row("what sickbay does", Text(_does(rule.response, rule.repair, None)))
    table.add_row("mode", Text(f"{rule.mode} (the most cautious of cluster, pool and rule counts)"))
    table.add_row("ends by", Text(rule.clear_on))
    table.add_row("why", Text(rule.why))
    for name, text in (condition_texts(rule.when) if rule.when is not None else {}).items():
        table.add_row(name, Text(text))
    if rule.on:
        table.add_row("events", Text("\n".join(_pattern_text(pattern) for pattern in rule.on)))
    if rule.closed_by:
        table.add_row("closed by", Text("\n".join(_pattern_text(pattern) for pattern in rule.closed_by)))
    if lines:
        codes = (f"{line.code} {line.when}".strip() for line in lines)
        table.add_row("codes", Text(", ".join(codes)))
    table.add_row("runbook", Text(rule.runbook or "none"))
    table.add_row("defined at", Text(rule.origin))
    Console().print(table)


def _facts_table(title: str) -> Table:
    table = Table(title=Text(title), show_header=False, title_justify="left", expand=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _does(response: Response, repair: Repair, rule: str | None) -> str:
    done = response.value if repair is Repair.NONE else f"{response.value}, then {repair.value}"
    return f"{done}: {consequence(response, repair)}" + (f" (rule {rule})" if rule else "")


def _next_step(answer: XidAnswer) -> str:
    if not answer.policy.known:
        return "look it up at https://docs.nvidia.com/deploy/xid-errors/ and see what XID 154 says beside it"
    return f"read {answer.runbook}; `sickbay why NODE` shows what is being done about a node"


def _pattern_text(pattern: Pattern) -> str:
    if pattern.by_table:
        return "xid: the codes that docs/xid-policy.md gives to this rule"
    words = [pattern.event.value]
    if pattern.codes:
        words.append("code " + ", ".join(map(str, pattern.codes)))
    if pattern.when:
        words.append("when " + ", ".join(pattern.when))
    if pattern.fatal is not None:
        words.append(f"fatal {pattern.fatal}")
    if pattern.located is not None:
        words.append("device known" if pattern.located else "device unknown")
    if pattern.contains is not None:
        words.append(f"text holds {pattern.contains!r}")
    return ", ".join(words)


def _catalogue(directories: list[Path] | None) -> Catalogue:
    try:
        return load_catalogue(directories or ())
    except CatalogueError as error:
        for problem in error.problems:
            typer.echo(str(problem), err=True)
        raise typer.Exit(2) from error


def _stop(message: str, *, status: int = 1) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(status)
