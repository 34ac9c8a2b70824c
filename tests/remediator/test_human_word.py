"""A person's word in every state: cancel, hold, pause and approval, and what they do not allow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.findings import IncidentState as State
from fleet.findings import Mode, Step
from fleet.scheduler import NodeState
from remediator.gates import blocking, evaluate
from remediator.policy import Pool
from tests.support.rig import Rig, bolder
from tests.support.situations import gate_input, incident, node

STATES = [
    State.SUSPECTED,
    State.CONFIRMED,
    State.AWAITING_APPROVAL,
    State.CORDONING,
    State.DRAINING,
    State.DRAINED,
    State.REPAIRING,
    State.VERIFYING,
    State.PROBATION,
]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


def brought_to(tmp_path: Path, state: State) -> Rig:
    """A rig whose incident is in ``state`` and stays there while nobody does anything."""
    waits = {State.AWAITING_APPROVAL: {"mode": Mode.APPROVE}, State.CONFIRMED: {"mode": Mode.OBSERVE}}
    rig = Rig(tmp_path, policy=bolder(**waits.get(state, {})))
    if state is State.DRAINING:
        rig.submit("n01", requeue=False)
    rig.tick(2)
    stuck = {State.CORDONING: "cordon", State.VERIFYING: "uncordon"}.get(state)
    if stuck is not None:
        rig.cluster.scheduler.disturbances.time_out_after_next(stuck)
    rig.xid("n01")
    if state is State.DRAINED:
        rig.run_until(lambda: rig.our_verbs() == ["cordon"])
        rig.app.service.hold("n01", author="alice", reason="wait here", expires_in_seconds=None)
    rig.run_until(lambda: rig.state() is state)
    return rig


@pytest.mark.parametrize("state", STATES)
def test_a_cancel_in_any_state_ends_it_and_leaves_the_node_in_service(tmp_path: Path, state: State) -> None:
    rig = brought_to(tmp_path, state)
    reboots = rig.our_verbs().count("reboot")
    rig.app.service.cancel("i-1", author="alice", reason="false alarm")
    if state is State.DRAINED:
        rig.app.service.release("n01", author="alice", reason="go on")
    rig.run_until(lambda: rig.state() is State.CANCELLED, limit=60)
    rig.tick(30)
    assert not rig.cluster.scheduler.observe_node("n01").is_cordoned
    assert rig.our_verbs().count("reboot") == reboots
    assert rig.incident().state is State.CANCELLED
    with rig.store.transaction(read_only=True) as tx:
        assert tx.open_intents("i-1") == []
        assert list(tx.findings(node="n01")) == []
    rig.close()


@pytest.mark.parametrize("state", STATES)
def test_a_pause_in_any_state_stops_every_write(tmp_path: Path, state: State) -> None:
    rig = brought_to(tmp_path, state)
    before = rig.our_verbs()
    rig.app.service.pause(pool=None, author="alice", reason="stop", expires_in_seconds=None)
    rig.tick(120)
    assert rig.our_verbs() == before
    rig.close()


def test_a_hold_between_cordon_and_reboot_keeps_the_node_as_it_is(rig: Rig) -> None:
    rig.xid("n01")
    rig.run_until(lambda: rig.our_verbs("n01") == ["cordon"])
    rig.app.service.hold("n01", author="alice", reason="I look at it", expires_in_seconds=None)
    rig.tick(60)
    assert rig.our_verbs("n01") == ["cordon"]
    assert rig.incident().blocked_by == ("hold",)
    rig.app.service.release("n01", author="alice", reason="seen")
    rig.run_until(lambda: rig.state() is State.RETURNED)


def blocked_by(**changes: Any) -> set[str]:
    return {str(result.gate) for result in blocking(evaluate(Step.CORDON, gate_input(**changes)))}


def test_an_approval_outweighs_a_burst_but_no_budget_no_rate_and_no_other_word() -> None:
    others = tuple(incident(id=f"o-{i}", node=f"n{i:02d}") for i in (2, 3, 4))
    approved = incident(approved_by="alice")
    assert blocked_by(incidents=others) == {"burst"}
    assert blocked_by(incidents=others, incident=approved) == set()
    full = tuple(node(name=f"n{i:02d}", state=NodeState.DOWN) for i in range(2, 8))
    pool = tuple(node(name=f"n{i:02d}") for i in range(8, 17))
    limits = {"pool_nodes": (node(), *full, *pool), "cordons_in_window": 99, "mode": Mode.OBSERVE}
    assert blocked_by(incidents=others, incident=approved, **limits) == {"budget", "rate", "mode"}


def test_a_sick_node_that_is_down_already_does_not_stand_in_its_own_way() -> None:
    mine = node(state=NodeState.DOWN)
    pool = Pool(name="gpu", partition="gpu", max_unavailable_percent=10.0)
    rest = tuple(node(name=f"n{i:02d}") for i in range(2, 9))
    assert blocked_by(node=mine, pool=pool, pool_nodes=(mine, *rest)) == set()
    other = node(name="n02", state=NodeState.DOWN)
    assert blocked_by(node=mine, pool=pool, pool_nodes=(mine, other, *rest[1:])) == {"budget"}
