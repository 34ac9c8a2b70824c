"""The words of a catalogue: rules, event patterns, XID facts, XID policy. Frozen; built by the loader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fleet.findings import ClearOn, Mode, Repair, Response, Severity
from fleet.observations import Event, EventKind
from rules.metrics.conditions import MetricCondition

# The kinds a finding is scored by (``sickbay backtest --labels``), and two of the host's own.
KINDS = frozenset(
    {
        "xid",
        "gpu_lost",
        "thermal",
        "power_brake",
        "ecc",
        "nvlink",
        "pcie",
        "straggler",
        "host_stall",
        "hang",
        "nic",
        "driver_fault",
        "machine_check",
    }
)

# What a metric condition itself can see the end of; all else ends by a repair, an epoch or a person.
ENDED_BY_METRICS = frozenset({ClearOn.BELOW_THRESHOLD_FOR, ClearOn.RECOVERY_ACTION_NONE})


class FatalWord(StrEnum):
    """What the line itself says about its severity (``Event.fatal``: True, False, None)."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"

    @staticmethod
    def of(fatal: bool | None) -> FatalWord:  # noqa: FBT001 - mirrors Event.fatal
        if fatal is None:
            return FatalWord.UNKNOWN
        return FatalWord.YES if fatal else FatalWord.NO


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Which events are meant: a kind, and optionally codes, variants, the fatal word, a known device, words.

    An XID pattern without codes means: the codes that the policy table gives to this rule.
    """

    event: EventKind
    codes: tuple[int, ...] = ()
    when: tuple[str, ...] = ()
    fatal: FatalWord | None = None
    located: bool | None = None
    contains: str | None = None

    def matches(self, event: Event, variant: str) -> bool:
        return (
            event.kind is self.event
            and (not self.codes or event.code in self.codes)
            and (not self.when or variant in self.when)
            and (self.fatal is None or FatalWord.of(event.fatal) is self.fatal)
            and (self.contains is None or self.contains in event.message)
            and (self.located is None or (event.pci is not None or event.gpu is not None) is self.located)
        )

    @property
    def by_table(self) -> bool:
        return self.event is EventKind.XID and not self.codes


@dataclass(frozen=True, slots=True, kw_only=True)
class Escalation:
    """A fault that is nobody's until it follows one GPU: then ``rule`` holds.

    ``distinct_jobs`` jobs must have met it on the same GPU, in one boot, within ``window_seconds``.
    """

    rule: str
    distinct_jobs: int
    window_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One declared rule, on events (``on``) or on metrics (``when``).

    ``says`` is a clause for the sentence a person reads; ``origin`` is file:line.
    """

    id: str
    kind: str
    severity: Severity
    response: Response
    repair: Repair
    mode: Mode
    clear_on: ClearOn
    summary: str
    why: str
    runbook: str | None = None
    says: str | None = None
    on: tuple[Pattern, ...] = ()
    when: MetricCondition | None = None
    closed_by: tuple[Pattern, ...] = ()
    escalate: Escalation | None = None
    origin: str = ""

    @property
    def compiles(self) -> bool:
        """True when the rule also becomes a PromQL alert; rules on events never do."""
        return self.when is not None

    @property
    def finds(self) -> bool:
        """False for a rule that only observes: it makes a sentence, never a finding."""
        return self.response is not Response.OBSERVE


@dataclass(frozen=True, slots=True, kw_only=True)
class XidFact:
    """What NVIDIA's XID catalogue says about a code, in our words. ``cause`` is the most likely one."""

    code: int
    mnemonic: str
    summary: str
    cause: str
    severity: Severity
    nvidia_action: str | None
    impact: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLine:
    """One line of our policy: what a code (in the variant ``when``, "" for the bare code) means to us.

    ``follows``: codes that explain this one when they came shortly before on the same GPU.
    """

    code: int
    when: str
    rule: str
    why: str
    follows: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class XidPolicy:
    """A code as we judge it: fact and policy together. An unknown code is observed, never fatal."""

    code: int
    when: str
    known: bool
    mnemonic: str | None
    summary: str
    cause: str | None
    severity: Severity
    rule: str | None
    response: Response
    repair: Repair
    why: str
    follows: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()


UNKNOWN_SUMMARY = "Not in the catalogue (NVIDIA's XID catalogue 610 and driver headers up to branch 595)"
UNKNOWN_WHY = (
    "A code we do not know is observed and never acted on: new drivers bring new codes, and the recovery "
    "action (XID 154) says what the driver itself wants"
)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All rules and the XID tables. ``rules`` is in order of precedence: a user's before the shipped."""

    rules: tuple[Rule, ...]
    facts: Mapping[int, XidFact]
    policy: Mapping[tuple[int, str], PolicyLine]
    by_id: Mapping[str, Rule] = field(init=False)

    @property
    def metric_rules(self) -> tuple[Rule, ...]:
        """The rules on metrics, in order of precedence."""
        return tuple(rule for rule in self.rules if rule.when is not None)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_id", {rule.id: rule for rule in self.rules})

    def xid_policy(self, code: int, when: str = "") -> XidPolicy:
        """Our judgement of ``code`` in the variant ``when``; the bare code's where there is no such line."""
        line = self.policy.get((code, when)) or self.policy.get((code, ""))
        fact = self.facts.get(code)
        rule = self.by_id.get(line.rule) if line is not None else None
        return XidPolicy(
            code=code,
            when=line.when if line is not None else "",
            known=fact is not None,
            mnemonic=fact.mnemonic if fact is not None else None,
            summary=fact.summary if fact is not None else UNKNOWN_SUMMARY,
            cause=fact.cause if fact is not None else None,
            severity=fact.severity if fact is not None else Severity.WARNING,
            rule=rule.id if rule is not None else None,
            response=rule.response if rule is not None else Response.OBSERVE,
            repair=rule.repair if rule is not None else Repair.NONE,
            why=line.why if line is not None else UNKNOWN_WHY,
            follows=line.follows if line is not None else (),
            sources=tuple(part.strip() for part in fact.source.split(";")) if fact is not None else (),
        )

    def variants(self, code: int) -> tuple[PolicyLine, ...]:
        """The policy lines of ``code``, the bare one first."""
        return tuple(sorted((p for p in self.policy.values() if p.code == code), key=lambda p: p.when))

    def rule_for(self, event: Event, variant: str) -> Rule | None:
        """The first rule whose pattern names this event (XIDs go through ``xid_policy``)."""
        for rule in self.rules:
            if any(p.matches(event, variant) for p in rule.on if not p.by_table):
                return rule
        return None

    def ended_by(self, event: Event, variant: str) -> tuple[str, ...]:
        """The ids of the rules whose findings on this GPU end with this event."""
        return tuple(rule.id for rule in self.rules if any(p.matches(event, variant) for p in rule.closed_by))
