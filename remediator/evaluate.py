"""From stored pushes to findings and incidents: one transaction per batch, each item marked processed in it.

Killed at any instant, an item is either weighed and marked, or still pending: nothing is lost, and since a
finding's id is made of rule, target and boot, weighing it again joins what is there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from collector.alertmanager.subject import by_name, resolve_node
from collector.encode import event_from_dict
from fleet.clock import Clock
from fleet.errors import InvalidInputError
from fleet.findings import Finding, Severity
from remediator.alert_word import AlertWord, read_alert, weigh_alert
from remediator.casebook import Casebook
from remediator.policy import Policy
from remediator.records import (
    InboxItem,
    IncidentRecord,
    LedgerTransaction,
    Word,
    WordKind,
)
from remediator.situation import boot_now
from remediator.world import World
from rules.catalogue import Catalogue
from rules.events import EventContext, PastEvent, weigh
from rules.metrics.state import MetricEvaluation

HISTORY_SECONDS = 24 * 3600.0
HISTORY_LINES = 200


@dataclass(frozen=True, slots=True)
class Weighing:
    """What became of one batch. ``notices``: (finding id, sentence) of what a person should be told."""

    items: int
    findings: int
    opened: tuple[str, ...] = ()
    notices: tuple[tuple[str, str], ...] = ()

    def __add__(self, other: Weighing) -> Weighing:
        return Weighing(
            self.items + other.items,
            self.findings + other.findings,
            self.opened + other.opened,
            self.notices + other.notices,
        )


class Evaluator:
    """Weighs inbox items with the rules and keeps findings and incidents. Only the lease holder calls it."""

    def __init__(
        self, *, policy: Policy, catalogue: Catalogue, world: World, clock: Clock, casebook: Casebook
    ) -> None:
        self._policy = policy
        self._catalogue = catalogue
        self._world = world
        self._clock = clock
        self._casebook = casebook
        self._note = casebook.note
        self._waiting = 0

    def process(
        self, tx: LedgerTransaction, limit: int = 500, items: Sequence[InboxItem] | None = None
    ) -> Weighing:
        """Weigh up to ``limit`` pending items (or just ``items``) inside ``tx``."""
        # Items that had to wait lie in front of newer ones and must not crowd them out.
        items = tx.pending_inbox(limit + self._waiting) if items is None else items
        if not items:
            return Weighing(0, 0)
        self._casebook.take_notices()  # those of a transaction that was rolled back
        findings = 0
        opened: list[str] = []
        done: list[int] = []
        for item in items:
            answer = self._event(tx, item) if item.kind == "event" else self._alert(tx, item)
            if answer is None:
                continue
            findings += answer[0]
            if answer[1] is not None:
                opened.append(answer[1])
            done.append(item.id)
        tx.mark_processed(done, self._clock.now())
        self._waiting = len(items) - len(done)
        return Weighing(len(done), findings, tuple(opened), self._casebook.take_notices())

    def skip(self, tx: LedgerTransaction, item: InboxItem, error: Exception) -> None:
        """An item that can never be weighed: told, and out of the way of those behind it."""
        text = f"a stored {item.kind} (inbox {item.id}) cannot be weighed and is skipped: {error}"
        self._note(tx, item.node or "-", text)
        tx.mark_processed([item.id], self._clock.now())

    # -- events

    def _event(self, tx: LedgerTransaction, item: InboxItem) -> tuple[int, str | None] | None:
        """(new findings, opened incident); None: not yet, the item stays in the inbox."""
        node = item.node or ""
        inventory = self._world.inventory
        if inventory is not None and node not in inventory:
            self._note(tx, "-", f"an event names {node!r}, which the inventory does not know: ignored")
            return 0, None
        try:
            event = event_from_dict(item.payload)
        except InvalidInputError as error:
            self._note(tx, node, f"a stored event cannot be read any more and is skipped: {error}")
            return 0, None
        boot_id = item.payload.get("boot_id")
        event = replace(event, node=node, boot_id=boot_id if isinstance(boot_id, str) else None)
        # The ledger first: an agent's word is stored with its events, and only then told to the world.
        contact = tx.agent(node) or self._world.contact(node)
        jobs, _ = self._world.jobs_on(node)
        job_ids = tuple(job.id for job in jobs)
        context = EventContext(
            node=node,
            current_boot_id=contact.boot_id if contact is not None else None,
            jobs=job_ids,
            history=_history(tx, node, event.time),
            modes=self._policy.rule_modes,
            disabled=self._policy.disabled_rules,
        )
        weighed = weigh(event, context, self._catalogue)
        if (
            weighed.finding is not None
            and weighed.finding.response.acts
            and self._casebook.is_ending(tx, node)
        ):
            return None
        for stored in tx.findings(node=node) if weighed.closes else ():
            if weighed.ends(stored.finding):
                tx.clear_finding(stored.finding.id, self._clock.now(), weighed.sentence)
        if weighed.finding is None:
            self._note(tx, node, weighed.sentence, event=event, jobs=job_ids)
            return 0, None
        return self._casebook.take(tx, weighed.finding, event=event, jobs=job_ids)

    # -- metrics

    def take_in_metrics(self, tx: LedgerTransaction, evaluation: MetricEvaluation) -> Weighing:
        """Store what an evaluation of the metric rules found and ended. What cannot be taken now (the node's
        incident is being cancelled, two machines speak for it) is found again by a later evaluation: its
        condition still holds. What the ledger holds open already was found by another controller.
        """
        self._casebook.take_notices()  # those of a transaction that was rolled back
        now = self._clock.now()
        nodes = {stored.finding.id: stored.finding.node for stored in tx.findings()}
        for finding_id, sentence in evaluation.cleared:
            if finding_id in nodes:
                tx.clear_finding(finding_id, now, sentence)
                self._note(tx, nodes[finding_id], sentence)
        findings = 0
        opened: list[str] = []
        for finding in evaluation.findings:
            inventory = self._world.inventory
            if inventory is None or finding.node not in inventory:
                continue
            if finding.response.acts and self._casebook.is_ending(tx, finding.node):
                continue
            if not self._is_of_now(tx, finding) or _is_known(tx, finding):
                continue
            new, incident = self._casebook.take(tx, finding)
            findings += new
            if incident is not None:
                opened.append(incident)
        return Weighing(0, findings, tuple(opened), self._casebook.take_notices())

    def _is_of_now(self, tx: LedgerTransaction, finding: Finding) -> bool:
        """Nothing of an earlier boot triggers, nor of a name that two machines answer to."""
        contact = tx.agent(finding.node) or self._world.contact(finding.node)
        heard = self._world.contact(finding.node)
        if heard is not None and heard.contested:
            return False
        return contact is None or finding.boot_id in (None, contact.boot_id)

    # -- alerts

    def _alert(self, tx: LedgerTransaction, item: InboxItem) -> tuple[int, str | None] | None:
        """An alert of one of our own rules, for a node that we do not watch ourselves, is a finding. Every
        other is a hint: it is kept and told, and decides nothing.
        """
        alert = read_alert(item.payload)
        node, problem = resolve_node(alert.labels, by_name(self._world.inventory or ()))
        if node is None:
            text = f"alert {alert.name} ({alert.status}) names no node of the inventory ({problem})"
            self._note(tx, "-", f"{text}: kept, not used")
            return 0, None
        told = {"name": alert.name, "status": alert.status}
        cluster = alert.labels.get("cluster")
        if isinstance(cluster, str) and cluster not in ("", self._policy.cluster):
            text = (
                f"alert {alert.name} ({alert.status}) is about {node} of cluster {cluster[:60]!r}, not ours"
            )
            self._note(tx, node, f"{text} ({self._policy.cluster!r}): kept, not used", alert=told)
            return 0, None
        age = self._clock.now() - item.received_at
        if self._world.awaits_sight and 0 <= age <= self._policy.metrics_stale_seconds:
            # Whether we watch this node ourselves is known with the first evaluation of our own. If none
            # comes, Prometheus' eyes are all there are.
            return None
        if alert.resolved:
            self._resolved(tx, node, alert)
            return 0, None
        if not alert.firing:
            text = f"alert {alert.name} on {node}: {alert.status!r} is neither firing nor resolved: not used"
            self._note(tx, node, text, alert=told)
            return 0, None
        contact = tx.agent(node) or self._world.contact(node)
        sight = self._world.sight
        record, _ = self._world.node(node)
        weighed = weigh_alert(
            alert,
            node,
            self._catalogue,
            boot_id=None if contact is not None and contact.contested else boot_now(record, contact),
            boot_time=record.boot_time if record is not None else None,
            watched=sight is not None and node in sight.watched,
            modes=self._policy.rule_modes,
            disabled=self._policy.disabled_rules,
            received_at=item.received_at,
        )
        if isinstance(weighed, str):
            self._note(tx, node, weighed, alert=told)
            return 0, None
        ended = [f for f in tx.findings(node=node, include_cleared=True) if f.finding.id == weighed.id]
        if ended and ended[0].cleared_at is not None:
            text = f"alert {alert.name} repeats what has ended ({ended[0].clear_reason}): not used again"
            self._note(tx, node, text, alert=told)
            return 0, None
        if weighed.response.acts and self._casebook.is_ending(tx, node):
            return None
        return self._casebook.take(tx, weighed)

    def _resolved(self, tx: LedgerTransaction, node: str, alert: AlertWord) -> None:
        """Prometheus resolves in every gap: a resolved alert ends nothing, but nobody sees the fault now, so
        nothing new is begun on its word.
        """
        mine = [s for s in tx.findings(node=node) if s.finding.evidence.get("alert") == alert.key]
        for stored in mine:
            evidence = {**stored.finding.evidence, "resolved_at": self._clock.now()}
            tx.amend_finding(stored.finding.id, evidence)
        what = (
            "its finding stays until it is verified" if mine else "a hint: what sickbay itself sees decides"
        )
        text = f"alert {alert.name} (resolved) on {node}: {what}"
        self._note(tx, node, text, alert={"name": alert.name, "status": alert.status})


def _is_known(tx: LedgerTransaction, finding: Finding) -> bool:
    """Open already: the same rule on the same part of the same boot, under another id (the evaluation of a
    controller that has only now become the leader may be older than what the last one stored).
    """
    return any(
        stored.finding.source == finding.source
        and stored.finding.rule == finding.rule
        and stored.finding.uuid == finding.uuid
        and stored.finding.evidence.get("part") == finding.evidence.get("part")
        and (stored.finding.boot_id == finding.boot_id or None in (stored.finding.boot_id, finding.boot_id))
        for stored in tx.findings(node=finding.node)
    )


def _history(tx: LedgerTransaction, node: str, now: float) -> tuple[PastEvent, ...]:
    """The node's events of the last day, oldest first, from the ledger: a restart forgets nothing."""
    past: list[PastEvent] = []
    for step in tx.steps(node=node, limit=HISTORY_LINES):
        raw = step.payload.get("event")
        if not isinstance(raw, Mapping) or step.at < now - HISTORY_SECONDS:
            continue
        try:
            event = event_from_dict({"node": node, **raw})
        except InvalidInputError:
            # A line of an older version with another shape: it is history only, the present decides.
            continue
        jobs = step.payload.get("jobs")
        past.append(PastEvent(event, tuple(str(job) for job in jobs) if isinstance(jobs, list) else ()))
    return tuple(past)


def cooldown_word(incident: IncidentRecord, now: float, seconds: float, why: str) -> Word:
    """The cool-off that follows when somebody lifted our cordon."""
    return Word(
        kind=WordKind.COOLDOWN,
        target=incident.node,
        author="sickbay",
        reason=f"{why} (incident {incident.id})",
        since=now,
        expires_at=now + seconds,
    )


def worst(findings: Collection[Finding]) -> Severity | None:
    """The highest severity among findings; None when there are none."""
    return max((finding.severity for finding in findings), key=lambda s: s.rank, default=None)
