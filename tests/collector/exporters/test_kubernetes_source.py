"""Kubernetes as an exporter reads it, over HTTP from the simulated API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from collector.exporters.classes import QueueState, WaitReason
from collector.exporters.families import ExporterCollector
from collector.exporters.kubernetes import KubernetesSource
from collector.exporters.poller import Poller
from collector.exporters.summary import Names
from collector.kubernetes.auth import load_credentials
from collector.kubernetes.client import KubernetesClient
from fleet.clock import ManualClock
from fleet.errors import BackendError, ForbiddenError, UnavailableError
from tests.fakes.kubernetes_api import FakeKubernetes, Script, running

GPU = "nvidia.com/gpu"


@pytest.fixture
def api() -> Iterator[FakeKubernetes]:
    with running() as fake:
        yield fake


@pytest.fixture
def source(api: FakeKubernetes, tmp_path: Path) -> Iterator[KubernetesSource]:
    client = KubernetesClient(
        load_credentials(api.kubeconfig(tmp_path)), clock=ManualClock(), timeout_seconds=2.0, max_qps=1000.0
    )
    made = KubernetesSource(client, ManualClock())
    yield made
    made.close()


def pod(api: FakeKubernetes, name: str, *, gpus: str = "8", **parts: Any) -> None:
    """A pending pod of GPUs; ``parts`` are laid over its spec, status and metadata."""
    containers = [{"name": "main", "image": "x", "resources": {"limits": {GPU: gpus} if gpus != "0" else {}}}]
    spec = {"containers": containers, **parts.get("spec", {})}
    api.add_pod(
        name,
        namespace=parts.get("namespace", "team-a"),
        metadata={"creationTimestamp": "2026-01-01T00:00:00Z", **parts.get("metadata", {})},
        spec=spec,
        status={"phase": "Pending", **parts.get("status", {})},
    )


def scheduled(status: str, at: str, reason: str | None = None) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": status, "lastTransitionTime": at}
    return {"conditions": [{**condition, "reason": reason} if reason else condition]}


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"status": scheduled("False", "2026-01-01T00:00:01Z", "Unschedulable")}, WaitReason.RESOURCES),
        ({"status": scheduled("False", "2026-01-01T00:00:01Z", "SchedulerError")}, WaitReason.OTHER),
        ({"spec": {"schedulingGates": [{"name": "example.com/quota"}]}}, WaitReason.HELD),
        ({}, WaitReason.NOT_CONSIDERED),
    ],
)
def test_why_a_pod_waits(
    api: FakeKubernetes, source: KubernetesSource, parts: dict[str, Any], reason: WaitReason
) -> None:
    pod(api, "p", **parts)

    (item,) = source.read().items

    assert (item.state, item.reason, item.gpus, item.partitions) == (
        QueueState.PENDING,
        reason,
        8,
        ("team-a",),
    )
    assert item.eligible_at == ManualClock().now()


def test_a_pod_with_a_node_waits_no_longer_and_its_wait_ends_at_its_binding(
    api: FakeKubernetes, source: KubernetesSource
) -> None:
    pod(api, "p", spec={"nodeName": "w1"}, status=scheduled("True", "2026-01-01T00:02:05Z"))

    (item,) = source.read().items

    assert (item.state, item.reason, item.started, item.wait_seconds) == (
        QueueState.STARTING,
        None,
        True,
        125.0,
    )


@pytest.mark.parametrize("at", ["2025-12-31T23:59:59Z", "yesterday"])
def test_a_binding_before_the_creation_is_no_wait(
    api: FakeKubernetes, source: KubernetesSource, at: str
) -> None:
    pod(api, "p", spec={"nodeName": "w1"}, status=scheduled("True", at))
    (item,) = source.read().items
    assert (item.started, item.wait_seconds) == (True, None)


def test_pods_that_never_queue_are_left_out(api: FakeKubernetes, source: KubernetesSource) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
    pod(api, "daemon", metadata={"ownerReferences": [owner]})
    pod(api, "static", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}})
    pod(api, "job")
    assert len(source.read().items) == 1


def test_a_withdrawn_gpu_is_neither_idle_nor_lost(api: FakeKubernetes, source: KubernetesSource) -> None:
    api.edit("nodes", "w2", lambda node: node["status"]["allocatable"].update({GPU: "7"}))
    api.edit("nodes", "w3", lambda node: node["status"]["allocatable"].update({GPU: "many"}))
    assert source.read().withdrawn == {"w2": 1}


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (Script("GET", "/api/v1/pods", code=500, body="{}"), UnavailableError),
        (Script("GET", "/api/v1/nodes", then="drop"), UnavailableError),
        (Script("GET", "/api/v1/nodes", then="hang", seconds=3.0), UnavailableError),
    ],
)
def test_half_a_look_is_none(
    api: FakeKubernetes, source: KubernetesSource, script: Script, error: type[BackendError]
) -> None:
    api.scripts.append(script)
    with pytest.raises(error):
        source.read()
    assert len(source.read().nodes) == 4


def test_a_missing_right_is_said_as_such(api: FakeKubernetes, source: KubernetesSource) -> None:
    body = (
        '{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,'
        '"message":"pods is forbidden: User \\"x\\" cannot list resource \\"pods\\""}'
    )
    api.scripts.append(
        Script(
            "GET", "/api/v1/pods", code=403, times=2, body=body, headers={"Content-Type": "application/json"}
        )
    )
    with pytest.raises(ForbiddenError):
        source.read()


def test_a_cluster_in_metrics(api: FakeKubernetes, source: KubernetesSource) -> None:
    clock = ManualClock()
    poller = Poller(
        source,
        Names.fresh(lambda _: "default"),
        clock=clock,
        interval_seconds=30.0,
        slowest_read_seconds=20.0,
    )
    registry = CollectorRegistry()
    registry.register(
        ExporterCollector(poller.state, scheduler="kubernetes", version="1", interval_seconds=30.0)
    )
    api.edit("nodes", "w4", lambda node: node["spec"].update(unschedulable=True))
    pod(api, "big", gpus="16", status=scheduled("False", "2026-01-01T00:00:01Z", "Unschedulable"))
    pod(api, "next", gpus="4")
    poller.poll()
    api.delete("pods", "next", "team-a")
    pod(api, "next", gpus="4", spec={"nodeName": "w1"}, status={**scheduled("True", "2026-01-01T00:00:40Z")})
    poller.poll()

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    gpus = {"pool": "default", "gpu_type": "gpu"}
    assert value("sickbay_scheduler_exporter_up") == 1
    assert value("sickbay_scheduler_gpus", **gpus, status="allocated", reason="none") == 4
    assert value("sickbay_scheduler_gpus", **gpus, status="idle", reason="none") == 20
    assert value("sickbay_scheduler_gpus", **gpus, status="unavailable", reason="drained_by_others") == 8
    assert value("sickbay_scheduler_nodes", pool="default", state="drained", owner="foreign") == 1
    assert value("sickbay_partition_pending_gpus", partition="team-a", size="9-64") == 16
    assert value("sickbay_partition_jobs", partition="team-a", state="starting") == 1
    wait = {"partition": "team-a", "size": "2-8"}
    assert value("sickbay_partition_queue_wait_seconds_count", **wait) == 1
    assert value("sickbay_partition_queue_wait_seconds_sum", **wait) == 40.0
    assert value("sickbay_partition_nodes", partition="team-a", state="idle") is None
    assert {request.method for request in api.requests} == {"GET"}
