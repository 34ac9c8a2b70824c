"""What the planner never does, over arbitrary situations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.findings import ClearOn, IncidentState, Mode, Repair, Response, Step
from fleet.scheduler import NodeState, Reason
from remediator.decisions import Act, Move, Settle, Wait
from remediator.gates import blocking, evaluate
from remediator.lifecycle import decide
from remediator.policy import Policy
from remediator.records import Outcome
from remediator.situation import JobRun, Situation, owns_cordon
from tests.support.situations import (
    MARK,
    NOW,
    contact,
    finding,
    gate_input,
    incident,
    job,
    node,
    situation,
)

pytestmark = pytest.mark.slow

times = st.sampled_from([NOW - 4000, NOW - 60, NOW - 10, NOW - 1, NOW])
reasons = st.sampled_from(
    [
        None,
        Reason(MARK.reason(), "sickbay", NOW),
        Reason(MARK.reason() + " : reboot issued", "sickbay", NOW),
        Reason(MARK.reason(), "somebody", NOW),
        Reason("ADMIN: mine", "root", NOW),
        Reason("", None, None),
    ]
)
nodes = st.one_of(
    st.none(),
    st.builds(
        lambda state, flags, reason, gpus: node(
            state=state, flags=tuple(flags), reason=reason, gpus_total=gpus
        ),
        st.sampled_from(list(NodeState)),
        st.lists(
            st.sampled_from(["DRAIN", "INVALID_REG", "REBOOT_ISSUED", "NOT_RESPONDING", "COMPLETING"]),
            unique=True,
        ),
        reasons,
        st.sampled_from([None, 0, 7, 8]),
    ),
)
contacts = st.one_of(
    st.none(),
    st.builds(
        lambda boot, count: contact(boot_id=boot, gpu_count=count),
        st.sampled_from(["boot-a", "boot-b"]),
        st.sampled_from([None, 7, 8]),
    ),
)
runs = st.builds(
    lambda name, outcome: JobRun(name, 0, NOW - 500, outcome),
    st.sampled_from(["41", "42"]),
    st.sampled_from([None, Outcome.DONE, Outcome.REFUSED, Outcome.ALREADY]),
)
policies = st.builds(
    lambda ladder, enabled, commands: Policy(
        cluster="t", mode=Mode.AUTO, ladder=tuple(ladder), repair_enabled=enabled, repair_commands=commands
    ),
    st.lists(st.sampled_from([Repair.RESET_GPU, Repair.REBOOT, Repair.POWER_CYCLE]), unique=True),
    st.booleans(),
    st.sampled_from([{}, {Repair.RESET_GPU: ("r",)}, {Repair.POWER_CYCLE: ("p",)}]),
)


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    state = draw(st.sampled_from(list(IncidentState)))
    changes: dict[str, Any] = {
        "state": state,
        "state_since": draw(times),
        "response": draw(st.sampled_from([r for r in Response if r.acts])),
        "repair": draw(st.sampled_from(list(Repair))),
        "repair_attempts": draw(st.integers(0, 3)),
        "boot_id": draw(st.sampled_from([None, "boot-a"])),
        "reboot_boot_id": draw(st.sampled_from([None, "boot-a"])),
        "repair_started_at": draw(st.one_of(st.none(), times)),
        "expected_gpus": draw(st.sampled_from([None, 8])),
        "approved_by": draw(st.sampled_from([None, "alice"])),
        "cancelled_by": draw(st.sampled_from([None, None, "bob"])),
    }
    return situation(
        incident=incident(**changes),
        policy=draw(policies),
        mode=draw(st.sampled_from(list(Mode))),
        findings=tuple(
            draw(
                st.lists(st.builds(lambda c: finding(clear_on=c), st.sampled_from(list(ClearOn))), max_size=2)
            )
        ),
        node=draw(nodes),
        node_at=draw(st.one_of(st.none(), times)),
        jobs=tuple(job(id=name) for name in draw(st.lists(st.sampled_from(["41", "42"]), unique=True))),
        jobs_at=draw(st.one_of(st.none(), times)),
        agent=draw(contacts),
        requeues=tuple(draw(st.lists(runs, max_size=2))),
        open_step=draw(
            st.sampled_from([None, Step.CORDON, Step.REBOOT, Step.RESET_GPU, Step.UNCORDON, Step.VERIFY])
        ),
        verification=draw(st.sampled_from([None, Outcome.DONE, Outcome.FAILED])),
    )


@settings(max_examples=1500, deadline=None)
@given(situations())
def test_the_planner_decides_everything_and_oversteps_nothing(s: Situation) -> None:
    decision = decide(s)
    assert isinstance(decision, Act | Move | Wait | Settle)
    assert decision.reason
    state = s.incident.state
    if state.is_closed:
        assert isinstance(decision, Wait)
    if isinstance(decision, Move):
        assert decision.state is not state
        assert not state.is_closed
        if decision.state is IncidentState.RETURNED:
            assert state is IncidentState.PROBATION
        if decision.state is IncidentState.CANCELLED and s.incident.cancelled_by is None and state.holds_node:
            # Only a fresh look at an uncordoned node may end an incident that holds one.
            assert s.node is not None
            assert s.node_is_fresh
            assert not s.node.is_cordoned
    if not isinstance(decision, Act):
        return
    if decision.step is Step.UNCORDON:
        assert s.node is not None
        assert owns_cordon(s.incident, s.node)
        assert s.verification is Outcome.DONE or s.incident.cancelled_by or s.open_step is Step.UNCORDON
    if decision.step in (Step.REBOOT, Step.RESET_GPU, Step.POWER_CYCLE) and s.open_step is not decision.step:
        assert s.node is not None
        assert owns_cordon(s.incident, s.node)
        assert state is IncidentState.DRAINED
        assert s.incident.repair_attempts < s.policy.max_repair_attempts
    if decision.step is Step.CORDON:
        assert state in (IncidentState.CONFIRMED, IncidentState.CORDONING)


@settings(max_examples=500, deadline=None)
@given(situations(), st.sampled_from([Step.CORDON, Step.REQUEUE, Step.REBOOT, Step.UNCORDON]))
def test_the_unknown_passes_no_gate(s: Situation, step: Step) -> None:
    given_ = gate_input(incident=s.incident, node=s.node, snapshot_at=s.node_at, agent=s.agent, mode=s.mode)
    stopped = {str(result.gate) for result in blocking(evaluate(step, given_))}
    if s.node is None or s.node_at is None:
        assert "freshness" in stopped
    if s.mode is Mode.OBSERVE:
        assert "mode" in stopped
    if s.node is not None and s.node.is_cordoned and not owns_cordon(s.incident, s.node):
        assert "foreign_owner" in stopped
