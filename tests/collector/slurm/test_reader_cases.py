"""Awkward inputs from public reports, each with the one right answer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.slurm.reader import read_captured
from collector.slurm.states import from_list
from fleet.observations import ProblemReason, Reading
from fleet.scheduler import NodeState, Owner

CASES = Path(__file__).parents[2] / "data" / "slurm" / "cases"
NOW = 1_770_430_400.0
DRAINED_AT = 1_770_430_351.0  # 2026-02-07T02:12:31Z


def read(case: str, name: str = "input.txt", *, utc: bool = True) -> Reading:
    return read_captured((CASES / case / name).read_bytes(), now=NOW, utc=utc)


@pytest.fixture
def local_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_names_that_run_into_the_next_column_are_no_names() -> None:
    free = read("sinfo-fixed-width-collision", "input.free.txt")
    assert len(free.nodes) == 4
    assert free.problems == ()

    fixed = read("sinfo-fixed-width-collision", "input.fixed.txt")
    assert [node.name for node in fixed.nodes] == ["osier01"]
    assert [(p.reason, p.count) for p in fixed.problems] == [(ProblemReason.UNREADABLE, 3)]


WORDS = {
    "n01": (NodeState.IDLE, "idle", set()),
    "n02": (NodeState.POWERED_DOWN, "idle", {"POWERED_DOWN"}),
    "n03": (NodeState.POWERED_DOWN, "idle", {"POWERING_UP"}),
    "n04": (NodeState.POWERED_DOWN, "idle", {"POWERING_DOWN"}),
    "n05": (NodeState.POWERED_DOWN, "idle", {"POWER_DOWN"}),
    "n06": (NodeState.UNKNOWN, "idle", {"NOT_RESPONDING"}),
    "n07": (NodeState.MAINTENANCE, "idle", {"MAINTENANCE"}),
    "n08": (NodeState.REBOOTING, "idle", {"REBOOT_REQUESTED"}),
    "n09": (NodeState.REBOOTING, "idle", {"REBOOT_ISSUED"}),
    "n10": (NodeState.MIXED, "mixed", {"PLANNED"}),
    "n11": (NodeState.ALLOCATED, "allocated", {"COMPLETING"}),
    "n12": (NodeState.ALLOCATED, "allocated", {"PLANNED"}),
    "n13": (NodeState.DOWN, "down", {"NOT_RESPONDING"}),
    "n14": (NodeState.DOWN, "down", {"POWERED_DOWN"}),
    "n15": (NodeState.DRAINED, "idle", {"DRAIN"}),
    "n16": (NodeState.DRAINED, "idle", {"DRAIN", "NOT_RESPONDING"}),
    "n17": (NodeState.DRAINING, "mixed", {"DRAIN"}),
    "n18": (NodeState.REBOOTING, "mixed", {"DRAIN", "REBOOT_REQUESTED"}),
    "n19": (NodeState.DRAINED, "idle", {"DRAIN", "MAINTENANCE"}),
    "n20": (NodeState.MAINTENANCE, "idle", {"MAINTENANCE"}),
    "n21": (NodeState.UNKNOWN, "idle", {"MAINTENANCE", "NOT_RESPONDING"}),
    "n22": (NodeState.REBOOTING, "idle", {"REBOOT_ISSUED"}),
    "n23": (NodeState.UNKNOWN, "unknown", {"INVALID_REG"}),
    "n24": (NodeState.IDLE, "idle", {"PLANNED"}),
    "n25": (NodeState.RESERVED, "idle", {"RESERVED"}),
    "n26": (NodeState.IDLE, "idle", {"BLOCKED"}),
    "n27": (NodeState.DRAINED, "idle", {"FAIL", "NOT_RESPONDING"}),
    "n28": (NodeState.DRAINING, "mixed", {"FAIL"}),
    "n29": (NodeState.ALLOCATED, "idle", {"COMPLETING"}),
    "n30": (NodeState.UNKNOWN, "unknown", {"NOT_RESPONDING"}),
    "n31": (NodeState.UNKNOWN, "future", set()),
    "n32": (NodeState.UNKNOWN, "perfctrs", set()),
}
SCHEDULABLE = {"n01", "n10", "n11", "n12", "n24", "n29"}


def test_every_word_and_suffix_of_sinfo() -> None:
    reading = read("node-state-suffix-matrix")

    assert {n.name: (n.state, n.base, set(n.flags)) for n in reading.nodes} == WORDS
    assert {n.name for n in reading.nodes if n.schedulable} == SCHEDULABLE
    assert {n.partitions for n in reading.nodes} == {("gpu",)}
    (problem,) = reading.problems
    assert (problem.reason, problem.node) == (ProblemReason.UNRECOGNISED_VALUE, "n32")
    assert "perfctrs" in problem.message


def test_free_text_on_one_line_does_not_become_attributes() -> None:
    (node,) = read("scontrol-oneliner-ambiguous").nodes

    assert (node.base, node.flags) == ("idle", ("DRAIN",))
    assert node.reason is not None
    assert (node.reason.text, node.reason.user) == ("check State=IDLE then resume", "opsbot")
    assert node.reason.time == DRAINED_AT
    assert (node.comment, node.reservation) == ("State=DOWN", "burnin")
    assert (node.gpus_total, node.gpus_allocated, node.gpu_types) == (8, 0, {"h100": 8})
    assert node.os == "Linux 6.8.0 #32-Ubuntu SMP Fri May 23 23:55:03 UTC 2025"


def test_a_reason_may_hold_the_delimiter() -> None:
    reading = read("sinfo-delimited-reason")
    nodes = {node.name: node for node in reading.nodes}

    assert len(nodes) == 10
    n02 = nodes["n02"]
    assert n02.reason is not None
    assert (n02.reason.text, n02.reason.time) == ("GPU 3 | Xid 79 | see ticket", DRAINED_AT)
    assert n02.state is NodeState.DRAINED
    assert sorted(name for name, node in nodes.items() if node.reason) == ["n02", "n03", "n04", "n06", "n08"]
    assert nodes["n03"].reason is not None
    assert nodes["n03"].reason.text == "Not responding"
    assert reading.problems == ()


@pytest.mark.parametrize(
    ("name", "free"),
    [("input.21.08.json", 337330), ("input.23.11.json", 337330), ("input.25.05.json", None)],
)
def test_one_node_in_three_generations_of_json(name: str, free: int | None) -> None:
    reading = read("json-node-three-generations", name)

    (node,) = reading.nodes
    assert reading.problems == ()
    assert (node.name, node.base, node.flags) == ("fell-b3-n04", "idle", ("DRAIN",))
    assert (node.state, node.owner, node.schedulable) == (NodeState.DRAINED, Owner.FOREIGN, False)
    assert (node.gpus_total, node.gpus_allocated, node.gpu_types) == (8, 0, {"h100": 8})
    assert node.reason is not None
    assert (node.reason.text, node.reason.user, node.reason.time) == ("GPU 3", "opsbot", DRAINED_AT)
    assert node.memory_free_bytes == (None if free is None else free * 1024 * 1024)


def test_the_time_format_of_the_environment() -> None:
    def times(name: str) -> list[float | None]:
        return [
            node.reason.time if node.reason else None for node in read("time-format-environment", name).nodes
        ]

    assert times("input.standard.txt") == [DRAINED_AT]
    assert times("input.custom.txt") == [DRAINED_AT]
    assert times("input.relative.txt") == [None, None, None, None]
    assert times("input.bad.txt") == [None]
    relative = read("time-format-environment", "input.relative.txt")
    assert [p.reason for p in relative.problems] == [ProblemReason.UNRECOGNISED_VALUE] * 4
    assert {node.state for node in relative.nodes} == {NodeState.DRAINED}


@pytest.mark.usefixtures("local_zone")
def test_times_without_a_zone_are_local_unless_said_otherwise() -> None:
    (node,) = read("time-format-environment", "input.standard.txt", utc=False).nodes

    assert node.reason is not None
    assert node.reason.time == DRAINED_AT - 3600


def test_states_that_look_bad_and_are_not_and_the_reverse() -> None:
    lists = json.loads((CASES / "cloud-and-planned-states" / "input.json").read_text())
    words = {key: from_list(states).word for key, states in lists.items()}

    assert words == {
        "a": NodeState.POWERED_DOWN,
        "b": NodeState.DOWN,
        "c": NodeState.POWERED_DOWN,
        "d": NodeState.DRAINED,
        "e": NodeState.UNKNOWN,
        "f": NodeState.UNKNOWN,
        "g": NodeState.RESERVED,
        "h": NodeState.DOWN,
        "i": NodeState.UNKNOWN,
        "j": NodeState.UNKNOWN,
        "k": NodeState.DRAINING,
        "l": NodeState.DRAINING,
    }
    assert not any(from_list(states).schedulable for states in lists.values())


def test_a_node_without_any_state_is_malformed_and_said_so() -> None:
    reading = read_captured(b'{"nodes":[{"name":"n1","state":[]},{"name":"n2","state":["IDLE"]}]}', now=NOW)

    assert {node.name: node.state for node in reading.nodes} == {"n1": "unknown", "n2": "idle"}
    assert [(p.reason, p.node) for p in reading.problems] == [(ProblemReason.UNREADABLE, "n1")]


def test_a_reboot_step_by_step() -> None:
    steps = json.loads((CASES / "reboot-asap-and-resume" / "input.json").read_text())
    words = {str(step["step"]): from_list(step["state"]).word for step in steps}

    assert words == {
        "0": NodeState.REBOOTING,
        "1": NodeState.REBOOTING,
        "2": NodeState.REBOOTING,
        "3": NodeState.IDLE,
        "3b": NodeState.DOWN,
    }
