"""Writes intents and effects, and moves the incident with them: what a step's result means, in one place.

Everything here runs inside one ledger transaction per result, so a line and the state it implies are never
apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import asdict, replace

from fleet.findings import IncidentState, Repair, Step
from fleet.scheduler import NodeRecord
from remediator.decisions import Act, Move
from remediator.evaluate import cooldown_word
from remediator.lifecycle import US
from remediator.records import (
    Actor,
    IncidentRecord,
    LedgerTransaction,
    Outcome,
    Phase,
    StepRecord,
)
from remediator.situation import METRICS, JobRun, Situation, boot_now, planned_repair
from remediator.steps import StepResult

FIRST_RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 60.0
#: A refusal is permanent until somebody changes something: look again at this pace.
REFUSED_RETRY_SECONDS = 60.0


def retry_delay(attempts: int) -> float:
    """Exponential back-off, 1 s doubling to a minute."""
    return float(min(MAX_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2.0 ** min(attempts, 10)))


def intent_key(
    incident: IncidentRecord, step: Step, job: JobRun | None, steps: tuple[StepRecord, ...]
) -> str:
    """The idempotency key: an open intent's own, else the next number for this step of this incident."""
    done = {s.key for s in steps if s.phase is Phase.EFFECT}
    if job is not None:
        run = f"{incident.id}/{step}/{job.job}/{job.restarts}"
        # Announced again after it was given up before it had begun.
        again = (f"{run}/{number}" for number in itertools.count(2))
        return next(key for key in itertools.chain([run], again) if key not in done)
    intents = [s.key for s in steps if s.phase is Phase.INTENT and s.step is step and s.key is not None]
    for key in intents:
        if key not in done:
            return key
    return f"{incident.id}/{step}/{len(intents) + 1}"


def announce(
    tx: LedgerTransaction, situation: Situation, act: Act, steps: tuple[StepRecord, ...]
) -> tuple[str, IncidentRecord]:
    """Write the intent (unless this resumes one) and what it implies for the incident; its key."""
    incident = situation.incident
    key = intent_key(incident, act.step, act.job, steps)
    cleared = replace(incident, blocked_by=(), blocked_reasons=())
    if any(s.key == key for s in steps):
        if cleared != incident:
            tx.update_incident(cleared)
        return key, cleared
    payload: dict[str, object] = {}
    after = replace(
        cleared, updated_at=situation.now, attempts=0, next_attempt_at=None, last_reason=act.reason
    )
    if act.job is not None:
        payload = {
            "job": act.job.job,
            "restarts": act.job.restarts,
            "submitted_at": act.job.submitted_at,
        }
    elif act.step is Step.CORDON:
        payload = {"prior": _node_payload(situation.node)}
        after = _enter(after, IncidentState.CORDONING, situation.now)
        after = replace(
            after, prior={**after.prior, "node": payload["prior"]}, mark_user=None, mark_time=None
        )
    elif act.step in (Step.RESET_GPU, Step.REBOOT, Step.POWER_CYCLE):
        after = _begin_repair(after, situation, act.step)
        payload = {"attempt": after.repair_attempts, "boot_id": after.reboot_boot_id}
    elif act.step is Step.VERIFY:
        # What is verified is this boot: another one before the return is verified anew.
        payload = {"boot_id": boot_now(situation.node, situation.agent)}
    tx.append(
        StepRecord(
            at=situation.now,
            phase=Phase.INTENT,
            step=act.step,
            reason=act.reason,
            node=incident.node,
            incident=incident.id,
            key=key,
            payload=payload,
        )
    )
    tx.update_incident(after)
    return key, after


def _begin_repair(incident: IncidentRecord, s: Situation, step: Step) -> IncidentRecord:
    repair, _ = planned_repair(s.incident, s.policy)
    epoch = boot_now(s.node, s.agent) or s.incident.boot_id
    return replace(
        _enter(incident, IncidentState.REPAIRING, s.now),
        repair=repair,
        repair_attempts=incident.repair_attempts + 1,
        repair_started_at=s.now,
        reboot_boot_id=epoch if step in (Step.REBOOT, Step.POWER_CYCLE) else incident.reboot_boot_id,
    )


def _node_payload(node: NodeRecord | None) -> Mapping[str, object]:
    if node is None:
        return {}
    return {
        "state": str(node.state),
        "base": node.base,
        "flags": list(node.flags),
        "owner": str(node.owner),
        "reason": asdict(node.reason) if node.reason is not None else None,
        "comment": node.comment,
    }


def _enter(incident: IncidentRecord, state: IncidentState, now: float) -> IncidentRecord:
    if incident.state is state:
        return replace(incident, updated_at=now)
    closed_at = now if state.is_closed else None
    return replace(incident, state=state, state_since=now, updated_at=now, closed_at=closed_at)


def record(
    tx: LedgerTransaction, incident: IncidentRecord, step: Step, key: str, result: StepResult, now: float
) -> IncidentRecord:
    """Write a result's line and move the incident. Returns the incident as it now stands."""
    if result.outcome is Outcome.IN_PROGRESS:
        return incident
    if result.outcome is Outcome.UNKNOWN or (result.outcome is Outcome.FAILED and step is not Step.VERIFY):
        return _retry_later(tx, incident, step, key, result, now)
    tx.append(
        StepRecord(
            at=now,
            phase=Phase.EFFECT,
            step=step,
            outcome=result.outcome,
            reason=result.reason,
            node=incident.node,
            incident=incident.id,
            key=key,
            payload=dict(result.payload),
        )
    )
    after = replace(incident, updated_at=now, attempts=0, next_attempt_at=None, last_reason=result.reason)
    if result.outcome is Outcome.REFUSED and step is not Step.REQUEUE:
        after = _refused(after, step, now)
    elif step is Step.CORDON:
        after = _cordoned(after, result, now)
    elif step is Step.UNCORDON:
        after = _uncordoned(tx, after, now)
    tx.update_incident(after)
    return after


def _retry_later(
    tx: LedgerTransaction, incident: IncidentRecord, step: Step, key: str, result: StepResult, now: float
) -> IncidentRecord:
    """The intent stays open: its outcome is unknown, or it failed in a way a person must mend."""
    unknown = result.outcome is Outcome.UNKNOWN
    delay = retry_delay(incident.attempts) if unknown else REFUSED_RETRY_SECONDS
    tx.append(
        StepRecord(
            at=now,
            phase=Phase.ATTEMPT,
            step=step,
            outcome=result.outcome,
            reason=f"{result.reason}; next try in {delay:.0f} s",
            node=incident.node,
            incident=incident.id,
            key=key,
        )
    )
    after = replace(
        incident,
        updated_at=now,
        attempts=incident.attempts + 1,
        next_attempt_at=now + delay,
        last_reason=result.reason,
    )
    tx.update_incident(after)
    return after


def _refused(incident: IncidentRecord, step: Step, now: float) -> IncidentRecord:
    """Somebody else owns the node (or it may not be touched now): step back and look again later."""
    back = {
        Step.CORDON: IncidentState.CONFIRMED,
        Step.REBOOT: IncidentState.DRAINED,
        Step.RESET_GPU: IncidentState.DRAINED,
        Step.POWER_CYCLE: IncidentState.DRAINED,
    }.get(step)
    after = incident if back is None else _enter(incident, back, now)
    if step in (Step.REBOOT, Step.RESET_GPU, Step.POWER_CYCLE):
        # Nothing was repaired: the attempt does not count.
        after = replace(after, repair_attempts=max(0, after.repair_attempts - 1))
    return replace(after, next_attempt_at=now + REFUSED_RETRY_SECONDS / 4)


def _cordoned(incident: IncidentRecord, result: StepResult, now: float) -> IncidentRecord:
    reason = result.node.reason if result.node is not None else None
    return replace(
        _enter(incident, IncidentState.DRAINING, now),
        mark_user=reason.user if reason is not None else None,
        mark_time=reason.time if reason is not None else None,
    )


def _uncordoned(tx: LedgerTransaction, incident: IncidentRecord, now: float) -> IncidentRecord:
    cancelled = incident.cancelled_by is not None
    clear_findings(
        tx,
        incident,
        now,
        "cancelled" if cancelled else "verified and returned",
        until=None if cancelled else incident.repair_started_at or incident.state_since,
        by_person=incident.cancelled_by not in (None, US),
    )
    _abandon_open_intents(tx, incident, now, "the node was given back")
    state = IncidentState.CANCELLED if cancelled else IncidentState.PROBATION
    return replace(_enter(incident, state, now), returned_at=now)


def clear_findings(
    tx: LedgerTransaction,
    incident: IncidentRecord,
    now: float,
    why: str,
    *,
    until: float | None = None,
    by_person: bool = False,
) -> None:
    """``until``: what was found later stays open (a fault that came in while the node was given back).

    ``by_person``: their word ends the incident. What metrics see goes on all the same until they see its
    end; ended here it would be found anew with the next sample, and answered with another incident. So does
    what asks for no action: no repair was about it, and found anew a person would be told a second time.
    """
    for stored in tx.findings(incident=incident.id):
        if stored.finding.source == METRICS and (by_person or not stored.finding.response.acts):
            continue
        if until is None or stored.finding.since <= until:
            tx.clear_finding(stored.finding.id, now, why)


def move(tx: LedgerTransaction, situation: Situation, to: Move) -> IncidentRecord:
    """Write a change of state that touches nothing outside."""
    incident, now = situation.incident, situation.now
    tx.append(
        StepRecord(
            at=now,
            phase=Phase.DECISION,
            reason=f"{incident.state} -> {to.state}: {to.reason}",
            node=incident.node,
            incident=incident.id,
            payload={"state": str(to.state)},
        )
    )
    after = replace(
        _enter(incident, to.state, now),
        last_reason=to.reason,
        blocked_by=(),
        blocked_reasons=(),
        repair=to.repair if to.repair is not None else incident.repair,
    )
    if to.give_up:
        after = replace(after, cancelled_by=US, cancel_reason=to.reason)
    else:
        _abandon_open_intents(tx, incident, now, to.reason)
    if incident.state is IncidentState.PROBATION and to.state is IncidentState.CONFIRMED:
        after = _relapsed(after, situation)
    if to.clear_findings:
        by_person = to.cooldown or incident.cancelled_by not in (None, US)
        clear_findings(tx, incident, now, to.reason, by_person=by_person)
    if to.cooldown:
        tx.add_word(cooldown_word(incident, now, situation.policy.cooldown_seconds, to.reason))
    tx.update_incident(after)
    return after


def _relapsed(incident: IncidentRecord, s: Situation) -> IncidentRecord:
    """A relapse is about the present boot, and a person's word was about the fault before it."""
    epoch = boot_now(s.node, s.agent) or incident.boot_id
    return replace(
        incident,
        boot_id=epoch,
        reboot_boot_id=None,
        repair_started_at=None,
        approved_by=None,
        returned_at=None,
    )


def _abandon_open_intents(tx: LedgerTransaction, incident: IncidentRecord, now: float, why: str) -> None:
    """What was announced in one state is not done in the next (a closed incident does nothing at all)."""
    for intent in tx.open_intents(incident.id):
        tx.append(
            StepRecord(
                at=now,
                phase=Phase.EFFECT,
                step=intent.step,
                outcome=Outcome.ABANDONED,
                reason=why,
                node=incident.node,
                incident=incident.id,
                key=intent.key,
            )
        )


def hand_over(
    tx: LedgerTransaction, situation: Situation, reason: str, steps: tuple[StepRecord, ...]
) -> IncidentRecord:
    """Close the incident into a person's hands; the node keeps our cordon, so that no job lands on it."""
    incident, now = situation.incident, situation.now
    key = intent_key(incident, Step.HAND_OVER, None, steps)
    common = {"at": now, "step": Step.HAND_OVER, "node": incident.node, "incident": incident.id, "key": key}
    tx.append(StepRecord(phase=Phase.INTENT, reason=reason, **common))  # type: ignore[arg-type]
    tx.append(StepRecord(phase=Phase.EFFECT, outcome=Outcome.DONE, reason="waits for hands", **common))  # type: ignore[arg-type]
    after = replace(
        _enter(incident, IncidentState.HANDED_OVER, now),
        last_reason=reason,
        repair=Repair.HAND_OVER,
        blocked_by=(),
        blocked_reasons=(),
    )
    tx.update_incident(after)
    return after


def blocked(
    tx: LedgerTransaction, situation: Situation, step: Step, gates: tuple[str, ...], reasons: tuple[str, ...]
) -> bool:
    """Keep which gates stand in the way; a ledger line only when their set changes. True when it did."""
    incident, now = situation.incident, situation.now
    if incident.blocked_by == gates:
        return False
    backing_off = incident.next_attempt_at is not None and now < incident.next_attempt_at
    tx.append(
        StepRecord(
            at=now,
            phase=Phase.DECISION,
            step=step,
            outcome=Outcome.REFUSED,
            reason=f"{step} refused: " + "; ".join(reasons),
            node=incident.node,
            incident=incident.id,
            actor=Actor.SICKBAY,
            payload={"gates": list(gates)},
        )
    )
    tx.update_incident(
        replace(
            incident,
            blocked_by=gates,
            blocked_reasons=reasons,
            updated_at=now,
            # The backend gate quotes why the last call did not succeed: a refusal must not quote itself.
            last_reason=incident.last_reason if backing_off else "; ".join(reasons),
        )
    )
    return True
