"""Alerts of our own rules, from the webhook to an incident, and everything that stays a hint."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fleet.findings import IncidentState, Repair
from remediator.records import StoredFinding
from tests.support.rig import Rig, bolder

UUID = "GPU-11111111-2222-3333-4444-555555555555"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    rig.tick(1)
    yield rig
    rig.close()


def alert(rig: Rig, *, status: str = "firing", age: float = 0.0, **labels: Any) -> dict[str, Any]:
    """As Alertmanager sends it; ``age``: how long ago it began to fire."""
    wanted = {
        "alertname": "GpuRowRemapFailedFlag",
        "rule": "gpu-row-remap-failed-flag",
        "node": "n02",
        "gpu": "5",
        "uuid": UUID,
        "severity": "critical",
    }
    named = {name: value for name, value in (wanted | labels).items() if value is not None}
    began = datetime.fromtimestamp(rig.clock.now() - age, UTC)
    return {
        "status": status,
        "labels": named,
        "annotations": {},
        "startsAt": began.isoformat().replace("+00:00", "Z"),
        "endsAt": "0001-01-01T00:00:00Z",
        "fingerprint": "00" + str(named.get("gpu")) + str(named.get("node")),
    }


def post(rig: Rig, *alerts: dict[str, Any]) -> dict[str, Any]:
    return rig.app.service.ingest_alerts({"version": "4", "alerts": list(alerts)})


def findings(rig: Rig, *, ended: bool = False) -> list[StoredFinding]:
    with rig.store.transaction(read_only=True) as tx:
        return list(tx.findings(include_cleared=ended))


def test_a_firing_alert_of_our_own_rule_becomes_an_incident(rig: Rig) -> None:
    assert post(rig, alert(rig))["accepted"] == 1
    rig.tick(4)
    found = findings(rig)[0].finding
    assert (found.rule, found.source, found.uuid) == ("gpu-row-remap-failed-flag", "alertmanager", UUID)
    assert found.response == "drain", "the rule's own word, whatever the alert says"
    assert "Prometheus says that GPU 5 of n02 could not take bad memory out of service" in found.sentence
    rig.run_until(lambda: rig.state() is IncidentState.HANDED_OVER, limit=120)
    assert rig.our_verbs() == ["cordon"]


@pytest.mark.parametrize(
    "labels",
    [
        {"rule": None},
        {"rule": "gpu-fell-off-bus"},
        {"rule": "made-up"},
        {"rule": ["gpu-row-remap-failed-flag"]},
    ],
    ids=["no rule", "a rule on events", "no rule of ours", "no text"],
)
def test_other_alerts_stay_hints(rig: Rig, labels: dict[str, Any]) -> None:
    post(rig, alert(rig, **labels))
    rig.tick(5)
    assert not findings(rig, ended=True)
    assert "is a hint" in rig.app.service.why("n02")["notes"][-1]["reason"]


@pytest.mark.parametrize("node", ["n[01-04]", "n09", "", "n02,n03"])
def test_no_label_widens_the_target(rig: Rig, node: str) -> None:
    post(rig, alert(rig, node=node))
    rig.tick(5)
    assert not findings(rig, ended=True)


def test_the_same_alert_twice_is_one_finding(rig: Rig) -> None:
    """Two Alertmanagers deliver twice, and group payloads repeat."""
    first = alert(rig)
    assert post(rig, first, first)["duplicates"] == 1
    rig.tick(2)
    assert post(rig, first)["duplicates"] == 1
    rig.tick(2)
    assert len(findings(rig)) == 1
    assert len(rig.incidents()) == 1


def test_eight_alerts_of_one_node_are_one_incident(rig: Rig) -> None:
    post(rig, *(alert(rig, gpu=str(index), uuid=f"{UUID[:-1]}{index}") for index in range(8)))
    rig.tick(2)
    assert len(findings(rig)) == 8
    assert len(rig.incidents()) == 1


def test_an_alert_from_before_the_boot_is_about_another_epoch(rig: Rig) -> None:
    rig.cluster.fleet.reboot("n02", 10.0)
    rig.tick(30)
    post(rig, alert(rig, age=600.0))
    rig.tick(5)
    assert not findings(rig, ended=True)
    assert "earlier boot" in rig.app.service.why("n02")["notes"][-1]["reason"]


def test_a_resolved_alert_clears_nothing_and_begins_nothing(rig: Rig) -> None:
    rig.app.service.hold("n02", author="alice", reason="wait", expires_in_seconds=None)
    firing = alert(rig)
    post(rig, firing)
    rig.tick(4)
    post(rig, {**firing, "status": "resolved"})
    rig.tick(2)
    rig.app.service.release("n02", author="alice", reason="go")
    rig.tick(10)
    assert len(findings(rig)) == 1
    assert rig.our_verbs() == []
    gates = {gate["gate"]: gate for gate in rig.app.service.why("n02")["gates"]}
    assert gates["freshness"]["blocks"]
    assert "resolved" in gates["freshness"]["reason"]


def test_alertmanagers_silence_stops_the_first_cordon(rig: Rig) -> None:
    rig.app.service.hold("n02", author="alice", reason="wait", expires_in_seconds=None)
    post(rig, alert(rig))
    rig.tick(301)
    rig.app.service.release("n02", author="alice", reason="go")
    rig.tick(5)
    assert rig.our_verbs() == []
    post(rig, alert(rig, alertname="Watchdog", rule=None, node=None))
    rig.tick(5)
    assert rig.our_verbs()[:1] == ["cordon"]


def test_a_repeat_of_what_has_ended_is_not_used_again(rig: Rig) -> None:
    firing = alert(rig)
    post(rig, firing)
    rig.tick(2)
    incident = rig.incidents()[0]
    rig.app.service.cancel(incident.id, author="alice", reason="known")
    rig.tick(5)
    with rig.store.transaction() as tx:
        tx.prune(rig.clock.now() + 1)
    post(rig, firing)
    rig.tick(5)
    assert len(rig.incidents()) == 1
    assert not findings(rig)


def test_where_sickbay_watches_itself_its_own_eyes_decide(tmp_path: Path) -> None:
    rig = Rig(tmp_path, exporters=True)
    rig.tick(30)
    post(rig, alert(rig))
    rig.tick(120)
    assert not findings(rig, ended=True)
    assert "is evaluated here" in rig.app.service.why("n02")["notes"][-1]["reason"]
    rig.close()


def test_another_clusters_node_of_the_same_name_is_not_ours(rig: Rig) -> None:
    post(rig, alert(rig, cluster="elsewhere"))
    rig.tick(5)
    assert not findings(rig, ended=True)
    assert "cluster 'elsewhere', not ours" in rig.app.service.why("n02")["notes"][-1]["reason"]
    post(rig, alert(rig, cluster="test", gpu="6"))
    rig.tick(5)
    assert len(findings(rig)) == 1


def test_an_alert_waits_until_we_know_whether_we_watch_the_node_ourselves(tmp_path: Path) -> None:
    """Right after a start: decided at once it would be found by the alert and by our own eyes."""
    rig = Rig(tmp_path, exporters=True)
    rig.app.controller.observe()
    post(rig, alert(rig))
    rig.tick(5)
    assert not findings(rig, ended=True)
    assert rig.app.service.inbox_depth() == 1
    rig.tick(30)
    assert not findings(rig, ended=True)
    assert rig.app.service.inbox_depth() == 0
    assert "is evaluated here" in rig.app.service.why("n02")["notes"][-1]["reason"]
    rig.close()


def test_a_node_is_given_back_once_its_alert_is_resolved(tmp_path: Path) -> None:
    rig = Rig(tmp_path, policy=bolder(repair_commands={Repair.RESET_GPU: ("/bin/true",)}))
    rig.tick(1)
    firing = alert(rig, rule="gpu-recovery-reset-level", alertname="GpuRecoveryResetLevel")
    post(rig, firing)
    rig.run_until(lambda: rig.state() is IncidentState.VERIFYING, limit=60)
    rig.tick(120)
    assert rig.state() is IncidentState.VERIFYING
    assert "Alertmanager" in rig.app.service.why("n02")["waiting"]
    post(rig, {**firing, "status": "resolved"})
    rig.run_until(lambda: rig.state() is IncidentState.RETURNED, limit=60)
    assert not findings(rig)
    assert rig.our_verbs() == ["cordon", "uncordon"]
    rig.close()


def test_an_alert_that_asks_for_nothing_ends_when_it_was_resolved_long_ago(rig: Rig) -> None:
    firing = alert(rig, rule="gpu-power-brake", alertname="GpuPowerBrake")
    post(rig, firing)
    rig.tick(2)
    post(rig, {**firing, "status": "resolved"})
    rig.skip(900)
    assert len(findings(rig)) == 1, "Alertmanager is silent since: nobody knows"
    post(rig, alert(rig, alertname="Watchdog", rule=None, node=None))
    rig.skip(30)
    assert not findings(rig)
    assert not rig.incidents()


def test_an_alert_does_not_wait_for_eyes_that_never_open(tmp_path: Path) -> None:
    rig = Rig(tmp_path, exporters=True)
    path = rig.app.metric_path
    assert path is not None
    path.run = lambda: False  # type: ignore[method-assign]
    rig.tick(1)
    post(rig, alert(rig))
    rig.tick(40)
    assert not findings(rig)
    rig.tick(10)
    assert len(findings(rig)) == 1
    rig.close()


@pytest.mark.parametrize("name", ["DatasourceNoData", "DatasourceError"])
def test_grafanas_faults_of_the_monitoring_are_no_faults_of_the_node(rig: Rig, name: str) -> None:
    """They carry all labels of the rule that could not be evaluated, ours among them."""
    post(rig, alert(rig, alertname=name))
    rig.tick(5)
    assert not findings(rig, ended=True)
    assert "about the monitoring" in rig.app.service.why("n02")["notes"][-1]["reason"]


@pytest.mark.parametrize("status", ["suppressed", None, 7])
def test_a_word_that_is_no_state_neither_begins_nor_resolves(rig: Rig, status: Any) -> None:
    rig.app.service.hold("n02", author="alice", reason="wait", expires_in_seconds=None)
    firing = alert(rig)
    post(rig, {**firing, "status": status})
    rig.tick(3)
    assert not findings(rig, ended=True)
    post(rig, firing)
    rig.tick(3)
    post(rig, {**firing, "status": status, "annotations": {"again": "1"}})
    post(rig, {**firing, "status": f"{status}!"})
    rig.tick(3)
    (stored,) = findings(rig)
    assert "resolved_at" not in stored.finding.evidence
