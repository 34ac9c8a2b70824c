"""The bill: metered alike in both worlds, people's pace told, nothing left unmended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.catalogue import load_catalogue
from sickbay.demo.bill import Bill, run_alone
from sickbay.demo.clockwork import node_names
from sickbay.demo.clusters_kind import SchedulerKind
from sickbay.demo.meter import SLOWED_SHARE, Assumptions, Meter, World
from sickbay.demo.scenes import default_script
from sickbay.demo.truth import truth_of

CATALOGUE = load_catalogue()
HOUR = 3600.0


def alone(script, *, kind=SchedulerKind.SLURM, seed=1, assumed=None) -> Meter:
    return run_alone(script, CATALOGUE, scheduler=kind, nodes=16, seed=seed, assumed=assumed or Assumptions())


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(SchedulerKind))
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_unwatched_every_node_is_mended_late_and_nothing_is_left(kind, seed):
    meter = alone(default_script(node_names(16)), kind=kind, seed=seed)
    lost = meter.world.by_scene
    assert meter.world_when_mended(Assumptions(), told=()) == meter.world
    # 8 GPUs for 4.5 hours; 4 where a card is missing; with a step's width to spare
    assert lost["xid-79"] == pytest.approx(36.0, abs=0.5)
    assert lost["memory"] == pytest.approx(32.0, abs=0.5)
    assert lost["burst"] == pytest.approx(5 * 36.0, abs=2.5)
    assert 0 < lost["thermal"] <= SLOWED_SHARE * 32.5
    assert "foreign-drain" not in lost, "an admin had it out of service before"
    assert "xid-31" not in lost, "a job's own bug costs no node"
    assert alone(default_script(node_names(16)), kind=kind, seed=seed).world == meter.world


def test_the_pace_of_people_counts(only):
    script = only("xid-79", ends_at=60.0)
    quick = Assumptions(found_after_hours=1.0, by_hand_hours=0.5)
    assert alone(script).world.gpu_hours == pytest.approx(36.0, abs=0.5)
    assert alone(script, assumed=quick).world.gpu_hours == pytest.approx(12.0, abs=0.5)


def test_with_sickbay_a_node_costs_until_it_is_back(clockwork, only):
    work = clockwork(only("xid-79", ends_at=300.0))
    work.run(lambda: work.finished)
    bill = truth_of(work).bill
    back = truth_of(work).rows[0].returned_after_seconds
    assert back is not None
    assert bill.with_sickbay.by_scene == {"xid-79": pytest.approx(8 * back / HOUR, abs=0.05)}
    assert bill.without.gpu_hours == pytest.approx(36.0, abs=0.5)


def test_what_is_left_to_people_goes_on_costing_until_they_have_come(clockwork, only):
    script = only("burst", ends_at=1600.0)
    scene = replace(script.scenes[0], at=60.0)
    scene = replace(scene, faults=tuple(replace(fault, at_seconds=60.0) for fault in scene.faults))
    work = clockwork(replace(script, scenes=(scene,), ends_at=120.0))
    work.run(lambda: work.finished)
    told = truth_of(work).bill.with_sickbay.gpu_hours
    assert told == pytest.approx(5 * 8 * 0.75, abs=0.1), "paged: 15 minutes, and 30 by hand"
    assert work.meter.world.gpu_hours == pytest.approx(5 * 8 * 60 / HOUR, abs=0.1)


def test_prices():
    assumed = Assumptions(price_per_gpu_hour=4.0, currency="EUR")
    bill = Bill(World({"a": 1.5, "b": 0.52}), World({"a": 100.0}), assumed)
    answer = bill.json()
    assert answer["with_sickbay"] == {"lost_gpu_hours": 2.0, "cost": 8.08, "by_scene": {"a": 1.5, "b": 0.5}}
    assert answer["without_sickbay"] == {"lost_gpu_hours": 100.0, "cost": 400.0, "by_scene": {"a": 100.0}}
    assert answer["currency"] == "EUR"
    assert "a GPU-hour costs 4 EUR" in str(answer["assumptions"])
