"""The inbox, and what agents last said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import case, func, select, update

from remediator.ledger import rows, schema
from remediator.ledger.session import CHUNK, Session
from remediator.records import Added, AgentContact, InboxEvent, InboxItem


class InboxPart(Session):
    def add_events(self, events: Sequence[InboxEvent], received_at: float) -> Added:
        """Store what is new. The same event again, also within the batch, is a duplicate and changes
        nothing: the first one stands.
        """
        if not events:
            return Added(0, 0)
        values = [
            {
                "kind": "event",
                "node": event.node,
                "boot_id": event.boot_id,
                "sequence": event.sequence,
                "received_at": received_at,
                "payload": rows.to_json(event.payload),
            }
            for event in events
        ]
        accepted = self._run(self._dialect.insert_ignoring(schema.inbox), values).rowcount
        return Added(accepted, len(events) - accepted)

    def add_alert(self, key: str, payload: Mapping[str, object], received_at: float) -> bool:
        """Store an alert; False when one with this key is stored already."""
        values = {
            "kind": "alert",
            "alert_key": key,
            "received_at": received_at,
            "payload": rows.to_json(payload),
        }
        return self._run(self._dialect.insert_ignoring(schema.inbox), [values]).rowcount == 1

    def pending_inbox(self, limit: int) -> Sequence[InboxItem]:
        table = schema.inbox
        # Events first: an alert is a minute late by design, and a storm of them must not delay a fault.
        order = (case((table.c.kind == "event", 0), else_=1), table.c.id)
        pending = select(table).where(table.c.processed_at.is_(None)).order_by(*order).limit(limit)
        return [rows.inbox_item(row) for row in self._rows(pending)]

    def pending_inbox_count(self) -> int:
        table = schema.inbox
        counted = self._first(select(func.count()).select_from(table).where(table.c.processed_at.is_(None)))
        return 0 if counted is None else int(counted[0])

    def mark_processed(self, ids: Sequence[int], at: float) -> None:
        """Items processed earlier keep their time."""
        table = schema.inbox
        for start in range(0, len(ids), CHUNK):
            some = ids[start : start + CHUNK]
            self._run(
                update(table)
                .where(table.c.id.in_(some), table.c.processed_at.is_(None))
                .values(processed_at=at)
            )

    def put_agent(self, contact: AgentContact) -> None:
        self._run(self._dialect.upsert(schema.agent, ["node"]), rows.agent_values(contact))

    def agent(self, node: str) -> AgentContact | None:
        row = self._first(select(schema.agent).where(schema.agent.c.node == node))
        return None if row is None else rows.agent_contact(row)

    def agents(self) -> Mapping[str, AgentContact]:
        return {row.node: rows.agent_contact(row) for row in self._rows(select(schema.agent))}
