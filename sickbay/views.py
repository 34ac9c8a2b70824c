"""The JSON of the API (docs/api.md), made from records. Pure: what is shown is what was decided on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleet.findings import Finding, Severity, Verdict
from fleet.scheduler import NodeRecord, NodeState, Owner
from remediator.decisions import Act, Move, Wait
from remediator.gates import GateResult
from remediator.planning import Assessment
from remediator.policy import Policy
from remediator.records import AgentContact, IncidentRecord, StepRecord, StoredFinding
from remediator.sight import MetricSight
from sickbay.ports import Json


def finding_json(stored: StoredFinding) -> Json:
    finding = stored.finding
    return {
        "id": finding.id,
        "rule": finding.rule,
        "kind": finding.kind,
        "node": finding.node,
        "gpu": finding.gpu,
        "uuid": finding.uuid,
        "severity": str(finding.severity),
        "response": str(finding.response),
        "since": finding.since,
        "evidence": dict(finding.evidence),
        "sentence": finding.sentence,
        "count": stored.count,
        "last_seen": stored.last_seen,
        "cleared_at": stored.cleared_at,
    }


def incident_summary(incident: IncidentRecord, rules: Sequence[str]) -> Json:
    return {
        "id": incident.id,
        "node": incident.node,
        "state": str(incident.state),
        "blocked_by": list(incident.blocked_by),
        "opened_at": incident.opened_at,
        "closed_at": incident.closed_at,
        "rules": list(rules),
        "pool": incident.pool,
        "reason": incident.last_reason or incident.sentence,
    }


def step_json(step: StepRecord) -> Json:
    return {
        "at": step.at,
        "step": str(step.step) if step.step is not None else None,
        "phase": str(step.phase),
        "outcome": str(step.outcome) if step.outcome is not None else None,
        "reason": step.reason,
        "actor": str(step.actor),
        "job": step.payload.get("job"),
    }


def incident_json(
    incident: IncidentRecord, findings: Sequence[StoredFinding], steps: Sequence[StepRecord]
) -> Json:
    rules = list(dict.fromkeys(stored.finding.rule for stored in findings)) or [incident.rule]
    return {
        **incident_summary(incident, rules),
        "incarnation": incident.incarnation,
        "boot_id": incident.boot_id,
        "response": str(incident.response),
        "repair": str(incident.repair),
        "blocked_reasons": list(incident.blocked_reasons),
        "approved_by": incident.approved_by,
        "cancelled_by": incident.cancelled_by,
        "returned_at": incident.returned_at,
        "findings": [finding_json(stored) for stored in findings],
        "steps": [step_json(step) for step in steps],
    }


def owner_of(record: NodeRecord | None, incidents: Mapping[str, IncidentRecord]) -> Owner:
    """Whose cordon: the mark says sickbay only if the ledger knows an incident that holds that node.

    ``incidents``: by node, the open ones and those handed over.
    """
    if record is None:
        return Owner.NONE
    if record.owner is not Owner.SICKBAY:
        return record.owner
    return Owner.SICKBAY if record.name in incidents else Owner.FOREIGN


def verdict_of(
    record: NodeRecord | None,
    findings: Sequence[Finding],
    contact: AgentContact | None,
    sight: MetricSight | None,
    policy: Policy,
    *,
    now: float,
    scheduler_is_fresh: bool,
) -> tuple[Verdict, str]:
    """Healthy, unhealthy or unknown, and why. Silence is never health."""
    bad = [
        f
        for f in findings
        if f.severity is not Severity.INFO and (f.response.acts or f.severity is Severity.CRITICAL)
    ]
    if bad:
        return Verdict.UNHEALTHY, bad[0].sentence or f"rule {bad[0].rule} holds"
    if record is None or not scheduler_is_fresh:
        return Verdict.UNKNOWN, "the scheduler's word is missing or old"
    if record.state in (NodeState.UNKNOWN, NodeState.DOWN):
        return Verdict.UNKNOWN, f"the scheduler says {record.state}"
    watched = sight is not None and record.name in sight.watched
    if watched and sight is not None:
        seen_at = sight.seen_at(record.name)
        if seen_at is None:
            return Verdict.UNKNOWN, "its exporter has not answered yet"
        if now - seen_at > policy.metrics_stale_seconds:
            return Verdict.UNKNOWN, f"its exporter last answered {now - seen_at:.0f} s ago"
    if contact is None:
        if watched:
            return Verdict.HEALTHY, "its exporter answers and no rule holds (no agent reads its kernel log)"
        return Verdict.UNKNOWN, "no agent has ever spoken for this node"
    age = now - contact.last_seen
    if age > policy.agent_silence_seconds:
        return Verdict.UNKNOWN, f"its agent last spoke {age:.0f} s ago"
    who = "its agent and its exporter speak" if watched else "its agent speaks"
    return Verdict.HEALTHY, f"{who} and no rule holds"


def sight_json(sight: MetricSight | None, node: str, now: float) -> Json | None:
    """What the metric rules know of a node beside their findings; null when it has no target."""
    if sight is None or node not in sight.watched:
        return None
    seen_at = sight.seen_at(node)
    return {
        "last_answer": seen_at,
        "age_seconds": None if seen_at is None else now - seen_at,
        "pending": list(sight.pending.get(node, ())),
        "unknown": list(sight.unknown.get(node, ())),
    }


def node_json(
    name: str,
    record: NodeRecord | None,
    *,
    verdict: Verdict,
    owner: Owner,
    pool: str | None,
    incident: str | None,
) -> Json:
    return {
        "name": name,
        "state": str(record.state) if record is not None else str(NodeState.UNKNOWN),
        "verdict": str(verdict),
        "owner": str(owner),
        "pool": pool,
        "incident": incident,
        "gpus_total": record.gpus_total if record is not None else None,
        "reason": record.reason.text if record is not None and record.reason is not None else None,
    }


def gates_json(gates: Sequence[GateResult]) -> list[Json]:
    return [{"gate": str(g.gate), "blocks": g.blocks, "reason": g.reason} for g in gates]


def next_step_json(assessment: Assessment) -> tuple[Json | None, str | None]:
    """The step that is next (or null), and the sentence of a wait or a move."""
    decision = assessment.decision
    if isinstance(decision, Act):
        return {"step": str(decision.step), "reason": decision.reason}, None
    if isinstance(decision, Wait):
        return None, decision.reason
    if isinstance(decision, Move):
        return None, f"goes to {decision.state}: {decision.reason}"
    return None, decision.reason
