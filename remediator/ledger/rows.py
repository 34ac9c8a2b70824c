"""Records to rows and back, one pair of functions per table."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Row

from fleet.findings import (
    ClearOn,
    Finding,
    IncidentState,
    Mode,
    Repair,
    Response,
    Severity,
    Step,
)
from remediator.ledger.errors import LedgerError
from remediator.records import (
    AgentContact,
    InboxItem,
    IncidentRecord,
    Outcome,
    Phase,
    StepRecord,
    StoredFinding,
    Strike,
    Word,
    WordKind,
)

AnyRow = Row[Any]
Values = dict[str, object]


def to_json(value: object) -> str:
    """JSON text, pure ASCII (so that NUL and lone surrogates of an input survive any database).

    NaN and infinities are not JSON and become null: no value is not a value of 0.
    """
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, separators=(",", ":"))
    except TypeError as error:
        raise LedgerError(f"a payload that is not JSON cannot be stored in the ledger: {error}") from error


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _mapping(text: str) -> dict[str, object]:
    loaded: dict[str, object] = json.loads(text)
    return loaded


def _words(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def inbox_item(row: AnyRow) -> InboxItem:
    return InboxItem(
        id=row.id,
        kind=row.kind,
        node=row.node,
        received_at=row.received_at,
        payload=_mapping(row.payload),
    )


def agent_values(contact: AgentContact) -> Values:
    return {
        "node": contact.node,
        "boot_id": contact.boot_id,
        "last_seen": contact.last_seen,
        "first_seen_boot": contact.first_seen_boot,
        "version": contact.version,
        "gpu_count": contact.gpu_count,
        "gpu_uuids": to_json(contact.gpu_uuids),
    }


def agent_contact(row: AnyRow) -> AgentContact:
    return AgentContact(
        node=row.node,
        boot_id=row.boot_id,
        last_seen=row.last_seen,
        first_seen_boot=row.first_seen_boot,
        version=row.version,
        gpu_count=row.gpu_count,
        gpu_uuids=_words(row.gpu_uuids),
    )


def incident_values(incident: IncidentRecord) -> Values:
    return {
        "id": incident.id,
        "node": incident.node,
        "pool": incident.pool,
        "rule": incident.rule,
        "state": incident.state.value,
        "opened_at": incident.opened_at,
        "updated_at": incident.updated_at,
        "incarnation": incident.incarnation,
        "boot_id": incident.boot_id,
        "response": incident.response.value,
        "repair": incident.repair.value,
        "sentence": incident.sentence,
        "expected_gpus": incident.expected_gpus,
        "prior": to_json(incident.prior),
        "mark_user": incident.mark_user,
        "mark_time": incident.mark_time,
        "state_since": incident.state_since,
        "closed_at": incident.closed_at,
        "blocked_by": to_json(incident.blocked_by),
        "blocked_reasons": to_json(incident.blocked_reasons),
        "last_reason": incident.last_reason,
        "approved_by": incident.approved_by,
        "cancelled_by": incident.cancelled_by,
        "cancel_reason": incident.cancel_reason,
        "repair_attempts": incident.repair_attempts,
        "repair_started_at": incident.repair_started_at,
        "reboot_boot_id": incident.reboot_boot_id,
        "next_attempt_at": incident.next_attempt_at,
        "attempts": incident.attempts,
        "noted": incident.noted,
        "returned_at": incident.returned_at,
    }


def incident_record(row: AnyRow) -> IncidentRecord:
    return IncidentRecord(
        id=row.id,
        node=row.node,
        pool=row.pool,
        rule=row.rule,
        state=IncidentState(row.state),
        opened_at=row.opened_at,
        updated_at=row.updated_at,
        incarnation=row.incarnation,
        boot_id=row.boot_id,
        response=Response(row.response),
        repair=Repair(row.repair),
        sentence=row.sentence,
        expected_gpus=row.expected_gpus,
        prior=_mapping(row.prior),
        mark_user=row.mark_user,
        mark_time=row.mark_time,
        state_since=row.state_since,
        closed_at=row.closed_at,
        blocked_by=_words(row.blocked_by),
        blocked_reasons=_words(row.blocked_reasons),
        last_reason=row.last_reason,
        approved_by=row.approved_by,
        cancelled_by=row.cancelled_by,
        cancel_reason=row.cancel_reason,
        repair_attempts=row.repair_attempts,
        repair_started_at=row.repair_started_at,
        reboot_boot_id=row.reboot_boot_id,
        next_attempt_at=row.next_attempt_at,
        attempts=row.attempts,
        noted=row.noted,
        returned_at=row.returned_at,
    )


def finding_values(finding: Finding) -> Values:
    return {
        "id": finding.id,
        "rule": finding.rule,
        "kind": finding.kind,
        "node": finding.node,
        "severity": finding.severity.value,
        "response": finding.response.value,
        "repair": finding.repair.value,
        "clear_on": finding.clear_on.value,
        "since": finding.since,
        "mode": finding.mode.value,
        "gpu": finding.gpu,
        "uuid": finding.uuid,
        "boot_id": finding.boot_id,
        "source": finding.source,
        "sentence": finding.sentence,
        "evidence": to_json(finding.evidence),
    }


def stored_finding(row: AnyRow) -> StoredFinding:
    finding = Finding(
        id=row.id,
        rule=row.rule,
        kind=row.kind,
        node=row.node,
        severity=Severity(row.severity),
        response=Response(row.response),
        repair=Repair(row.repair),
        clear_on=ClearOn(row.clear_on),
        since=row.since,
        mode=Mode(row.mode),
        gpu=row.gpu,
        uuid=row.uuid,
        boot_id=row.boot_id,
        source=row.source,
        sentence=row.sentence,
        evidence=_mapping(row.evidence),
    )
    # ``count`` is also a method of every row, hence the look-up by name.
    return StoredFinding(
        finding=finding,
        incident=row.incident,
        last_seen=row.last_seen,
        count=row._mapping["count"],
        cleared_at=row.cleared_at,
        clear_reason=row.clear_reason,
    )


def step_values(step: StepRecord) -> Values:
    return {
        "at": step.at,
        "phase": step.phase.value,
        "reason": step.reason,
        "node": step.node,
        "incident": step.incident,
        "step": None if step.step is None else step.step.value,
        "outcome": None if step.outcome is None else step.outcome.value,
        "actor": str(step.actor),
        "key": step.key,
        "payload": to_json(step.payload),
    }


def step_record(row: AnyRow) -> StepRecord:
    return StepRecord(
        id=row.id,
        at=row.at,
        phase=Phase(row.phase),
        reason=row.reason,
        node=row.node,
        incident=row.incident,
        step=None if row.step is None else Step(row.step),
        outcome=None if row.outcome is None else Outcome(row.outcome),
        actor=row.actor,
        key=row.key,
        payload=_mapping(row.payload),
    )


def strike_values(strike: Strike) -> Values:
    return {
        "at": strike.at,
        "node": strike.node,
        "uuid": strike.uuid,
        "rule": strike.rule,
        "incident": strike.incident,
    }


def strike_record(row: AnyRow) -> Strike:
    return Strike(id=row.id, at=row.at, node=row.node, uuid=row.uuid, rule=row.rule, incident=row.incident)


def word_values(word: Word) -> Values:
    return {
        "kind": word.kind.value,
        "target": word.target,
        "author": word.author,
        "reason": word.reason,
        "since": word.since,
        "expires_at": word.expires_at,
        "ended_at": word.ended_at,
    }


def word_record(row: AnyRow) -> Word:
    return Word(
        id=row.id,
        kind=WordKind(row.kind),
        target=row.target,
        author=row.author,
        reason=row.reason,
        since=row.since,
        expires_at=row.expires_at,
        ended_at=row.ended_at,
    )
