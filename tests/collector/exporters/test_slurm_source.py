"""Slurm's answers as an exporter reads them, from captured output of real clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from collector.exporters.classes import QueueState, SizeClass, WaitReason
from collector.exporters.slurm import SlurmSource, queue_item, task_count, wait_reason
from collector.process import Completed
from collector.slurm.client import SlurmClient
from fleet.clock import ManualClock
from fleet.errors import UnavailableError
from fleet.scheduler import ArrayRef, GpuUse, JobRecord, NodeState

DATA = Path(__file__).parents[2] / "data" / "slurm" / "22.05"


class Cluster:
    """Answers like Slurm 22.05 from captured files; ``calls`` are the commands that were run."""

    def __init__(self, sinfo: Path, squeue: Path) -> None:
        self._answers = {"sinfo": sinfo, "squeue": squeue}
        self.calls: list[str] = []

    def __call__(self, argv: Sequence[str], *, env: Mapping[str, str], timeout_seconds: float) -> Completed:
        self.calls.append(argv[0])
        out = b"slurm 22.05.8\n" if argv[0] == "scontrol" else self._answers[argv[0]].read_bytes()
        return Completed(tuple(argv), 0, out, b"", 0.0)


def source(cluster: Cluster) -> SlurmSource:
    clock = ManualClock()
    return SlurmSource(SlurmClient(env={}, clock=clock, base_env={}, runner=cluster), clock)


def job(**parts: Any) -> JobRecord:
    fields = {"id": "1", "state": "pending", "gpus": 8, "gpu_use": GpuUse.EXCLUSIVE, **parts}
    return JobRecord(**fields)


def test_one_read_is_two_calls_of_the_controller() -> None:
    cluster = Cluster(DATA / "02_draining" / "sinfo.json", DATA / "06_requeuehold" / "squeue.json")
    slurm = source(cluster)

    first, second = slurm.read(), slurm.read()

    assert cluster.calls == ["scontrol", "sinfo", "squeue", "sinfo", "squeue"]  # --version asks no controller
    assert first == second
    assert NodeState.DRAINING in {node.state for node in first.nodes}
    pending = [(item.reason, item.count) for item in first.items if item.state is QueueState.PENDING]
    assert sorted(pending) == [(WaitReason.HELD, 1), (WaitReason.LIMITS, 2), (WaitReason.RESOURCES, 1)]


@pytest.mark.parametrize(
    ("sinfo", "squeue"),
    [
        ("controller_down_sinfo.json", "06_requeuehold/squeue.json"),
        ("02_draining/sinfo.json", "controller_down_squeue.json"),
    ],
)
def test_an_empty_list_with_errors_and_exit_code_0_is_a_failed_read(sinfo: str, squeue: str) -> None:
    """Seen on 22.05.8 with slurmctld down: rc 0, nodes or jobs ``[]``, and ``errors``."""
    with pytest.raises(UnavailableError):
        source(Cluster(DATA / sinfo, DATA / squeue)).read()


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("pending", QueueState.PENDING),
        ("requeue_hold", QueueState.PENDING),
        ("special_exit", QueueState.PENDING),
        ("configuring", QueueState.STARTING),
        ("running", QueueState.RUNNING),
        ("suspended", QueueState.SUSPENDED),
        ("completing", QueueState.COMPLETING),
        ("unknown", QueueState.UNKNOWN),
        ("completed", QueueState.ENDED),
        ("revoked", QueueState.ENDED),
        ("node_fail", QueueState.ENDED),
    ],
)
def test_states(state: str, expected: QueueState) -> None:
    assert queue_item(job(state=state)).state is expected


@pytest.mark.parametrize(
    ("reason", "parts", "expected"),
    [
        ("Resources", {}, WaitReason.RESOURCES),
        ("Priority", {}, WaitReason.PRIORITY),
        (None, {}, WaitReason.NOT_CONSIDERED),
        ("None", {}, WaitReason.NOT_CONSIDERED),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-4]", {}, WaitReason.NODES_UNAVAILABLE),
        ("PartitionDown", {}, WaitReason.NODES_UNAVAILABLE),
        ("DependencyNeverSatisfied", {}, WaitReason.DEPENDENCY),
        ("QOSMaxGRESPerUser", {}, WaitReason.LIMITS),
        ("AssocGrpGRES", {}, WaitReason.LIMITS),
        ("MaxGRESPerAccount", {}, WaitReason.LIMITS),
        ("JobArrayTaskLimit", {}, WaitReason.LIMITS),
        ("ReservationDeleted", {}, WaitReason.RESERVATION),
        ("Licenses", {}, WaitReason.LICENSES),
        ("BeginTime", {}, WaitReason.BEGIN_TIME),
        ("JobHeldUser", {}, WaitReason.HELD),
        ("Resources", {"held": True}, WaitReason.HELD),
        ("Dependency", {"held": True}, WaitReason.DEPENDENCY),
        ("None", {"state": "requeue_hold"}, WaitReason.HELD),
        ("InvalidAccount", {}, WaitReason.OTHER),
    ],
)
def test_reasons(reason: str | None, parts: dict[str, Any], expected: WaitReason) -> None:
    assert wait_reason(job(state_reason=reason, **parts)) is expected


@pytest.mark.parametrize(
    ("gpus", "use", "size", "counted"),
    [
        (0, GpuUse.NONE, SizeClass.CPU, 0),
        (1, GpuUse.EXCLUSIVE, SizeClass.ONE, 1),
        (2, GpuUse.EXCLUSIVE, SizeClass.UP_TO_8, 2),
        (8, GpuUse.EXCLUSIVE, SizeClass.UP_TO_8, 8),
        (9, GpuUse.EXCLUSIVE, SizeClass.UP_TO_64, 9),
        (512, GpuUse.EXCLUSIVE, SizeClass.UP_TO_512, 512),
        (513, GpuUse.EXCLUSIVE, SizeClass.LARGE, 513),
        (3, GpuUse.SLICE, SizeClass.PART, None),
        (None, GpuUse.SHARED, SizeClass.PART, None),
        (None, GpuUse.UNKNOWN, SizeClass.UNKNOWN, None),
    ],
)
def test_sizes(gpus: int | None, use: GpuUse, size: SizeClass, counted: int | None) -> None:
    item = queue_item(job(gpus=gpus, gpu_use=use))
    assert (item.size, item.gpus) == (size, counted)


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        (None, 1),
        ("7", 1),
        ("7-8", 2),
        ("1-10:3", 4),
        ("1-5,8,11-15:2", 9),
        ("1-5,...", 5),
        ("9-1", 1),
        ("1-5:0", 5),
        ("99999999999-1", 1),
        ("nonsense", 1),
    ],
)
def test_the_rest_of_an_array_stands_for_its_tasks(tasks: str | None, expected: int) -> None:
    assert task_count(job(array=ArrayRef("70", tasks=tasks))) == expected


@pytest.mark.parametrize(
    ("parts", "started", "wait"),
    [
        ({"state": "running", "nodes": ("n1",), "begins_at": 150.0, "eligible_at": 100.0}, True, 50.0),
        ({"state": "running", "nodes": ("n1",), "begins_at": 100.0, "eligible_at": 100.0}, True, 0.0),
        ({"state": "completed", "nodes": ("n1",), "begins_at": 150.0, "eligible_at": 100.0}, True, 50.0),
        ({"state": "running", "nodes": ("n1",), "begins_at": 90.0, "eligible_at": 100.0}, True, None),
        ({"state": "running", "nodes": ("n1",), "begins_at": 150.0}, True, None),
        ({"state": "cancelled", "begins_at": 150.0, "eligible_at": 100.0}, False, None),
        ({"state": "pending", "begins_at": 150.0, "eligible_at": 100.0}, False, None),
    ],
)
def test_a_start_and_its_wait(parts: dict[str, Any], started: bool, wait: float | None) -> None:
    item = queue_item(job(**parts))
    assert (item.started, item.wait_seconds) == (started, wait)


def test_a_requeued_job_is_another_run() -> None:
    runs = {queue_item(job(submitted_at=1.0, restarts=restarts)).run for restarts in (0, 1)}
    assert len(runs) == 2
