"""The truth table must be able to say no."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.findings import Response
from fleet.marks import Mark
from rules.catalogue import load_catalogue
from sickbay.cli_demo import DEFAULT_SPEED
from sickbay.demo.clockwork import node_names
from sickbay.demo.scenes import HEAT_RULE, Button, Expect, default_script, heat_expected
from sickbay.demo.table import verdict
from sickbay.demo.truth import truth_of
from simulator.faults import FaultKind


def test_a_write_that_no_scene_asks_for_is_unexpected(clockwork, only):
    work = clockwork(only("unknown-xid", ends_at=140.0))
    work.run(lambda: work.elapsed >= 100)
    work.cluster.scheduler.cordon("n12", Mark("rogue", "rogue-rule", "a rule gone wild"))
    work.run(lambda: work.finished)
    truth = truth_of(work)
    assert [row.ok for row in truth.rows] == [True]
    assert len(truth.unexpected) == 1
    assert truth.unexpected[0].startswith("cordon n12 sickbay:rogue:rogue-rule")
    assert not truth.ok
    assert truth.failed


@pytest.mark.parametrize(
    ("scene", "ends_at", "wrong", "seen"),
    [
        ("xid-31", 100.0, Expect.RETURNED, "nothing"),
        ("unknown-xid", 140.0, Expect.SILENCE, "0 of 1 nodes unknown for a while, none touched"),
        ("xid-79", 50.0, Expect.OBSERVED, "TOUCHED: cordon, exclude, reboot, release, requeue"),
        ("xid-79", 50.0, Expect.UNTOUCHED, "reason LOST, NOT noted"),
        ("foreign-drain", 190.0, Expect.PAUSED, "NOT paused"),
    ],
)
def test_a_wrong_expectation_fails(clockwork, only, scene, ends_at, wrong, seen):
    work = clockwork(only(scene, ends_at=ends_at, expect=wrong))
    work.run(lambda: work.finished)
    truth = truth_of(work)
    assert [(row.ok, row.seen) for row in truth.rows] == [(False, seen)]
    assert truth.failed


def test_a_scene_whose_fault_never_came_is_not_seen(clockwork, only):
    work = clockwork(only("xid-31", ends_at=20.0))
    work.run(lambda: work.finished)
    assert [(row.ok, row.seen) for row in truth_of(work).rows] == [(False, "NOT SEEN")]


def test_what_differs_after_a_person_took_part_is_no_failure(clockwork, only):
    work = clockwork(only("xid-79", ends_at=60.0))
    work.app.service.pause(pool=None, author="ada", reason="mine", expires_in_seconds=None)
    work.run(lambda: work.finished)
    truth = truth_of(work, ["pause", "pause"])
    assert (truth.ok, truth.failed) == (False, False)
    assert "A person took part (pause): what differs from the script may be theirs." in str(verdict(truth))


@pytest.mark.slow
class TestHeat:
    """Let the job end or drain at once: the rule's word, and a site may say otherwise."""

    @pytest.fixture
    def at_once(self):
        shipped = load_catalogue()
        rule = replace(shipped.by_id[HEAT_RULE], response=Response.DRAIN)
        return replace(shipped, rules=(rule, *(r for r in shipped.rules if r.id != HEAT_RULE)))

    def test_drained_at_once_where_a_sites_rule_says_so(self, clockwork, only, at_once):
        assert heat_expected(at_once) is Expect.HANDED_OVER
        work = clockwork(only("thermal", ends_at=320.0, expect=heat_expected(at_once)), catalogue=at_once)
        work.run(lambda: work.finished)
        [row] = truth_of(work).rows
        assert (row.ok, row.seen) == (True, "drained, 1 job requeued, handed over")
        assert row.detected_after_seconds is not None
        assert row.detected_after_seconds > 180, "seen over several scrapes, not in one"

    def test_and_the_script_that_expects_the_job_to_end_says_no(self, clockwork, only, at_once):
        assert heat_expected(load_catalogue()) is Expect.AFTER_JOB
        work = clockwork(only("thermal", ends_at=320.0), catalogue=at_once)
        work.run(lambda: work.finished)
        truth = truth_of(work)
        assert [row.ok for row in truth.rows] == [False]
        assert any(action.startswith("requeue n01") for action in truth.unexpected)


class TestTheButton:
    def paused(self, clockwork, *, by_ada: bool) -> list[str]:
        script = replace(
            default_script(node_names(16)),
            scenes=(),
            buttons=(Button(2.0, press=True), Button(6.0, press=False)),
            ends_at=8.0,
        )
        work = clockwork(script)
        work.run(lambda: work.elapsed >= 4)
        if by_ada:
            work.app.service.pause(pool=None, author="ada", reason="mine", expires_in_seconds=None)
        work.run(lambda: work.finished)
        return [word.author for word in work.pauses()]

    def test_is_let_go_by_the_script(self, clockwork):
        assert self.paused(clockwork, by_ada=False) == []

    def test_stays_when_a_person_pressed_it_too(self, clockwork):
        assert "ada" in self.paused(clockwork, by_ada=True)


def test_first_fault_and_first_drain_come_soon_enough(clockwork):
    """At the default speed, with 3 seconds left for the start: fault by 5 s, drain by 8 s."""
    work = clockwork()
    work.run(lambda: any(fault.kind is FaultKind.GPU_LOST for _, fault in work.happened))
    assert work.elapsed / DEFAULT_SPEED <= 2.0
    work.run(lambda: any(action.verb == "cordon" for action in work.cluster.scheduler.our_actions))
    assert work.elapsed / DEFAULT_SPEED <= 5.0
