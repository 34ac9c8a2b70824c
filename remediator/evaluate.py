"""From stored pushes to findings and incidents: one transaction per batch, each item marked processed in it.

Killed at any instant, an item is either weighed and marked, or still pending: nothing is lost, and since a
finding's id is made of rule, target and boot, weighing it again joins what is there.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from collector.encode import event_from_dict, to_dict
from fleet.clock import Clock
from fleet.errors import InvalidInputError
from fleet.findings import Finding, IncidentState, Response, Severity
from fleet.identity import is_node_name
from fleet.observations import Event
from remediator.lifecycle import other_machine
from remediator.policy import UNMANAGED_POOL, Policy
from remediator.records import (
    InboxItem,
    IncidentRecord,
    LedgerTransaction,
    Phase,
    StepRecord,
    Strike,
    Word,
    WordKind,
)
from remediator.world import World
from rules.catalogue import Catalogue
from rules.events import EventContext, PastEvent, weigh

HISTORY_SECONDS = 24 * 3600.0
HISTORY_LINES = 200
MAX_MESSAGE_CHARS = 300
OPEN_AMONG_LATEST = 20
#: Labels that may name a node in an alert, in this order; each is compared with the inventory exactly.
NODE_LABELS = ("node", "Hostname", "hostname", "instance")


def new_incident_id() -> str:
    """Short enough for a scheduler's reason, random enough never to repeat."""
    return "i-" + secrets.token_hex(4)


@dataclass(frozen=True, slots=True)
class Weighing:
    """What became of one batch. ``notices``: (finding id, sentence) of what a person should be told."""

    items: int
    findings: int
    opened: tuple[str, ...] = ()
    notices: tuple[tuple[str, str], ...] = ()


class Evaluator:
    """Weighs inbox items with the rules and keeps findings and incidents. Only the lease holder calls it."""

    def __init__(
        self,
        *,
        policy: Policy,
        catalogue: Catalogue,
        world: World,
        clock: Clock,
        incident_id: Callable[[], str] = new_incident_id,
    ) -> None:
        self._policy = policy
        self._catalogue = catalogue
        self._world = world
        self._clock = clock
        self._incident_id = incident_id
        self._waiting = 0

    def process(
        self, tx: LedgerTransaction, limit: int = 500, items: Sequence[InboxItem] | None = None
    ) -> Weighing:
        """Weigh up to ``limit`` pending items (or just ``items``) inside ``tx``."""
        # Items that had to wait lie in front of newer ones and must not crowd them out.
        items = tx.pending_inbox(limit + self._waiting) if items is None else items
        if not items:
            return Weighing(0, 0)
        findings = 0
        opened: list[str] = []
        self._notices: list[tuple[str, str]] = []
        done: list[int] = []
        for item in items:
            if item.kind == "event":
                answer = self._event(tx, item)
                if answer is None:
                    continue
                findings += answer[0]
                if answer[1] is not None:
                    opened.append(answer[1])
            else:
                self._alert(tx, item)
            done.append(item.id)
        tx.mark_processed(done, self._clock.now())
        self._waiting = len(items) - len(done)
        return Weighing(len(done), findings, tuple(opened), tuple(self._notices))

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
        if weighed.finding is not None and weighed.finding.response.acts and self._is_ending(tx, node):
            return None
        for stored in tx.findings(node=node) if weighed.closes else ():
            if weighed.ends(stored.finding):
                tx.clear_finding(stored.finding.id, self._clock.now(), weighed.sentence)
        if weighed.finding is None:
            self._note(tx, node, weighed.sentence, event=event, jobs=job_ids)
            return 0, None
        return self._finding(tx, weighed.finding, event, job_ids)

    def _finding(
        self, tx: LedgerTransaction, finding: Finding, event: Event, jobs: tuple[str, ...]
    ) -> tuple[int, str | None]:
        """Store a finding; open an incident or join the node's open one."""
        now = self._clock.now()
        current = _open_incident(tx, finding.node)
        if current is None and finding.response.acts:
            current = self._open(finding)
            tx.add_incident(current)
            new = tx.put_finding(finding, current.id, now)
            tx.add_strike(
                Strike(at=now, node=finding.node, rule=finding.rule, uuid=finding.uuid, incident=current.id)
            )
            self._note(tx, finding.node, finding.sentence, incident=current.id, event=event, jobs=jobs)
            return int(new), current.id
        new = tx.put_finding(finding, current.id if current is not None else None, now)
        if not new:
            return 0, None
        if finding.response is Response.NOTIFY:
            self._notices.append((finding.id, finding.sentence))
        incident = current.id if current is not None else None
        self._note(tx, finding.node, finding.sentence, incident=incident, event=event, jobs=jobs)
        if current is not None and finding.response.acts:
            joined = _join(current, finding, now)
            if joined != current:
                tx.update_incident(joined)
        return 1, None

    def _is_ending(self, tx: LedgerTransaction, node: str) -> bool:
        """The node's incident is being cancelled, or is about another machine: a new fault gets one of its
        own, as soon as that one is closed. Joined to it, it would be cancelled unseen.
        """
        current = _open_incident(tx, node)
        if current is None:
            return False
        record, _ = self._world.node(node)
        return current.cancelled_by is not None or bool(
            other_machine(current, record, self._world.contact(node))
        )

    def _open(self, finding: Finding) -> IncidentRecord:
        now = self._clock.now()
        record, _ = self._world.node(finding.node)
        contact = self._world.contact(finding.node)
        pool = self._policy.pool_of(record).name if record is not None else UNMANAGED_POOL
        return IncidentRecord(
            id=self._incident_id(),
            node=finding.node,
            pool=pool,
            rule=finding.rule,
            state=IncidentState.SUSPECTED,
            opened_at=now,
            updated_at=now,
            state_since=now,
            incarnation=(record.uid or record.machine_id) if record is not None else None,
            boot_id=finding.boot_id or (contact.boot_id if contact is not None else None),
            response=finding.response,
            repair=finding.repair,
            sentence=finding.sentence,
            expected_gpus=record.gpus_total if record is not None else None,
            prior={
                "agent_counts_gpus": contact is not None and contact.gpu_count is not None,
                "gpu_uuids": list(contact.gpu_uuids) if contact is not None else [],
            },
        )

    # -- alerts

    def _alert(self, tx: LedgerTransaction, item: InboxItem) -> None:
        """An alert is a hint: it is kept and told, and decides nothing by itself."""
        labels = item.payload.get("labels")
        labels = labels if isinstance(labels, Mapping) else {}
        node, problem = resolve_node(labels, self._world.inventory)
        name = str(labels.get("alertname") or "(unnamed alert)")[:100]
        status = str(item.payload.get("status") or "status missing")[:20]
        if node is None:
            self._note(
                tx, "-", f"alert {name} ({status}) names no node of the inventory ({problem}): kept, not used"
            )
            return
        self._note(
            tx,
            node,
            f"alert {name} ({status}) is a hint: what sickbay itself sees of {node} decides",
            alert={"name": name, "status": status},
        )

    # -- ledger lines

    def _note(
        self,
        tx: LedgerTransaction,
        node: str,
        sentence: str,
        *,
        incident: str | None = None,
        event: Event | None = None,
        jobs: tuple[str, ...] = (),
        alert: Mapping[str, Any] | None = None,
    ) -> None:
        payload: dict[str, object] = {}
        if event is not None:
            payload = {"event": _event_payload(event), "jobs": list(jobs)}
        if alert is not None:
            payload["alert"] = dict(alert)
        tx.append(
            StepRecord(
                at=self._clock.now(),
                phase=Phase.DECISION,
                # Half of a surrogate pair is legal in JSON and in no database.
                reason=sentence.encode("utf-8", "backslashreplace").decode("utf-8"),
                node=node,
                incident=incident,
                payload=payload,
            )
        )


def resolve_node(labels: Mapping[str, Any], inventory: Collection[str] | None) -> tuple[str | None, str]:
    """The one inventory node an alert's labels name, or (None, ``invalid|unknown|ambiguous``).

    A label such as ``node[1-1000]`` names no node; ``instance`` loses its port; a name is compared
    whole, then without its domain.
    """
    known = frozenset(inventory or ())
    found: set[str] = set()
    problem = "unknown"
    for label in NODE_LABELS:
        value = labels.get(label)
        if not isinstance(value, str) or not value:
            continue
        host = value.rsplit(":", 1)[0] if label == "instance" and value.count(":") == 1 else value
        if not is_node_name(host):
            problem = "invalid"
            continue
        for candidate in (host, host.split(".", 1)[0]):
            if candidate in known:
                found.add(candidate)
                break
    if len(found) == 1:
        return found.pop(), ""
    return None, "ambiguous" if found else problem


def _open_incident(tx: LedgerTransaction, node: str) -> IncidentRecord | None:
    # A node has one open incident at most, and it is among its latest (the wall clock may have gone back).
    latest = tx.incidents(node=node, limit=OPEN_AMONG_LATEST)
    return next((incident for incident in latest if not incident.state.is_closed), None)


def _join(incident: IncidentRecord, finding: Finding, now: float) -> IncidentRecord:
    """The incident takes the strongest response and repair of its findings; its mark stays what it was."""
    response = max(incident.response, finding.response, key=lambda r: r.rank)
    repair = max(incident.repair, finding.repair, key=lambda r: r.rank)
    if incident.state.holds_node:
        # The ladder is under way: a new finding may raise what comes next, never lower it.
        response = max(response, incident.response, key=lambda r: r.rank)
    if (response, repair) == (incident.response, incident.repair):
        return incident
    return replace(incident, response=response, repair=repair, updated_at=now)


def _event_payload(event: Event) -> dict[str, object]:
    """A past event as later weighing needs it: whole (a cause may lie in any field), its message bounded."""
    short = replace(event, message=event.message[:MAX_MESSAGE_CHARS])
    return to_dict(short) | {"boot_id": event.boot_id}


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
