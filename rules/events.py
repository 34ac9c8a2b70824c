"""The event engine: one event, what is known around it, and the catalogue -> a finding, or why not.

Pure: no clock, no store, no I/O; the same input gives the same answer, live and in backtests. Any Event
is answered, whatever its source made of it. Silence is the safe side: whoever is not surely sick makes a
sentence and no finding.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fleet.findings import Finding, Mode
from fleet.identity import pci_join_key
from fleet.observations import Event, EventKind
from rules.model import Catalogue, Rule, XidPolicy
from rules.sentences import clean, code_text, consequence, first_clause, label, names, sentence
from rules.variants import NVLINK_CODES, variant

FOLLOW_WINDOW_SECONDS = 60.0
"""How far apart a cause and its consequence may be printed. Field data put the persistence of an NVLink
error at 1 s and of a GSP time-out at 100 s (P95, Delta, arXiv 2503.11901); a minute joins what belongs
together without swallowing the next fault."""

_SAYS = {
    "fatal_peer_first": "an NVLink of the GPU is down, its peer went down first",
    "fatal_by_intent": "an NVLink of the GPU was taken down by software, operator or host",
}

HISTORY_SECONDS = 86_400.0
"""How much of a node's past ``EventContext.history`` should hold."""


@dataclass(frozen=True, slots=True)
class PastEvent:
    """An earlier event of the same node, and the jobs that were on its GPU (or node) then."""

    event: Event
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventContext:
    """What must be known to weigh an event.

    ``current_boot_id``: the node's epoch as its agent last said (None: not known yet). ``jobs``: those on
    the GPU, or on the node where the GPU cannot be told, at the time. ``history``: this node's events of
    the last 24 h, in any order; it may hold the event itself. ``modes``: the configured mode of a rule,
    in place of its own.
    """

    node: str
    current_boot_id: str | None = None
    jobs: tuple[str, ...] = ()
    history: Sequence[PastEvent] = ()
    modes: Mapping[str, Mode] = field(default_factory=dict)
    disabled: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Weighed:
    """The judgement of one event: a finding or none, the rules whose findings end, one sentence why.

    ``closes`` are rule ids: their open findings on this ``target`` of the node end (``ends``).
    ``rule`` is the rule that judged, with or without a finding; None when none knows the event.
    """

    finding: Finding | None
    closes: tuple[str, ...]
    sentence: str
    rule: str | None = None
    target: str = "-"

    def ends(self, finding: Finding) -> bool:
        """True when ``finding`` (of the same node) ends with this event."""
        return finding.rule in self.closes and self.target == _finding_target(finding)


def weigh(event: Event, context: EventContext, catalogue: Catalogue) -> Weighed:
    """Judge one event. Never raises on any Event."""
    reason = _not_to_be_judged(event, context)
    if reason is not None:
        return Weighed(None, (), sentence(label(event, context.node), reason), target=target(event))
    if event.kind is EventKind.XID and event.code is not None:
        weighed = _weigh_xid(event, context, catalogue)
    else:
        weighed = _weigh_other(event, context, catalogue)
    return weighed


def target(event: Event) -> str:
    """What a finding is about: the device's address without function, else its UUID, else the node."""
    if event.pci is not None:
        return pci_join_key(event.pci)
    return event.gpu or "-"


def finding_id(rule: str, node: str, target_: str, boot_id: str | None) -> str:
    """The same fault of the same epoch has the same id: a repeat joins."""
    key = "\x00".join((rule, node, target_, boot_id or "-"))
    return "f-" + hashlib.sha256(key.encode("utf-8", "backslashreplace")).hexdigest()[:12]


def _finding_target(finding: Finding) -> str:
    return pci_join_key(finding.gpu) if finding.gpu is not None else finding.uuid or "-"


def _not_to_be_judged(event: Event, context: EventContext) -> str | None:
    """Why an event may never lead to anything, or None."""
    if event.uncertain:
        return "the line is torn, so it is noted and never acted on"
    if event.node is not None and event.node != context.node:
        return f"names node {clean(event.node, 64)}, not {clean(context.node, 64)}: refused"
    current = context.current_boot_id
    if current is not None and event.boot_id != current:
        if event.boot_id is None:
            return "does not say which boot it belongs to, so it triggers nothing"
        return "belongs to an earlier boot, so it triggers nothing"
    return None


# -- XIDs -----------------------------------------------------------------------------------------


def _weigh_xid(event: Event, context: EventContext, catalogue: Catalogue) -> Weighed:
    when = variant(event)
    policy = catalogue.xid_policy(event.code or 0, when)
    closes = catalogue.ended_by(event, when)
    rule = catalogue.by_id.get(policy.rule) if policy.rule is not None else None
    head = label(event, context.node)
    says = first_clause(policy.summary)
    if rule is None:
        text = sentence(head, "not in the catalogue", "observed, never acted on")
        return Weighed(None, closes, text, target=target(event))
    explained = _explained(event, context, catalogue, policy)
    if explained is not None:
        return Weighed(None, closes, sentence(head, says, explained), rule.id, target(event))
    if rule.escalate is not None and event.cause is None:
        return _blame(event, context, catalogue, rule, says)
    if not rule.finds:
        return Weighed(
            None, closes, sentence(head, says, _observed(event, when, closes)), rule.id, target(event)
        )
    return _finding(
        event, context, rule, says=_SAYS.get(when) or rule.says or says, policy=policy, closes=closes
    )


def _observed(event: Event, when: str, closes: tuple[str, ...]) -> str:
    if event.cause is not None:
        return f"follows XID {code_text(event.cause)}, whose own line decides"
    if when == "none":
        return "the driver needs no recovery any more"
    if when == "sympathetic":
        return "the other end of the link decides, nothing is done here"
    return "ends the finding it answers" if closes else "noted, nothing is done"


def _explained(event: Event, context: EventContext, catalogue: Catalogue, policy: XidPolicy) -> str | None:
    """Why another event already stands for this one, or None: acting twice helps nobody.

    Only an event that was seen explains, on the same GPU (on a link: at the other end), and only if it
    asks for at least as much: a lost or weaker cause never swallows a fault.
    """
    near = [
        past.event for past in _near(event, context, FOLLOW_WINDOW_SECONDS) if not _same(past.event, event)
    ]
    here = [past for past in near if target(past) == target(event) and past.kind is EventKind.XID]
    causes = {*policy.follows, *(() if event.cause is None else (event.cause,))}
    for past in here:
        if past.code in causes and past.code is not None and past.code != event.code:
            stands = catalogue.xid_policy(past.code, variant(past))
            if stands.response.rank >= policy.response.rank and stands.rule not in context.disabled:
                return f"follows XID {past.code}, which has been judged already"
    if event.code in NVLINK_CODES:
        return _other_end(event, near, catalogue, policy)
    return None


def _other_end(event: Event, near: Sequence[Event], catalogue: Catalogue, policy: XidPolicy) -> str | None:
    """A link has two ends: the NVSwitch, or the peer if this end says that the peer went down first."""
    for past in near:
        if past.kind is EventKind.SXID and past.fatal:
            code = code_text(past.code)
            return f"the NVSwitch reported it first (SXID {code}), which has been judged already"
    if policy.when not in ("sympathetic", "fatal_peer_first"):
        return None
    for past in near:
        if past.kind is not EventKind.XID or past.code is None or past.code not in NVLINK_CODES:
            continue
        peer, stands = target(past), catalogue.xid_policy(past.code, variant(past))
        if peer == target(event) or "-" in (peer, target(event)):
            continue
        if stands.response.acts and stands.when != "fatal_peer_first":
            return f"the other end went down first ({clean(peer, 64)}), which has been judged already"
    return None


def _blame(event: Event, context: EventContext, catalogue: Catalogue, rule: Rule, says: str) -> Weighed:
    """An application fault: the job's, until it follows the GPU across distinct jobs."""
    escalation = rule.escalate
    if escalation is not None:
        suspect = catalogue.by_id.get(escalation.rule)
        jobs = _jobs_that_point_at_gpu(event, context, catalogue, rule.id, escalation.window_seconds)
        if suspect is not None and len(jobs) >= escalation.distinct_jobs:
            clause = f"{says}; {suspect.says or suspect.summary} ({names(jobs)})"
            return _finding(event, context, suspect, says=clause, extra={"jobs": list(jobs)})
    blamed = f"blames {names(context.jobs)}" if context.jobs else "no job is known to blame"
    text = sentence(label(event, context.node), says, f"{blamed}, not the GPU")
    return Weighed(None, (), text, rule.id, target(event))


def _jobs_that_point_at_gpu(
    event: Event, context: EventContext, catalogue: Catalogue, rule_id: str, window: float
) -> tuple[str, ...]:
    """At least how many distinct jobs met such a fault on this GPU: one name for each.

    Events whose jobs overlap may be one job's, so only disjoint job sets count (a lower bound). A job that
    faults on another GPU of the node as well carries its bug along and does not count.
    """
    here = target(event)
    if here == "-":
        return ()
    past = [
        item
        for item in _near(event, context, window)
        if item.event.kind is EventKind.XID
        and item.event.code is not None
        and item.event.cause is None
        and catalogue.xid_policy(item.event.code, variant(item.event)).rule == rule_id
    ]
    elsewhere = {job for item in past if target(item.event) not in (here, "-") for job in item.jobs}
    sets = [frozenset(item.jobs) for item in past if target(item.event) == here]
    sets.append(frozenset(context.jobs))
    taken: set[str] = set()
    found: list[str] = []
    for jobs in sorted((s for s in sets if s and not s & elsewhere), key=lambda s: (len(s), sorted(s))):
        if not jobs & taken:
            taken |= jobs
            found.append(min(jobs))
    return tuple(found)


# -- everything else ------------------------------------------------------------------------------


def _weigh_other(event: Event, context: EventContext, catalogue: Catalogue) -> Weighed:
    rule = catalogue.rule_for(event, "")
    closes = catalogue.ended_by(event, "")
    head = label(event, context.node)
    if rule is None or not rule.finds:
        text = sentence(head, "noted, nothing is done")
        return Weighed(None, closes, text, rule.id if rule is not None else None, target(event))
    repeats = _repeats(event, context)
    if repeats is not None:
        return Weighed(None, closes, sentence(head, repeats), rule.id, target(event))
    return _finding(event, context, rule, says=rule.says or first_clause(rule.summary), closes=closes)


def _repeats(event: Event, context: EventContext) -> str | None:
    """Why a line that names less only repeats one that named more, or None.

    The driver closes a failed start with a line without a device ("probe failed for 1 device"), the
    NVSwitch driver follows an error with lines without a severity.
    """
    near = [past.event for past in _near(event, context, FOLLOW_WINDOW_SECONDS)]
    if event.kind is EventKind.DRIVER_FAULT and target(event) == "-":
        named = (EventKind.DRIVER_FAULT, EventKind.GPU_LOST)
        if any(past.kind in named and target(past) != "-" for past in near):
            return "follows a fault that names its GPU, which has been judged already"
    if event.kind is EventKind.SXID and event.fatal is None:
        severe = any(_same(past, event) and past.fatal is not None for past in near)
        return "follows the line that gives its severity, which has been judged already" if severe else None
    return None


# -- shared ---------------------------------------------------------------------------------------


def _near(event: Event, context: EventContext, seconds: float) -> Iterator[PastEvent]:
    """The sound events of this node and boot within ``seconds`` of the event."""
    for past in context.history:
        other = past.event
        if other.uncertain or other.boot_id != event.boot_id:
            continue
        if other.node is not None and other.node != context.node:
            continue
        if abs(event.time - other.time) <= seconds:
            yield past


def _same(one: Event, other: Event) -> bool:
    """The event itself, as history may hold it, or a repeat of it."""
    return one.kind is other.kind and one.code == other.code and target(one) == target(other)


def _finding(
    event: Event,
    context: EventContext,
    rule: Rule,
    *,
    says: str,
    policy: XidPolicy | None = None,
    closes: tuple[str, ...] = (),
    extra: Mapping[str, object] | None = None,
) -> Weighed:
    text = sentence(label(event, context.node), says, consequence(rule.response, rule.repair))
    if rule.id in context.disabled:
        text = sentence(label(event, context.node), says, f"rule {rule.id} is disabled, nothing is done")
        return Weighed(None, closes, text, rule.id, target(event))
    finding = Finding(
        id=finding_id(rule.id, context.node, target(event), event.boot_id),
        rule=rule.id,
        kind=rule.kind,
        node=context.node,
        severity=rule.severity,
        response=rule.response,
        repair=rule.repair,
        clear_on=rule.clear_on,
        since=event.time,
        mode=context.modes.get(rule.id, rule.mode),
        gpu=event.pci,
        uuid=event.gpu,
        boot_id=event.boot_id,
        source="agent",
        sentence=text,
        evidence=_evidence(event, policy, extra),
    )
    return Weighed(finding, tuple(name for name in closes if name != rule.id), text, rule.id, target(event))


def _evidence(
    event: Event, policy: XidPolicy | None, extra: Mapping[str, object] | None
) -> Mapping[str, object]:
    """What speaks for the finding, JSON-ready and bounded."""
    values: dict[str, object] = {
        "event": event.kind.value,
        "code": event.code if event.code is None or abs(event.code) < 2**53 else None,
        "mnemonic": policy.mnemonic if policy is not None else None,
        "pci": clean(event.pci, 64) if event.pci is not None else None,
        "process": clean(event.process, 128) if event.process is not None else None,
        "pid": event.pid,
        "link": event.link,
        "recovery_action": event.recovery_action.value if event.recovery_action is not None else None,
        "count": event.count,
        "message": clean(event.message),
    }
    kept = {key: value for key, value in values.items() if value is not None}
    return {**kept, **(extra or {})}
