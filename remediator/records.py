"""What the ledger keeps: incidents, steps, the inbox, agents' contacts, human words, the lease.

Plain frozen records; ``remediator.ledger`` stores them, everything else passes them around. Times are
epoch seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from fleet.findings import Finding, IncidentState, Repair, Response, Step


class Phase(StrEnum):
    """An intent is written before an action, attempts and the effect after; a decision acts on nothing."""

    INTENT = "intent"
    ATTEMPT = "attempt"
    EFFECT = "effect"
    DECISION = "decision"


class Outcome(StrEnum):
    """How an attempt or effect ended. UNKNOWN: read back before anything else."""

    DONE = "done"
    ALREADY = "already"
    IN_PROGRESS = "in_progress"
    REFUSED = "refused"
    FAILED = "failed"
    UNKNOWN = "unknown"
    ABANDONED = "abandoned"


class Actor(StrEnum):
    """Who a ledger line speaks for; a person's name goes into the reason and the word."""

    SICKBAY = "sickbay"
    PERSON = "person"
    SCHEDULER = "scheduler"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One line of the append-only ledger.

    ``key`` is the idempotency key of the action an intent announces; its attempts and its effect carry
    the same key. An intent without an effect is open. ``incident`` is None for a decision about a node
    that has no incident (an observed XID, say). ``step`` is None for pure decisions.
    """

    at: float
    phase: Phase
    reason: str
    node: str
    incident: str | None = None
    step: Step | None = None
    outcome: Outcome | None = None
    actor: str = Actor.SICKBAY
    key: str | None = None
    payload: Mapping[str, object] = field(default_factory=dict)
    id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentRecord:
    """One fault episode of one incarnation.

    ``boot_id`` is the epoch in which it was opened, ``reboot_boot_id`` the one in which we ordered a
    reboot. ``expected_gpus`` is the scheduler's count at opening. ``prior`` is the node as it was before
    our first write. ``mark_user``/``mark_time`` are what the read-back of our cordon showed: together
    with the text they prove ownership.
    """

    id: str
    node: str
    pool: str
    rule: str
    state: IncidentState
    opened_at: float
    updated_at: float
    incarnation: str | None = None
    boot_id: str | None = None
    response: Response = Response.DRAIN
    repair: Repair = Repair.NONE
    sentence: str = ""
    expected_gpus: int | None = None
    prior: Mapping[str, object] = field(default_factory=dict)
    mark_user: str | None = None
    mark_time: float | None = None
    state_since: float = 0.0
    closed_at: float | None = None
    blocked_by: tuple[str, ...] = ()
    blocked_reasons: tuple[str, ...] = ()
    last_reason: str = ""
    approved_by: str | None = None
    cancelled_by: str | None = None
    cancel_reason: str | None = None
    repair_attempts: int = 0
    repair_started_at: float | None = None
    reboot_boot_id: str | None = None
    next_attempt_at: float | None = None
    attempts: int = 0
    noted: bool = False
    returned_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxItem:
    """A stored push: ``kind`` is ``event`` or ``alert``; ``payload`` is JSON as it came (validated)."""

    id: int
    kind: str
    node: str | None
    received_at: float
    payload: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxEvent:
    """An agent's event on its way into the inbox; (node, boot_id, sequence) makes it idempotent."""

    node: str
    boot_id: str
    sequence: int
    payload: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentContact:
    """The last word of a node's agent: epoch, GPUs (UUIDs, or None when it cannot tell), when.

    ``contested``: two machines speak under this name (a boot that was over spoke again), so nothing is
    known of either. Not stored.
    """

    node: str
    boot_id: str
    last_seen: float
    first_seen_boot: float
    version: str | None = None
    gpu_count: int | None = None
    gpu_uuids: tuple[str, ...] = ()
    contested: bool = False


class WordKind(StrEnum):
    HOLD = "hold"
    PAUSE = "pause"
    COOLDOWN = "cooldown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A human word that binds us: hold or cool down a node, pause a pool (``target`` None: the fleet)."""

    kind: WordKind
    target: str | None
    author: str
    reason: str
    since: float
    expires_at: float | None = None
    ended_at: float | None = None
    id: int = 0

    def active(self, now: float) -> bool:
        return self.ended_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True)
class Lease:
    """Who may act, until when (epoch seconds), under which fencing epoch (grows with every take-over)."""

    holder: str
    expires_at: float
    epoch: int


@dataclass(frozen=True, slots=True)
class StoredFinding:
    finding: Finding
    incident: str | None
    last_seen: float
    count: int
    cleared_at: float | None = None
    clear_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """One mark against a GPU (``uuid``; None: the whole node), kept for months: a lemon is handed over."""

    at: float
    node: str
    rule: str
    uuid: str | None = None
    incident: str | None = None
    id: int = 0


@dataclass(frozen=True, slots=True)
class Pruned:
    """What retention removed."""

    inbox: int
    steps: int


@dataclass(frozen=True, slots=True)
class Added:
    """What happened to a batch of events: how many were new, how many were there already."""

    accepted: int
    duplicates: int


class LedgerTransaction(Protocol):
    """One atomic unit of reads and writes. Everything commits together, or nothing does."""

    # -- inbox
    def add_events(self, events: Sequence[InboxEvent], received_at: float) -> Added: ...
    def add_alert(self, key: str, payload: Mapping[str, object], received_at: float) -> bool: ...
    def pending_inbox(self, limit: int) -> Sequence[InboxItem]:
        """What is stored and not yet processed: events before alerts, each oldest first."""
        ...

    def pending_inbox_count(self) -> int: ...
    def mark_processed(self, ids: Sequence[int], at: float) -> None: ...

    # -- agents
    def put_agent(self, contact: AgentContact) -> None: ...
    def agent(self, node: str) -> AgentContact | None: ...
    def agents(self) -> Mapping[str, AgentContact]: ...

    # -- findings
    def put_finding(self, finding: Finding, incident: str | None, seen_at: float) -> bool:
        """Store a finding, or count a repeat of an open one with the same id. True when it is new.

        A finding that was cleared starts anew: its since, evidence and count are those of now.
        """
        ...

    def findings(
        self, *, node: str | None = None, incident: str | None = None, include_cleared: bool = False
    ) -> Sequence[StoredFinding]: ...
    def clear_finding(self, finding_id: str, at: float, reason: str) -> None: ...
    def amend_finding(self, finding_id: str, evidence: Mapping[str, object]) -> None:
        """Replace the evidence of an open finding: something more is known of it."""
        ...

    # -- incidents
    def add_incident(self, incident: IncidentRecord) -> None: ...
    def update_incident(self, incident: IncidentRecord, *, expected: IncidentRecord | None = None) -> None:
        """Replace the stored record. StaleRecordError (remediator.ledger), and nothing changes, when there
        is none, when it is closed and would change its state, or when it isn't ``expected`` any more
        (given: compare and set, for what was read in an earlier transaction).
        """
        ...

    def incident(self, incident_id: str) -> IncidentRecord | None: ...
    def open_incidents(self) -> Sequence[IncidentRecord]: ...
    def incidents_since(self, since: float) -> Sequence[IncidentRecord]:
        """Those opened at or after ``since``, whatever became of them, oldest first."""
        ...

    def incidents(
        self,
        *,
        state: str | None = None,
        node: str | None = None,
        limit: int = 100,
        before: float | None = None,
        before_id: str | None = None,
    ) -> Sequence[IncidentRecord]:
        """Newest first; ``before`` is an ``opened_at`` to page on, ``before_id`` that incident's id: with
        it, incidents opened at the same instant are not lost between two pages.
        """
        ...

    # -- ledger lines
    def append(self, step: StepRecord) -> int:
        """Add a line; its id. A second intent of a key is a DuplicateIntentError, a second effect a
        DuplicateEffectError (both remediator.ledger): no action is recorded twice.
        """
        ...

    def steps(
        self, *, incident: str | None = None, node: str | None = None, limit: int = 1000
    ) -> Sequence[StepRecord]:
        """Oldest first; with ``limit`` the newest ones of it."""
        ...

    def open_intents(self, incident: str) -> Sequence[StepRecord]:
        """Intents whose key has no effect, oldest first."""
        ...

    def count_effects(self, step: Step, nodes: Collection[str], since: float) -> int:
        """Effects DONE of ``step`` on any of ``nodes`` since then: what the rate gate counts."""
        ...

    def count_requeues(self, job: str, since: float) -> int:
        """How often we have taken ``job`` off a node since then: the cap per job."""
        ...

    def steps_since(self, after_id: int, limit: int = 500) -> Sequence[StepRecord]: ...

    # -- strikes
    def add_strike(self, strike: Strike) -> int: ...
    def strikes(self, since: float, *, node: str | None = None, uuid: str | None = None) -> Sequence[Strike]:
        """Strikes at or after ``since``, oldest first."""
        ...

    # -- human words
    def add_word(self, word: Word) -> Word: ...
    def end_words(self, kind: WordKind, target: str | None, at: float) -> int: ...
    def words(self, now: float) -> Sequence[Word]: ...

    # -- the lease
    def acquire_lease(self, holder: str, now: float, duration: float) -> Lease | None:
        """Take or renew the lease; None while somebody else holds it."""
        ...

    def release_lease(self, holder: str) -> None: ...
    def lease(self) -> Lease | None:
        """Who holds it, expired or not; None when nobody does."""
        ...

    # -- retention
    def prune(self, before: float) -> Pruned:
        """Remove inbox rows processed before then, and the lines of incidents closed before then (and
        decisions without an incident as old). Incidents, findings and strikes stay.
        """
        ...


class LedgerStore(Protocol):
    """Where the ledger is kept."""

    def transaction(
        self, *, read_only: bool = False, fence: Lease | None = None
    ) -> AbstractContextManager[LedgerTransaction]:
        """Commits at the end of the block, rolls back when it raises.

        ``read_only``: one consistent view that waits for no writer; a write in it is a LedgerError.
        ``fence``: nothing is written unless this holder's lease, of this epoch, still stands in the
        store; else LostLeaseError (remediator.ledger).
        """
        ...

    def check_writable(self) -> None:
        """Raise LedgerError (remediator.ledger) if a write cannot be made durable now."""
        ...

    def close(self) -> None: ...


def iter_open(words: Sequence[Word], now: float) -> Iterator[Word]:
    """The words that still bind at ``now``."""
    return (word for word in words if word.active(now))
