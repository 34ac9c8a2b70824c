"""The planner, case by case: from a situation to the one next thing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleet.findings import IncidentState as State
from fleet.findings import Mode, Repair, Response, Step
from fleet.scheduler import NodeState, Reason
from remediator.decisions import Act, Move, Settle, Wait
from remediator.lifecycle import decide
from remediator.policy import Policy
from remediator.records import Outcome
from remediator.situation import JobRun, owns_cordon
from tests.support.situations import (
    MARK,
    NOW,
    contact,
    drained,
    finding,
    incident,
    job,
    node,
    situation,
)

AUTO = Policy(cluster="test", mode=Mode.AUTO)


def test_a_suspicion_settles_before_it_is_confirmed() -> None:
    young = situation(incident=incident(state=State.SUSPECTED, opened_at=NOW - 0.5))
    assert isinstance(decide(young), Wait)
    old = situation(incident=incident(state=State.SUSPECTED, opened_at=NOW - 2.0))
    assert decide(old) == Move(State.CONFIRMED, "the evidence stands after the settle time")


@pytest.mark.parametrize("state", [State.SUSPECTED, State.CONFIRMED, State.AWAITING_APPROVAL])
def test_an_incident_whose_evidence_is_gone_is_cancelled(state: State) -> None:
    decision = decide(situation(incident=incident(state=state), findings=()))
    assert isinstance(decision, Move)
    assert decision.state is State.CANCELLED


def test_confirmed_is_cordoned() -> None:
    assert decide(situation()) == Act(Step.CORDON, "XID 79")


def test_approve_mode_waits_for_a_person() -> None:
    asked = decide(situation(mode=Mode.APPROVE))
    assert isinstance(asked, Move)
    assert asked.state is State.AWAITING_APPROVAL
    waiting = situation(mode=Mode.APPROVE, incident=incident(state=State.AWAITING_APPROVAL))
    assert isinstance(decide(waiting), Wait)
    approved = incident(state=State.AWAITING_APPROVAL, approved_by="alice")
    assert decide(situation(mode=Mode.APPROVE, incident=approved)) == Move(
        State.CONFIRMED, "approved by alice"
    )


def test_reset_when_idle_lets_jobs_run() -> None:
    waiting = situation(incident=incident(response=Response.RESET_WHEN_IDLE), jobs=(job(),))
    assert isinstance(decide(waiting), Wait)
    idle = replace(waiting, jobs=())
    assert isinstance(decide(idle), Act)


def test_a_node_that_rebooted_by_itself_with_all_gpus_is_not_cordoned() -> None:
    decision = decide(situation(agent=contact(boot_id="boot-b")))
    assert isinstance(decision, Move)
    assert (decision.state, decision.clear_findings) == (State.CANCELLED, True)


def test_a_node_that_rebooted_by_itself_without_its_gpu_is_cordoned() -> None:
    assert decide(situation(agent=contact(boot_id="boot-b", gpu_count=7))) == Act(Step.CORDON, "XID 79")


DRAINING = incident(state=State.DRAINING)


def test_running_jobs_are_requeued_one_by_one() -> None:
    first = decide(
        situation(incident=DRAINING, node=drained(state=NodeState.DRAINING), jobs=(job(), job(id="42")))
    )
    assert first == Act(Step.REQUEUE, "job 41 runs on a broken node", JobRun("41", 0, NOW - 500, None))


def test_an_announced_requeue_is_finished_even_when_the_job_has_left_the_node() -> None:
    run = JobRun("41", 0, NOW - 500, None)
    decision = decide(situation(incident=DRAINING, node=drained(), jobs=(), requeues=(run,)))
    assert decision == Act(Step.REQUEUE, "bring job 41 off the node", run)


def test_a_job_that_may_not_be_requeued_is_waited_for() -> None:
    run = JobRun("41", 0, NOW - 500, Outcome.REFUSED, "job 41 is --no-requeue")
    decision = decide(
        situation(incident=DRAINING, node=drained(state=NodeState.DRAINING), jobs=(job(),), requeues=(run,))
    )
    assert isinstance(decision, Wait)
    assert "no-requeue" in decision.reason


def test_cordon_after_job_requeues_nothing() -> None:
    gentle = replace(DRAINING, response=Response.CORDON_AFTER_JOB)
    decision = decide(situation(incident=gentle, node=drained(state=NodeState.DRAINING), jobs=(job(),)))
    assert isinstance(decision, Wait)


def test_an_old_job_list_proves_nothing() -> None:
    decision = decide(situation(incident=DRAINING, node=drained(), jobs_at=DRAINING.state_since))
    assert isinstance(decision, Wait)


def test_empty_and_drained_is_drained() -> None:
    assert decide(situation(incident=DRAINING, node=drained())) == Move(
        State.DRAINED, "no job is left on the node"
    )


@pytest.mark.parametrize("state", [State.DRAINING, State.DRAINED, State.VERIFYING])
def test_a_cordon_somebody_lifted_ends_the_incident(state: State) -> None:
    decision = decide(situation(incident=incident(state=state), node=node()))
    assert isinstance(decision, Move)
    assert (decision.state, decision.cooldown) == (State.CANCELLED, True)


@pytest.mark.parametrize("state", [State.DRAINING, State.DRAINED, State.VERIFYING])
@pytest.mark.parametrize(
    "reason",
    [
        Reason("NHC: watchdog", "root", NOW),
        Reason(MARK.reason(), "somebody", NOW),
        Reason("sickbay:i-2:gpu-fell-off-bus other", "sickbay", NOW),
    ],
)
def test_a_cordon_that_is_not_ours_any_more_is_left_alone(state: State, reason: Reason) -> None:
    taken = drained(reason=reason)
    assert not owns_cordon(incident(), taken)
    assert isinstance(decide(situation(incident=incident(state=state), node=taken)), Wait)


@pytest.mark.parametrize("state", [State.DRAINING, State.DRAINED, State.REPAIRING, State.VERIFYING])
def test_an_unknown_node_is_neither_cancelled_nor_acted_on(state: State) -> None:
    assert isinstance(decide(situation(incident=incident(state=state), node=None)), Wait)


@pytest.mark.parametrize("stale", [NOW - 10, NOW - 60])
def test_a_record_older_than_our_own_write_lifts_no_cordon(stale: float) -> None:
    decision = decide(situation(incident=incident(state=State.DRAINING), node=node(), node_at=stale))
    assert isinstance(decision, Wait)


DRAINED = incident(state=State.DRAINED)


@pytest.mark.parametrize(
    ("changes", "policy", "step"),
    [
        ({}, AUTO, Step.REBOOT),
        ({"repair": Repair.RESET_GPU}, AUTO, Step.REBOOT),
        (
            {"repair": Repair.RESET_GPU},
            replace(AUTO, repair_commands={Repair.RESET_GPU: ("reset",)}),
            Step.RESET_GPU,
        ),
        ({"repair": Repair.POWER_CYCLE}, AUTO, Step.HAND_OVER),
        ({"repair": Repair.HAND_OVER}, AUTO, Step.HAND_OVER),
        ({}, replace(AUTO, repair_enabled=False), Step.HAND_OVER),
        ({"repair_attempts": 2}, AUTO, Step.HAND_OVER),
        ({}, replace(AUTO, ladder=(Repair.RESET_GPU,)), Step.HAND_OVER),
    ],
)
def test_the_ladder(changes: dict[str, Any], policy: Policy, step: Step) -> None:
    decision = decide(situation(incident=replace(DRAINED, **changes), node=drained(), policy=policy))
    assert isinstance(decision, Act)
    assert decision.step is step


def test_a_rule_without_repair_goes_straight_to_verification() -> None:
    decision = decide(situation(incident=replace(DRAINED, repair=Repair.NONE), node=drained()))
    assert isinstance(decision, Move)
    assert decision.state is State.VERIFYING


def test_a_spontaneous_reboot_is_verified_not_repeated() -> None:
    decision = decide(situation(incident=DRAINED, node=drained(), agent=contact(boot_id="boot-b")))
    assert isinstance(decision, Move)
    assert decision.state is State.VERIFYING


REPAIRING = incident(
    state=State.REPAIRING, reboot_boot_id="boot-a", repair_started_at=NOW - 60, repair_attempts=1
)


def test_an_announced_reboot_is_finished() -> None:
    decision = decide(situation(incident=REPAIRING, node=drained(), open_step=Step.REBOOT))
    assert isinstance(decision, Act)
    assert decision.step is Step.REBOOT


def test_an_announced_reboot_that_has_happened_is_settled_not_repeated() -> None:
    decision = decide(
        situation(incident=REPAIRING, node=drained(), open_step=Step.REBOOT, agent=contact(boot_id="boot-b"))
    )
    assert isinstance(decision, Settle)


@pytest.mark.parametrize("away", [NodeState.REBOOTING, NodeState.DOWN, NodeState.UNKNOWN])
def test_a_node_that_is_away_is_waited_for(away: NodeState) -> None:
    decision = decide(
        situation(incident=REPAIRING, node=drained(state=away), agent=contact(boot_id="boot-b"))
    )
    assert isinstance(decision, Wait)


def test_back_with_a_new_boot_is_verified() -> None:
    decision = decide(situation(incident=REPAIRING, node=drained(), agent=contact(boot_id="boot-b")))
    assert isinstance(decision, Move)
    assert decision.state is State.VERIFYING


def test_a_node_that_does_not_come_back_climbs_the_ladder() -> None:
    late = replace(REPAIRING, repair_started_at=NOW - 4000)
    decision = decide(situation(incident=late, node=drained(state=NodeState.DOWN)))
    assert isinstance(decision, Move)
    assert (decision.state, decision.repair) == (State.DRAINED, Repair.HAND_OVER)


VERIFYING = replace(REPAIRING, state=State.VERIFYING, state_since=NOW - 5)


def test_verification_needs_the_new_boot_and_a_counted_gpu() -> None:
    old_boot = situation(incident=VERIFYING, node=drained())
    assert isinstance(decide(old_boot), Wait)
    uncounted = situation(incident=VERIFYING, node=drained(), agent=contact(boot_id="boot-b", gpu_count=None))
    assert isinstance(decide(uncounted), Wait)
    good = situation(incident=VERIFYING, node=drained(), agent=contact(boot_id="boot-b"))
    decision = decide(good)
    assert isinstance(decision, Act)
    assert decision.step is Step.VERIFY


def test_a_node_whose_kubelet_is_not_ready_yet_is_waited_for() -> None:
    back = contact(boot_id="boot-b")
    verifying = replace(VERIFYING, reboot_boot_id="boot-a")
    waits = decide(situation(incident=verifying, node=drained(ready=False, base="unknown"), agent=back))
    assert isinstance(waits, Wait)
    assert waits.reason == "waits for the node to be Ready: the scheduler says unknown"
    for ready in (True, None):
        goes_on = decide(situation(incident=verifying, node=drained(ready=ready), agent=back))
        assert isinstance(goes_on, Act)
        assert goes_on.step is Step.VERIFY


def test_a_node_that_came_back_without_a_gpu_is_back_and_fails_its_verification() -> None:
    short = drained(state=NodeState.UNKNOWN, flags=("DRAIN", "INVALID_REG"))
    back = decide(situation(incident=REPAIRING, node=short, agent=contact(boot_id="boot-b", gpu_count=7)))
    assert back == Move(State.VERIFYING, "the node is back with a new boot")
    decision = decide(situation(incident=VERIFYING, node=short, agent=contact(boot_id="boot-b", gpu_count=7)))
    assert decision == Act(Step.VERIFY, "the scheduler reports fewer GPUs than configured (INVALID_REG)")
    silent = drained(state=NodeState.UNKNOWN, flags=("DRAIN", "NOT_RESPONDING"))
    assert isinstance(
        decide(situation(incident=REPAIRING, node=silent, agent=contact(boot_id="boot-b"))), Wait
    )


def test_a_hand_over_says_what_did_not_help() -> None:
    needs_hands = incident(state=State.DRAINED, repair=Repair.HAND_OVER)
    assert decide(situation(incident=needs_hands, node=drained())) == Act(
        Step.HAND_OVER, "the rule says this needs hands"
    )
    tried = replace(needs_hands, repair_attempts=2, last_reason="verification failed: diag says no")
    assert decide(situation(incident=tried, node=drained())) == Act(
        Step.HAND_OVER, "2 repairs did not help (verification failed: diag says no)"
    )


def test_without_agents_the_scheduler_counts() -> None:
    silent = replace(VERIFYING, boot_id=None, reboot_boot_id=None, prior={"agent_counts_gpus": False})
    back = drained(boot_time=NOW - 30)
    decision = decide(situation(incident=silent, node=back, agent=None))
    assert isinstance(decision, Act)
    assert decision.step is Step.VERIFY


def test_a_verified_node_is_returned_and_a_failed_one_is_not() -> None:
    fine = situation(
        incident=VERIFYING,
        node=drained(),
        agent=contact(boot_id="boot-b"),
        verification=Outcome.DONE,
        verification_reason="8 of 8 GPUs",
    )
    assert decide(fine) == Act(Step.UNCORDON, "verified: 8 of 8 GPUs")
    decision = decide(replace(fine, verification=Outcome.FAILED))
    assert isinstance(decision, Move)
    assert (decision.state, decision.repair) == (State.DRAINED, Repair.REBOOT)
    spent = replace(VERIFYING, repair_attempts=2)
    decision = decide(replace(fine, incident=spent, verification=Outcome.FAILED))
    assert isinstance(decision, Move)
    assert decision.repair is Repair.HAND_OVER


def test_probation_ends_in_time_or_in_a_relapse() -> None:
    back = incident(state=State.PROBATION, returned_at=NOW - 100)
    assert isinstance(decide(situation(incident=back, findings=())), Wait)
    done = incident(state=State.PROBATION, returned_at=NOW - 3600)
    decision = decide(situation(incident=done, findings=()))
    assert isinstance(decision, Move)
    assert decision.state is State.RETURNED
    relapse = decide(situation(incident=back, findings=(finding(since=NOW - 5),)))
    assert isinstance(relapse, Move)
    assert relapse.state is State.CONFIRMED


def test_cancelling_gives_back_what_is_ours_and_nothing_else() -> None:
    asked = {"cancelled_by": "alice", "cancel_reason": "false alarm"}
    ours = decide(situation(incident=incident(state=State.DRAINED, **asked), node=drained()))
    assert isinstance(ours, Act)
    assert ours.step is Step.UNCORDON
    theirs = decide(situation(incident=incident(state=State.DRAINED, **asked), node=drained(ours=False)))
    assert isinstance(theirs, Move)
    assert theirs.state is State.CANCELLED
    early = decide(situation(incident=incident(state=State.CONFIRMED, **asked)))
    assert isinstance(early, Move)
    assert early.state is State.CANCELLED


def test_cancelling_first_lets_go_of_a_job_we_hold() -> None:
    run = JobRun("41", 0, NOW - 500, None)
    decision = decide(
        situation(
            incident=incident(state=State.DRAINING, cancelled_by="alice"), node=drained(), requeues=(run,)
        )
    )
    assert isinstance(decision, Act)
    assert decision.step is Step.REQUEUE


@pytest.mark.parametrize("state", [State.RETURNED, State.CANCELLED, State.HANDED_OVER])
def test_closed_is_closed(state: State) -> None:
    assert isinstance(decide(situation(incident=incident(state=state))), Wait)
