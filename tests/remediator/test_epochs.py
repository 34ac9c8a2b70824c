"""Invariant 7 and its neighbours: which boot, which machine, which fault an action is about."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.errors import ConflictError, UnavailableError
from fleet.findings import IncidentState as State
from fleet.findings import Mode, Step
from fleet.scheduler import NodeState
from remediator.decisions import Act, Move, Wait
from remediator.lifecycle import decide
from remediator.records import Phase
from tests.support.rig import Rig, bolder
from tests.support.situations import NOW, contact, drained, finding, incident, node, situation


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


def reimage(rig: Rig, name: str) -> None:
    """Another machine is put in the rack under the old name."""
    seed = random.Random(7)  # noqa: S311 - test data
    machine = rig.cluster.fleet.node(name)
    machine.machine_id = f"{seed.getrandbits(128):032x}"
    machine.gpus = tuple(
        replace(gpu, uuid=f"GPU-{uuid.UUID(int=seed.getrandbits(128))}") for gpu in machine.gpus
    )
    machine.boot_id = str(uuid.UUID(int=seed.getrandbits(128)))


# -- a fault of the present boot is never answered by an epoch before it


def test_a_fault_seen_after_a_reboot_of_its_own_is_not_taken_for_gone() -> None:
    here = contact(boot_id="boot-b")
    old_and_new = (finding(), finding(id="f-2", boot_id="boot-b"))
    assert isinstance(decide(situation(agent=here, findings=old_and_new)), Act)
    assert isinstance(decide(situation(agent=here, findings=old_and_new[:1])), Move)
    there = situation(incident=incident(state=State.DRAINED), node=drained(), agent=here)
    rebooted = decide(there)
    assert isinstance(rebooted, Move)
    assert rebooted.state is State.VERIFYING
    again = decide(replace(there, findings=old_and_new))
    assert isinstance(again, Act)
    assert again.step is Step.REBOOT


def test_a_relapse_is_drained_again_and_not_taken_for_gone(rig: Rig) -> None:
    rig.xid("n01", 48)
    rig.run_until(lambda: rig.state() is State.PROBATION)
    rig.xid("n01", 48)
    rig.run_until(lambda: rig.our_verbs("n01").count("cordon") == 2, limit=10)
    rig.run_until(lambda: rig.state() is State.HANDED_OVER, limit=10)  # a reboot did not help


def test_a_relapse_asks_again_for_approval(tmp_path: Path) -> None:
    rig = Rig(tmp_path, policy=bolder(mode=Mode.APPROVE))
    rig.xid("n01", 48)
    rig.tick(5)
    rig.app.service.approve(rig.incident().id, author="alice", reason="this once")
    rig.run_until(lambda: rig.state() is State.PROBATION)
    rig.xid("n01", 48)
    rig.tick(10)
    assert (rig.incident().state, rig.our_verbs("n01").count("cordon")) == (State.AWAITING_APPROVAL, 1)
    rig.close()


# -- a new fault stops the return


def test_a_fault_in_the_new_boot_stops_the_return(rig: Rig) -> None:
    rig.xid("n01")
    rig.run_until(lambda: rig.state() is State.REPAIRING)
    rig.cluster.scheduler.disturbances.be_unavailable(0)
    boot = rig.cluster.fleet.node("n01").boot_id
    rig.run_until(lambda: rig.cluster.fleet.node("n01").boot_id != boot)
    rig.xid("n01", pci="0000:5d:00.0")
    rig.tick(5)
    assert "uncordon" not in rig.our_verbs()
    rig.run_until(lambda: rig.our_verbs().count("reboot") == 2)
    rig.run_until(lambda: rig.state() is State.RETURNED)


@pytest.mark.parametrize(
    ("found", "stops"),
    [
        ({"boot_id": "boot-b", "since": NOW}, True),
        ({"boot_id": "boot-b", "since": NOW - 900}, True),  # the node's clock is behind
        ({"boot_id": "boot-a", "since": NOW - 50}, False),
        ({"boot_id": "boot-a", "since": NOW + 900}, False),  # its clock was ahead before the reboot
    ],
)
def test_what_is_a_new_fault_is_told_by_the_boot_not_by_clocks(found: dict[str, Any], stops: bool) -> None:
    verifying = incident(
        state=State.VERIFYING, reboot_boot_id="boot-a", repair_started_at=NOW - 30, repair_attempts=1
    )
    decision = decide(
        situation(
            incident=verifying,
            node=drained(),
            agent=contact(boot_id="boot-b"),
            findings=(finding(**found),),
            open_step=Step.UNCORDON,
        )
    )
    assert (isinstance(decision, Move) and decision.state is State.DRAINED) is stops
    assert (isinstance(decision, Act) and decision.step is Step.UNCORDON) is not stops


def test_a_fault_told_in_the_moment_of_the_return_is_a_relapse(rig: Rig) -> None:
    """It is stored after the uncordon, its line is dated before it."""
    rig.xid("n01")
    rig.run_until(lambda: rig.state() is State.PROBATION)
    rig.xid("n01", time=rig.clock.now() - 3)
    rig.run_until(lambda: rig.our_verbs("n01").count("cordon") == 2, limit=10)


def test_an_uncordon_that_is_given_up_is_not_finished_later(rig: Rig) -> None:
    rig.xid("n01")
    rig.cluster.scheduler.disturbances.fail_next("uncordon", UnavailableError("x"))
    rig.run_until(lambda: any(s.step is Step.UNCORDON for s in rig.steps("i-1")))
    rig.xid("n01", pci="0000:5d:00.0")
    rig.run_until(lambda: rig.our_verbs().count("reboot") == 2)
    rig.run_until(lambda: rig.state() is State.RETURNED)
    verbs = rig.our_verbs("n01")
    assert verbs == ["cordon", "reboot", "reboot", "uncordon"]
    verified = [s for s in rig.steps("i-1") if s.step is Step.VERIFY and s.phase is Phase.EFFECT]
    assert len(verified) == 2


def test_a_verification_counts_for_its_own_boot_only(rig: Rig) -> None:
    rig.xid("n01")
    rig.run_until(lambda: rig.state() is State.VERIFYING)
    rig.app.service.hold("n01", author="alice", reason="look", expires_in_seconds=None)
    rig.tick(5)
    assert [s.step for s in rig.steps("i-1") if s.phase is Phase.EFFECT][-1] is Step.VERIFY
    rig.cluster.fleet.lose_gpu("n01", 2, back_after_reboot=False)
    rig.cluster.fleet.reboot("n01", 5.0)  # it dies and comes back by itself, with a GPU less
    rig.tick(10)
    rig.app.service.release("n01", author="alice", reason="seen")
    rig.tick(60)
    assert "uncordon" not in rig.our_verbs()


def test_a_boot_after_the_verification_is_verified_too(rig: Rig) -> None:
    rig.xid("n01")
    rig.run_until(lambda: rig.state() is State.VERIFYING)
    rig.app.service.hold("n01", author="alice", reason="look", expires_in_seconds=None)
    rig.tick(5)
    rig.cluster.fleet.reboot("n01", 5.0)
    rig.tick(10)
    rig.app.service.release("n01", author="alice", reason="seen")
    rig.run_until(lambda: rig.state() is State.RETURNED)
    verified = [s for s in rig.steps("i-1") if s.step is Step.VERIFY and s.phase is Phase.EFFECT]
    assert len(verified) == 2


def test_a_repair_that_was_refused_is_none(rig: Rig) -> None:
    rig.cluster.scheduler.disturbances.fail_next("reboot", ConflictError("somebody else reboots it"))
    rig.cluster.scheduler.disturbances.fail_next("reboot", ConflictError("somebody else reboots it"))
    rig.xid("n01")
    rig.run_until(lambda: rig.state() is State.RETURNED)
    assert (rig.incident().repair_attempts, rig.our_verbs().count("reboot")) == (1, 1)


def test_an_old_verification_does_not_count_after_the_clock_went_back(rig: Rig) -> None:
    rig.xid("n01")
    rig.run_until(lambda: rig.state() is State.PROBATION)
    rig.clock.step_wall_clock(-600.0)
    rig.cluster.fleet.lose_gpu("n01", 2, back_after_reboot=False)
    rig.xid("n01", pci="0000:5d:00.0")
    rig.tick(900)
    assert rig.our_verbs("n01").count("uncordon") == 1


# -- whose word is it


def test_an_event_of_a_new_boot_is_not_weighed_by_the_old_contact(rig: Rig) -> None:
    """The ledger has the new contact and the event; the world is told a moment later."""
    rig.tick(1)
    before = rig.app.world.contact("n01")
    assert before is not None
    rig.cluster.fleet.reboot("n01", 0.0)
    rig.cluster.tick()
    rig.xid("n01")
    rig.tick(0)
    event = rig._pending.pop()[1]
    rig.app.service.ingest_events("n01", dict(rig.cluster.agents.contact("n01") or {}), [event])
    rig.app.world._contacts["n01"] = before  # as if the pushing thread had not come further yet
    rig.app.controller.step()
    assert [i.node for i in rig.incidents()] == ["n01"]


def test_two_agents_under_one_name_are_believed_by_nobody(rig: Rig) -> None:
    """The other one's boot is no proof of a reboot: the broken node must not come back by it."""
    rig.xid("n01")
    other = {"node": "n01", "version": "1", "boot_id": "of-another-machine", "gpus": 8}
    verbs: list[str] = []
    for _ in range(60):
        rig.tick()
        rig.app.service.ingest_events("n01", other, [])
        rig.app.controller.step()
        verbs = rig.our_verbs("n01")
    assert "uncordon" not in verbs
    assert "two agents" in str(rig.app.service.why("n01"))


# -- incarnation


@pytest.mark.parametrize("state", [State.CONFIRMED, State.AWAITING_APPROVAL, State.PROBATION])
def test_another_machine_inherits_no_incident(state: State) -> None:
    mine = incident(state=state, incarnation="machine-1", returned_at=NOW - 1)
    decision = decide(situation(incident=mine, node=node(machine_id="machine-2")))
    assert isinstance(decision, Move)
    assert decision.give_up
    assert "another machine" in decision.reason


@pytest.mark.parametrize(
    ("known", "uuids", "expected"),
    [
        ("machine-1", ("GPU-9",), False),  # the same machine with a new board
        (None, ("GPU-9",), True),
        (None, ("GPU-9", "GPU-1"), False),
        (None, (), False),  # the agent cannot tell
    ],
)
def test_gpus_tell_the_machine_where_the_scheduler_does_not(
    known: str | None, uuids: tuple[str, ...], expected: bool
) -> None:
    mine = incident(
        state=State.DRAINED,
        incarnation=known,
        prior={"agent_counts_gpus": True, "gpu_uuids": ["GPU-1", "GPU-2"]},
    )
    here = drained(machine_id="machine-1" if known else None)
    decision = decide(situation(incident=mine, node=here, agent=contact(gpu_uuids=uuids)))
    assert (isinstance(decision, Move) and decision.give_up) is expected


def test_a_reimaged_node_is_not_rebooted_and_gets_its_place_back(rig: Rig) -> None:
    rig.submit("n01", requeue=False)
    rig.tick(2)
    rig.xid("n01")
    rig.run_until(lambda: rig.state() is State.DRAINING)
    reimage(rig, "n01")
    rig.tick(5)
    incident_ = rig.incident()
    assert (incident_.state, incident_.cancelled_by) == (State.CANCELLED, "sickbay")
    assert "another machine" in (incident_.cancel_reason or "")
    assert rig.our_verbs("n01") == ["cordon", "uncordon"]


def test_a_reimaged_node_without_all_gpus_stays_out() -> None:
    given_up = incident(state=State.DRAINED, cancelled_by="sickbay", cancel_reason="another machine")
    short = situation(
        incident=given_up, node=drained(), agent=contact(gpu_count=7, first_seen_boot=NOW - 1801)
    )
    assert isinstance(decide(short), Act)  # handed over: it has been up for longer than it may take
    young = replace(short, agent=contact(gpu_count=7, first_seen_boot=NOW - 10))
    assert isinstance(decide(young), Wait)
    decision = decide(replace(short, agent=contact()))
    assert isinstance(decision, Act)
    assert decision.step is Step.UNCORDON


def test_a_fault_of_the_new_machine_gets_an_incident_of_its_own(rig: Rig) -> None:
    rig.submit("n01", requeue=False)
    rig.tick(2)
    rig.xid("n01")
    rig.run_until(lambda: rig.state() is State.DRAINING)
    reimage(rig, "n01")
    rig.xid("n01", 48)
    rig.tick(10)
    assert [i.id for i in rig.incidents()] == ["i-2", "i-1"]
    assert rig.incidents()[1].state is State.CANCELLED
    assert rig.cluster.scheduler.observe_node("n01").state in (NodeState.DRAINING, NodeState.DRAINED)


def test_a_fault_that_comes_while_its_node_is_cancelled_is_not_cancelled_with_it(rig: Rig) -> None:
    rig.xid("n01")
    rig.run_until(lambda: rig.state() is State.REPAIRING)
    rig.app.service.cancel("i-1", author="alice", reason="false alarm")
    boot = rig.cluster.fleet.node("n01").boot_id
    rig.run_until(lambda: rig.cluster.fleet.node("n01").boot_id != boot)
    rig.xid("n01", pci="0000:5d:00.0")
    rig.run_until(lambda: len(rig.incidents()) == 2, limit=20)
    rig.run_until(lambda: rig.our_verbs("n01").count("cordon") == 2, limit=20)
