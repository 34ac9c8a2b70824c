"""Whole stories through the controller over a simulated cluster: what is done, and what is left alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.findings import IncidentState as State
from fleet.findings import Mode, Repair, Step
from fleet.scheduler import NodeState
from remediator.policy import Pool
from remediator.records import Outcome, Phase
from tests.support.rig import POLICY, Rig, bolder, counts

RETURNED = {"cordon": 1, "exclude": 1, "reboot": 1, "release": 1, "requeue": 1, "uncordon": 1}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


def rig_with(tmp_path: Path, **changes: object) -> Rig:
    return Rig(tmp_path, policy=bolder(**changes))


def test_xid_79_drains_requeues_reboots_verifies_and_returns(rig: Rig) -> None:
    job = rig.submit("n01")
    rig.tick(2)
    rig.xid("n01")
    rig.run_until(lambda: any(i.state is State.RETURNED for i in rig.incidents()))
    incident = rig.incident()
    assert counts(rig.our_verbs()) == RETURNED
    steps = rig.steps(incident.id)
    effects = [s.step for s in steps if s.phase is Phase.EFFECT]
    assert effects == [Step.CORDON, Step.REQUEUE, Step.REBOOT, Step.VERIFY, Step.UNCORDON]
    for effect in (s for s in steps if s.phase is Phase.EFFECT):
        intents = [s for s in steps if s.phase is Phase.INTENT and s.key == effect.key]
        assert len(intents) == 1
        assert intents[0].id < effect.id
    record = rig.cluster.scheduler.observe_node("n01")
    assert (record.is_cordoned, record.reason) == (False, None)
    moved = next(j for j in rig.cluster.scheduler.observe().jobs if j.id == job)
    assert (moved.state, moved.restarts) == ("running", 1)
    assert "n01" not in moved.nodes


def test_observe_is_the_default_and_writes_nothing(tmp_path: Path) -> None:
    rig = rig_with(tmp_path, mode=Mode.OBSERVE)
    rig.xid("n01")
    rig.tick(30)
    assert rig.our_verbs() == []
    incident = rig.incident()
    assert (incident.state, incident.blocked_by) == (State.CONFIRMED, ("mode",))


def test_approve_mode_waits_for_the_word(tmp_path: Path) -> None:
    rig = rig_with(tmp_path, mode=Mode.APPROVE)
    rig.xid("n01")
    rig.tick(10)
    assert rig.incident().state is State.AWAITING_APPROVAL
    assert rig.our_verbs() == []
    rig.app.service.approve(rig.incident().id, author="alice", reason="seen it")
    rig.run_until(lambda: rig.state() is State.PROBATION)
    assert rig.our_verbs("n01") == ["cordon", "reboot", "uncordon"]


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        (31, {}),
        (999, {}),
        (79, {"uncertain": True}),
        (79, {"boot_id": "an-earlier-boot"}),
        (43, {}),
        (45, {"cause": 31}),
    ],
)
def test_what_is_observed_touches_nothing(rig: Rig, code: int, changes: dict[str, object]) -> None:
    rig.submit("n01")
    rig.xid("n01", code, **changes)
    rig.tick(20)
    assert rig.our_verbs() == []
    assert rig.incidents() == []


def test_a_node_an_admin_drained_is_untouched_and_noted_once(rig: Rig) -> None:
    rig.cluster.scheduler.admin_drain("n02", "ADMIN: chassis swap", "root")
    rig.tick(1)
    rig.xid("n02")
    rig.tick(60)
    record = rig.cluster.scheduler.observe_node("n02")
    assert record.reason is not None
    assert (record.reason.text, record.reason.user) == ("ADMIN: chassis swap", "root")
    assert rig.our_verbs() == ["annotate"]
    assert record.comment is not None
    assert record.comment.startswith("sickbay: i-1 observed")
    rig.cluster.scheduler.admin_undrain("n02")
    rig.tick(30)
    assert "cordon" in rig.our_verbs("n02")


def test_a_refusal_does_not_quote_the_refusal_before_it(rig: Rig) -> None:
    rig.xid("n01")
    rig.tick(2)
    rig.cluster.scheduler.admin_drain("n01", "ADMIN: mine", "root")
    rig.clock.advance(1.0)
    rig.app.controller.step()  # on what was read before the admin's drain: the backend refuses
    rig.tick(5)
    refused = [s.reason for s in rig.steps("i-1") if s.outcome is Outcome.REFUSED]
    assert any("the last call did not succeed" in reason for reason in refused)
    assert all(reason.count("did not succeed") <= 1 for reason in refused), refused
    assert rig.incident().blocked_by == ("foreign_owner", "backend")
    gates = {gate["gate"]: gate["reason"] for gate in rig.app.service.why("n01")["gates"]}
    assert gates["backend"].count("did not succeed") == 1


def test_a_drain_an_admin_takes_over_is_never_lifted(rig: Rig) -> None:
    rig.xid("n01")
    rig.run_until(lambda: rig.state() is State.REPAIRING)
    rig.cluster.scheduler.admin_drain("n01", "ADMIN: keep this one", "root")
    rig.tick(120)
    assert "uncordon" not in rig.our_verbs()
    record = rig.cluster.scheduler.observe_node("n01")
    assert record.reason is not None
    assert record.reason.text == "ADMIN: keep this one"


def test_an_uncordon_by_a_person_ends_it_and_starts_a_cool_off(rig: Rig) -> None:
    rig.submit("n01", requeue=False)
    rig.tick(2)
    rig.xid("n01")
    rig.run_until(lambda: rig.state() is State.DRAINING)
    rig.tick(2)
    rig.cluster.scheduler.admin_undrain("n01")
    rig.tick(3)
    assert rig.incident().state is State.CANCELLED
    rig.xid("n01", pci="0000:5d:00.0")
    rig.tick(20)
    assert rig.our_verbs("n01").count("cordon") == 1
    assert any("cooldown" in i.blocked_by for i in rig.incidents())


def test_a_job_that_may_not_be_requeued_is_left_to_its_end(rig: Rig) -> None:
    job = rig.submit("n01", requeue=False)
    rig.tick(2)
    rig.xid("n01")
    rig.tick(60)
    assert rig.incident().state is State.DRAINING
    assert next(j for j in rig.cluster.scheduler.observe().jobs if j.id == job).state == "running"
    rig.cluster.scheduler.finish_job(job)
    rig.run_until(lambda: rig.state() is State.RETURNED)


def test_a_job_is_requeued_only_so_often(tmp_path: Path) -> None:
    rig = rig_with(tmp_path, max_requeues=1)
    job = rig.submit("n01")
    rig.tick(2)
    rig.xid("n01")
    rig.run_until(lambda: rig.state() is State.RETURNED)
    where = next(j.nodes[0] for j in rig.cluster.scheduler.observe().jobs if j.id == job)
    rig.xid(where)
    rig.tick(30)
    assert rig.our_verbs().count("requeue") == 1
    why = rig.app.service.why(where)
    assert f"job {job} was requeued 1 times already" in why["waiting"]


def test_three_nodes_at_once_freeze_and_page_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path, nodes=16)
    for name in ("n03", "n07", "n11"):
        rig.xid(name)
    rig.tick(60)
    assert rig.our_verbs() == []
    assert {i.blocked_by for i in rig.incidents()} == {("burst",)}
    pages = [key for _, key, _ in rig.app.notifier.pages if key.startswith("burst/")]
    assert len(pages) == 1


def test_the_budget_lets_one_node_of_four_go(tmp_path: Path) -> None:
    pool = Pool(name="gpu", partition="gpu", max_in_flight=2, max_unavailable_percent=10.0)
    rig = rig_with(tmp_path, pools=(pool,))
    rig.xid("n01")
    rig.xid("n02", 119)
    rig.tick(8)
    assert len({a.node for a in rig.cluster.scheduler.our_actions}) == 1
    rig.run_until(lambda: all(i.state is State.RETURNED for i in rig.incidents()))
    assert counts(rig.our_verbs()) == {"cordon": 2, "reboot": 2, "uncordon": 2}


def test_closed_eyes_still_hands(rig: Rig) -> None:
    rig.tick(2)
    rig.cluster.scheduler.disturbances.be_unavailable(200)
    rig.xid("n01")
    rig.tick(150)
    assert rig.our_verbs() == []
    assert set(rig.incident().blocked_by) >= {"backend"}
    rig.tick(120)
    assert rig.our_verbs("n01")[:1] == ["cordon"]


@pytest.mark.parametrize("verb", ["cordon", "reboot", "uncordon"])
def test_a_time_out_after_the_effect_is_read_back_not_repeated(rig: Rig, verb: str) -> None:
    rig.cluster.scheduler.disturbances.time_out_after_next(verb)
    rig.xid("n01")
    rig.run_until(lambda: any(i.state is State.RETURNED for i in rig.incidents()))
    assert counts(rig.our_verbs()) == {"cordon": 1, "reboot": 1, "uncordon": 1}
    attempts = [s for s in rig.steps("i-1") if s.phase is Phase.ATTEMPT]
    assert [a.outcome for a in attempts] == [Outcome.UNKNOWN]


def test_a_gpu_that_stays_lost_is_handed_over(rig: Rig) -> None:
    rig.cluster.fleet.lose_gpu("n01", 3, back_after_reboot=False)
    rig.xid("n01")
    rig.run_until(lambda: rig.state() is State.HANDED_OVER)
    assert rig.our_verbs().count("reboot") == POLICY.max_repair_attempts
    assert "uncordon" not in rig.our_verbs()
    assert rig.cluster.scheduler.observe_node("n01").state is NodeState.DRAINED


def test_a_failing_verification_command_keeps_the_node_out(tmp_path: Path) -> None:
    rig = rig_with(tmp_path, verify_command=("false",), max_repair_attempts=1)
    rig.xid("n01")
    rig.run_until(lambda: rig.state() is State.HANDED_OVER)
    assert "uncordon" not in rig.our_verbs()
    assert rig.incident().last_reason.startswith("1 repair did not help (verification failed: false exited")
    why = rig.app.service.why("n01")
    assert (why["owner"], why["incident"], why["last_incident"]["state"]) == ("sickbay", None, "handed_over")
    shown = {item["name"]: item for item in rig.app.service.nodes(limit=9, after=None)["items"]}["n01"]
    assert (shown["owner"], shown["incident"]) == ("sickbay", None)
    owner = next(gate for gate in why["gates"] if gate["gate"] == "foreign_owner")
    assert owner["blocks"]
    assert owner["reason"].startswith("an earlier incident of ours cordoned the node")


def test_repair_switched_off_hands_over_the_drained_node(tmp_path: Path) -> None:
    rig = rig_with(tmp_path, repair_enabled=False)
    rig.xid("n01")
    rig.run_until(lambda: rig.state() is State.HANDED_OVER)
    assert (rig.our_verbs(), rig.incident().repair) == (["cordon"], Repair.HAND_OVER)


def test_the_red_button_stops_everything_and_survives_a_restart(rig: Rig) -> None:
    rig.app.service.pause(pool=None, author="alice", reason="look first", expires_in_seconds=None)
    rig.xid("n01")
    rig.tick(10)
    rig.restart()
    rig.tick(30)
    assert rig.our_verbs() == []
    assert "pause" in rig.incident().blocked_by
    rig.app.service.resume(pool=None, author="alice", reason="")
    rig.run_until(lambda: rig.state() is State.RETURNED)


def test_cancel_gives_the_node_back(rig: Rig) -> None:
    rig.submit("n01", requeue=False)
    rig.tick(2)
    rig.xid("n01")
    rig.run_until(lambda: rig.state() is State.DRAINING)
    rig.app.service.cancel(rig.incident().id, author="alice", reason="false alarm")
    rig.run_until(lambda: rig.state() is State.CANCELLED)
    assert rig.our_verbs() == ["cordon", "uncordon"]
    assert "reboot" not in rig.our_verbs()


def test_a_standby_does_nothing_until_the_lease_runs_out(rig: Rig) -> None:
    rig.tick(2)
    rig.restart()
    rig.xid("n01")
    rig.tick(10)
    assert rig.our_verbs() == []
    rig.tick(20)
    assert "cordon" in rig.our_verbs()
