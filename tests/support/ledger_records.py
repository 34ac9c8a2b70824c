"""Small records for tests of the ledger: what is not said does not matter to the test."""

from __future__ import annotations

from fleet.findings import (
    ClearOn,
    Finding,
    IncidentState,
    Repair,
    Response,
    Severity,
    Step,
)
from remediator.records import InboxEvent, IncidentRecord, Outcome, Phase, StepRecord


def event(sequence: int, *, node: str = "n01", boot_id: str = "boot-1") -> InboxEvent:
    return InboxEvent(node=node, boot_id=boot_id, sequence=sequence, payload={"code": 79, "n": sequence})


def incident(
    name: str = "inc-1",
    *,
    node: str = "n01",
    state: IncidentState = IncidentState.CONFIRMED,
    opened_at: float = 100.0,
    closed_at: float | None = None,
) -> IncidentRecord:
    return IncidentRecord(
        id=name,
        node=node,
        pool="gpu",
        rule="xid-79",
        state=state,
        opened_at=opened_at,
        updated_at=opened_at,
        closed_at=closed_at,
    )


def finding(name: str = "f-1", *, node: str = "n01", since: float = 100.0) -> Finding:
    return Finding(
        id=name,
        rule="xid-79",
        kind="xid",
        node=node,
        severity=Severity.CRITICAL,
        response=Response.DRAIN,
        repair=Repair.REBOOT,
        clear_on=ClearOn.NEW_EPOCH_AND_GPU_COUNT,
        since=since,
        gpu="0000:3b:00.0",
        uuid="GPU-1",
        boot_id="boot-1",
        sentence="GPU fell off the bus",
        evidence={"code": 79, "pci": None},
    )


def line(
    phase: Phase,
    key: str | None = None,
    *,
    incident: str | None = None,
    node: str = "n01",
    step: Step | None = Step.CORDON,
    outcome: Outcome | None = None,
    at: float = 100.0,
) -> StepRecord:
    return StepRecord(
        at=at,
        phase=phase,
        reason="because",
        node=node,
        incident=incident,
        step=step,
        outcome=outcome,
        key=key,
    )
