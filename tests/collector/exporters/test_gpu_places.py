"""Every GPU of a node stands in exactly one place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.exporters.classes import GpuStatus, OutReason
from collector.exporters.gpus import gpu_places
from fleet.scheduler import NodeRecord, NodeState, Owner

OPEN = (NodeState.IDLE, NodeState.ALLOCATED, NodeState.MIXED)


def node(state: NodeState, allocated: int | None = 0, **parts: Any) -> NodeRecord:
    fields: dict[str, Any] = {
        "gpus_total": 8,
        "gpu_types": {"h100": 8},
        "gpu_types_allocated": {"h100": allocated} if allocated else {},
        "schedulable": state in OPEN,
        **parts,
    }
    return NodeRecord(name="n1", state=state, gpus_allocated=allocated, **fields)


def shown(record: NodeRecord, withdrawn: int = 0) -> dict[str, int]:
    """``allocated``, ``idle`` or the reason -> GPUs, whatever their type."""
    found: dict[str, int] = {}
    for (_, status, reason), amount in gpu_places(record, withdrawn=withdrawn).items():
        word = reason.value if status is GpuStatus.UNAVAILABLE else status.value
        found[word] = found.get(word, 0) + amount
    return found


CASES: tuple[tuple[str, NodeRecord, dict[str, int]], ...] = (
    ("idle", node(NodeState.IDLE), {"idle": 8}),
    ("mixed", node(NodeState.MIXED, 3), {"allocated": 3, "idle": 5}),
    ("full", node(NodeState.ALLOCATED, 8), {"allocated": 8}),
    ("busy without GPUs", node(NodeState.ALLOCATED, 0), {"idle": 8}),
    ("ours", node(NodeState.DRAINED, owner=Owner.SICKBAY), {"drained_by_sickbay": 8}),
    ("theirs", node(NodeState.DRAINED, owner=Owner.FOREIGN), {"drained_by_others": 8}),
    (
        "a job ends on a draining node",
        node(NodeState.DRAINING, 6, owner=Owner.SICKBAY),
        {"allocated": 6, "drained_by_sickbay": 2},
    ),
    ("down wins over the drain and its jobs", node(NodeState.DOWN, 8, owner=Owner.FOREIGN), {"down": 8}),
    ("silent", node(NodeState.UNKNOWN, 8), {"unknown": 8}),
    ("a lost GPU", node(NodeState.DRAINED, flags=("DRAIN", "INVALID_REG")), {"invalid_registration": 8}),
    (
        "a lost GPU while a job runs",
        node(NodeState.UNKNOWN, 4, flags=("INVALID_REG",)),
        {"allocated": 4, "invalid_registration": 4},
    ),
    ("a lost GPU and down", node(NodeState.DOWN, flags=("INVALID_REG",)), {"down": 8}),
    ("reboot asked for while a job runs", node(NodeState.REBOOTING, 2), {"allocated": 2, "rebooting": 6}),
    ("maintenance", node(NodeState.MAINTENANCE), {"maintenance": 8}),
    ("reserved", node(NodeState.RESERVED), {"reserved": 8}),
    ("asleep", node(NodeState.POWERED_DOWN), {"powered_down": 8}),
    ("asleep, nothing said of use", node(NodeState.POWERED_DOWN, None), {"powered_down": 8}),
    ("blocked by its topology", node(NodeState.IDLE, schedulable=False), {"not_schedulable": 8}),
    ("idle, nothing said of use", node(NodeState.IDLE, None), {"idle": 8}),
    ("busy, nobody says with how many", node(NodeState.MIXED, None), {"unknown": 8}),
    ("more in use than there are", node(NodeState.ALLOCATED, 9), {"allocated": 8}),
    ("no GPUs", node(NodeState.IDLE, gpus_total=0, gpu_types={}), {}),
    ("number of GPUs unknown", node(NodeState.IDLE, gpus_total=None, gpu_types={}), {}),
)


@pytest.mark.parametrize(("record", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_places(record: NodeRecord, expected: dict[str, int]) -> None:
    assert shown(record) == expected


@pytest.mark.parametrize(
    ("record", "withdrawn", "expected"),
    [
        (node(NodeState.IDLE), 1, {"idle": 7, "withdrawn": 1}),
        (node(NodeState.MIXED, 7), 1, {"allocated": 7, "withdrawn": 1}),
        (node(NodeState.ALLOCATED, 8), 1, {"allocated": 8}),
        (node(NodeState.DRAINED, owner=Owner.FOREIGN), 2, {"withdrawn": 2, "drained_by_others": 6}),
        (node(NodeState.DOWN), 2, {"down": 8}),
    ],
)
def test_a_withdrawn_gpu_is_not_idle(record: NodeRecord, withdrawn: int, expected: dict[str, int]) -> None:
    assert shown(record, withdrawn) == expected


def test_types_are_kept_apart() -> None:
    two = node(
        NodeState.MIXED,
        3,
        gpus_total=6,
        gpu_types={"h100": 4, "l40s": 2},
        gpu_types_allocated={"h100": 2, "l40s": 1},
    )

    assert gpu_places(two) == {
        ("h100", GpuStatus.ALLOCATED, OutReason.NONE): 2,
        ("h100", GpuStatus.IDLE, OutReason.NONE): 2,
        ("l40s", GpuStatus.ALLOCATED, OutReason.NONE): 1,
        ("l40s", GpuStatus.IDLE, OutReason.NONE): 1,
    }


@pytest.mark.parametrize(
    "contradiction",
    [
        {"gpu_types": {"h100": 4}},
        {"gpu_types": {"h100": 4, "l40s": 4}, "gpu_types_allocated": {"h100": 1}},
        {"gpu_types": {"h100": 4, "l40s": 4}, "gpu_types_allocated": {"a100": 3}},
    ],
)
def test_types_that_do_not_add_up_are_not_believed(contradiction: dict[str, Any]) -> None:
    assert gpu_places(node(NodeState.MIXED, 3, **contradiction)) == {
        ("gpu", GpuStatus.ALLOCATED, OutReason.NONE): 3,
        ("gpu", GpuStatus.IDLE, OutReason.NONE): 5,
    }


@given(
    state=st.sampled_from(NodeState),
    owner=st.sampled_from(Owner),
    total=st.integers(0, 16),
    allocated=st.none() | st.integers(0, 20),
    withdrawn=st.integers(0, 20),
    schedulable=st.booleans(),
    flags=st.lists(st.sampled_from(["DRAIN", "INVALID_REG", "BLOCKED", "COMPLETING"]), unique=True),
    split=st.integers(0, 16),
)
def test_the_places_of_any_node_add_up_to_its_gpus(
    state: NodeState,
    owner: Owner,
    total: int,
    allocated: int | None,
    withdrawn: int,
    schedulable: bool,
    flags: list[str],
    split: int,
) -> None:
    first = min(split, total)
    record = node(
        state,
        allocated,
        owner=owner,
        gpus_total=total,
        gpu_types={"h100": first, "l40s": total - first},
        schedulable=schedulable,
        flags=tuple(flags),
    )

    places = gpu_places(record, withdrawn=withdrawn)

    assert sum(places.values()) == total
    assert all(amount > 0 for amount in places.values())
    assert all(
        (reason is OutReason.NONE) == (status is not GpuStatus.UNAVAILABLE) for _, status, reason in places
    )
