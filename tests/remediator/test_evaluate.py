"""From stored pushes to decisions: history survives, alerts stay hints, names never widen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.alertmanager.subject import by_name, resolve_node
from collector.encode import event_from_dict
from fleet.observations import Event, EventKind, RecoveryAction
from remediator.casebook import event_payload
from tests.support.rig import Rig

INVENTORY = {"n1", "n2", "gpu-17", "n1.example"}


@pytest.mark.parametrize(
    ("labels", "node", "problem"),
    [
        ({"node": "n1"}, "n1", ""),
        ({"Hostname": "gpu-17"}, "gpu-17", ""),
        ({"hostname": "n2"}, "n2", ""),
        ({"instance": "n2:9400"}, "n2", ""),
        ({"instance": "gpu-17.cluster.example:9400"}, "gpu-17", ""),
        ({"node": "n1", "Hostname": "n1"}, "n1", ""),
        ({"node": "n1", "instance": "n2:9400"}, None, "ambiguous"),
        ({"node": "n[1-4]"}, None, "invalid"),
        ({"node": "n1,n2"}, None, "invalid"),
        ({"node": "n*"}, None, "invalid"),
        ({"node": "n9"}, None, "unknown"),
        ({"node": ["n1"]}, None, "unknown"),
        ({"instance": "dcgm-exporter-x7k2:9400"}, None, "unknown"),
        ({}, None, "unknown"),
    ],
)
def test_an_alert_names_one_node_of_the_inventory_or_none(
    labels: dict[str, object], node: str | None, problem: str
) -> None:
    assert resolve_node(labels, by_name(INVENTORY)) == (node, problem)


def test_a_past_event_keeps_every_field_a_cause_may_lie_in() -> None:
    event = Event(
        kind=EventKind.XID,
        node="n1",
        time=1.0,
        code=149,
        pci="0000:3b:00.0",
        link=5,
        unit="NETIR_LINK_EVT",
        registers=("0x1", "0x2"),
        fatal=True,
        recovery_action=RecoveryAction.GPU_RESET,
        uncertain=True,
        cause=79,
        boot_id="b",
        message="x" * 1000,
    )
    back = event_from_dict(event_payload(event))
    assert (back.fatal, back.link, back.unit, back.registers) == (True, 5, "NETIR_LINK_EVT", ("0x1", "0x2"))
    assert (back.recovery_action, back.uncertain, back.cause) == (RecoveryAction.GPU_RESET, True, 79)
    assert len(back.message) == 300


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


def test_application_faults_follow_the_gpu_across_jobs_and_restarts(rig: Rig) -> None:
    """The history is the ledger's: a controller that was restarted between the jobs still sees it."""
    for _ in range(3):
        job = rig.submit("n01")
        rig.tick(2)
        node = next(j.nodes[0] for j in rig.cluster.scheduler.observe().jobs if j.id == job)
        rig.xid(node, 31)
        rig.tick(3)
        rig.cluster.scheduler.finish_job(job)
        rig.tick(20)
        rig.restart()
        rig.tick(20)
    found = rig.app.service.findings(node=None, include_cleared=False)["items"]
    assert [f["rule"] for f in found] == ["gpu-app-faults-follow-gpu"]
    assert rig.our_verbs() == []


def test_an_alert_is_kept_and_decides_nothing(rig: Rig) -> None:
    alert = {"status": "firing", "labels": {"alertname": "GpuLost", "node": "n01"}, "startsAt": "t0"}
    hostile = {"status": "firing", "labels": {"alertname": "GpuLost", "node": "n[01-04]"}, "startsAt": "t0"}
    rig.tick(1)
    assert rig.app.service.ingest_alerts({"version": "4", "alerts": [alert, hostile]})["accepted"] == 2
    assert rig.app.service.ingest_alerts({"version": "4", "alerts": [alert, hostile]})["duplicates"] == 2
    rig.tick(20)
    assert rig.our_verbs() == []
    assert rig.incidents() == []
    notes = [note["reason"] for note in rig.app.service.why("n01")["notes"]]
    assert notes == ["alert GpuLost (firing) is a hint: what sickbay itself sees of n01 decides"]


def test_a_replaced_event_is_stored_once_and_weighed_once(rig: Rig) -> None:
    rig.xid("n01", 31)
    kept = list(rig._pending)
    rig.tick(2)
    rig._pending = kept
    rig.tick(2)
    assert len(rig.app.service.why("n01")["notes"]) == 1
