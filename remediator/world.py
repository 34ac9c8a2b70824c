"""What the controller knows of the outside now: the scheduler's last answer, agents' last words.

Written by the observing thread, the intake and the executor; read by everybody. Never a source of truth
for what we did: that is the ledger.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import replace

from fleet.scheduler import JobRecord, NodeRecord, NodeState, Owner, SchedulerSnapshot
from remediator.gates.base import BackendHealth
from remediator.records import AgentContact
from remediator.sight import MetricSight

MAX_FORMER_BOOTS = 8
#: How long after the last such sign two agents are taken to speak under one name.
CONTESTED_SECONDS = 900.0


class World:
    """Thread-safe. ``extra_nodes`` are names the configuration knows although the scheduler may not."""

    def __init__(self, extra_nodes: Collection[str] = ()) -> None:
        self._lock = threading.Lock()
        self._snapshot: SchedulerSnapshot | None = None
        self._unread: dict[str, NodeRecord] = {}
        self._fresh: dict[str, tuple[NodeRecord, float]] = {}
        self._contacts: dict[str, AgentContact] = {}
        self._former: dict[str, tuple[str, ...]] = {}
        self._contested_at: dict[str, float] = {}
        self._health = BackendHealth()
        self._extra = frozenset(extra_nodes)
        self._sight: MetricSight | None = None
        self._awaits_sight = False
        self._alerts_heard_at: float | None = None

    # -- the scheduler

    def publish(self, snapshot: SchedulerSnapshot) -> None:
        with self._lock:
            before = self._snapshot
            if before is not None and snapshot.taken_at < before.taken_at:
                # The clock went back: what is dated later was read earlier all the same.
                self._fresh = {}
            self._unread = self._missing(snapshot)
            self._snapshot = snapshot
            self._health = BackendHealth()
            self._fresh = {name: seen for name, seen in self._fresh.items() if seen[1] >= snapshot.taken_at}

    def _missing(self, snapshot: SchedulerSnapshot) -> dict[str, NodeRecord]:
        """Nodes that we knew and that an answer with unreadable records lacks: unknown, not gone."""
        if not snapshot.problems or self._snapshot is None:
            return {}
        known = {**self._unread, **self._snapshot.nodes}
        return {
            name: replace(
                record,
                state=NodeState.UNKNOWN,
                base="unknown",
                flags=(),
                owner=Owner.NONE,
                reason=None,
                ready=None,
                schedulable=False,
            )
            for name, record in known.items()
            if name not in snapshot.nodes
        }

    def failed(self, error: str, now: float) -> None:
        """The scheduler did not answer: what we knew stays, and ages."""
        with self._lock:
            since = self._health.failing_since
            self._health = BackendHealth(failing_since=now if since is None else since, last_error=error)

    def saw_node(self, record: NodeRecord, at: float) -> None:
        """A single node was read (after a write, say) at ``at``."""
        with self._lock:
            if self._snapshot is not None and at < self._snapshot.taken_at:
                return
            self._fresh[record.name] = (record, at)

    @property
    def snapshot(self) -> SchedulerSnapshot | None:
        with self._lock:
            return self._snapshot

    @property
    def health(self) -> BackendHealth:
        with self._lock:
            return self._health

    @property
    def inventory(self) -> frozenset[str] | None:
        """All node names there are; None while the scheduler has never answered."""
        with self._lock:
            if self._snapshot is None:
                return None
            return frozenset(self._snapshot.nodes) | frozenset(self._unread) | self._extra

    def node(self, name: str) -> tuple[NodeRecord | None, float | None]:
        """The newest record of a node and when it was read; (None, when) if it is not listed."""
        with self._lock:
            fresh = self._fresh.get(name)
            if fresh is not None:
                return fresh
            if self._snapshot is None:
                return None, None
            return self._snapshot.nodes.get(name), self._snapshot.taken_at

    def nodes(self) -> Mapping[str, NodeRecord]:
        """Every node, each as newest read. One whose record cannot be read is there as unknown."""
        with self._lock:
            known = {**self._unread, **self._snapshot.nodes} if self._snapshot is not None else {}
            known.update({name: record for name, (record, _) in self._fresh.items()})
            return known

    def jobs_on(self, node: str) -> tuple[tuple[JobRecord, ...], float | None]:
        with self._lock:
            if self._snapshot is None:
                return (), None
            return self._snapshot.jobs_on(node), self._snapshot.taken_at

    # -- metrics and alerts

    def expect_metrics(self) -> None:
        """There is a metric path: which nodes it watches is not known before its first evaluation."""
        with self._lock:
            self._awaits_sight = True

    @property
    def awaits_sight(self) -> bool:
        with self._lock:
            return self._awaits_sight and self._sight is None

    def is_unlisted(self, name: str) -> bool:
        """The scheduler's last answer is whole and has no such node: it is gone, not unknown."""
        with self._lock:
            known = self._snapshot
            return (
                known is not None
                and not known.problems
                and name not in known.nodes
                and name not in self._fresh
            )

    def saw_metrics(self, sight: MetricSight) -> None:
        with self._lock:
            self._sight = sight

    @property
    def sight(self) -> MetricSight | None:
        """What the metric path saw last; None while it has seen nothing (or there is none)."""
        with self._lock:
            return self._sight

    def heard_alerts(self, at: float) -> None:
        """Alertmanager has spoken: the chain from Prometheus to here works."""
        with self._lock:
            self._alerts_heard_at = at

    @property
    def alerts_heard_at(self) -> float | None:
        with self._lock:
            return self._alerts_heard_at

    # -- agents

    def heard(self, contact: AgentContact) -> AgentContact:
        """Take an agent's word; keeps when its boot was first seen. Returns what is now known.

        A boot never comes back: if one does, two machines have the name, and neither is believed for a while.
        """
        with self._lock:
            return self._hear(contact)

    def _hear(self, contact: AgentContact) -> AgentContact:
        before = self._contacts.get(contact.node)
        if before is not None and before.boot_id == contact.boot_id:
            contact = replace(contact, first_seen_boot=before.first_seen_boot)
        elif before is not None:
            former = self._former.get(contact.node, ())
            if contact.boot_id in former:
                self._contested_at[contact.node] = contact.last_seen
            self._former[contact.node] = (before.boot_id, *former)[:MAX_FORMER_BOOTS]
        at = self._contested_at.get(contact.node)
        if at is not None and contact.last_seen - at < CONTESTED_SECONDS:
            contact = replace(contact, contested=True)
        self._contacts[contact.node] = contact
        return contact

    def load_contacts(self, contacts: Mapping[str, AgentContact]) -> None:
        """What the ledger remembers, where it is newer: agents may speak to another controller than this."""
        with self._lock:
            for node, contact in contacts.items():
                known = self._contacts.get(node)
                if known is None or contact.last_seen > known.last_seen:
                    self._hear(contact)

    def contact(self, node: str) -> AgentContact | None:
        with self._lock:
            return self._contacts.get(node)

    def contacts(self) -> Mapping[str, AgentContact]:
        with self._lock:
            return dict(self._contacts)
