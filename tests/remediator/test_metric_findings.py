"""From samples to incidents: what the metric rules find is acted on, ended and verified like any fault."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from collector.scrape import ScrapeTarget, TargetReading
from fleet.findings import IncidentState, Repair, Response
from fleet.observations import Reading, Sample
from fleet.scheduler import SchedulerSnapshot
from remediator.records import StoredFinding
from tests.support.rig import POLICY, Rig, bolder


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path, policy=bolder(repair_commands={Repair.RESET_GPU: ("/bin/true",)}), exporters=True)
    yield rig
    rig.close()


def findings(rig: Rig, *, ended: bool = False) -> list[StoredFinding]:
    with rig.store.transaction(read_only=True) as tx:
        return list(tx.findings(include_cleared=ended))


def rules(rig: Rig) -> list[str]:
    return [stored.finding.rule for stored in findings(rig)]


def test_heat_cordons_after_the_job_and_is_handed_over(rig: Rig) -> None:
    job = rig.submit("n01", seconds=900.0)
    rig.cluster.telemetry.slow_by_heat("n01", 2, 7200.0)
    rig.run_until(lambda: bool(rig.incidents()), limit=700)
    assert rules(rig) == ["gpu-thermal-hw-slowdown"]
    stored = findings(rig)[0]
    assert stored.finding.source == "metrics"
    assert stored.finding.uuid == rig.cluster.fleet.node("n01").gpus[2].uuid
    rig.tick(5)
    assert rig.our_verbs() == ["cordon"], "the job goes on"
    assert [j.id for j in rig.cluster.scheduler.observe().jobs if j.state == "running"] == [job]
    rig.run_until(lambda: rig.state() is IncidentState.HANDED_OVER, limit=900)
    assert rig.our_verbs() == ["cordon"], "nothing is repaired, and nothing given back"


def test_a_failed_remap_drains_at_once_and_is_handed_over(rig: Rig) -> None:
    rig.submit("n01")
    rig.cluster.telemetry.fail_row_remap("n01", 5)
    rig.run_until(lambda: rig.state() is IncidentState.HANDED_OVER, limit=300)
    assert rig.our_verbs("n01") == ["cordon", "requeue", "exclude", "release"]
    assert rig.incident().repair is Repair.HAND_OVER


def test_what_is_found_on_a_node_in_hands_belongs_to_the_incident_that_handed_it_over(rig: Rig) -> None:
    rig.cluster.telemetry.fail_row_remap("n02", 5)
    rig.run_until(lambda: rig.state() is IncidentState.HANDED_OVER, limit=300)
    rig.xid("n02", 48)
    rig.cluster.telemetry.fail_row_remap("n02", 6)
    rig.tick(120)
    assert len(rig.incidents()) == 1
    assert len(findings(rig)) == 3
    assert {stored.incident for stored in findings(rig)} == {rig.incident().id}


def test_an_uncorrectable_error_waits_for_an_idle_moment_and_is_reset(rig: Rig) -> None:
    rig.submit("n01", seconds=600.0)
    rig.tick(60)
    rig.cluster.telemetry.add_uncorrected_errors("n01", 0)
    rig.run_until(lambda: bool(rig.incidents()), limit=60)
    assert rig.incident().response is Response.RESET_WHEN_IDLE
    rig.tick(300)
    assert rig.our_verbs() == [], "a job is on the node"
    rig.run_until(lambda: rig.state() is IncidentState.REPAIRING or bool(rig.our_verbs()), limit=600)
    assert rig.our_verbs() == ["cordon"]


def test_exporters_that_are_away_are_no_fault(rig: Rig) -> None:
    rig.tick(60)
    for node in ("n01", "n02", "n03"):
        rig.cluster.telemetry.exporter_away(node, 900.0)
    rig.tick(600)
    assert not rig.incidents()
    assert not findings(rig, ended=True)
    why = rig.app.service.why("n01")
    assert why["verdict"] == "unknown"
    assert "exporter" in why["because"]
    assert rig.app.service.why("n04")["verdict"] == "healthy"


def test_a_fault_is_found_once_however_often_the_controller_is_killed(rig: Rig) -> None:
    rig.cluster.telemetry.fail_row_remap("n02", 5)
    for _ in range(8):
        rig.tick(95)
        rig.restart()
    assert len(rig.incidents()) == 1
    assert len(findings(rig, ended=True)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("at", range(1, 5))
@pytest.mark.parametrize("point", ["append", "commit"])
def test_a_kill_while_a_finding_is_stored_loses_no_fault(tmp_path: Path, point: str, at: int) -> None:
    """The first lines and commits of the ledger are those of the finding and its incident."""
    rig = Rig(tmp_path, policy=POLICY, exporters=True)
    rig.cluster.telemetry.fail_row_remap("n02", 5)
    rig.switch.point, rig.switch.at = point, at
    rig.run_until(lambda: rig.state() is IncidentState.HANDED_OVER, limit=400)
    assert rig.switch.fired
    assert len(rig.incidents()) == 1
    assert len(findings(rig, ended=True)) == 1
    assert rig.our_verbs() == ["cordon"]
    rig.close()


def test_a_person_cancels_and_the_condition_that_goes_on_opens_nothing_again(rig: Rig) -> None:
    rig.tick(1)
    rig.app.service.hold("n02", author="alice", reason="mine", expires_in_seconds=None)
    rig.cluster.telemetry.fail_row_remap("n02", 5)
    rig.run_until(lambda: bool(rig.incidents()), limit=200)
    rig.app.service.cancel(rig.incident().id, author="alice", reason="known, card is ordered")
    rig.app.service.release("n02", author="alice", reason="done")
    rig.tick(300)
    assert rig.incident().state is IncidentState.CANCELLED
    assert rig.our_verbs() == []
    assert rules(rig) == ["gpu-row-remap-failed-flag"], "it still stands, and why says so"
    assert rig.app.service.why("n02")["verdict"] == "unhealthy"


def test_a_finding_that_outlived_its_incident_ends_with_the_next_boot_in_service(rig: Rig) -> None:
    rig.tick(1)
    rig.app.service.pause(pool=None, author="alice", reason="look first", expires_in_seconds=None)
    rig.xid("n01", code=64)
    rig.run_until(lambda: bool(rig.incidents()), limit=60)
    rig.app.service.resume(pool=None, author="alice", reason="go")
    rig.run_until(lambda: rig.state() is IncidentState.HANDED_OVER, limit=400)
    assert len(findings(rig)) == 1
    rig.tick(60)
    assert len(findings(rig)) == 1, "the node is out of service, nobody has mended it"
    rig.cluster.fleet.reboot("n01", 20.0)
    rig.tick(40)
    rig.cluster.scheduler.admin_undrain("n01")
    rig.run_until(lambda: not findings(rig), limit=120)
    assert "back in service" in str(findings(rig, ended=True)[0].clear_reason)


def test_a_vanished_gpu_is_evidence_while_its_siblings_report(rig: Rig) -> None:
    rig.tick(120)
    rig.cluster.fleet.lose_gpu("n04", 3)
    rig.run_until(lambda: "gpu-vanished" in rules(rig), limit=300)
    assert rig.incident().node == "n04"
    rig.run_until(lambda: rig.state() is IncidentState.PROBATION, limit=600)
    assert rig.our_verbs("n04") == ["cordon", "reboot", "uncordon"]


@pytest.mark.parametrize(("lost", "found"), [(range(8, 11), []), (range(7, 11), ["gpu-vanished"])])
def test_gpus_that_were_never_the_nodes_own_do_not_vanish(
    tmp_path: Path, lost: range, found: list[str]
) -> None:
    """An exporter that answers for more GPUs than the node has, and then for its own again: with all eight of
    them nothing is lost, with seven one of them is.
    """
    rig = Rig(tmp_path, exporters=True)
    gone: set[int] = set()

    def read() -> tuple[TargetReading, ...]:
        samples = tuple(
            Sample(
                node="n04",
                signal="gpu_temperature_celsius",
                value=50.0,
                time=rig.clock.now(),
                gpu=f"GPU-{index}",
                index=index,
                pci=f"0000:{index:02x}:00.0",
            )
            for index in range(11)
            if index not in gone
        )
        target = ScrapeTarget("n04", "http://n04:9400/metrics")
        return (TargetReading(target, Reading(samples), ok=True, duration_seconds=0.0, error=None),)

    path = rig.app.metric_path
    assert path is not None
    path._read = read
    rig.tick(60)
    gone.update(lost)
    rig.tick(240)
    assert sorted({f.finding.rule for f in findings(rig, ended=True)}) == found
    rig.close()


def test_nodes_the_scheduler_does_not_list_are_left_out(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.cluster.telemetry.fail_row_remap("n02", 5)
    path = rig.app.metric_path
    assert path is not None
    rig.app.world.publish(_without(rig, "n02"))
    for _ in range(8):
        rig.clock.advance(15.0)
        path.run()
        rig.app.controller.step()
    assert not findings(rig, ended=True)
    assert [r.message for r in caplog.records if "does not list" in r.message] == [
        "exporters speak of nodes that the scheduler does not list; they are not used: n02"
    ]


def _without(rig: Rig, node: str) -> SchedulerSnapshot:
    snapshot = rig.cluster.scheduler.observe()
    return replace(snapshot, nodes={name: n for name, n in snapshot.nodes.items() if name != node})


def test_every_target_has_its_health_in_the_metrics(rig: Rig) -> None:
    rig.cluster.telemetry.exporter_away("n02", 3600.0)
    rig.tick(30)
    text = rig.app.service.render_metrics().decode()
    assert 'sickbay_scrape_target_up{node="n01"} 1.0' in text
    assert 'sickbay_scrape_target_up{node="n02"} 0.0' in text
    assert 'sickbay_scrape_target_last_success_timestamp_seconds{node="n01"}' in text
    assert 'sickbay_scrape_target_last_success_timestamp_seconds{node="n02"}' not in text
    assert "sickbay_metric_evaluations_total 2.0" in text
    assert 'sickbay_rule_targets_judged{rule="gpu-row-remap-failed-flag"} 24.0' in text
    rig.cluster.telemetry.fail_row_remap("n01", 5)
    rig.tick(120)
    text = rig.app.service.render_metrics().decode()
    assert 'rule="gpu-row-remap-failed-flag"' in text.split("# HELP sickbay_finding ")[1]
