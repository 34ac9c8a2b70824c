"""An API server and nothing behind it: no kubelet, no scheduler, no controller ever answers.

Everything is created by API, as on a bare kube-apiserver: nodes keep the taint of a new node, pods stay
Pending or what somebody patched into their status, evicted pods that are bound never end, and a budget that
no controller has counted refuses with a Retry-After.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from collector.kubernetes.auth import load_credentials
from collector.kubernetes.client import KubernetesClient
from fleet.clock import ManualClock
from fleet.errors import ConflictError
from fleet.marks import Mark
from fleet.scheduler import NodeState, Owner, RequeueRequest, RequeueState
from remediator.backends.kubernetes import KubernetesBackend
from simulator.kubernetes_api.server import KubernetesApi

MARK = Mark("inc-1", "xid-79", "GPU 3 fell off the bus")
STATUS = {
    "capacity": {"cpu": "8", "nvidia.com/gpu": "8"},
    "allocatable": {"cpu": "8", "nvidia.com/gpu": "8"},
    "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
}


@dataclass(frozen=True, slots=True)
class Bare:
    http: httpx.Client
    backend: KubernetesBackend
    clock: ManualClock

    def node(self, name: str, **status: Any) -> None:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}
        self.post("/api/v1/nodes", body)

    def pod(self, name: str, *, node: str | None = "n1", phase: str = "Running") -> str:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
        spec: dict[str, Any] = {
            "containers": [{"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "4"}}}]
        }
        if node is not None:
            spec["nodeName"] = node
        meta = {"name": name, "labels": {"app": name}, "ownerReferences": [owner]}
        self.post(
            "/api/v1/namespaces/default/pods",
            {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec},
        )
        conditions = [{"type": "Ready", "status": "True"}]
        self.status(f"/api/v1/namespaces/default/pods/{name}", {"phase": phase, "conditions": conditions})
        return f"default/{name}"

    def budget(self, app: str) -> str:
        path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}
        self.post(
            path,
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": app},
                "spec": spec,
            },
        )
        return f"{path}/{app}"

    def post(self, path: str, body: dict[str, Any]) -> None:
        answer = self.http.post(path, json=body)
        assert answer.status_code == 201, answer.text

    def status(self, path: str, status: dict[str, Any]) -> None:
        headers = {"Content-Type": "application/strategic-merge-patch+json"}
        answer = self.http.patch(f"{path}/status", json={"status": status}, headers=headers)
        assert answer.status_code == 200, answer.text

    def requeue(self, job: str) -> tuple[RequeueState, str]:
        outcome = self.backend.requeue(RequeueRequest(job, "n1", restarts=0, submitted_at=None))
        return outcome.state, outcome.reason


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Bare]:
    clock = ManualClock()
    with KubernetesApi(clock, token="t") as api, httpx.Client(base_url=api.url) as http:
        http.headers.update({"Authorization": "Bearer t", "User-Agent": "kubectl/1"})
        client = KubernetesClient(load_credentials(api.kubeconfig(tmp_path)), clock=clock, max_qps=1000.0)
        yield Bare(http, KubernetesBackend(client, clock), clock)
        client.close()


def test_a_ready_node_with_the_taint_of_a_new_one_is_used_cordoned_and_returned(bare: Bare) -> None:
    bare.node("n1", **STATUS)
    before = bare.backend.observe().nodes["n1"]
    cordoned = bare.backend.cordon("n1", MARK)
    after = bare.backend.uncordon("n1", MARK)

    assert "node.kubernetes.io/not-ready" in before.flags
    assert (before.state, before.schedulable, before.gpus_total) == (NodeState.IDLE, True, 8)
    assert (cordoned.state, cordoned.owner, cordoned.schedulable) == (NodeState.DRAINED, Owner.SICKBAY, False)
    assert (after.state, after.owner, after.schedulable) == (NodeState.IDLE, Owner.NONE, True)


def test_a_node_that_nobody_ever_heard_is_unknown_may_be_cordoned_and_is_not_returned(bare: Bare) -> None:
    bare.node("n1")

    assert bare.backend.observe().nodes["n1"].state is NodeState.UNKNOWN
    assert bare.backend.observe().nodes["n1"].ready is None
    assert bare.backend.cordon("n1", MARK).owner is Owner.SICKBAY
    with pytest.raises(ConflictError, match="not Ready"):
        bare.backend.uncordon("n1", MARK)


def test_an_evicted_pod_that_no_kubelet_ends_stays_terminating_and_keeps_its_node_draining(
    bare: Bare,
) -> None:
    bare.node("n1", **STATUS)
    job = bare.pod("train")
    bare.backend.cordon("n1", MARK)

    state, text = bare.requeue(job)
    bare.clock.advance(3600.0)
    again, _ = bare.requeue(job)
    seen = bare.backend.observe()

    assert (state, again) == (RequeueState.DONE, RequeueState.DONE)
    assert "is terminating, its grace ends at" in text
    assert seen.nodes["n1"].state is NodeState.DRAINING
    assert [one.state for one in seen.jobs] == ["terminating"]


def test_a_node_that_is_not_heard_either_is_not_waited_for(bare: Bare) -> None:
    bare.node("n1", **STATUS)
    job = bare.pod("train")
    bare.backend.cordon("n1", MARK)
    bare.requeue(job)
    bare.status("/api/v1/nodes/n1", {"conditions": [{"type": "Ready", "status": "Unknown"}]})

    before_its_end = bare.backend.observe_node("n1").state
    bare.clock.advance(31.0)

    assert before_its_end is NodeState.DRAINING
    assert bare.backend.observe_node("n1").state is NodeState.DRAINED


def test_a_finished_pod_goes_at_once_and_one_without_a_node_too(bare: Bare) -> None:
    bare.node("n1", **STATUS)
    for name, node, phase in (("done", "n1", "Succeeded"), ("waits", None, "Pending")):
        bare.pod(name, node=node, phase=phase)
        path = f"/api/v1/namespaces/default/pods/{name}"
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}

        assert bare.http.post(f"{path}/eviction", json=body).status_code == 201
        assert bare.http.get(path).status_code == 404


def test_a_budget_that_no_controller_counted_lags_and_a_counted_one_says_no_then_yes(bare: Bare) -> None:
    bare.node("n1", **STATUS)
    job = bare.pod("train")
    budget = bare.budget("train")
    bare.backend.cordon("n1", MARK)

    lags = bare.requeue(job)
    counted = {"observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    bare.status(budget, {**counted, "disruptionsAllowed": 0})
    no = bare.requeue(job)
    bare.status(budget, {**counted, "disruptionsAllowed": 1})
    yes = bare.requeue(job)

    assert lags[0] is RequeueState.IN_PROGRESS
    assert "controller lags" in lags[1]
    assert no[0] is RequeueState.IN_PROGRESS
    assert "train needs 1 healthy pods and has 1 currently" in no[1]
    assert yes[0] is RequeueState.DONE
    status = bare.http.get(budget).json()["status"]
    assert (status["disruptionsAllowed"], list(status["disruptedPods"])) == (0, ["train"])
