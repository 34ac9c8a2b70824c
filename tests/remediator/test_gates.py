"""Every gate: what it lets pass, what it blocks, and that the unknown blocks."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.findings import GateName, Mode, Step
from fleet.findings import IncidentState as State
from fleet.scheduler import NodeState
from remediator.gates import ALL_GATES, blocking, evaluate
from remediator.gates.base import BackendHealth
from remediator.policy import Policy, Pool
from remediator.records import Lease, Word, WordKind
from tests.support.situations import NOW, contact, drained, gate_input, incident, node


def blocked_by(step: Step = Step.CORDON, **changes: Any) -> set[str]:
    return {str(result.gate) for result in blocking(evaluate(step, gate_input(**changes)))}


def word(kind: WordKind, target: str | None, **changes: Any) -> Word:
    return Word(
        **({"kind": kind, "target": target, "author": "alice", "reason": "why", "since": NOW - 5} | changes)
    )


def others(count: int, **changes: Any) -> tuple[Any, ...]:
    return tuple(incident(id=f"o-{i}", node=f"n{i + 2:02d}", **changes) for i in range(count))


def test_a_plain_case_passes_every_gate() -> None:
    assert blocked_by() == set()


CASES: list[tuple[str, dict[str, Any], set[str]]] = [
    ("observe mode", {"mode": Mode.OBSERVE}, {"mode"}),
    ("approve mode, nobody approved", {"mode": Mode.APPROVE}, {"mode"}),
    ("approve mode, approved", {"mode": Mode.APPROVE, "incident": incident(approved_by="alice")}, set()),
    ("fleet paused", {"words": (word(WordKind.PAUSE, None),)}, {"pause"}),
    ("pool paused", {"words": (word(WordKind.PAUSE, "gpu"),)}, {"pause"}),
    ("other pool paused", {"words": (word(WordKind.PAUSE, "cpu"),)}, set()),
    ("pause expired", {"words": (word(WordKind.PAUSE, None, expires_at=NOW),)}, set()),
    ("pause ended", {"words": (word(WordKind.PAUSE, None, ended_at=NOW - 1),)}, set()),
    ("node held", {"words": (word(WordKind.HOLD, "n01"),)}, {"hold"}),
    ("other node held", {"words": (word(WordKind.HOLD, "n02"),)}, set()),
    ("cooling off", {"words": (word(WordKind.COOLDOWN, "n01", expires_at=NOW + 9),)}, {"cooldown"}),
    ("drained by an admin", {"node": drained(ours=False)}, {"foreign_owner"}),
    ("in maintenance", {"node": node(flags=("MAINTENANCE",))}, {"maintenance"}),
    ("in a reservation", {"node": node(state=NodeState.RESERVED, flags=("RESERVED",))}, {"maintenance"}),
    ("reboot of others", {"node": node(flags=("REBOOT_REQUESTED",))}, {"maintenance"}),
    ("powered down", {"node": node(flags=("POWERED_DOWN",))}, {"maintenance"}),
    ("scheduler never answered", {"snapshot_at": None}, {"freshness"}),
    ("scheduler old", {"snapshot_at": NOW - 61}, {"freshness"}),
    ("agent never spoke", {"agent": None}, {"freshness"}),
    ("agent silent", {"agent": contact(last_seen=NOW - 61)}, {"freshness"}),
    (
        "scheduler cannot tell",
        {"node": node(state=NodeState.UNKNOWN, flags=("NOT_RESPONDING",))},
        {"freshness"},
    ),
    ("fewer GPUs than configured", {"node": node(state=NodeState.UNKNOWN, flags=("INVALID_REG",))}, set()),
    ("node not listed", {"node": None}, {"freshness", "foreign_owner", "maintenance"}),
    ("still settling", {"incident": incident(opened_at=NOW - 1)}, {"settle"}),
    ("scheduler failing", {"backend": BackendHealth(failing_since=NOW - 5, last_error="x")}, {"backend"}),
    ("back-off", {"incident": incident(next_attempt_at=NOW + 5)}, {"backend"}),
    ("no lease", {"lease": None}, {"lease"}),
    ("lease of another", {"lease": Lease("other", NOW + 10, 2)}, {"lease"}),
    ("lease run out", {"lease": Lease("me", NOW, 1)}, {"lease"}),
    ("repairs under way", {"incidents": others(2, state=State.DRAINING, rule="x")}, {"budget"}),
    ("one repair under way", {"incidents": others(1, state=State.DRAINING, rule="x")}, set()),
    ("handed over does not count", {"incidents": others(2, state=State.HANDED_OVER, rule="x")}, set()),
    ("two of the same cause", {"incidents": others(1)}, set()),
    ("three of the same cause", {"incidents": others(2)}, {"burst"}),
    ("three, long ago", {"incidents": others(2, opened_at=NOW - 301)}, set()),
    ("three of different causes", {"incidents": others(2, rule="x")}, set()),
    ("rate used up", {"cordons_in_window": 3}, {"rate"}),
    ("pool not known", {"pool_nodes": ()}, {"budget"}),
]


@pytest.mark.parametrize(("name", "changes", "expected"), CASES, ids=[case[0] for case in CASES])
def test_cordon(name: str, changes: dict[str, Any], expected: set[str]) -> None:
    assert blocked_by(**changes) == expected, name


def unavailable(count: int, state: NodeState) -> tuple[Any, ...]:
    return tuple(
        node(name=f"n{i:02d}", state=state if 2 <= i < 2 + count else NodeState.IDLE) for i in range(1, 17)
    )


@pytest.mark.parametrize(
    ("count", "state", "blocks"),
    [
        (3, NodeState.DOWN, False),
        (4, NodeState.DOWN, True),
        (4, NodeState.DRAINED, True),
        (4, NodeState.UNKNOWN, True),
        (9, NodeState.MAINTENANCE, False),
        (9, NodeState.POWERED_DOWN, False),
    ],
)
def test_budget_counts_every_cause_but_planned_ones(count: int, state: NodeState, blocks: bool) -> None:
    assert ("budget" in blocked_by(pool_nodes=unavailable(count, state))) is blocks


@pytest.mark.parametrize(
    ("percent", "size", "limit"), [(10, 4, 1), (10, 20, 2), (10, 29, 2), (50, 3, 1), (0, 9, 1)]
)
def test_the_limit_is_never_below_one(percent: float, size: int, limit: int) -> None:
    assert Pool(name="p", max_unavailable_percent=percent).unavailable_limit(size) == limit


def test_half_a_domain_is_a_burst() -> None:
    policy = Policy(cluster="t", mode=Mode.AUTO, domains={"rack1": frozenset({"n01", "n02", "n03", "n04"})})
    assert blocked_by(policy=policy, incidents=others(1)) == {"burst"}
    elsewhere = (incident(id="o-1", node="n09"),)
    assert blocked_by(policy=policy, incidents=elsewhere) == set()


@pytest.mark.parametrize(
    "changes",
    [
        {"cordons_in_window": 99},
        {"incidents": others(9, state=State.DRAINING)},
        {"pool_nodes": unavailable(15, NodeState.DOWN)},
        {"incident": incident(opened_at=NOW)},
        {"words": (word(WordKind.COOLDOWN, "n01", expires_at=NOW + 9),)},
    ],
)
def test_returning_a_node_is_never_blocked_by_a_limit(changes: dict[str, Any]) -> None:
    assert blocked_by(Step.UNCORDON, **({"node": drained()} | changes)) == set()


@pytest.mark.parametrize("step", [Step.CORDON, Step.REQUEUE, Step.REBOOT, Step.RESET_GPU, Step.UNCORDON])
@pytest.mark.parametrize(
    ("gate", "changes"),
    [
        ("mode", {"mode": Mode.OBSERVE}),
        ("pause", {"words": (word(WordKind.PAUSE, None),)}),
        ("hold", {"words": (word(WordKind.HOLD, "n01"),)}),
        ("lease", {"lease": None}),
        ("foreign_owner", {"node": drained(ours=False)}),
        ("freshness", {"snapshot_at": None}),
    ],
)
def test_every_write_is_stopped_by(gate: str, changes: dict[str, Any], step: Step) -> None:
    assert gate in blocked_by(step, **changes)


def test_every_gate_has_a_name_of_the_closed_list_and_a_sentence() -> None:
    assert len({gate.name for gate in ALL_GATES}) == len(ALL_GATES)
    assert {gate.name for gate in ALL_GATES} == set(GateName) - {GateName.CAPACITY}
    for result in evaluate(Step.CORDON, gate_input()):
        assert len(result.reason) > 8  # a sentence, not a word


@pytest.mark.parametrize(
    ("pool", "matches"),
    [
        (Pool(name="p", label="gpu=h100"), True),
        (Pool(name="p", label="gpu=a100"), False),
        (Pool(name="p", label="rack=r1"), False),
        (Pool(name="p", partition="gpu"), True),
        (Pool(name="p", partition="cpu"), False),
        (Pool(name="p", nodes=frozenset({"n01"})), True),
        (Pool(name="p", nodes=frozenset({"n02"})), False),
        (Pool(name="p"), True),
    ],
)
def test_what_a_pool_selects(pool: Pool, matches: bool) -> None:
    assert pool.matches(node(labels={"gpu": "h100"})) is matches
