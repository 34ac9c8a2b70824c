"""Lines of the planner and the gates that nothing else would miss: each was once broken on purpose."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.findings import IncidentState as State
from fleet.findings import Repair, Response, Step
from fleet.scheduler import NodeState
from remediator.decisions import Act, Move, Settle, Wait
from remediator.gates import blocking, evaluate
from remediator.lifecycle import decide
from remediator.policy import Policy, Pool
from remediator.records import Word, WordKind
from remediator.sight import MetricSight
from tests.support.situations import (
    NOW,
    contact,
    drained,
    finding,
    gate_input,
    incident,
    job,
    node,
    situation,
)


def blocked_by(step: Step = Step.CORDON, **changes: Any) -> set[str]:
    return {str(result.gate) for result in blocking(evaluate(step, gate_input(**changes)))}


def test_an_empty_list_of_jobs_is_not_enough_for_drained() -> None:
    draining = situation(incident=incident(state=State.DRAINING), node=drained(state=NodeState.DRAINING))
    assert isinstance(decide(draining), Wait)


@pytest.mark.parametrize(
    "changes",
    [{"jobs": (job(),)}, {"node": drained(state=NodeState.DRAINING)}],
    ids=["a job is listed", "the scheduler says busy"],
)
@pytest.mark.parametrize("repair", [Repair.REBOOT, Repair.RESET_GPU])
def test_nothing_is_repaired_under_a_job(repair: Repair, changes: dict[str, Any]) -> None:
    policy = Policy(cluster="t", repair_commands={Repair.RESET_GPU: ("reset",)})
    quiet = {"incident": incident(state=State.DRAINED, repair=repair), "policy": policy, "node": drained()}
    assert isinstance(decide(situation(**quiet)), Act)
    assert isinstance(decide(situation(**(quiet | changes))), Wait)


@pytest.mark.parametrize("state", ["completing", "suspended", "configuring"])
def test_only_a_running_job_is_requeued(state: str) -> None:
    there = situation(
        incident=incident(state=State.DRAINING),
        node=drained(state=NodeState.DRAINING),
        jobs=(job(state=state),),
    )
    assert isinstance(decide(there), Wait)


CANCELLED = {"cancelled_by": "alice", "cancel_reason": "false alarm"}


def test_a_cancel_waits_for_word_of_a_cordon_that_may_be_on_its_way() -> None:
    mine = incident(state=State.CORDONING, state_since=NOW, **CANCELLED)
    unknown = situation(incident=mine, open_step=Step.CORDON, node_at=NOW)
    assert isinstance(decide(unknown), Wait)
    seen = decide(situation(incident=mine, open_step=Step.CORDON, node_at=NOW + 1))
    assert isinstance(seen, Move)
    assert seen.state is State.CANCELLED


def test_a_cancel_finds_its_own_uncordon_done() -> None:
    mine = incident(state=State.DRAINING, **CANCELLED)
    assert isinstance(decide(situation(incident=mine, open_step=Step.UNCORDON)), Settle)


@pytest.mark.parametrize("state", [NodeState.REBOOTING, NodeState.DOWN, NodeState.UNKNOWN])
def test_a_cancelled_node_is_given_back_when_it_is_back(state: NodeState) -> None:
    mine = incident(state=State.REPAIRING, **CANCELLED)
    assert isinstance(decide(situation(incident=mine, node=drained(state=state))), Wait)
    assert isinstance(decide(situation(incident=mine, node=drained())), Act)


@pytest.mark.parametrize("boot", [None, "boot-c"])
def test_a_node_of_two_agents_has_neither_a_new_boot_nor_all_gpus(boot: str | None) -> None:
    both = contact(boot_id="boot-b", contested=True)
    verifying = incident(state=State.VERIFYING, reboot_boot_id=boot or "boot-a", repair_attempts=1)
    found = (finding(boot_id="boot-a"),)
    decision = decide(situation(incident=verifying, node=drained(), agent=both, findings=found))
    assert isinstance(decision, Wait)


# -- gates


def test_cordons_announced_but_not_seen_yet_use_up_the_budget() -> None:
    pool = Pool(name="gpu", partition="gpu", max_in_flight=9, max_unavailable_percent=12.5)  # 2 of 16
    announced = tuple(
        incident(id=f"o-{i}", node=f"n{i:02d}", rule="x", state=State.CORDONING) for i in (2, 3)
    )
    assert blocked_by(pool=pool, incidents=announced) == {"budget"}
    assert blocked_by(pool=pool, incidents=announced[:1]) == set()


def test_cordons_announced_use_up_the_rate() -> None:
    pool = Pool(name="gpu", partition="gpu", max_in_flight=9, max_unavailable_percent=90.0, max_cordons=3)
    announced = tuple(
        incident(id=f"o-{i}", node=f"n{i:02d}", rule="x", state=State.CORDONING) for i in (2, 3)
    )
    assert blocked_by(pool=pool, incidents=announced, cordons_in_window=1) == {"rate"}
    assert blocked_by(pool=pool, incidents=announced, cordons_in_window=0) == set()


def test_a_cordon_that_is_repeated_is_not_stopped_by_its_own_budget() -> None:
    full = tuple(node(name=f"n{i:02d}", state=NodeState.DOWN) for i in range(1, 17))
    mine = incident(state=State.CORDONING)
    assert "budget" not in blocked_by(incident=mine, node=drained(), pool_nodes=full)
    assert "budget" in blocked_by(incident=mine, node=node(), pool_nodes=full)


def test_a_silent_agent_stops_the_first_cordon_and_nothing_after_it() -> None:
    """A node that reboots has no agent to speak for it."""
    silent = contact(last_seen=NOW - 600)
    assert blocked_by(agent=silent) == {"freshness"}
    after = incident(state=State.DRAINED)
    assert blocked_by(Step.REBOOT, agent=silent, incident=after, node=drained()) == set()


def _sight(age: float, node: str = "n01") -> MetricSight:
    at = NOW - age
    return MetricSight(at=at, watched=frozenset({node}), answered={node: at}, reported={"f-1": at})


def test_the_word_of_an_exporter_counts_while_it_answers() -> None:
    by_metrics = (finding(source="metrics"),)
    silent = contact(last_seen=NOW - 600)
    assert blocked_by(agent=silent, findings=by_metrics) == {"freshness"}
    assert blocked_by(agent=silent, findings=by_metrics, sight=_sight(10.0)) == set()
    assert blocked_by(agent=silent, findings=by_metrics, sight=_sight(46.0)) == {"freshness"}
    assert blocked_by(agent=silent, findings=by_metrics, sight=_sight(-60.0)) == {"freshness"}
    assert blocked_by(agent=silent, findings=by_metrics, sight=_sight(10.0, node="n02")) == {"freshness"}


def test_of_two_reporters_one_that_speaks_is_enough() -> None:
    both = (finding(source="metrics"), finding(source="agent"))
    silent = contact(last_seen=NOW - 600)
    assert blocked_by(agent=silent, findings=both, sight=_sight(10.0)) == set()
    assert blocked_by(findings=both, sight=_sight(600.0)) == set()
    assert blocked_by(agent=silent, findings=both, sight=_sight(600.0)) == {"freshness"}


def test_what_only_observes_does_not_lend_its_freshness_to_what_acts() -> None:
    acting = finding(source="agent")
    watching = finding(source="metrics", response=Response.NOTIFY)
    silent = contact(last_seen=NOW - 600)
    assert blocked_by(agent=silent, findings=(acting, watching), sight=_sight(1.0)) == {"freshness"}


def test_an_alert_counts_while_alertmanager_speaks_and_has_not_resolved_it() -> None:
    alert = finding(source="alertmanager")
    assert blocked_by(findings=(alert,)) == {"freshness"}
    assert blocked_by(findings=(alert,), alerts_heard_at=NOW - 60) == set()
    assert blocked_by(findings=(alert,), alerts_heard_at=NOW - 301) == {"freshness"}
    assert blocked_by(findings=(alert,), alerts_heard_at=NOW + 60) == {"freshness"}
    over = finding(source="alertmanager", evidence={"resolved_at": NOW - 30})
    assert blocked_by(findings=(over,), alerts_heard_at=NOW) == {"freshness"}
    assert blocked_by(findings=(over, alert), alerts_heard_at=NOW) == set()


def test_nobody_vouches_for_an_unknown_reporter() -> None:
    assert blocked_by(findings=(finding(source="somebody"),)) == {"freshness"}


def test_the_red_button_stops_verification_commands_too() -> None:
    paused = Word(kind=WordKind.PAUSE, target=None, author="alice", reason="stop", since=NOW)
    assert blocked_by(Step.VERIFY, words=(paused,)) == {"pause"}
    assert blocked_by(Step.VERIFY) == set()
