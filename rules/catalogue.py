"""Loading the catalogue: what is shipped, and what a site adds or overrides in its own directories.

A site's rule with a shipped rule's id replaces it whole. A pattern of a site's rule that names XID codes
takes those lines away from the shipped policy table: the bare code, or with ``when`` the named variants.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path

from fleet.observations import EventKind
from rules.errors import CatalogueError, CatalogueProblem
from rules.model import Catalogue, PolicyLine, Rule, XidPolicy
from rules.rulefile import parse_rule_file
from rules.tables import parse_facts, parse_policy

__all__ = ["Catalogue", "CatalogueError", "Rule", "XidPolicy", "check_directory", "load_catalogue"]

_SUFFIXES = (".yaml", ".yml")


def load_catalogue(directories: Sequence[Path] = ()) -> Catalogue:
    """The shipped catalogue, with the rules of ``directories`` over it (later ones win).

    Raises CatalogueError with every problem, file and line, when a directory cannot be used: a site's
    rules are all in force, or the start is refused.
    """
    catalogue = _shipped()
    for directory in directories:
        rules, problems = _read_directory(directory)
        if not problems:
            catalogue = _overlay(catalogue, rules)
            problems = _unresolved(catalogue)
        if problems:
            raise CatalogueError(problems)
    return catalogue


def check_directory(directory: Path) -> tuple[tuple[Rule, ...], tuple[CatalogueProblem, ...]]:
    """The rules of one directory and all that is wrong with it, without raising."""
    rules, problems = _read_directory(directory)
    if not problems:
        problems = _unresolved(_overlay(_shipped(), rules))
    return tuple(rules), tuple(problems)


def _shipped() -> Catalogue:
    data = resources.files("rules.data")
    rules: list[Rule] = []
    problems: list[CatalogueProblem] = []
    for entry in sorted(data.joinpath("catalogue").iterdir(), key=lambda item: item.name):
        if entry.name.endswith(_SUFFIXES):
            found, wrong = parse_rule_file(entry.read_bytes(), f"rules/data/catalogue/{entry.name}")
            rules += found
            problems += wrong
    problems += _duplicates(rules)
    if problems:
        raise CatalogueError(problems)
    facts = parse_facts(data.joinpath("xid_catalog.csv").read_text("utf-8"), "rules/data/xid_catalog.csv")
    policy = parse_policy(
        data.joinpath("xid_policy.csv").read_text("utf-8"),
        "rules/data/xid_policy.csv",
        {rule.id: rule for rule in rules},
    )
    catalogue = Catalogue(rules=tuple(rules), facts=facts, policy=policy)
    if problems := _unresolved(catalogue):
        raise CatalogueError(problems)
    return catalogue


def _read_directory(directory: Path) -> tuple[list[Rule], list[CatalogueProblem]]:
    try:
        files = sorted(path for path in directory.iterdir() if path.suffix in _SUFFIXES)
    except OSError as error:
        what = f"cannot be listed ({error.strerror}); give a directory of .yaml rule files"
        return [], [CatalogueProblem(str(directory), 0, what)]
    if not files:
        return [], [CatalogueProblem(str(directory), 0, "holds no .yaml rule file")]
    rules: list[Rule] = []
    problems: list[CatalogueProblem] = []
    for path in files:
        try:
            data = path.read_bytes()
        except OSError as error:
            problems.append(CatalogueProblem(str(path), 0, f"cannot be read ({error.strerror})"))
            continue
        found, wrong = parse_rule_file(data, str(path))
        rules += found
        problems += wrong
    return rules, problems + _duplicates(rules)


def _duplicates(rules: Sequence[Rule]) -> list[CatalogueProblem]:
    seen: dict[str, Rule] = {}
    problems = []
    for rule in rules:
        if rule.id in seen:
            file, line = _place(rule)
            text = f"rule {rule.id} is already defined at {seen[rule.id].origin}; rename one"
            problems.append(CatalogueProblem(file, line, text))
        seen.setdefault(rule.id, rule)
    return problems


def _overlay(base: Catalogue, rules: Sequence[Rule]) -> Catalogue:
    """A site's rules before and over the base's."""
    replaced = {rule.id for rule in rules}
    policy = dict(base.policy)
    policy.update(_own_codes(rules))
    return Catalogue(
        rules=(*rules, *(rule for rule in base.rules if rule.id not in replaced)),
        facts=base.facts,
        policy=policy,
    )


def _own_codes(rules: Sequence[Rule]) -> Mapping[tuple[int, str], PolicyLine]:
    return {
        (code, when): PolicyLine(code=code, when=when, rule=rule.id, why=rule.why)
        for rule in rules
        for pattern in rule.on
        if pattern.event is EventKind.XID
        for code in pattern.codes
        for when in (pattern.when or ("",))
    }


def _unresolved(catalogue: Catalogue) -> list[CatalogueProblem]:
    """Rules that name rules which do not exist."""
    return [
        CatalogueProblem(*_place(rule), f"rule {rule.id} escalates to {name!r}, which is no rule")
        for rule, name in _escalations(catalogue)
        if name not in catalogue.by_id
    ]


def _escalations(catalogue: Catalogue) -> Iterator[tuple[Rule, str]]:
    for rule in catalogue.rules:
        if rule.escalate is not None:
            yield rule, rule.escalate.rule


def _place(rule: Rule) -> tuple[str, int]:
    file, _, line = rule.origin.rpartition(":")
    return file, int(line)
