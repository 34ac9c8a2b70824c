"""Invariants 3 and 4: limits against partial answers, quick cancels, moving pools and restarts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.findings import IncidentState as State
from fleet.findings import Mode, Step
from fleet.scheduler import NodeState, SchedulerSnapshot
from remediator.gates import blocking, evaluate
from remediator.ledger import DuplicateIntentError
from remediator.ledger.store import Transaction
from remediator.policy import Policy, Pool
from remediator.world import World
from tests.support.rig import Rig, bolder
from tests.support.situations import NOW, contact, drained, gate_input, incident, node


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path, nodes=16)
    yield made
    made.close()


def blocked_by(step: Step = Step.CORDON, **changes: Any) -> set[str]:
    return {str(result.gate) for result in blocking(evaluate(step, gate_input(**changes)))}


# -- the budget counts what it cannot see


def snapshot(*names: str, at: float = NOW, problems: tuple[str, ...] = ()) -> SchedulerSnapshot:
    return SchedulerSnapshot(at, {name: node(name=name) for name in names}, (), problems)


def test_a_node_that_cannot_be_read_stays_in_its_pool_as_unknown() -> None:
    world = World()
    world.publish(snapshot("n01", "n02"))
    for at in (1.0, 2.0):
        world.publish(snapshot("n01", at=NOW + at, problems=("n02: it has no state",)))
        lost = world.nodes()["n02"]
        assert (lost.state, lost.partitions, lost.schedulable) == (NodeState.UNKNOWN, ("gpu",), False)
        assert world.node("n02") == (None, NOW + at)
        assert world.inventory == {"n01", "n02"}
    world.publish(snapshot("n01", at=NOW + 3.0))
    assert set(world.nodes()) == {"n01"}  # an answer without a problem: it is gone


def test_unreadable_nodes_use_up_the_budget(tmp_path: Path) -> None:
    pool = Pool(name="gpu", partition="gpu", max_in_flight=2, max_unavailable_percent=25.0)
    rig = Rig(tmp_path, nodes=8, policy=bolder(pools=(pool,)))
    rig.tick(1)
    whole = rig.cluster.scheduler.observe

    def partial() -> SchedulerSnapshot:
        seen = whole()
        kept = {name: record for name, record in seen.nodes.items() if name not in ("n07", "n08")}
        return replace(seen, nodes=kept, problems=("n07: it has no state", "n08: it has no state"))

    rig.cluster.scheduler.observe = partial  # type: ignore[method-assign]
    rig.xid("n01")
    rig.tick(10)
    assert rig.our_verbs() == []
    assert rig.incident().blocked_by == ("budget",)
    rig.cluster.scheduler.observe = whole  # type: ignore[method-assign]
    rig.tick(3)
    assert rig.our_verbs()[:1] == ["cordon"]
    rig.close()


def test_an_event_of_a_node_that_cannot_be_read_is_not_lost(rig: Rig) -> None:
    rig.tick(1)
    whole = rig.cluster.scheduler.observe

    def partial() -> SchedulerSnapshot:
        seen = whole()
        kept = {name: record for name, record in seen.nodes.items() if name != "n01"}
        return replace(seen, nodes=kept, problems=("n01: it has no state",))

    rig.cluster.scheduler.observe = partial  # type: ignore[method-assign]
    rig.tick(2)
    rig.xid("n01")
    rig.tick(5)
    assert rig.our_verbs() == []
    rig.cluster.scheduler.observe = whole  # type: ignore[method-assign]
    rig.tick(5)
    assert "cordon" in rig.our_verbs("n01")


def test_repairs_of_a_renamed_pool_count_in_the_new_one() -> None:
    before = tuple(
        incident(id=f"o-{i}", node=f"n{i:02d}", pool="old", state=State.DRAINING, rule="x") for i in (2, 3)
    )
    names = frozenset(f"n{i:02d}" for i in range(1, 17))
    assert blocked_by(incidents=before, pool_names=names) == {"budget"}
    assert blocked_by(incidents=before, pool_names=frozenset({"n01"})) == set()


# -- a burst is a burst, whatever became of its first nodes


def test_closed_incidents_count_in_a_burst() -> None:
    gone = tuple(incident(id=f"o-{i}", node=f"n{i:02d}", state=State.CANCELLED) for i in (2, 3))
    assert blocked_by(recent=gone) == {"burst"}
    assert blocked_by(recent=tuple(replace(i, opened_at=NOW - 301) for i in gone)) == set()


def test_quick_cancels_do_not_hide_a_burst(rig: Rig) -> None:
    for number in range(1, 6):
        rig.xid(f"n{number:02d}")
        rig.tick(1)
        rig.app.service.cancel(rig.incidents()[0].id, author="alice", reason="odd")
        rig.tick(1)
    rig.xid("n09")
    rig.tick(20)
    assert rig.our_verbs("n09") == []
    assert rig.incidents()[0].blocked_by == ("burst",)


def test_a_burst_stays_frozen_until_people_have_decided(rig: Rig) -> None:
    for number in range(1, 6):
        rig.xid(f"n{number:02d}")
    rig.tick(600)
    assert rig.our_verbs() == [], "the window is over, the common cause is not"
    assert [i.blocked_by for i in rig.incidents()] == [("burst",)] * 5
    rig.app.service.approve(rig.incidents()[0].id, author="alice", reason="this one is really broken")
    rig.tick(5)
    touched = {action.node for action in rig.cluster.scheduler.our_actions}
    assert touched == {rig.incidents()[0].node}


def test_an_old_incident_is_no_part_of_a_burst_of_today() -> None:
    old = incident(id="o-1", node="n02", opened_at=NOW - 3000, blocked_by=("foreign_owner", "burst"))
    near = incident(id="o-2", node="n03")
    assert blocked_by(incidents=(old, near)) == set()
    assert blocked_by(incidents=(replace(old, opened_at=NOW - 300), near)) == {"burst"}
    today = (near, incident(id="o-3", node="n04"))
    assert blocked_by(incident=incident(opened_at=NOW - 3000), incidents=today) == set()


def test_half_a_domain_counts_over_pools() -> None:
    rack = frozenset({"n01", "n02", "n03", "n04"})
    policy = Policy(cluster="t", mode=Mode.AUTO, domains={"rack1": rack})
    other = (incident(id="o-1", node="n02", pool="cpu"),)
    assert blocked_by(policy=policy, incidents=other) == {"burst"}


def test_the_rate_is_kept_over_a_restart(tmp_path: Path) -> None:
    pool = Pool(name="gpu", partition="gpu", max_in_flight=9, max_unavailable_percent=90.0, max_cordons=1)
    rig = Rig(tmp_path, nodes=8, policy=bolder(pools=(pool,)))
    rig.xid("n01")
    rig.run_until(lambda: rig.state() is State.RETURNED)
    rig.restart()
    rig.tick(20)
    rig.xid("n02", 119)
    rig.tick(20)
    assert rig.our_verbs("n02") == []
    assert rig.incidents()[0].blocked_by == ("rate",)
    rig.close()


# -- clocks


def test_a_clock_that_went_back_is_not_fresh() -> None:
    assert blocked_by(snapshot_at=NOW + 6) == {"freshness"}
    assert blocked_by(snapshot_at=NOW + 1) == set()
    assert blocked_by(agent=contact(last_seen=NOW + 6)) == {"freshness"}


def test_a_back_off_does_not_last_for_the_hour_that_the_clock_went_back() -> None:
    assert blocked_by(incident=incident(next_attempt_at=NOW + 60)) == {"backend"}
    assert blocked_by(incident=incident(next_attempt_at=NOW + 3600)) == set()


def test_a_record_dated_by_a_later_clock_does_not_shadow_a_newer_answer() -> None:
    world = World()
    world.publish(snapshot("n01", at=NOW + 3600))
    world.saw_node(drained(), NOW + 3601)
    world.publish(snapshot("n01", at=NOW))
    assert not world.nodes()["n01"].is_cordoned


def test_a_record_older_than_the_snapshot_is_not_news() -> None:
    world = World()
    world.publish(snapshot("n01"))
    world.saw_node(drained(), NOW - 30)
    assert not world.nodes()["n01"].is_cordoned


@pytest.mark.parametrize("jump", [-7200.0, 7200.0])
def test_a_wall_clock_that_jumps_breaks_nothing(rig: Rig, jump: float) -> None:
    job = rig.submit("n01")
    rig.tick(2)
    rig.xid("n01")
    rig.run_until(lambda: "requeue" in rig.our_verbs())
    rig.clock.step_wall_clock(jump)
    rig.tick(400)
    assert rig.our_verbs().count("cordon") == 1
    assert rig.our_verbs().count("reboot") <= 1
    rig.clock.step_wall_clock(-jump)
    rig.tick(60)
    record = next(j for j in rig.cluster.scheduler.observe().jobs if j.id == job)
    assert (record.state, record.held) == ("running", False)


# -- hundreds


def test_a_pass_reads_the_open_incidents_once_not_once_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 500 of them a pass took 15 s otherwise, as long as the lease; now it takes 2."""
    rig = Rig(tmp_path, nodes=48)
    rig.tick(1)
    for name in rig.cluster.agents.nodes[:24]:
        rig.xid(name)
    reads: Counter[str] = Counter()
    for name in ("open_incidents", "incidents_since"):
        real = getattr(Transaction, name)

        def counted(self: Any, *given: Any, _name: str = name, _real: Any = real) -> Any:
            reads[_name] += 1
            return _real(self, *given)

        monkeypatch.setattr(Transaction, name, counted)
    rig.tick(5)
    assert len(rig.incidents()) == 24
    assert rig.our_verbs() == []
    assert reads == {"open_incidents": 5, "incidents_since": 5}
    rig.close()


def test_an_incident_that_the_ledger_refuses_holds_up_nobody_else(rig: Rig) -> None:
    rig.xid("n01")
    rig.tick(1)
    real = rig.app.controller._advance

    def refuse(incident_id: str, survey: Any) -> Any:
        if incident_id == "i-1":
            raise DuplicateIntentError("the intent of i-1/cordon/1 on n01 is in the ledger already")
        return real(incident_id, survey)

    rig.app.controller._advance = refuse  # type: ignore[method-assign]
    rig.xid("n02", 119)
    rig.tick(10)
    assert rig.our_verbs()[:1] == ["cordon"]
    assert {a.node for a in rig.cluster.scheduler.our_actions} == {"n02"}
    assert [key for _, key, _ in rig.app.notifier.pages] == ["stuck/i-1"]
