"""Bringing pods off a node by eviction: what each pod and each answer of the API leads to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.kubernetes.marks import epoch
from fleet.clock import ManualClock
from fleet.errors import ForbiddenError, RateLimitedError
from fleet.marks import Mark
from fleet.scheduler import NodeState, RequeueRequest, RequeueState
from remediator.backends.kubernetes import KubernetesBackend
from tests.fakes.kubernetes_api import FakeKubernetes, Script, running
from tests.support.kubernetes_clients import client_of

MARK = Mark("inc-1", "gpu-xid", "GPU 3 fell off the bus (XID 79).")
CASES = Path(__file__).parents[2] / "data" / "kubernetes"
DONE, GONE = RequeueState.DONE, RequeueState.GONE
REFUSED, WAIT = RequeueState.REFUSED, RequeueState.IN_PROGRESS


@pytest.fixture
def api() -> Iterator[FakeKubernetes]:
    with running(clock=ManualClock()) as fake:
        yield fake


@pytest.fixture
def backend(api: FakeKubernetes, tmp_path: Path) -> Iterator[KubernetesBackend]:
    with client_of(api, tmp_path, timeout_seconds=2.0) as client:
        yield KubernetesBackend(client, api.clock)


def request_for(api: FakeKubernetes, job: str, node: str = "w1") -> RequeueRequest:
    namespace, _, name = job.partition("/")
    made = api.get("pods", name, namespace)["metadata"]["creationTimestamp"]
    return RequeueRequest(job=job, node=node, restarts=0, submitted_at=epoch(made))


def train(api: FakeKubernetes, backend: KubernetesBackend, **options: Any) -> RequeueRequest:
    """A training pod on the cordoned w1."""
    api.add_workload("train", **options)
    api.run()
    backend.cordon("w1", MARK)
    return request_for(api, "default/train-0")


def evictions(api: FakeKubernetes) -> list[str]:
    return [request.path for request in api.requests if request.path.endswith("/eviction")]


def pass_seconds(api: FakeKubernetes, seconds: float) -> None:
    assert isinstance(api.clock, ManualClock)
    api.clock.advance(seconds)
    api.run()


# -- the straight way


def test_an_evicted_pod_ends_within_its_own_grace_and_comes_back_elsewhere(
    api: FakeKubernetes, backend: KubernetesBackend
) -> None:
    request = train(api, backend, spec={"terminationGracePeriodSeconds": 600})

    assert backend.requeue(request).state is DONE

    pod = api.get("pods", "train-0", "default")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 600
    assert backend.observe_node("w1").state is NodeState.DRAINING  # it may still hold the GPU
    assert backend.requeue(request).state is DONE  # not evicted twice
    assert len(evictions(api)) == 1
    pass_seconds(api, 601)
    assert backend.observe_node("w1").state is NodeState.DRAINED
    assert api.get("pods", "train-0", "default")["spec"]["nodeName"] == "w2"
    assert backend.requeue(request).state is DONE
    assert len(evictions(api)) == 1


def test_a_newcomer_of_the_same_name_is_not_evicted(api: FakeKubernetes, backend: KubernetesBackend) -> None:
    request = train(api, backend)
    api.delete("pods", "train-0", "default")
    pass_seconds(api, 10)
    api.edit("pods", "train-0", lambda pod: pod["spec"].update(nodeName="w1"), namespace="default")

    assert backend.requeue(request).state is GONE
    assert evictions(api) == []


def test_a_pod_replaced_between_read_and_eviction_is_protected_by_its_uid(
    api: FakeKubernetes, backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = train(api, backend)
    answer = api.router.answer

    def replaced_first(_: Any, got: Any) -> Any:
        if got.path.endswith("/eviction"):
            api.delete("pods", "train-0", "default")
            api.run()
        return answer(got)

    monkeypatch.setattr(type(api.router), "answer", replaced_first)

    assert backend.requeue(request).state is DONE
    assert "deletionTimestamp" not in api.get("pods", "train-0", "default")["metadata"]


def test_a_node_that_somebody_uncordoned_keeps_its_pods(
    api: FakeKubernetes, backend: KubernetesBackend
) -> None:
    request = train(api, backend)
    api.edit("nodes", "w1", lambda node: node["spec"].pop("unschedulable"), manager="kubectl")

    outcome = backend.requeue(request)

    assert outcome.state is REFUSED
    assert "not cordoned" in outcome.reason
    assert evictions(api) == []


# -- budgets


def test_a_budget_is_a_veto_that_is_named_and_lets_go_when_it_can(
    api: FakeKubernetes, backend: KubernetesBackend
) -> None:
    request = train(api, backend, replicas=2)
    api.add_budget("train-pdb", "train", minAvailable=2)

    outcome = backend.requeue(request)

    assert outcome.state is WAIT
    assert "train-pdb" in outcome.reason
    assert "needs 2 healthy pods and has 2 currently" in outcome.reason
    assert "deletionTimestamp" not in api.get("pods", "train-0", "default")["metadata"]
    api.edit(
        "poddisruptionbudgets",
        "train-pdb",
        lambda pdb: pdb["spec"].update(minAvailable=1),
        namespace="default",
    )
    assert backend.requeue(request).state is WAIT  # its controller has not seen the change yet
    api.run()
    assert backend.requeue(request).state is DONE


def test_an_unready_pod_behind_a_budget_is_told(api: FakeKubernetes, backend: KubernetesBackend) -> None:
    request = train(api, backend, replicas=2)
    api.add_budget("train-pdb", "train", minAvailable=2)
    api.edit(
        "pods",
        "train-0",
        lambda pod: pod["status"].update(conditions=[{"type": "Ready", "status": "False"}]),
        namespace="default",
    )
    api.run(1)

    outcome = backend.requeue(request)

    assert outcome.state is WAIT
    assert "unhealthyPodEvictionPolicy" in outcome.reason


def test_two_budgets_on_one_pod_are_both_named_and_end_it(
    api: FakeKubernetes, backend: KubernetesBackend
) -> None:
    request = train(api, backend)
    api.add_budget("one", "train", maxUnavailable=1)
    api.add_budget("two", "train", maxUnavailable=1)
    api.add_budget("other", "web", maxUnavailable=1)

    outcome = backend.requeue(request)

    assert outcome.state is REFUSED
    assert "one, two" in outcome.reason
    assert "other" not in outcome.reason


def test_two_budgets_that_may_not_be_read_are_told_without_names(
    api: FakeKubernetes, backend: KubernetesBackend
) -> None:
    request = train(api, backend)
    api.add_budget("one", "train", maxUnavailable=1)
    api.add_budget("two", "train", maxUnavailable=1)
    api.router.denied = {("list", "poddisruptionbudgets")}

    outcome = backend.requeue(request)

    assert outcome.state is REFUSED
    assert "more than one PodDisruptionBudget" in outcome.reason


# -- other answers


def test_a_busy_server_is_no_budget(api: FakeKubernetes, backend: KubernetesBackend) -> None:
    request = train(api, backend)
    api.scripts.append(Script("POST", "/eviction$", code=429, body="busy", headers={"Retry-After": "3"}))

    with pytest.raises(RateLimitedError) as limited:
        backend.requeue(request)
    assert limited.value.retry_after_seconds == 3


def test_a_missing_right_is_forbidden(api: FakeKubernetes, backend: KubernetesBackend) -> None:
    request = train(api, backend)
    api.router.denied = {("create", "pods/eviction")}

    with pytest.raises(ForbiddenError):
        backend.requeue(request)


@pytest.mark.parametrize(
    ("then", "code", "state"),
    [("drop_after", 0, DONE), ("drop", 0, WAIT), ("answer", 500, WAIT), ("answer", 504, WAIT)],
)
def test_an_unknown_outcome_is_read_back(
    api: FakeKubernetes, backend: KubernetesBackend, then: str, code: int, state: RequeueState
) -> None:
    request = train(api, backend)
    body = json.dumps(
        {"kind": "Status", "status": "Failure", "message": "failed calling webhook", "code": code}
    )
    api.scripts.append(Script("POST", "/eviction$", then=then, code=code, body=body))

    assert backend.requeue(request).state is state
    assert backend.requeue(request).state is DONE


@pytest.mark.parametrize(
    ("message", "state"),
    [
        ("unable to create new content in namespace team-a because it is being terminated", WAIT),
        ("admission webhook denied the request: never on Fridays", REFUSED),
    ],
)
def test_refusals_that_are_no_missing_right(
    api: FakeKubernetes, backend: KubernetesBackend, message: str, state: RequeueState
) -> None:
    request = train(api, backend)
    body = json.dumps({"kind": "Status", "status": "Failure", "message": message, "code": 403})
    api.scripts.append(Script("POST", "/eviction$", code=403, body=body))

    outcome = backend.requeue(request)

    assert outcome.state is state
    assert outcome.reason


# -- which pods (F-06)


def test_each_class_of_pod_has_its_own_outcome(api: FakeKubernetes, backend: KubernetesBackend) -> None:
    daemonset = api.add_daemonset("node-exporter", namespace="mon")
    for one in json.loads((CASES / "F-06/input.json").read_text())["items"]:
        meta = {
            key: one["metadata"][key] for key in ("annotations", "ownerReferences") if key in one["metadata"]
        }
        for owner in meta.get("ownerReferences", ()):
            if owner["name"] == "node-exporter":
                owner["uid"] = daemonset["metadata"]["uid"]
        api.add_pod(
            one["metadata"]["name"],
            namespace=one["metadata"]["namespace"],
            metadata=meta,
            spec=one["spec"],
            status=one["status"],
        )
    backend.cordon("w1", MARK)
    backend.observe()

    pods = [f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in api.store.all("pods")]
    outcomes = {job: backend.requeue(request_for(api, job)) for job in pods}

    assert {job: outcome.state for job, outcome in outcomes.items()} == {
        "mon/ds-1": REFUSED,
        "kube-system/kube-proxy-w1": REFUSED,
        "team-a/done": GONE,
        "team-a/failed": GONE,
        "team-a/train-0": DONE,
        "team-a/rs-1": DONE,
        "team-a/pend": DONE,
        "team-a/sts-0": DONE,
        "mon/ds-orphan": DONE,
        "team-a/naked": REFUSED,
        "slurm/slurmd-w1": REFUSED,
        "team-a/unk": WAIT,
    }
    assert "no controller" in outcomes["team-a/naked"].reason
    assert "safe-to-evict" in outcomes["slurm/slurmd-w1"].reason
    assert "emptyDir scratch" in outcomes["team-a/sts-0"].reason
    assert len(evictions(api)) == 5


def test_a_pod_that_tolerates_the_cordon_would_come_back(
    api: FakeKubernetes, backend: KubernetesBackend
) -> None:
    request = train(api, backend, spec={"tolerations": [{"operator": "Exists"}]})

    outcome = backend.requeue(request)

    assert outcome.state is REFUSED
    assert "tolerates" in outcome.reason
    assert evictions(api) == []


def test_a_stuck_finalizer_is_named_and_left(api: FakeKubernetes, backend: KubernetesBackend) -> None:
    request = train(api, backend)
    api.edit(
        "pods",
        "train-0",
        lambda pod: pod["metadata"].update(finalizers=["example.com/hold"]),
        namespace="default",
    )
    backend.requeue(request)
    pass_seconds(api, 3600)

    outcome = backend.requeue(request)

    assert "example.com/hold" in outcome.reason
    assert backend.observe_node("w1").state is NodeState.DRAINING
    assert api.get("pods", "train-0", "default")["metadata"]["finalizers"] == ["example.com/hold"]


def test_a_dead_kubelet_is_not_waited_for_and_nothing_is_forced(
    api: FakeKubernetes, backend: KubernetesBackend
) -> None:
    request = train(api, backend)
    api.set_ready("w1", "Unknown")
    assert backend.requeue(request).state is DONE
    assert backend.observe_node("w1").state is NodeState.DRAINING  # its grace is not over

    pass_seconds(api, 31)

    assert backend.observe_node("w1").state is NodeState.DRAINED
    assert api.find("pods", "train-0", "default") is not None


@pytest.mark.parametrize(
    "job", ["train-0", "a/b/c", "default/", "/x", "default/x[1-3]", "default/..", "A/b", ""]
)
def test_what_names_no_pod_is_refused(api: FakeKubernetes, backend: KubernetesBackend, job: str) -> None:
    request = RequeueRequest(job=job, node="w1", restarts=0, submitted_at=None)

    assert backend.requeue(request).state is REFUSED
    assert api.requests == []
