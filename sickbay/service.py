"""The running controller behind its API: reads for people, words of people, pushes of agents."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fleet.clock import Clock
from fleet.errors import InvalidInputError
from fleet.findings import IncidentState, Verdict
from fleet.scheduler import NodeRecord
from remediator.controller import Controller
from remediator.intake import Intake, PushAnswer, UnknownNodeError
from remediator.ledger import LedgerError
from remediator.planning import Planner
from remediator.records import (
    Actor,
    IncidentRecord,
    LedgerStore,
    LedgerTransaction,
    Phase,
    StepRecord,
    StoredFinding,
    Word,
    WordKind,
)
from remediator.world import World
from sickbay import views
from sickbay.metrics import ControllerMetrics
from sickbay.ports import (
    Json,
    NoSuchIncidentError,
    NoSuchNodeError,
    NotPossibleError,
    StoreUnavailableError,
)

CHANGES_A_TIME = 200
HANDED_OVER_SHOWN = 1000


class ControllerService:
    """Implements ``sickbay.ports.Service``. Thread-safe: the ledger serialises writes.

    ``wake`` is called after every write that the control loop should look at soon.
    """

    def __init__(
        self,
        *,
        version: str,
        store: LedgerStore,
        world: World,
        planner: Planner,
        controller: Controller,
        intake: Intake,
        metrics: ControllerMetrics,
        clock: Clock,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self.version = version
        self.world = world
        self.controller = controller
        self.metrics = metrics
        self.clock = clock
        self.wake = wake
        self._store = store
        self._planner = planner
        self._intake = intake
        self._changed = threading.Condition()
        self._passes = 0
        metrics.watch(self)

    # -- health

    def ready(self) -> tuple[bool, str]:
        try:
            self._store.check_writable()
        except LedgerError as error:
            return False, str(error)
        return True, "ok"

    def notify_changed(self) -> None:
        """Called by the control loop after a pass: whoever waits in ``changes`` looks again."""
        with self._changed:
            self._passes += 1
            self._changed.notify_all()

    # -- pushes

    def ingest_events(self, node: str, agent: Mapping[str, Any], events: Sequence[Any]) -> Json:
        try:
            answer = self._intake.push(node, agent, events)
        except UnknownNodeError as error:
            raise NoSuchNodeError(str(error)) from error
        except LedgerError as error:
            raise StoreUnavailableError(f"cannot be stored now: {error}") from error
        self._count(self.metrics.events, answer)
        if answer.accepted:
            self.wake()
        return _push_json(answer)

    def ingest_alerts(self, notification: Mapping[str, Any]) -> Json:
        try:
            answer = self._intake.alerts(notification)
        except LedgerError as error:
            raise StoreUnavailableError(f"cannot be stored now: {error}") from error
        self._count(self.metrics.alerts, answer)
        if answer.accepted:
            self.wake()
        return _push_json(answer)

    @staticmethod
    def _count(counter: Any, answer: PushAnswer) -> None:
        counter.labels("accepted").inc(answer.accepted)
        counter.labels("duplicate").inc(answer.duplicates)
        counter.labels("rejected").inc(len(answer.rejected))

    # -- reads

    def nodes(self, *, limit: int, after: str | None) -> Json:
        now = self.clock.now()
        with self._store.transaction(read_only=True) as tx:
            incidents = _holders(tx)
            findings = _by_node(tx.findings())
            words = [word for word in tx.words(now) if word.kind is WordKind.PAUSE and word.active(now)]
        known = self.world.nodes()
        names = [name for name in sorted(known) if after is None or name > after]
        items = [
            self._node_json(name, known.get(name), incidents, findings.get(name, ()))
            for name in names[:limit]
        ]
        return {
            "items": items,
            "next": items[-1]["name"] if len(names) > limit and items else None,
            "paused": [{"pool": w.target, "author": w.author, "reason": w.reason} for w in words],
        }

    def node(self, name: str) -> Json:
        record = self._known(name)
        with self._store.transaction(read_only=True) as tx:
            incidents = _holders(tx)
            findings = tuple(tx.findings(node=name))
        contact = self.world.contact(name)
        return {
            **self._node_json(name, record, incidents, findings),
            "base": record.base if record is not None else None,
            "flags": list(record.flags) if record is not None else [],
            "partitions": list(record.partitions) if record is not None else [],
            "agent": None
            if contact is None
            else {
                "boot_id": contact.boot_id,
                "last_seen": contact.last_seen,
                "version": contact.version,
                "gpus": contact.gpu_count,
            },
        }

    def why(self, name: str) -> Json:
        record = self._known(name)
        lease = self.controller.lease
        with self._store.transaction(read_only=True) as tx:
            stored = tuple(tx.findings(node=name))
            holders = _holders(tx)
            held = holders.get(name)
            incident = None if held is None or held.state.is_closed else held
            notes = [s for s in tx.steps(node=name, limit=20) if s.phase is Phase.DECISION]
            assessment = self._planner.assess(tx, incident, lease) if incident is not None else None
            gates = (
                assessment.gates
                if assessment is not None
                else self._planner.gates_for_idle_node(tx, name, lease)
            )
            last = None if incident is not None else next(iter(tx.incidents(node=name, limit=1)), None)
        verdict, because = self._verdict(record, name, stored)
        step, waiting = views.next_step_json(assessment) if assessment is not None else (None, None)
        shown = incident
        return {
            "node": name,
            "verdict": str(verdict),
            "because": because,
            "state": str(record.state) if record is not None else "unknown",
            "owner": str(views.owner_of(record, holders)),
            "findings": [views.finding_json(finding) for finding in stored],
            "incident": None if shown is None else views.incident_summary(shown, _rules(stored, shown)),
            "last_incident": None if last is None else views.incident_summary(last, [last.rule]),
            "next_step": step,
            "waiting": waiting,
            "gates": views.gates_json(gates),
            "metrics": views.sight_json(self.world.sight, name, self.clock.now()),
            "notes": [{"at": note.at, "reason": note.reason} for note in notes[-10:]],
        }

    def incidents(self, *, state: str | None, node: str | None, limit: int, before: float | None) -> Json:
        with self._store.transaction(read_only=True) as tx:
            found = tx.incidents(state=state, node=node, limit=limit + 1, before=before)
            items = [
                views.incident_summary(i, _rules(tx.findings(incident=i.id, include_cleared=True), i))
                for i in found[:limit]
            ]
        return {"items": items, "next": items[-1]["opened_at"] if len(found) > limit and items else None}

    def incident(self, incident_id: str) -> Json:
        with self._store.transaction(read_only=True) as tx:
            incident = self._incident(tx, incident_id)
            return views.incident_json(
                incident,
                tx.findings(incident=incident_id, include_cleared=True),
                tx.steps(incident=incident_id),
            )

    def findings(self, *, node: str | None, include_cleared: bool) -> Json:
        with self._store.transaction(read_only=True) as tx:
            found = tx.findings(node=node, include_cleared=include_cleared)
        return {"items": [views.finding_json(stored) for stored in found], "next": None}

    def changes(self, *, after: int, timeout: float) -> Iterator[Json]:
        with self._changed:
            passes = self._passes
        steps = self._steps_since(after)
        if not steps and timeout > 0:
            with self._changed:
                # A pass that ended between the read and this wait must not be slept through.
                self._changed.wait_for(lambda: self._passes != passes, timeout)
            steps = self._steps_since(after)
        for step in steps:
            yield {
                "id": step.id,
                "node": step.node,
                "incident": step.incident,
                "state": step.payload.get("state"),
                **views.step_json(step),
            }

    def _steps_since(self, after: int) -> Sequence[StepRecord]:
        with self._store.transaction(read_only=True) as tx:
            return tx.steps_since(after, limit=CHANGES_A_TIME)

    def render_metrics(self) -> bytes:
        return self.metrics.render()

    # -- human word

    def approve(self, incident_id: str, *, author: str, reason: str) -> Json:
        with self._store.transaction() as tx:
            incident = self._incident(tx, incident_id)
            if incident.state.is_closed:
                raise NotPossibleError(f"incident {incident_id} is {incident.state}: nothing to approve")
            self._word_line(tx, incident, f"approved by {author}: {reason or 'no reason given'}")
            tx.update_incident(replace(incident, approved_by=author, updated_at=self.clock.now()))
        self.wake()
        return self.incident(incident_id)

    def cancel(self, incident_id: str, *, author: str, reason: str) -> Json:
        with self._store.transaction() as tx:
            incident = self._incident(tx, incident_id)
            if incident.state.is_closed:
                raise NotPossibleError(f"incident {incident_id} is {incident.state}: nothing to cancel")
            self._word_line(tx, incident, f"cancelled by {author}: {reason}")
            tx.update_incident(
                replace(incident, cancelled_by=author, cancel_reason=reason, updated_at=self.clock.now())
            )
        self.wake()
        return self.incident(incident_id)

    def hold(self, node: str, *, author: str, reason: str, expires_in_seconds: float | None) -> Json:
        self._known(node)
        return self._add_word(WordKind.HOLD, node, author, reason, expires_in_seconds)

    def release(self, node: str, *, author: str, reason: str) -> Json:
        self._known(node)
        ended = self._end_words(WordKind.HOLD, node, author, reason, also=WordKind.COOLDOWN)
        return {"node": node, "released": ended}

    def pause(self, *, pool: str | None, author: str, reason: str, expires_in_seconds: float | None) -> Json:
        self._known_pool(pool)
        return self._add_word(WordKind.PAUSE, pool, author, reason, expires_in_seconds)

    def resume(self, *, pool: str | None, author: str, reason: str) -> Json:
        self._known_pool(pool)
        ended = self._end_words(WordKind.PAUSE, pool, author, reason)
        return {"pool": pool, "resumed": ended}

    def _add_word(
        self, kind: WordKind, target: str | None, author: str, reason: str, expires_in: float | None
    ) -> Json:
        now = self.clock.now()
        expires = None if expires_in is None else now + expires_in
        with self._store.transaction() as tx:
            word = tx.add_word(
                Word(kind=kind, target=target, author=author, reason=reason, since=now, expires_at=expires)
            )
            tx.append(
                StepRecord(
                    at=now,
                    phase=Phase.DECISION,
                    node=target if kind is WordKind.HOLD and target else "-",
                    reason=f"{kind} by {author} on {target or 'the fleet'}: {reason}",
                    actor=Actor.PERSON,
                )
            )
        self.wake()
        return {
            "kind": str(kind),
            "target": target,
            "author": author,
            "reason": reason,
            "since": word.since,
            "expires_at": word.expires_at,
        }

    def _end_words(
        self, kind: WordKind, target: str | None, author: str, reason: str, also: WordKind | None = None
    ) -> int:
        now = self.clock.now()
        with self._store.transaction() as tx:
            ended = tx.end_words(kind, target, now)
            if also is not None:
                ended += tx.end_words(also, target, now)
            tx.append(
                StepRecord(
                    at=now,
                    phase=Phase.DECISION,
                    node=target if kind is WordKind.HOLD and target else "-",
                    reason=f"{kind} on {target or 'the fleet'} lifted by {author}: "
                    f"{reason or 'no reason given'}",
                    actor=Actor.PERSON,
                )
            )
        self.wake()
        return ended

    def _word_line(self, tx: LedgerTransaction, incident: IncidentRecord, reason: str) -> None:
        tx.append(
            StepRecord(
                at=self.clock.now(),
                phase=Phase.DECISION,
                node=incident.node,
                incident=incident.id,
                reason=reason,
                actor=Actor.PERSON,
            )
        )

    # -- numbers for /metrics

    def nodes_by(self) -> Iterator[tuple[str, str, str]]:
        with self._store.transaction(read_only=True) as tx:
            findings = _by_node(tx.findings())
        for name, record in self.world.nodes().items():
            verdict, _ = self._verdict(record, name, findings.get(name, ()))
            yield self._planner.policy.pool_of(record).name, str(record.state), str(verdict)

    def incidents_by(self) -> Iterator[tuple[str, str]]:
        with self._store.transaction(read_only=True) as tx:
            found = tuple(tx.open_incidents())
        return iter([(incident.pool, str(incident.state)) for incident in found])

    def blocked_by(self) -> Iterator[str]:
        with self._store.transaction(read_only=True) as tx:
            found = tuple(tx.open_incidents())
        return iter([gate for incident in found for gate in incident.blocked_by])

    def findings_open(self) -> Iterator[Mapping[str, str]]:
        with self._store.transaction(read_only=True) as tx:
            found = [stored.finding for stored in tx.findings()]
        return iter(
            [
                {
                    "node": f.node,
                    "gpu": f.gpu or "",
                    "uuid": f.uuid or "",
                    "rule": f.rule,
                    "kind": f.kind,
                    "severity": str(f.severity),
                }
                for f in found
            ]
        )

    def inbox_depth(self) -> int:
        with self._store.transaction(read_only=True) as tx:
            return tx.pending_inbox_count()

    # -- helpers

    def _known(self, name: str) -> NodeRecord | None:
        record, _ = self.world.node(name)
        if record is None and name not in (self.world.inventory or ()):
            raise NoSuchNodeError(f"the inventory knows no node {name!r}; sickbay nodes lists them")
        return record

    def _known_pool(self, pool: str | None) -> None:
        pools = [p.name for p in self._planner.policy.pools]
        if pool is not None and pools and pool not in pools:
            raise InvalidInputError(f"no pool {pool!r}; the configuration has: {', '.join(pools)}")

    @staticmethod
    def _incident(tx: LedgerTransaction, incident_id: str) -> IncidentRecord:
        incident = tx.incident(incident_id)
        if incident is None:
            raise NoSuchIncidentError(f"no incident {incident_id!r}; sickbay incidents lists them")
        return incident

    def _verdict(
        self, record: NodeRecord | None, name: str, stored: Sequence[StoredFinding]
    ) -> tuple[Verdict, str]:
        now = self.clock.now()
        snapshot = self.world.snapshot
        fresh = (
            snapshot is not None and now - snapshot.taken_at <= self._planner.policy.scheduler_stale_seconds
        )
        return views.verdict_of(
            record,
            [s.finding for s in stored],
            self.world.contact(name),
            self.world.sight,
            self._planner.policy,
            now=now,
            scheduler_is_fresh=fresh,
        )

    def _node_json(
        self,
        name: str,
        record: NodeRecord | None,
        incidents: Mapping[str, IncidentRecord],
        findings: Sequence[StoredFinding],
    ) -> Json:
        verdict, _ = self._verdict(record, name, findings)
        incident = incidents.get(name)
        return views.node_json(
            name,
            record,
            verdict=verdict,
            owner=views.owner_of(record, incidents),
            pool=self._planner.policy.pool_of(record).name if record is not None else None,
            incident=None if incident is None or incident.state.is_closed else incident.id,
        )


def _holders(tx: LedgerTransaction) -> dict[str, IncidentRecord]:
    """Each node's open incident; without one the last that was handed over: its cordon still is ours."""
    handed_over = tx.incidents(state=str(IncidentState.HANDED_OVER), limit=HANDED_OVER_SHOWN)
    newest = {incident.node: incident for incident in reversed(handed_over)}
    return newest | {incident.node: incident for incident in tx.open_incidents()}


def _by_node(findings: Sequence[StoredFinding]) -> dict[str, list[StoredFinding]]:
    by_node: dict[str, list[StoredFinding]] = {}
    for stored in findings:
        by_node.setdefault(stored.finding.node, []).append(stored)
    return by_node


def _rules(findings: Sequence[StoredFinding], incident: IncidentRecord) -> list[str]:
    return list(dict.fromkeys([incident.rule, *(stored.finding.rule for stored in findings)]))


def _push_json(answer: PushAnswer) -> Json:
    return {
        "accepted": answer.accepted,
        "duplicates": answer.duplicates,
        "rejected": [{"index": r.index, "reason": r.reason} for r in answer.rejected],
    }
