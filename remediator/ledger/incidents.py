"""Findings and incidents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import and_, insert, or_, select, update

from fleet.findings import Finding, IncidentState
from remediator.ledger import rows, schema
from remediator.ledger.errors import StaleRecordError
from remediator.ledger.session import Session
from remediator.records import IncidentRecord, StoredFinding

_OPEN = tuple(state.value for state in IncidentState if not state.is_closed)


class IncidentPart(Session):
    def put_finding(self, finding: Finding, incident: str | None, seen_at: float) -> bool:
        """Store a finding, or count a repeat of an open one with the same id. True when it is new.

        A repeat keeps what was first seen, and its incident unless another is named. A finding that was
        cleared starts anew: its since, evidence and count are those of now.
        """
        table = schema.finding
        stored = self._first(select(table.c.last_seen, table.c.cleared_at).where(table.c.id == finding.id))
        if stored is None or stored.cleared_at is not None:
            fresh = {
                **rows.finding_values(finding),
                "incident": incident,
                "last_seen": seen_at,
                "count": 1,
                "cleared_at": None,
                "clear_reason": None,
            }
            self._run(self._dialect.upsert(table, ["id"]), fresh)
            return True
        repeat: rows.Values = {"last_seen": max(stored.last_seen, seen_at)}
        if incident is not None:
            repeat["incident"] = incident
        self._run(update(table).where(table.c.id == finding.id).values(count=table.c["count"] + 1, **repeat))
        return False

    def findings(
        self, *, node: str | None = None, incident: str | None = None, include_cleared: bool = False
    ) -> Sequence[StoredFinding]:
        """Oldest first."""
        table = schema.finding
        wanted = select(table).order_by(table.c.since, table.c.id)
        if node is not None:
            wanted = wanted.where(table.c.node == node)
        if incident is not None:
            wanted = wanted.where(table.c.incident == incident)
        if not include_cleared:
            wanted = wanted.where(table.c.cleared_at.is_(None))
        return [rows.stored_finding(row) for row in self._rows(wanted)]

    def amend_finding(self, finding_id: str, evidence: Mapping[str, object]) -> None:
        """Replace the evidence of an open finding; one that is cleared, or not there, stays as it is."""
        table = schema.finding
        values = {"evidence": rows.to_json(evidence)}
        self._run(
            update(table).where(table.c.id == finding_id, table.c.cleared_at.is_(None)).values(**values)
        )

    def clear_finding(self, finding_id: str, at: float, reason: str) -> None:
        """A finding that is cleared already keeps its first reason."""
        table = schema.finding
        self._run(
            update(table)
            .where(table.c.id == finding_id, table.c.cleared_at.is_(None))
            .values(cleared_at=at, clear_reason=reason)
        )

    def add_incident(self, incident: IncidentRecord) -> None:
        self._run(insert(schema.incident), rows.incident_values(incident))

    def update_incident(self, incident: IncidentRecord, *, expected: IncidentRecord | None = None) -> None:
        stored = self.incident(incident.id)
        if stored is None:
            raise StaleRecordError(f"incident {incident.id} is not in the ledger: it cannot be updated")
        if stored.state.is_closed and incident.state is not stored.state:
            raise StaleRecordError(
                f"incident {incident.id} is closed ({stored.state}): it cannot become {incident.state}"
            )
        if expected is not None and rows.incident_values(stored) != rows.incident_values(expected):
            raise StaleRecordError(
                f"incident {incident.id} was changed by somebody else in between: read it again"
            )
        values = rows.incident_values(incident)
        self._run(update(schema.incident).where(schema.incident.c.id == incident.id).values(values))

    def incident(self, incident_id: str) -> IncidentRecord | None:
        row = self._first(select(schema.incident).where(schema.incident.c.id == incident_id))
        return None if row is None else rows.incident_record(row)

    def open_incidents(self) -> Sequence[IncidentRecord]:
        """Oldest first."""
        table = schema.incident
        wanted = select(table).where(table.c.state.in_(_OPEN)).order_by(table.c.opened_at, table.c.id)
        return [rows.incident_record(row) for row in self._rows(wanted)]

    def incidents_since(self, since: float) -> Sequence[IncidentRecord]:
        table = schema.incident
        wanted = select(table).where(table.c.opened_at >= since).order_by(table.c.opened_at, table.c.id)
        return [rows.incident_record(row) for row in self._rows(wanted)]

    def incidents(
        self,
        *,
        state: str | None = None,
        node: str | None = None,
        limit: int = 100,
        before: float | None = None,
        before_id: str | None = None,
    ) -> Sequence[IncidentRecord]:
        table = schema.incident
        wanted = select(table).order_by(table.c.opened_at.desc(), table.c.id.desc()).limit(limit)
        if state is not None:
            wanted = wanted.where(table.c.state == state)
        if node is not None:
            wanted = wanted.where(table.c.node == node)
        if before is not None and before_id is not None:
            same_time = and_(table.c.opened_at == before, table.c.id < before_id)
            wanted = wanted.where(or_(table.c.opened_at < before, same_time))
        elif before is not None:
            wanted = wanted.where(table.c.opened_at < before)
        return [rows.incident_record(row) for row in self._rows(wanted)]
