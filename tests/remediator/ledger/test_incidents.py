"""Findings and incidents."""

from __future__ import annotations

import dataclasses

import pytest

from fleet.findings import Finding, IncidentState, Repair, Response
from remediator.ledger import Ledger, LedgerError, StaleRecordError, rows, schema
from remediator.records import AgentContact, IncidentRecord, StepRecord, StoredFinding, Strike, Word
from tests.support.ledger_records import finding, incident

FULL = IncidentRecord(
    id="inc-9",
    node="n09",
    pool="gpu",
    rule="xid-79",
    state=IncidentState.REPAIRING,
    opened_at=1.5,
    updated_at=2.5,
    incarnation="machine",
    boot_id="boot",
    response=Response.CORDON_AFTER_JOB,
    repair=Repair.REBOOT,
    sentence="GPU fell off the bus",
    expected_gpus=8,
    prior={"state": "idle", "reason": None},
    mark_user="slurm",
    mark_time=3.0,
    state_since=2.0,
    closed_at=None,
    blocked_by=("budget", "rate"),
    blocked_reasons=("2 in flight", "3 in 600 s"),
    last_reason="waiting",
    approved_by="ada",
    cancelled_by=None,
    cancel_reason=None,
    repair_attempts=1,
    repair_started_at=2.2,
    reboot_boot_id="boot",
    next_attempt_at=4.0,
    attempts=2,
    noted=True,
    returned_at=None,
)


def test_an_incident_comes_back_as_it_was(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        tx.add_incident(FULL)
        tx.add_incident(incident("inc-1"))
    with ledger.transaction(read_only=True) as tx:
        assert tx.incident("inc-9") == FULL
        assert tx.incident("inc-1") == incident("inc-1")
        assert tx.incident("inc-0") is None


NOT_STORED = {"contested"}  # what the world makes of an agent's words, anew after each start


@pytest.mark.parametrize(
    ("record", "table", "elsewhere"),
    [
        (IncidentRecord, schema.incident, set()),
        (Finding, schema.finding, {"incident", "last_seen", "count", "cleared_at", "clear_reason"}),
        (StepRecord, schema.step, set()),
        (AgentContact, schema.agent, set()),
        (Word, schema.word, set()),
        (Strike, schema.strike, set()),
    ],
)
def test_every_field_of_a_record_has_its_column(record: type, table: object, elsewhere: set[str]) -> None:
    stored = {field.name for field in dataclasses.fields(record)} - NOT_STORED
    assert stored | elsewhere == set(table.c.keys())


def test_every_incident_field_is_written() -> None:
    assert set(rows.incident_values(FULL)) == set(schema.incident.c.keys())


def test_the_same_incident_is_not_added_twice(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        tx.add_incident(incident())
    with pytest.raises(LedgerError), ledger.transaction() as tx:
        tx.add_incident(incident())


def test_an_update_needs_an_incident(ledger: Ledger) -> None:
    with pytest.raises(StaleRecordError, match="not in the ledger"), ledger.transaction() as tx:
        tx.update_incident(incident())


@pytest.mark.parametrize("end", [state for state in IncidentState if state.is_closed])
def test_a_closed_incident_stays_as_it_ended(ledger: Ledger, end: IncidentState) -> None:
    closed = incident(state=end, closed_at=200.0)
    with ledger.transaction() as tx:
        tx.add_incident(incident())
        tx.update_incident(closed)
    for state in set(IncidentState) - {end}:
        with pytest.raises(StaleRecordError, match="closed"), ledger.transaction() as tx:
            tx.update_incident(dataclasses.replace(closed, state=state))
    with ledger.transaction() as tx:
        tx.update_incident(dataclasses.replace(closed, noted=True))
        assert tx.incident("inc-1") == dataclasses.replace(closed, noted=True)


def test_a_write_on_top_of_what_was_read_earlier_sees_a_change_in_between(ledger: Ledger) -> None:
    read = incident()
    with ledger.transaction() as tx:
        tx.add_incident(read)
    with ledger.transaction() as tx:
        tx.update_incident(dataclasses.replace(read, approved_by="ada"), expected=read)
    with pytest.raises(StaleRecordError, match="read it again"), ledger.transaction() as tx:
        tx.update_incident(dataclasses.replace(read, attempts=1), expected=read)
    with ledger.transaction(read_only=True) as tx:
        assert tx.incident("inc-1") == dataclasses.replace(read, approved_by="ada")


def test_open_incidents_are_those_without_an_end(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        for number, state in enumerate(IncidentState):
            tx.add_incident(incident(f"inc-{number:02}", state=state, opened_at=100.0 - number))
        states = [one.state for one in tx.open_incidents()]
    assert states == [state for state in reversed(IncidentState) if not state.is_closed]


def test_pages_of_incidents_miss_none_even_at_the_same_instant(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        for number in range(10):
            tx.add_incident(incident(f"inc-{number}", opened_at=100.0 + number // 5, node=f"n{number % 2}"))
    seen: list[str] = []
    with ledger.transaction(read_only=True) as tx:
        page = tx.incidents(limit=3)
        while page:
            seen += [one.id for one in page]
            page = tx.incidents(limit=3, before=page[-1].opened_at, before_id=page[-1].id)
        assert seen == [f"inc-{number}" for number in range(9, -1, -1)]
        assert [one.id for one in tx.incidents(before=101.0)] == [
            f"inc-{number}" for number in range(4, -1, -1)
        ]
        assert [one.id for one in tx.incidents(node="n1", limit=2)] == ["inc-9", "inc-7"]
        assert len(tx.incidents(state="confirmed")) == 10
        assert tx.incidents(state="returned") == []


def test_a_finding_is_new_once_then_counted(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        tx.add_incident(incident())
        assert tx.put_finding(finding(), None, 101.0)
        assert not tx.put_finding(finding(since=500.0), "inc-1", 110.0)
        assert not tx.put_finding(finding(), None, 105.0)
        assert tx.findings(node="n01") == [
            StoredFinding(finding=finding(), incident="inc-1", last_seen=110.0, count=3)
        ]
        assert tx.findings(incident="inc-1") == tx.findings()
        assert tx.findings(node="n02") == []


def test_a_cleared_finding_keeps_its_end_and_can_begin_anew(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        tx.put_finding(finding(), None, 100.0)
        tx.clear_finding("f-1", 200.0, "new boot, all GPUs there")
        tx.clear_finding("f-1", 300.0, "again")
        tx.clear_finding("unknown", 300.0, "nothing happens")
        assert tx.findings() == []
        (cleared,) = tx.findings(include_cleared=True)
        assert (cleared.cleared_at, cleared.clear_reason) == (200.0, "new boot, all GPUs there")
        assert tx.put_finding(finding(since=400.0), None, 400.0)
        assert tx.findings() == [
            StoredFinding(finding=finding(since=400.0), incident=None, last_seen=400.0, count=1)
        ]


def test_a_finding_of_an_incident_that_does_not_exist_is_refused(ledger: Ledger) -> None:
    with pytest.raises(LedgerError), ledger.transaction() as tx:
        tx.put_finding(finding(), "inc-404", 100.0)
    with ledger.transaction() as tx:
        assert tx.findings() == []


def test_a_finding_may_be_written_before_its_incident(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        tx.put_finding(finding(), "inc-1", 100.0)
        tx.add_incident(incident())
    with ledger.transaction(read_only=True) as tx:
        assert tx.findings()[0].incident == "inc-1"
