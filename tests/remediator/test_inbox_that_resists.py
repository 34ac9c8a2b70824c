"""Invariant 6: what is stored is weighed; what cannot be weighed stands in nobody's way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.findings import IncidentState as State
from remediator import evaluate
from remediator.ledger import LedgerUnavailableError
from remediator.records import InboxEvent
from tests.support.rig import Rig

EVENT = {
    "kind": "xid",
    "code": 79,
    "node": "n01",
    "pci": "0000:5d:00.0",
    "time": 1_767_225_600.0,
    "message": "GPU has fallen off the bus.",
}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    made.tick(1)
    yield made
    made.close()


def depth(rig: Rig) -> int:
    with rig.store.transaction(read_only=True) as tx:
        return tx.pending_inbox_count()


@pytest.mark.parametrize("name", ["\ud800x", "a\x00b", ["x"], "x" * 100_000])
def test_an_alert_of_any_name_stops_nothing(rig: Rig, name: object) -> None:
    alert = {"fingerprint": "abc", "labels": {"alertname": name, "node": "n01"}, "status": "firing"}
    assert rig.app.service.ingest_alerts({"alerts": [alert]})["accepted"] == 1
    rig.xid("n02")
    rig.run_until(lambda: rig.our_verbs("n02") == ["cordon"], limit=10)
    assert depth(rig) == 0


def test_an_item_that_cannot_be_weighed_is_told_and_passed_by(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = evaluate.weigh

    def weigh(event: Any, *rest: Any) -> Any:
        if event.code == 62:
            raise KeyError("a defect")
        return real(event, *rest)

    monkeypatch.setattr(evaluate, "weigh", weigh)
    rig.xid("n01", 62)
    rig.xid("n02")
    rig.run_until(lambda: rig.our_verbs("n02") == ["cordon"], limit=10)
    assert depth(rig) == 0
    assert "inbox" in [key for _, key, _ in rig.app.notifier.pages]
    assert any("cannot be weighed" in note["reason"] for note in rig.app.service.why("n01")["notes"])


def test_a_store_that_is_away_passes_nothing_by(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise LedgerUnavailableError("the disk is full")

    rig.xid("n01")
    with monkeypatch.context() as patch:
        patch.setattr(evaluate, "weigh", full)
        with pytest.raises(LedgerUnavailableError):
            rig.tick(1)
    assert depth(rig) == 1
    rig.run_until(lambda: rig.our_verbs("n01")[:1] == ["cordon"], limit=10)


@pytest.mark.parametrize("time", [0, 1.0, 2**52, 2**53 - 1])
def test_a_line_of_any_date_is_acted_on_once(rig: Rig, time: float) -> None:
    """A node without a clock battery, or one from the future: its boot says that the fault is of now."""
    rig.xid("n01", time=time)
    rig.run_until(lambda: rig.state() is State.RETURNED)
    assert rig.our_verbs("n01") == ["cordon", "reboot", "uncordon"]


@pytest.mark.parametrize("time", [float("nan"), float("inf"), -1.0, True, "now", None, 1e300])
def test_what_is_no_time_is_refused_at_the_door(rig: Rig, time: object) -> None:
    rig.xid("n01", time=time)
    rig.tick(5)
    assert rig.incidents() == []


def test_a_spool_of_earlier_boots_reboots_nobody(rig: Rig) -> None:
    for age in range(20):
        rig.xid("n01", boot_id=f"boot-{age % 3}", time=rig.clock.now() - 3600 * age)
    rig.tick(10)
    assert rig.incidents() == []
    assert rig.our_verbs() == []


def test_what_has_to_wait_does_not_crowd_out_what_is_new(rig: Rig) -> None:
    """Faults of a node whose incident is being cancelled wait for its end; others do not."""
    rig.xid("n01")
    rig.run_until(lambda: rig.our_verbs("n01") == ["cordon"])
    rig.app.service.cancel("i-1", author="alice", reason="false alarm")
    rig.app.service.pause(pool=None, author="alice", reason="and nothing else", expires_in_seconds=None)
    contact = rig.app.world.contact("n01")
    assert contact is not None
    events = [
        InboxEvent(
            node="n01",
            boot_id=contact.boot_id,
            sequence=100 + number,
            payload={**EVENT, "boot_id": contact.boot_id},
        )
        for number in range(8)
    ]
    with rig.store.transaction() as tx:
        tx.add_events(events, rig.clock.now())
    rig.xid("n02")
    contact_2 = dict(rig.cluster.agents.contact("n02") or {})
    rig.app.service.ingest_events("n02", contact_2, [rig._pending.pop()[1]])
    for _ in range(3):
        with rig.store.transaction() as tx:
            rig.app.controller._evaluator.process(tx, limit=4)
    assert [i.node for i in rig.incidents()] == ["n02", "n01"]
    assert depth(rig) == 8
    rig.app.service.resume(pool=None, author="alice", reason="")
    rig.tick(5)
    assert depth(rig) == 0
    assert [i.node for i in rig.incidents()] == ["n01", "n02", "n01"]
