"""The tables. Times are epoch seconds; JSON is kept as text and never searched.

A change of anything here needs a higher SCHEMA_VERSION and a migration: ledgers outlive releases.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)

SCHEMA_VERSION = 1

metadata = MetaData()

# SQLite numbers rows by itself only in a column declared INTEGER; PostgreSQL's INTEGER ends at 2^31.
_RowId = BigInteger().with_variant(Integer(), "sqlite")


def _row_id() -> Column[int]:
    return Column("id", _RowId, primary_key=True, autoincrement=True)


def _incident_id(*, nullable: bool) -> Column[str]:
    # Checked at commit: the lines of an incident may be written before the incident itself.
    reference = ForeignKey("incident.id", deferrable=True, initially="DEFERRED")
    return Column("incident", String, reference, nullable=nullable)


meta = Table(
    "sickbay_meta",
    metadata,
    Column("key", String, primary_key=True),
    Column("value", String, nullable=False),
)

# AUTOINCREMENT: an id is never used twice, even after pruning, so that readers can page on it.
inbox = Table(
    "inbox",
    metadata,
    _row_id(),
    Column("kind", String, nullable=False),
    Column("node", String),
    Column("boot_id", String),
    Column("sequence", BigInteger),
    Column("alert_key", String),
    Column("received_at", Double, nullable=False),
    Column("payload", Text, nullable=False),
    Column("processed_at", Double),
    # An index sees NULLs as distinct: alerts do not collide in the first, events not in the second.
    Index("inbox_event_once", "node", "boot_id", "sequence", unique=True),
    Index("inbox_alert_once", "alert_key", unique=True),
    sqlite_autoincrement=True,
)
Index(
    "inbox_pending",
    inbox.c.id,
    sqlite_where=inbox.c.processed_at.is_(None),
    postgresql_where=inbox.c.processed_at.is_(None),
)
Index("inbox_processed", inbox.c.processed_at)

agent = Table(
    "agent",
    metadata,
    Column("node", String, primary_key=True),
    Column("boot_id", String, nullable=False),
    Column("last_seen", Double, nullable=False),
    Column("first_seen_boot", Double, nullable=False),
    Column("version", String),
    Column("gpu_count", Integer),
    Column("gpu_uuids", Text, nullable=False),
)

incident = Table(
    "incident",
    metadata,
    Column("id", String, primary_key=True),
    Column("node", String, nullable=False),
    Column("pool", String, nullable=False),
    Column("rule", String, nullable=False),
    Column("state", String, nullable=False),
    Column("opened_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("incarnation", String),
    Column("boot_id", String),
    Column("response", String, nullable=False),
    Column("repair", String, nullable=False),
    Column("sentence", Text, nullable=False),
    Column("expected_gpus", Integer),
    Column("prior", Text, nullable=False),
    Column("mark_user", String),
    Column("mark_time", Double),
    Column("state_since", Double, nullable=False),
    Column("closed_at", Double),
    Column("blocked_by", Text, nullable=False),
    Column("blocked_reasons", Text, nullable=False),
    Column("last_reason", Text, nullable=False),
    Column("approved_by", String),
    Column("cancelled_by", String),
    Column("cancel_reason", Text),
    Column("repair_attempts", Integer, nullable=False),
    Column("repair_started_at", Double),
    Column("reboot_boot_id", String),
    Column("next_attempt_at", Double),
    Column("attempts", Integer, nullable=False),
    Column("noted", Boolean, nullable=False),
    Column("returned_at", Double),
    Index("incident_by_time", "opened_at", "id"),
    Index("incident_by_node", "node", "opened_at"),
    Index("incident_by_state", "state", "opened_at"),
)

finding = Table(
    "finding",
    metadata,
    Column("id", String, primary_key=True),
    Column("rule", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("node", String, nullable=False),
    Column("severity", String, nullable=False),
    Column("response", String, nullable=False),
    Column("repair", String, nullable=False),
    Column("clear_on", String, nullable=False),
    Column("since", Double, nullable=False),
    Column("mode", String, nullable=False),
    Column("gpu", String),
    Column("uuid", String),
    Column("boot_id", String),
    Column("source", String, nullable=False),
    Column("sentence", Text, nullable=False),
    Column("evidence", Text, nullable=False),
    _incident_id(nullable=True),
    Column("last_seen", Double, nullable=False),
    Column("count", Integer, nullable=False),
    Column("cleared_at", Double),
    Column("clear_reason", Text),
    Index("finding_by_node", "node"),
    Index("finding_by_incident", "incident"),
)

step = Table(
    "step",
    metadata,
    _row_id(),
    Column("at", Double, nullable=False),
    Column("phase", String, nullable=False),
    Column("reason", Text, nullable=False),
    Column("node", String, nullable=False),
    _incident_id(nullable=True),
    Column("step", String),
    Column("outcome", String),
    Column("actor", String, nullable=False),
    Column("key", String),
    Column("payload", Text, nullable=False),
    Index("step_by_incident", "incident", "id"),
    Index("step_by_node", "node", "id"),
    Index("step_by_action", "step", "phase", "at"),
    sqlite_autoincrement=True,
)
# No action is recorded twice, whoever writes: one intent and one effect per key, any number of attempts.
_ONCE = step.c.phase.in_(("intent", "effect"))
Index("step_once", step.c.key, step.c.phase, unique=True, sqlite_where=_ONCE, postgresql_where=_ONCE)

strike = Table(
    "strike",
    metadata,
    _row_id(),
    Column("at", Double, nullable=False),
    Column("node", String, nullable=False),
    Column("uuid", String),
    Column("rule", String, nullable=False),
    _incident_id(nullable=True),
    Index("strike_by_time", "at"),
    sqlite_autoincrement=True,
)

word = Table(
    "word",
    metadata,
    _row_id(),
    Column("kind", String, nullable=False),
    Column("target", String),
    Column("author", String, nullable=False),
    Column("reason", Text, nullable=False),
    Column("since", Double, nullable=False),
    Column("expires_at", Double),
    Column("ended_at", Double),
    sqlite_autoincrement=True,
)
Index(
    "word_standing",
    word.c.id,
    sqlite_where=word.c.ended_at.is_(None),
    postgresql_where=word.c.ended_at.is_(None),
)

# One row for ever: a release empties ``holder`` and keeps ``epoch``, which never goes back.
lease = Table(
    "lease",
    metadata,
    Column("name", String, primary_key=True),
    Column("holder", String),
    Column("expires_at", Double, nullable=False),
    Column("epoch", BigInteger, nullable=False),
)
