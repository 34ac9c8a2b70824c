"""The casebook: findings that come in open an incident or join the node's open one; notes go beside them.

Every method runs inside the ledger transaction it is given: a finding, its incident and the line that tells
why are never apart. Whoever weighs something (events, metrics, alerts) brings its findings here.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from collector.encode import to_dict
from fleet.clock import Clock
from fleet.findings import Finding, IncidentState, Mode, Response
from fleet.observations import Event
from fleet.scheduler import NodeRecord
from remediator.policy import UNMANAGED_POOL, Policy
from remediator.records import AgentContact, IncidentRecord, LedgerTransaction, Phase, StepRecord, Strike
from remediator.situation import ALERTS, AWAY, boot_now, other_machine, owns_cordon
from remediator.world import World
from rules.model import ENDED_BY_METRICS

MAX_MESSAGE_CHARS = 300
OPEN_AMONG_LATEST = 20
#: What metrics, or Alertmanager, have not shown for so long counts as over where nobody else sees its end.
QUIET_SECONDS = 600.0
#: Slurm's boot time drifts by a second within one boot, and its clock is not ours.
BOOT_DRIFT_SECONDS = 30.0


def new_incident_id() -> str:
    """Short enough for a scheduler's reason, random enough never to repeat."""
    return "i-" + secrets.token_hex(4)


class Casebook:
    """Keeps findings and incidents. ``notices``: (finding id, sentence) of what a person should be told,
    gathered until ``take_notices``.
    """

    def __init__(
        self,
        *,
        policy: Policy,
        world: World,
        clock: Clock,
        incident_id: Callable[[], str] = new_incident_id,
    ) -> None:
        self._policy = policy
        self._world = world
        self._clock = clock
        self._incident_id = incident_id
        self._notices: list[tuple[str, str]] = []

    def take_notices(self) -> tuple[tuple[str, str], ...]:
        """What was gathered since the last call."""
        notices, self._notices = tuple(self._notices), []
        return notices

    def take(
        self,
        tx: LedgerTransaction,
        finding: Finding,
        *,
        event: Event | None = None,
        jobs: tuple[str, ...] = (),
    ) -> tuple[int, str | None]:
        """Store a finding; open an incident or join the node's open one. (new findings, incident opened)."""
        now = self._clock.now()
        current = open_incident(tx, finding.node)
        handed_over = self._in_hands(tx, finding.node) if current is None else None
        if handed_over is not None:
            new = tx.put_finding(finding, handed_over.id, now)
            if new:
                text = f"{finding.sentence}; the node is handed over already"
                self.note(tx, finding.node, text, incident=handed_over.id, event=event, jobs=jobs)
            return int(new), None
        if current is None and finding.response.acts:
            current = self._open(finding)
            tx.add_incident(current)
            new = tx.put_finding(finding, current.id, now)
            tx.add_strike(
                Strike(at=now, node=finding.node, rule=finding.rule, uuid=finding.uuid, incident=current.id)
            )
            self.note(tx, finding.node, finding.sentence, incident=current.id, event=event, jobs=jobs)
            return int(new), current.id
        new = tx.put_finding(finding, current.id if current is not None else None, now)
        if not new:
            return 0, None
        if finding.response is Response.NOTIFY:
            self._notices.append((finding.id, finding.sentence))
        incident = current.id if current is not None else None
        self.note(tx, finding.node, finding.sentence, incident=incident, event=event, jobs=jobs)
        if current is not None and finding.response.acts:
            beside = [s.finding for s in tx.findings(incident=current.id) if s.finding.id != finding.id]
            joined = _join(current, finding, beside, now)
            if joined != current:
                tx.update_incident(joined)
        return 1, None

    def _in_hands(self, tx: LedgerTransaction, node: str) -> IncidentRecord | None:
        """The incident that was handed over and under whose mark the node still is out of service: what is
        found now belongs to it, nobody has mended the node yet.
        """
        latest = next(iter(tx.incidents(node=node, limit=1)), None)
        record, _ = self._world.node(node)
        if latest is None or latest.state is not IncidentState.HANDED_OVER or record is None:
            return None
        return latest if owns_cordon(latest, record) else None

    def is_ending(self, tx: LedgerTransaction, node: str) -> bool:
        """The node's incident is being cancelled, or is about another machine: a new fault gets one of its
        own, as soon as that one is closed. Joined to it, it would be cancelled unseen.
        """
        current = open_incident(tx, node)
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
            boot_id=finding.boot_id or boot_now(record, contact),
            response=finding.response,
            repair=finding.repair,
            sentence=finding.sentence,
            expected_gpus=record.gpus_total if record is not None else None,
            prior={
                "agent_counts_gpus": contact is not None and contact.gpu_count is not None,
                "gpu_uuids": list(contact.gpu_uuids) if contact is not None else [],
            },
        )

    def end_what_is_over(self, tx: LedgerTransaction) -> None:
        """Findings that outlived their incident (it was handed over, or a person ended it) end when the node
        works again in another boot with all its GPUs (whoever put it back had the last word), or when metrics
        have long seen nothing of them: left open they would hide the next fault of the same kind.
        """
        now = self._clock.now()
        for stored in tx.findings():
            incident = tx.incident(stored.incident) if stored.incident is not None else None
            if stored.incident is not None and (incident is None or not incident.state.is_closed):
                continue
            finding = stored.finding
            record, _ = self._world.node(finding.node)
            contact = self._world.contact(finding.node)
            contested = contact is not None and contact.contested
            if record is None or contested or record.is_cordoned or record.state in AWAY:
                continue
            text = self._resolved_long_ago(finding, now)
            if incident is not None:
                text = text or self._works_again(finding, incident, record, contact)
                text = text or self._long_quiet(finding, incident, now)
            if text is not None:
                tx.clear_finding(finding.id, now, text)
                self.note(tx, record.name, text, incident=stored.incident)

    def _works_again(
        self, finding: Finding, incident: IncidentRecord, node: NodeRecord, contact: AgentContact | None
    ) -> str | None:
        boot = boot_now(node, contact)
        if None not in (finding.boot_id, boot):
            booted = finding.boot_id != boot
        else:
            # Nobody tells boots apart: the scheduler's boot time does, well after the incident's end.
            since = max(finding.since, incident.closed_at or incident.updated_at)
            booted = node.boot_time is not None and node.boot_time > since + BOOT_DRIFT_SECONDS
        count = contact.gpu_count if contact is not None else node.gpus_total
        expected = incident.expected_gpus
        if not booted or (None not in (count, expected) and count != expected):
            return None
        return f"{node.name} has booted since and is back in service: {finding.rule} is over"

    def _long_quiet(self, finding: Finding, incident: IncidentRecord, now: float) -> str | None:
        """Of rules whose end is not metrics' to see: it was their incident's, and that has ended."""
        sight = self._world.sight
        since = sight.quiet.get(finding.id) if sight is not None else None
        if sight is None or since is None or finding.clear_on in ENDED_BY_METRICS:
            return None
        since = max(since, incident.closed_at or incident.updated_at)
        if sight.at - since < QUIET_SECONDS or now - sight.at > self._policy.metrics_stale_seconds:
            return None
        return (
            f"incident {incident.id} has ended ({incident.state}) and the exporter has not shown "
            f"{finding.rule} for {sight.at - since:.0f} s: it is over"
        )

    def _resolved_long_ago(self, finding: Finding, now: float) -> str | None:
        """An alert that asks for no action: nobody but Alertmanager can see its end. Resolved in a gap, it
        fires anew and a person is told again; an alert that asks for action does not end so.
        """
        at = finding.evidence.get("resolved_at")
        heard = self._world.alerts_heard_at
        if finding.source != ALERTS or finding.response.acts or not isinstance(at, int | float):
            return None
        if heard is None or now - heard > self._policy.alert_silence_seconds or now - at < QUIET_SECONDS:
            return None
        return f"Alertmanager resolved {finding.rule} {now - at:.0f} s ago and has not told of it again"

    def note(
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
            payload = {"event": event_payload(event), "jobs": list(jobs)}
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


def open_incident(tx: LedgerTransaction, node: str) -> IncidentRecord | None:
    # A node has one open incident at most, and it is among its latest (the wall clock may have gone back).
    latest = tx.incidents(node=node, limit=OPEN_AMONG_LATEST)
    return next((incident for incident in latest if not incident.state.is_closed), None)


def _join(
    incident: IncidentRecord, finding: Finding, beside: Sequence[Finding], now: float
) -> IncidentRecord:
    """The incident takes the strongest response and repair of its findings; its mark stays what it was.

    A rule that may only observe asks for nothing beside one that may act.
    """
    others = [other for other in beside if other.response.acts]
    if finding.mode is Mode.OBSERVE and any(other.mode is not Mode.OBSERVE for other in others):
        return incident
    response = max(incident.response, finding.response, key=lambda r: r.rank)
    repair = max(incident.repair, finding.repair, key=lambda r: r.rank)
    only_observed = bool(others) and all(other.mode is Mode.OBSERVE for other in others)
    untouched = not incident.state.holds_node and incident.repair_attempts == 0
    if only_observed and untouched and finding.mode is not Mode.OBSERVE:
        response, repair = finding.response, finding.repair
    if (response, repair) == (incident.response, incident.repair):
        return incident
    return replace(incident, response=response, repair=repair, updated_at=now)


def event_payload(event: Event) -> dict[str, object]:
    """A past event as later weighing needs it: whole (a cause may lie in any field), its message bounded."""
    short = replace(event, message=event.message[:MAX_MESSAGE_CHARS])
    return to_dict(short) | {"boot_id": event.boot_id}
