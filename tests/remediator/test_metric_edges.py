"""The metric path where it could find a fault twice, lose one, end none, or give back what is broken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.findings import ClearOn, Finding, IncidentState, Mode, Repair, Response, Step
from fleet.scheduler import SchedulerSnapshot
from remediator.decisions import Act, Move, Wait
from remediator.gates import blocking, evaluate
from remediator.ledger.store import Transaction
from remediator.lifecycle import decide
from remediator.records import StoredFinding
from remediator.sight import MetricSight
from simulator.fleet import SimulatedGpu
from tests.support.rig import Rig, bolder
from tests.support.situations import (
    NOW,
    contact,
    drained,
    finding,
    gate_input,
    incident,
    node,
    situation,
)

FLAG = "gpu-row-remap-failed-flag"


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


# -- once, and not too late


def test_a_standby_that_takes_over_finds_nothing_a_second_time(rig: Rig) -> None:
    standby = rig.another()
    rig.cluster.telemetry.fail_row_remap("n02", 5)
    standby.controller.observe()
    for _ in range(4):
        rig.clock.advance(15.0)
        for app in (standby, rig.app):
            app.controller.observe()
            assert app.metric_path is not None
            app.metric_path.run()
        rig.app.controller.step()
        standby.controller.step()
    assert findings(rig) == []
    # The standby sees it a moment before the leader does, and has not looked at its inbox since.
    for app, seconds in ((standby, 15.0), (rig.app, 1.0)):
        rig.clock.advance(seconds)
        assert app.metric_path is not None
        assert app.metric_path.run()
    rig.app.controller.step()
    assert rules(rig) == [FLAG]
    with rig.store.transaction() as tx:
        tx.release_lease(rig.app.holder)
    assert standby.controller.step().leading
    assert rules(rig) == [FLAG], "what it saw before the take-over is in the ledger already"
    assert len(rig.incidents()) == 1


def test_an_evaluation_that_waited_for_the_ledger_too_long_is_not_used(rig: Rig) -> None:
    path = rig.app.metric_path
    assert path is not None
    rig.cluster.telemetry.fail_row_remap("n02", 5)
    rig.app.controller.observe()
    while not findings(rig):
        rig.clock.advance(15.0)
        if path.run() and rig.clock.now() % 75 == 0:
            rig.clock.advance(46.0)
            rig.app.controller.step()
            break
        rig.app.controller.step()
    before = len(findings(rig))
    rig.tick(30)
    assert (before, len(findings(rig))) == (0, 1)


def test_one_finding_that_cannot_be_stored_hides_no_other(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Transaction.put_finding

    def refuse(self: Any, finding: Finding, *given: Any) -> bool:
        if finding.node == "n01":
            raise ValueError("a text that no database takes")
        return real(self, finding, *given)

    monkeypatch.setattr(Transaction, "put_finding", refuse)
    rig.cluster.telemetry.fail_row_remap("n01", 1)
    rig.cluster.telemetry.fail_row_remap("n02", 2)
    rig.tick(90)
    assert [stored.finding.node for stored in findings(rig)] == ["n02"]
    assert any("on n01 was found by metrics" in text for _, _, text in rig.app.notifier.pages)


def test_what_an_earlier_boot_showed_opens_nothing_in_the_present_one(rig: Rig) -> None:
    path = rig.app.metric_path
    assert path is not None
    rig.cluster.telemetry.fail_row_remap("n02", 5)
    rig.tick(74)
    rig.clock.advance(1.0)
    path.run()
    rig.cluster.fleet.node("n02").boot_id = "another-boot"
    rig.app.service.ingest_events("n02", dict(rig.cluster.agents.contact("n02") or {}), [])
    rig.app.controller.step()
    assert findings(rig) == []


# -- ends


def test_a_cancelled_finding_ends_when_metrics_show_it_no_more_and_the_next_fault_is_found(rig: Rig) -> None:
    rig.tick(30)
    rig.app.service.hold("n02", author="alice", reason="mine", expires_in_seconds=None)
    rig.cluster.telemetry.add_uncorrected_errors("n02", 3)
    rig.run_until(lambda: "gpu-ecc-uncorrected-rising" in rules(rig), limit=60)
    rig.app.service.cancel(rig.incidents()[0].id, author="alice", reason="known")
    rig.skip(600)
    assert "gpu-ecc-uncorrected-rising" in rules(rig), "its window still shows it"
    rig.skip(750)
    assert "gpu-ecc-uncorrected-rising" not in rules(rig)
    rig.cluster.telemetry.add_uncorrected_errors("n02", 3)
    rig.tick(20)
    assert "gpu-ecc-uncorrected-rising" in rules(rig)
    assert rig.incidents()[0].state is not IncidentState.CANCELLED, "an incident of its own"


def test_what_nobody_sees_stays_open_though_its_incident_was_cancelled(rig: Rig) -> None:
    rig.tick(30)
    rig.app.service.hold("n02", author="alice", reason="mine", expires_in_seconds=None)
    rig.cluster.telemetry.add_uncorrected_errors("n02", 3)
    rig.run_until(lambda: "gpu-ecc-uncorrected-rising" in rules(rig), limit=60)
    rig.app.service.cancel(rig.incidents()[0].id, author="alice", reason="known")
    rig.cluster.telemetry.exporter_away("n02", 7200.0)
    rig.skip(1800)
    assert "gpu-ecc-uncorrected-rising" in rules(rig)


def test_a_return_does_not_tell_again_of_what_asks_for_nothing(rig: Rig) -> None:
    rig.submit("n01", seconds=86_400.0)
    rig.tick(1)
    rig.app.service.hold("n01", author="alice", reason="look first", expires_in_seconds=None)
    rig.xid("n01")
    rig.tick(5)
    rig.cluster.telemetry.brake_power("n01", 2, 86_400.0)
    rig.run_until(lambda: "gpu-power-brake" in rules(rig), limit=700)
    told = next(s for s in findings(rig) if s.finding.rule == "gpu-power-brake")
    assert told.incident == rig.incident().id
    rig.app.service.release("n01", author="alice", reason="go")
    rig.run_until(lambda: rig.state() is IncidentState.RETURNED, limit=400)
    assert [stored.finding.id for stored in findings(rig)] == [told.finding.id]


# -- nothing is given back, or taken, on what is not seen


def metric(**changes: Any) -> Finding:
    return finding(source="metrics", rule=FLAG, clear_on=ClearOn.OPERATOR, **changes)


def verifying(**changes: Any) -> Any:
    values: dict[str, Any] = {
        "incident": incident(
            state=IncidentState.VERIFYING,
            state_since=NOW - 100,
            repair_started_at=NOW - 300,
            repair_attempts=1,
            boot_id="boot-a",
            reboot_boot_id="boot-a",
            expected_gpus=8,
            prior={},
        ),
        "findings": (metric(),),
        "node": drained(),
        "agent": contact(boot_id="boot-b"),
        "metrics_at": NOW - 5,
    }
    return situation(**(values | changes))


def test_a_timer_that_began_anew_with_the_boot_is_no_end_of_the_fault() -> None:
    """The first answer after the boot: the condition is pending, or its signal is not there yet."""
    assert isinstance(decide(verifying()), Wait)
    assert "to show that" in decide(verifying()).reason
    decision = decide(verifying(quiet=frozenset({"f-1"})))
    assert isinstance(decision, Act)
    assert decision.step is Step.VERIFY


def test_a_card_that_is_not_there_is_not_waited_for() -> None:
    decision = decide(verifying(agent=contact(boot_id="boot-b", gpu_count=7)))
    assert isinstance(decision, Act)
    assert decision.step is Step.VERIFY, "which fails, and the next repair follows"


def test_a_rule_that_was_switched_off_holds_no_node_back() -> None:
    off = replace(verifying().policy, disabled_rules=frozenset({FLAG}))
    assert isinstance(decide(verifying(policy=off)), Act)


def test_what_only_an_alert_told_must_be_resolved_before_the_node_is_given_back() -> None:
    told = finding(source="alertmanager", rule=FLAG, evidence={"alert": "k"})
    waits = decide(verifying(findings=(told,)))
    assert isinstance(waits, Wait)
    assert "Alertmanager" in waits.reason
    late = decide(verifying(findings=(told,), now=NOW + 3600))
    assert isinstance(late, Move)
    assert late.state is IncidentState.DRAINED
    over = replace(told, evidence={"alert": "k", "resolved_at": NOW - 10})
    assert isinstance(decide(verifying(findings=(over,))), Act)


def test_without_an_agent_the_schedulers_boot_id_tells_a_reboot_and_a_relapse() -> None:
    quiet = frozenset({"f-1"})
    back = decide(verifying(agent=None, node=drained(boot_id="boot-b"), quiet=quiet))
    assert isinstance(back, Act)
    same = decide(verifying(agent=None, node=drained(boot_id="boot-a"), quiet=quiet))
    assert isinstance(same, Wait)
    probation = incident(
        state=IncidentState.PROBATION,
        state_since=NOW - 1,
        returned_at=NOW - 1,
        boot_id="boot-a",
        reboot_boot_id="boot-a",
        repair_started_at=NOW - 300,
    )
    again = (metric(boot_id="boot-b", since=NOW),)
    relapse = decide(situation(incident=probation, findings=again, node=node(boot_id="boot-b"), agent=None))
    assert isinstance(relapse, Move)
    assert relapse.state is IncidentState.CONFIRMED


def blocked_by(**changes: Any) -> set[str]:
    return {str(result.gate) for result in blocking(evaluate(Step.CORDON, gate_input(**changes)))}


def sight(reported: Mapping[str, float]) -> MetricSight:
    return MetricSight(at=NOW, watched=frozenset({"n01"}), answered={"n01": NOW}, reported=reported)


def test_half_an_answer_is_none_for_what_it_lacks() -> None:
    silent = contact(last_seen=NOW - 600)
    seen = {"findings": (metric(),), "agent": silent}
    assert blocked_by(**seen, sight=sight({"f-1": NOW - 15})) == set()
    assert blocked_by(**seen, sight=sight({"f-1": NOW - 60})) == {"freshness"}
    assert blocked_by(**seen, sight=sight({"f-2": NOW})) == {"freshness"}


def test_two_machines_of_one_name_make_the_exporters_word_nobodys() -> None:
    two = contact(contested=True)
    assert blocked_by(findings=(metric(),), agent=two, sight=sight({"f-1": NOW})) == {"freshness"}


@pytest.mark.parametrize("agents", [True, False], ids=["with agent", "without"])
def test_the_cards_of_a_former_machine_are_not_missed_on_the_present_one(
    tmp_path: Path, agents: bool
) -> None:
    rig = Rig(tmp_path, exporters=True)
    machine = rig.cluster.fleet.node("n02")
    if not agents:
        machine.silent_until = rig.clock.now() + 1e9
    rig.tick(120)
    rig.cluster.fleet.reboot("n02", 60.0)
    rig.tick(30)
    machine.gpus = tuple(SimulatedGpu(g.index, g.uuid[:-4] + "beef", g.pci) for g in machine.gpus)
    machine.machine_id = "f" * 32
    rig.tick(400)
    assert not findings(rig, ended=True)
    assert rig.our_verbs() == []
    rig.close()


# -- modes, limits, words


def test_a_rule_that_may_only_observe_neither_holds_up_another_nor_raises_it(tmp_path: Path) -> None:
    policy = bolder(rule_modes={FLAG: Mode.OBSERVE})
    rig = Rig(tmp_path, policy=policy, exporters=True)
    rig.cluster.telemetry.fail_row_remap("n02", 5)
    rig.run_until(lambda: bool(rig.incidents()), limit=120)
    rig.tick(10)
    assert rig.our_verbs() == []
    rig.xid("n02")
    rig.run_until(lambda: "reboot" in rig.our_verbs("n02"), limit=60)
    assert rig.incident().repair is Repair.REBOOT, "not the hand-over that only the other asks for"
    rig.close()


def test_who_was_frozen_with_others_stays_frozen_until_somebody_decides_on_it(tmp_path: Path) -> None:
    rig = Rig(tmp_path, nodes=16, exporters=True)
    for number in range(1, 4):
        rig.cluster.telemetry.fail_row_remap(f"n{number:02d}", 1)
    rig.run_until(lambda: len(rig.incidents()) == 3, limit=120)
    rig.skip(600)
    rig.restart()
    rig.tick(20)
    assert [i.blocked_by for i in rig.incidents()] == [("burst",)] * 3
    first, second, third = rig.incidents()
    rig.app.service.cancel(first.id, author="alice", reason="odd")
    rig.app.service.approve(second.id, author="alice", reason="really broken")
    rig.tick(60)
    assert {action.node for action in rig.cluster.scheduler.our_actions} == {second.node}
    with rig.store.transaction(read_only=True) as tx:
        stays = tx.incident(third.id)
    assert stays is not None
    assert stays.blocked_by == ("burst",)
    rig.close()


def test_a_person_can_close_the_incident_of_a_node_that_is_gone(rig: Rig) -> None:
    rig.submit("n02")
    rig.xid("n02")
    rig.run_until(lambda: "cordon" in rig.our_verbs("n02"), limit=30)
    whole = rig.cluster.scheduler.observe

    def without() -> SchedulerSnapshot:
        seen = whole()
        return replace(seen, nodes={name: n for name, n in seen.nodes.items() if name != "n02"})

    rig.cluster.scheduler.observe = without  # type: ignore[method-assign]
    rig.cluster.fleet.silence_agent("n02", 1e6)
    rig.tick(5)
    rig.app.service.cancel(rig.incident().id, author="alice", reason="scrapped")
    rig.tick(5)
    assert rig.incident().state is IncidentState.CANCELLED
    assert "does not list" in (rig.incident().last_reason or "")


def test_what_asks_for_nothing_makes_no_incident(rig: Rig) -> None:
    assert Response.NOTIFY.acts is False
    rig.submit("n01", seconds=86_400.0)
    rig.cluster.telemetry.brake_power("n01", 2, 86_400.0)
    rig.run_until(lambda: bool(rules(rig)), limit=700)
    assert not rig.incidents()


def test_a_node_that_somebody_else_keeps_cordoned_is_theirs_after_a_while() -> None:
    """Here the scheduler itself: a card is missing after the boot. It would use up a repair slot for ever."""
    theirs = drained(ours=False)
    assert isinstance(decide(verifying(node=theirs)), Wait)
    late = decide(verifying(node=theirs, now=NOW + 3600))
    assert isinstance(late, Act)
    assert late.step is Step.HAND_OVER
    just_now = replace(theirs, reason=replace(theirs.reason, time=NOW + 3500)) if theirs.reason else theirs
    assert isinstance(decide(verifying(node=just_now, now=NOW + 3600)), Wait)
