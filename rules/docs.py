"""The policy page, written from the tables: ``python -m rules.docs`` (``--check``: is it current?)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rules.catalogue import load_catalogue
from rules.model import Catalogue, PolicyLine, Rule

PAGE = Path("docs/xid-policy.md")
_CODES_SHOWN = 12
TRIAGE_RULES = ("gpu-awaits-recovery-action", "gpu-needs-investigation")
"""Codes of these rules wait for a person's judgement: a person is told, nothing is done."""

_HEAD = """\
# What sickbay does about each XID

This page is written by `python -m rules.docs` from `rules/data/xid_policy.csv` and the rules beside it;
change those, not this page.

Facts (what a code means) come from NVIDIA's XID catalogue 610 and the headers of
open-gpu-kernel-modules up to branch 595, in our words. What we do is our own policy. In brackets stands
what others do, read from their sources: NVIDIA's immediate action, gpud, NVSentinel, the EKS node
monitoring agent, awslabs, DCGM health, NVIDIA's Kubernetes device plugin, Meta gcm, Azure NHC.

- A code that is not listed is observed and never acted on.
- "when" is what the line itself says: the word Fatal or Nonfatal, register bits, the value of 154. The
  bare code (no "when") holds where nothing else does.
- Application faults (`gpu-app-fault`) blame the job. Three distinct jobs on one GPU within 24 h make a
  finding of `gpu-app-faults-follow-gpu`, which tells a person.
- A site moves a code by a rule of its own: `on: [{event: xid, codes: [109]}]` in one of `rules.directories`.
  Without `when` that moves the bare code only.
"""


def render_policy(catalogue: Catalogue) -> str:
    """The whole page as Markdown."""
    parts = [_HEAD]
    parts.append("## Rules\n")
    parts.append("| rule | severity | response | repair | ends by | codes |\n|---|---|---|---|---|---|")
    parts += [_rule_row(rule, catalogue) for rule in catalogue.rules if rule.when is None]
    parts.append("\n## For human triage\n")
    parts.append(
        "Nothing is published that a machine could safely do about these codes, or the sources contradict "
        "each other. A person is told.\n"
    )
    triage = sorted({line.code for line in catalogue.policy.values() if line.rule in TRIAGE_RULES})
    parts += [f"- {code} {_mnemonic(catalogue, code)}" for code in triage]
    parts.append("\n## Codes\n")
    parts.append("| code | when | meaning | severity | rule | response / repair | why |")
    parts.append("|---|---|---|---|---|---|---|")
    lines = sorted(catalogue.policy.values(), key=lambda line: (line.code, line.when))
    parts += [_code_row(line, catalogue) for line in lines]
    return "\n".join(parts) + "\n"


def _rule_row(rule: Rule, catalogue: Catalogue) -> str:
    codes = sorted({line.code for line in catalogue.policy.values() if line.rule == rule.id})
    listed = ", ".join(str(code) for code in codes[:_CODES_SHOWN])
    if len(codes) > _CODES_SHOWN:
        listed += f" and {len(codes) - _CODES_SHOWN} more"
    page = f"[{rule.id}]({Path(rule.runbook).relative_to('docs').as_posix()})" if rule.runbook else rule.id
    return f"| {page} | {rule.severity} | {rule.response} | {rule.repair} | {rule.clear_on} | {listed} |"


def _code_row(line: PolicyLine, catalogue: Catalogue) -> str:
    policy = catalogue.xid_policy(line.code, line.when)
    cells = (
        str(line.code),
        line.when,
        f"{policy.summary} ({policy.cause})",
        policy.severity.value,
        line.rule,
        f"{policy.response.value} / {policy.repair.value}",
        policy.why,
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _mnemonic(catalogue: Catalogue, code: int) -> str:
    policy = catalogue.xid_policy(code)
    return f"({policy.mnemonic}): {policy.summary}"


def main(arguments: Sequence[str]) -> int:
    """Write the page, or with ``--check`` compare it: 0 current, 1 stale. Other arguments: a path."""
    check = "--check" in arguments
    paths = [Path(argument) for argument in arguments if argument != "--check"]
    page = paths[0] if paths else PAGE
    text = render_policy(load_catalogue())
    if not check:
        page.write_text(text, encoding="utf-8")
        return 0
    if page.is_file() and page.read_text(encoding="utf-8") == text:
        return 0
    sys.stderr.write(f"{page} is not current: run python -m rules.docs\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
