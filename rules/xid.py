"""What a code means, what we do about it and why: the answer behind ``sickbay xid``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from collector.kernel_log import LogContext, read_kernel_log
from fleet.findings import Repair, Response, Severity
from fleet.observations import Event, EventKind, Problem
from rules.events import EventContext, Weighed, weigh
from rules.model import Catalogue, XidPolicy

POLICY_PAGE = "docs/xid-policy.md"


@dataclass(frozen=True, slots=True)
class Variant:
    """What we do when the event's own words say ``when`` (docs/xid-policy.md)."""

    when: str
    rule: str | None
    response: Response
    repair: Repair
    why: str


@dataclass(frozen=True, slots=True)
class LineReading:
    """What was understood of one log line: its event and the judgement of it, or the problems."""

    event: Event | None
    weighed: Weighed | None
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class XidAnswer:
    """Fact and policy of one code, its variants, and the decision about a given line."""

    policy: XidPolicy
    variants: tuple[Variant, ...]
    runbook: str | None
    line: LineReading | None = None

    def as_json(self) -> dict[str, Any]:
        """The contract of ``sickbay xid CODE --json``; ``line`` is there only when one was given."""
        policy = self.policy
        answer: dict[str, Any] = {
            "code": policy.code,
            "mnemonic": policy.mnemonic,
            "summary": policy.summary,
            "cause": policy.cause,
            "severity": policy.severity.value,
            "response": policy.response.value,
            "repair": policy.repair.value,
            "why": policy.why,
            "known": policy.known,
            "sources": [*policy.sources, POLICY_PAGE],
            "rule": policy.rule,
            "runbook": self.runbook,
            "variants": [
                {
                    "when": one.when,
                    "rule": one.rule,
                    "response": one.response.value,
                    "repair": one.repair.value,
                    "why": one.why,
                }
                for one in self.variants
            ],
        }
        if self.line is not None:
            answer["line"] = _line_json(self.line)
        return answer


def explain(code: int, catalogue: Catalogue, line: bytes | None = None, *, now: float = 0.0) -> XidAnswer:
    """The answer for ``code``; with ``line`` (one kernel log line) also the decision for that very event.

    ``now`` (epoch seconds) only completes the line's own time stamp. A line that holds several events is
    judged by its first XID. Never raises on any line.
    """
    policy = catalogue.xid_policy(code)
    variants = tuple(
        Variant(one.when, one.rule, one.response, one.repair, one.why)
        for entry in catalogue.variants(code)
        if entry.when
        for one in [catalogue.xid_policy(code, entry.when)]
    )
    rule = catalogue.by_id.get(policy.rule) if policy.rule is not None else None
    return XidAnswer(
        policy=policy,
        variants=variants,
        runbook=rule.runbook if rule is not None else None,
        line=None if line is None else _read(line, catalogue, now),
    )


def _read(line: bytes, catalogue: Catalogue, now: float) -> LineReading:
    reading = read_kernel_log(line, LogContext(node=None, now=now))
    events = sorted(reading.events, key=lambda event: event.kind is not EventKind.XID)
    if not events:
        return LineReading(None, None, reading.problems)
    event = events[0]
    context = EventContext(node=event.node or "this node", current_boot_id=event.boot_id)
    return LineReading(event, weigh(event, context, catalogue), reading.problems)


def _line_json(line: LineReading) -> dict[str, Any]:
    event, weighed = line.event, line.weighed
    return {
        "event": None
        if event is None
        else {
            "kind": event.kind.value,
            "code": event.code,
            "pci": event.pci,
            "pid": event.pid,
            "process": event.process,
            "cause": event.cause,
            "link": event.link,
            "unit": event.unit,
            "registers": list(event.registers),
            "fatal": event.fatal,
            "recovery_action": event.recovery_action.value if event.recovery_action is not None else None,
            "uncertain": event.uncertain,
            "count": event.count,
            "message": event.message,
        },
        "decision": None if weighed is None else decision_json(weighed),
        "problems": [{"reason": p.reason.value, "message": p.message} for p in line.problems],
    }


def decision_json(weighed: Weighed) -> dict[str, Any]:
    """A judgement as plain data. Without a finding the response is observe."""
    finding = weighed.finding
    return {
        "rule": weighed.rule,
        "severity": finding.severity.value if finding is not None else Severity.INFO.value,
        "response": finding.response.value if finding is not None else Response.OBSERVE.value,
        "repair": finding.repair.value if finding is not None else Repair.NONE.value,
        "closes": list(weighed.closes),
        "sentence": weighed.sentence,
    }
