"""Captured Kubernetes JSON, awkward on purpose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.kubernetes.reader import read_captured
from fleet.observations import Allocation, ProblemReason, Reading
from fleet.scheduler import GpuUse, JobKind, NodeRecord, NodeState, Owner

CASES = Path(__file__).parents[2] / "data" / "kubernetes"
NOW = 1770435000.0  # 2026-02-07T03:30:00Z


def read(*names: str) -> Reading:
    return read_captured(b"\n".join((CASES / name).read_bytes() for name in names), now=NOW)


def read_json(*documents: Any) -> Reading:
    return read_captured("\n".join(json.dumps(one) for one in documents).encode(), now=NOW)


def nodes(reading: Reading) -> dict[str, NodeRecord]:
    return {node.name: node for node in reading.nodes}


def node(**parts: Any) -> dict[str, Any]:
    meta = {"name": "w1", **parts.pop("metadata", {})}
    return {"kind": "Node", "apiVersion": "v1", "metadata": meta, **parts}


def pod(name: str = "p", *, limits: dict[str, Any] | None = None, **parts: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "team-a", **parts.pop("metadata", {})}
    spec = {"nodeName": "w1", "containers": [{"name": "main", "resources": {"limits": limits or {}}}]}
    return {
        "kind": "Pod",
        "metadata": meta,
        "spec": {**spec, **parts.pop("spec", {})},
        "status": {"phase": "Running", **parts.pop("status", {})},
    }


READY = {"conditions": [{"type": "Ready", "status": "True"}], "capacity": {"nvidia.com/gpu": "8"}}


# -- who cordoned it (F-01)


def test_a_cordon_belongs_to_whom_its_marks_say_and_a_lifted_one_to_nobody() -> None:
    found = nodes(read("F-01/input.json"))

    assert {name: one.owner for name, one in found.items()} == {
        "w1": Owner.FOREIGN,  # no marks
        "w2": Owner.SICKBAY,
        "w3": Owner.FOREIGN,  # it was cordoned before us
        "w4": Owner.NONE,  # somebody lifted it: stale marks say nothing
        "w5": Owner.SICKBAY,  # whether its incident is still open is the ledger's knowledge
    }
    assert found["w2"].reason is not None
    assert found["w2"].reason.text.startswith("sickbay:inc-7:")
    assert found["w4"].schedulable
    assert not any(found[name].schedulable for name in ("w1", "w2", "w3", "w5"))


def test_without_pods_no_cordoned_node_is_called_empty() -> None:
    assert nodes(read("F-01/input.json"))["w1"].state is NodeState.DRAINING


# -- terminating pods, dead kubelets (F-02)


def test_a_node_whose_pods_are_still_terminating_is_not_drained() -> None:
    reading = read("F-02/node-alive.json", "F-02/pods.json")

    assert nodes(reading)["w2"].state is NodeState.DRAINING
    assert {job.id: job.state for job in reading.jobs} == {
        "team-a/llm-0": "terminating",
        "team-a/llm-1": "terminating",
        "team-a/stuck": "terminating",
    }


def test_a_dead_kubelet_is_unknown_and_its_overdue_pods_are_not_waited_for() -> None:
    dead = json.loads((CASES / "F-02/node-dead.json").read_text())
    pods = json.loads((CASES / "F-02/pods.json").read_text())

    found = nodes(read_json(dead, pods))["w1"]
    assert (found.state, found.base, found.ready) == (NodeState.UNKNOWN, "unknown", False)
    assert "node.kubernetes.io/unreachable" in found.flags
    assert "MemoryPressure" not in found.flags

    dead["spec"]["unschedulable"] = True
    assert nodes(read_json(dead, pods))["w1"].state is NodeState.DRAINED
    assert nodes(read_captured(json.dumps([dead, pods]).encode(), now=NOW - 7200))["w1"].state is (
        NodeState.DRAINING  # before their grace had ended
    )


def test_identity_and_labels() -> None:
    info = {"bootID": "b", "machineID": "m", "osImage": "Debian GNU/Linux 12"}
    found = nodes(
        read_json(node(metadata={"uid": "u", "labels": {"pool": "a"}}, status={**READY, "nodeInfo": info}))
    )
    record = found["w1"]

    assert (record.uid, record.boot_id, record.machine_id, record.os) == (
        "u",
        "b",
        "m",
        "Debian GNU/Linux 12",
    )
    assert record.labels == {"pool": "a"}


# -- GPU counts (F-03)


def test_capacity_counts_and_contradictions_are_told() -> None:
    reading = read("F-03/input.json")

    assert {name: one.gpus_total for name, one in nodes(reading).items()} == {
        "w1": 8,  # withdrawn is not gone
        "w2": 8,
        "w3": 7,
        "w4": None,  # a GPU node whose stack is down: unknown, not 0
        "w5": 0,
    }
    told = {problem.node: problem for problem in reading.problems}
    assert set(told) == {"w1", "w2", "w3", "w4"}
    assert {problem.reason for problem in told.values()} == {ProblemReason.INCONSISTENT}
    assert "labelled with 8" in told["w3"].message


@pytest.mark.parametrize(
    ("capacity", "labels", "total", "resources"),
    [
        ({"nvidia.com/mig-1g.10gb": "7"}, {}, None, {"nvidia.com/mig-1g.10gb": 7}),
        ({"nvidia.com/gpu": "6", "nvidia.com/mig-3g.40gb": "4"}, {}, None, None),
        (
            {"nvidia.com/gpu": "14"},
            {"nvidia.com/mig.strategy": "single", "nvidia.com/gpu.product": "A100-MIG-1g.5gb"},
            None,
            {"nvidia.com/gpu": 14},
        ),
        (
            {"nvidia.com/gpu": "32"},
            {"nvidia.com/gpu.count": "8", "nvidia.com/gpu.sharing-strategy": "time-slicing"},
            8,
            {"nvidia.com/gpu": 32},
        ),
        ({"nvidia.com/gpu.shared": "32"}, {"nvidia.com/gpu.count": "8"}, 8, None),
        ({"nvidia.com/gpu.shared": "32"}, {}, None, None),
        ({"amd.com/gpu": "8"}, {}, 8, {"amd.com/gpu": 8}),
        ({"nvidia.com/gpu": "7.5"}, {}, None, {}),
        ({"cpu": "64"}, {}, 0, {}),
    ],
)
def test_slices_and_shares_are_no_gpus(
    capacity: dict[str, str], labels: dict[str, str], total: int | None, resources: dict[str, int] | None
) -> None:
    found = nodes(read_json(node(metadata={"labels": labels}, status={**READY, "capacity": capacity})))["w1"]

    assert found.gpus_total == total
    if resources is not None:
        assert found.gpu_resources == resources


def test_allocated_gpus_are_those_of_unfinished_pods() -> None:
    reading = read_json(
        node(status=READY),
        pod("a", limits={"nvidia.com/gpu": "2"}),
        pod("done", limits={"nvidia.com/gpu": "4"}, status={"phase": "Succeeded"}),
        pod("pend", limits={"nvidia.com/gpu": 1}, status={"phase": "Pending"}),
    )

    assert (nodes(reading)["w1"].gpus_allocated, nodes(reading)["w1"].state) == (3, NodeState.MIXED)


# -- pods (F-06)


def test_pods_become_jobs() -> None:
    found = {job.id: job for job in read("F-06/input.json").jobs}

    assert len(found) == 12
    assert {job.kind for job in found.values()} == {JobKind.POD}
    assert (found["team-a/train-0"].gpus, found["team-a/train-0"].gpu_use) == (8, GpuUse.EXCLUSIVE)
    assert (found["team-a/rs-1"].gpus, found["team-a/rs-1"].gpu_use) == (0, GpuUse.NONE)
    assert found["team-a/naked"].requeue is False
    assert found["mon/ds-1"].requeue is False
    assert found["team-a/train-0"].requeue is True
    assert {found[name].state for name in ("team-a/done", "team-a/failed")} == {"succeeded", "failed"}
    assert found["team-a/unk"].state == "unknown"


@pytest.mark.parametrize(
    ("parts", "gpus", "use"),
    [
        ({"limits": {"nvidia.com/mig-1g.10gb": "2"}}, 2, GpuUse.SLICE),
        ({"limits": {"nvidia.com/gpu.shared": "1"}}, None, GpuUse.SHARED),
        ({"limits": {"nvidia.com/gpu": "many"}}, None, GpuUse.UNKNOWN),
        ({"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}}, None, GpuUse.CLAIM),
        (
            {
                "limits": {"nvidia.com/gpu": "1"},
                "spec": {"initContainers": [{"name": "i", "resources": {"limits": {"nvidia.com/gpu": "4"}}}]},
            },
            4,
            GpuUse.EXCLUSIVE,
        ),
    ],
)
def test_how_a_pod_holds_gpus(parts: dict[str, Any], gpus: int | None, use: GpuUse) -> None:
    (job,) = read_json(pod(**parts)).jobs

    assert (job.gpus, job.gpu_use) == (gpus, use)


def test_a_whole_gpu_on_a_time_sliced_node_is_a_share() -> None:
    labels = {"nvidia.com/gpu.sharing-strategy": "mps", "nvidia.com/gpu.count": "2"}
    reading = read_json(node(metadata={"labels": labels}, status=READY), pod(limits={"nvidia.com/gpu": "1"}))

    assert (reading.jobs[0].gpus, reading.jobs[0].gpu_use) == (None, GpuUse.SHARED)
    assert nodes(reading)["w1"].gpus_allocated is None


def test_which_pod_holds_which_device() -> None:
    status = {
        "allocatedResourcesStatus": [{"name": "nvidia.com/gpu", "resources": [{"resourceID": "GPU-1"}]}]
    }
    claim = {
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "team-a"},
        "status": {
            "allocation": {
                "devices": {
                    "results": [
                        {"driver": "gpu.nvidia.com", "pool": "w1", "device": "gpu-3"},
                        {"driver": "gpu.nvidia.com", "pool": "w1", "device": "gpu-0-mig-1g10gb-0"},
                        {"driver": "nic.example.com", "pool": "w1", "device": "gpu-1"},
                    ]
                }
            },
            "reservedFor": [{"resource": "pods", "name": "q", "uid": "u"}],
        },
    }
    reading = read_json(pod(status={"containerStatuses": [{"name": "main", **status}]}), claim)

    assert [one for one in reading.records if isinstance(one, Allocation)] == [
        Allocation(node="w1", gpu="GPU-1", pods=("team-a/p",)),
        Allocation(node="w1", gpu=None, index=3, pods=("team-a/q",)),
    ]


# -- conditions (F-08)


def test_of_duplicate_conditions_the_newest_counts() -> None:
    found = nodes(read("F-08/input.json"))["w1"]

    assert found.flags == ("Ready", "SysLogsXIDError")
    assert (found.base, found.ready, found.state) == ("ready", True, NodeState.IDLE)


# -- answers that are no nodes (F-10)


@pytest.mark.parametrize(
    ("name", "ok", "reasons"),
    [
        ("a", False, [ProblemReason.PERMISSION_DENIED]),
        ("b", False, [ProblemReason.QUERY_ERROR]),
        ("c", True, [ProblemReason.PARTIAL]),
        ("d", True, []),
        ("e", True, []),
        ("f", True, []),
        ("g", False, [ProblemReason.QUERY_ERROR]),
    ],
)
def test_an_answer_that_is_no_node(name: str, ok: bool, reasons: list[ProblemReason]) -> None:
    reading = read(f"F-10/{name}.json")

    assert reading.ok is ok
    assert [problem.reason for problem in reading.problems] == reasons


def test_a_page_counts_what_it_leaves_out() -> None:
    assert read("F-10/c.json").problems[0].count == 480


def test_nodes_without_readiness_are_unknown() -> None:
    found = nodes(read("F-10/e.json"))

    assert {(one.state, one.base, one.ready) for one in found.values()} == {
        (NodeState.UNKNOWN, "unknown", None)
    }
    assert {one.gpus_total for one in found.values()} == {None}
    assert "deletionTimestamp" in found["w3"].flags


# -- damaged input


def test_one_bad_record_does_not_hide_the_good_ones() -> None:
    bad = node(metadata={"name": 7})
    reading = read_json({"kind": "NodeList", "items": [bad, node(status=READY), "text"]})

    assert reading.ok
    assert [one.name for one in reading.nodes] == ["w1"]
    assert {problem.reason for problem in reading.problems} == {ProblemReason.UNREADABLE}
    assert len(reading.problems) == 2


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"kind": "Node", "metadata": {"na', ProblemReason.TRUNCATED),
        (b"Unable to connect to the server", ProblemReason.CONTROLLER_UNREACHABLE),
        (b'{"nodes": []}', ProblemReason.UNREADABLE),
        (b"[1]", ProblemReason.UNREADABLE),
    ],
)
def test_what_is_no_kubernetes_json_fails(data: bytes, reason: ProblemReason) -> None:
    reading = read_captured(data, now=NOW)

    assert not reading.ok
    assert [problem.reason for problem in reading.problems] == [reason]


def test_watch_events_follow_each_other() -> None:
    there = node(status=READY)
    cordoned = node(status=READY, spec={"unschedulable": True})
    reading = read_json(
        {"type": "ADDED", "object": there},
        {"type": "MODIFIED", "object": cordoned},
        {"type": "ADDED", "object": pod()},
        {"type": "DELETED", "object": pod()},
    )

    assert nodes(reading)["w1"].state is NodeState.DRAINED
    assert reading.jobs == ()


def test_two_machines_under_one_name_are_a_conflict() -> None:
    reading = read_json(node(metadata={"uid": "a"}), node(metadata={"uid": "b"}))

    assert [problem.reason for problem in reading.problems] == [ProblemReason.CONFLICT]
    assert nodes(reading)["w1"].uid == "b"


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
_KEYS = [
    "metadata",
    "spec",
    "status",
    "name",
    "conditions",
    "capacity",
    "containers",
    "taints",
    "items",
    "type",
]
_OBJECTS = st.fixed_dictionaries(
    {"kind": st.sampled_from(["Node", "Pod", "NodeList", "List", "Status", "ResourceClaim", "x"])},
    optional=dict.fromkeys(_KEYS, _VALUES),
)


@given(st.lists(_OBJECTS | _VALUES, max_size=4))
def test_any_json_gives_records_or_problems(documents: list[Any]) -> None:
    read_captured("\n".join(json.dumps(one) for one in documents).encode(), now=NOW)


@given(st.binary(max_size=200))
def test_any_bytes_give_records_or_problems(data: bytes) -> None:
    read_captured(data, now=NOW)
