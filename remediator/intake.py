"""The door: pushes of agents and alerts are checked, made durable, and only then answered.

Nothing is decided here. The inbox is idempotent: a push that comes twice is stored once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import msgspec

from collector.encode import event_from_dict
from fleet.clock import Clock
from fleet.errors import InvalidInputError, SickbayError
from fleet.identity import is_node_name
from fleet.observations import EventKind
from remediator.records import AgentContact, InboxEvent, LedgerStore
from remediator.world import World

MAX_BOOT_ID_CHARS = 128
#: A heartbeat that says nothing new is written down this often: 10,000 nodes must not cost 700 commits/s.
CONTACT_WRITE_SECONDS = 30.0


class UnknownNodeError(SickbayError):
    """The inventory does not know the node."""


@dataclass(frozen=True, slots=True)
class Rejected:
    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class PushAnswer:
    accepted: int
    duplicates: int
    rejected: tuple[Rejected, ...] = ()


class Intake:
    """Stores what is pushed. May be called from any thread; the ledger serialises."""

    def __init__(self, *, store: LedgerStore, world: World, clock: Clock) -> None:
        self._store = store
        self._world = world
        self._clock = clock
        self._written: dict[str, AgentContact] = {}

    def push(self, node: str, agent: Mapping[str, Any], events: Sequence[Any]) -> PushAnswer:
        """An agent's push. UnknownNodeError, InvalidInputError (the envelope), or what the store raises."""
        self._check_node(node)
        contact = self._contact(node, agent)
        good: list[InboxEvent] = []
        rejected: list[Rejected] = []
        for index, raw in enumerate(events):
            try:
                good.append(_inbox_event(node, raw))
            except InvalidInputError as error:
                rejected.append(Rejected(index, str(error)))
        before = self._written.get(node)
        write_contact = (
            before is None
            or (before.boot_id, before.gpu_uuids, before.gpu_count, before.version)
            != (contact.boot_id, contact.gpu_uuids, contact.gpu_count, contact.version)
            or contact.last_seen - before.last_seen >= CONTACT_WRITE_SECONDS
        )
        accepted = duplicates = 0
        if good or write_contact:
            with self._store.transaction() as tx:
                if good:
                    added = tx.add_events(good, contact.last_seen)
                    accepted, duplicates = added.accepted, added.duplicates
                known = tx.agent(node)
                if known is not None and known.boot_id == contact.boot_id:
                    contact = replace(contact, first_seen_boot=known.first_seen_boot)
                tx.put_agent(contact)
            self._written[node] = contact
        self._world.heard(contact)
        return PushAnswer(accepted, duplicates, tuple(rejected))

    def alerts(self, notification: Mapping[str, Any]) -> PushAnswer:
        """An Alertmanager v4 notification: one inbox row an alert, keyed by fingerprint, start and status."""
        alerts = notification.get("alerts")
        if not isinstance(alerts, list):
            raise InvalidInputError("alerts: must be a list of alerts (Alertmanager webhook version 4)")
        rejected: list[Rejected] = []
        accepted = duplicates = 0
        now = self._clock.now()
        with self._store.transaction() as tx:
            for index, alert in enumerate(alerts):
                if not isinstance(alert, Mapping) or not isinstance(alert.get("labels"), Mapping):
                    rejected.append(Rejected(index, f"alerts[{index}]: must be an object with labels"))
                    continue
                if tx.add_alert(_alert_key(alert), dict(alert), now):
                    accepted += 1
                else:
                    duplicates += 1
        self._world.heard_alerts(now)
        return PushAnswer(accepted, duplicates, tuple(rejected))

    def _check_node(self, node: str) -> None:
        if not is_node_name(node):
            raise UnknownNodeError(f"{node!r} is not a node name")
        inventory = self._world.inventory
        # While the scheduler has never answered nothing can be checked: stored now, checked when weighed.
        if inventory is not None and node not in inventory:
            raise UnknownNodeError(
                f"the inventory knows no node {node!r}; check agent.node in its configuration"
            )

    def _contact(self, node: str, agent: Mapping[str, Any]) -> AgentContact:
        boot_id = agent.get("boot_id")
        if not is_boot_id(boot_id):
            raise InvalidInputError("agent.boot_id: must be a non-empty string; read it from boot_id_file")
        count, uuids = gpu_inventory(agent.get("gpus"))
        version = agent.get("version")
        now = self._clock.now()
        return AgentContact(
            node=node,
            boot_id=boot_id,
            last_seen=now,
            first_seen_boot=now,
            version=version if isinstance(version, str) else None,
            gpu_count=count,
            gpu_uuids=uuids,
        )


def is_boot_id(value: object) -> TypeGuard[str]:
    """A bounded, printable, non-empty string: what cannot be stored must not be retried for ever."""
    return isinstance(value, str) and 0 < len(value) <= MAX_BOOT_ID_CHARS and value.isprintable()


def gpu_inventory(gpus: object) -> tuple[int | None, tuple[str, ...]]:
    """What an agent says of its GPUs: a count, a list of UUIDs or of ``{"uuid"}``, or null (cannot tell)."""
    if isinstance(gpus, bool) or gpus is None:
        return None, ()
    if isinstance(gpus, int):
        return (gpus, ()) if gpus >= 0 else (None, ())
    if isinstance(gpus, list):
        uuids = [
            gpu if isinstance(gpu, str) else gpu.get("uuid") if isinstance(gpu, Mapping) else None
            for gpu in gpus
        ]
        return len(gpus), tuple(uuid for uuid in uuids if isinstance(uuid, str))
    return None, ()


def _inbox_event(node: str, raw: object) -> InboxEvent:
    """Check one pushed event (the closed contract of ``POST /api/v1/events``)."""
    if not isinstance(raw, Mapping):
        raise InvalidInputError("must be an object")
    if raw.get("node") != node:
        raise InvalidInputError(f"node: {raw.get('node')!r} is not the agent's own node {node!r}")
    boot_id, sequence = raw.get("boot_id"), raw.get("sequence")
    if not is_boot_id(boot_id):
        raise InvalidInputError("boot_id: must be a non-empty printable string")
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence < 2**63:
        raise InvalidInputError("sequence: must be a whole number >= 0")
    event = event_from_dict(raw)
    if event.kind is EventKind.XID and event.code is None:
        raise InvalidInputError("code: an xid event needs its code")
    return InboxEvent(node=node, boot_id=boot_id, sequence=sequence, payload=dict(raw))


def _alert_key(alert: Mapping[str, Any]) -> str:
    """Idempotent on (fingerprint, startsAt, status); without a fingerprint its labels stand in."""
    mark = alert.get("fingerprint")
    if not isinstance(mark, str) or not mark or not mark.isprintable():
        mark = hashlib.sha256(msgspec.json.encode(alert.get("labels"), order="sorted")).hexdigest()[:16]
    return f"{mark}|{alert.get('startsAt')}|{alert.get('status')}"
