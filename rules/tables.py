"""The shipped XID tables: facts and policy, read from CSV with file and line in every complaint.

Severity words of NVIDIA's scale are turned into ours: error (a job died) is a warning to an operator,
fatal (GPU or node unusable until somebody acts) is critical.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping

from fleet.findings import Severity
from rules.errors import CatalogueError, CatalogueProblem
from rules.model import PolicyLine, Rule, XidFact

_SEVERITY = {
    "info": Severity.INFO,
    "warning": Severity.WARNING,
    "error": Severity.WARNING,
    "fatal": Severity.CRITICAL,
}
_FACT_COLUMNS = ("code", "mnemonic", "summary", "cause", "severity", "nvidia_action", "impact", "source")
_POLICY_COLUMNS = ("code", "when", "rule", "response", "repair", "follows", "why")


def parse_facts(text: str, file: str) -> Mapping[int, XidFact]:
    """``xid_catalog.csv`` by code. CatalogueError names file and line of what cannot be used."""
    facts: dict[int, XidFact] = {}
    for line, row in _rows(text, file, _FACT_COLUMNS):
        code = _code(row["code"], file, line)
        severity = _SEVERITY.get(row["severity"])
        if severity is None or code in facts:
            what = "is listed twice" if code in facts else f"has no known severity: {row['severity']!r}"
            raise CatalogueError([CatalogueProblem(file, line, f"code {code} {what}")])
        facts[code] = XidFact(
            code=code,
            mnemonic=row["mnemonic"],
            summary=row["summary"],
            cause=row["cause"],
            severity=severity,
            nvidia_action=row["nvidia_action"] or None,
            impact=row["impact"],
            source=row["source"],
        )
    return facts


def parse_policy(text: str, file: str, shipped: Mapping[str, Rule]) -> Mapping[tuple[int, str], PolicyLine]:
    """``xid_policy.csv`` by (code, variant).

    Each line repeats its rule's response and repair, so that the table reads on its own; a line that
    contradicts its rule, names no rule or gives no reason is an error.
    """
    policy: dict[tuple[int, str], PolicyLine] = {}
    for line, row in _rows(text, file, _POLICY_COLUMNS):
        code, when = _code(row["code"], file, line), row["when"]
        rule = shipped.get(row["rule"])
        problem = None
        if rule is None:
            problem = f"no rule is called {row['rule']!r}"
        elif (row["response"], row["repair"]) != (rule.response, rule.repair):
            problem = f"rule {rule.id} says {rule.response}/{rule.repair}, this line something else"
        elif (code, when) in policy:
            problem = f"code {code} {when} is listed twice"
        elif not row["why"].strip():
            problem = f"code {code} has no reason; fill in the column why"
        if problem is not None:
            raise CatalogueError([CatalogueProblem(file, line, problem)])
        follows = tuple(_code(part, file, line) for part in row["follows"].split())
        policy[code, when] = PolicyLine(
            code=code, when=when, rule=row["rule"], why=row["why"], follows=follows
        )
    return policy


def _rows(text: str, file: str, columns: tuple[str, ...]) -> Iterator[tuple[int, Mapping[str, str]]]:
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        header = next(reader, [])
        if tuple(header) != columns:
            raise CatalogueError([CatalogueProblem(file, 1, f"the columns must be {','.join(columns)}")])
        for cells in reader:
            if len(cells) != len(columns):
                found = f"{len(cells)} columns instead of {len(columns)}"
                raise CatalogueError([CatalogueProblem(file, reader.line_num, found)])
            yield reader.line_num, dict(zip(columns, cells, strict=True))
    except csv.Error as error:
        raise CatalogueError([CatalogueProblem(file, reader.line_num, f"no CSV: {error}")]) from error


def _code(text: str, file: str, line: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10):  # noqa: PLR2004 - an XID is 32 bits
        raise CatalogueError([CatalogueProblem(file, line, f"{text!r} is no XID code")])
    return int(text)
