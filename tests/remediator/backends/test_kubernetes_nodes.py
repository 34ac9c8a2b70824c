"""Cordon, uncordon and notes on Kubernetes nodes: one patch, ours only, nothing over somebody's change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.clock import ManualClock
from fleet.errors import ConflictError, ForbiddenError, RefusedError, UnavailableError
from fleet.marks import Mark
from fleet.scheduler import NodeState, Owner
from remediator.backends.kubernetes import KubernetesBackend
from simulator.kubernetes_api.errors import Json
from tests.fakes.kubernetes_api import FakeKubernetes, Script, running
from tests.support.kubernetes_clients import client_of

MARK = Mark("inc-1", "gpu-xid", "GPU 3 fell off the bus (XID 79).")
CASES = Path(__file__).parents[2] / "data" / "kubernetes"


@pytest.fixture
def api() -> Iterator[FakeKubernetes]:
    with running(clock=ManualClock()) as fake:
        yield fake


@pytest.fixture
def backend(api: FakeKubernetes, tmp_path: Path) -> Iterator[KubernetesBackend]:
    with client_of(api, tmp_path, timeout_seconds=2.0) as client:
        yield KubernetesBackend(client, api.clock)


def patches(api: FakeKubernetes) -> list[Any]:
    return [request.body for request in api.requests if request.method == "PATCH"]


def notes(api: FakeKubernetes, node: str = "w1") -> dict[str, str]:
    return dict(api.get("nodes", node)["metadata"].get("annotations") or {})


def cordon_as(api: FakeKubernetes, manager: str, node: str = "w1", *, on: bool = True) -> None:
    def change(found: Json) -> None:
        if on:
            found["spec"]["unschedulable"] = True
        else:
            found["spec"].pop("unschedulable", None)

    api.edit("nodes", node, change, manager=manager)


def test_a_cordon_is_one_patch_with_its_marks_and_its_version(
    api: FakeKubernetes, backend: KubernetesBackend
) -> None:
    version = api.get("nodes", "w1")["metadata"]["resourceVersion"]

    backend.cordon("w1", MARK)

    (patch,) = patches(api)
    assert patch["spec"] == {"unschedulable": True}
    assert patch["metadata"]["resourceVersion"] == version
    assert patch["metadata"]["annotations"] == {
        "sickbay.io/incident": "inc-1",
        "sickbay.io/rule": "gpu-xid",
        "sickbay.io/cordoned-by-us": "inc-1",
        "sickbay.io/prior-state": "schedulable",
        "sickbay.io/reason": "GPU 3 fell off the bus (XID 79).",
        "sickbay.io/cordoned-at": "2026-01-01T00:00:00Z",
    }


def test_our_marks_leave_with_our_cordon_and_nothing_else_does(
    api: FakeKubernetes, backend: KubernetesBackend
) -> None:
    api.edit("nodes", "w1", lambda found: found["metadata"].update(annotations={"team": "a"}))
    backend.cordon("w1", MARK)

    backend.uncordon("w1", MARK)

    assert notes(api) == {"team": "a"}
    assert "unschedulable" not in api.get("nodes", "w1")["spec"]


def test_a_change_between_read_and_write_is_read_and_decided_again(
    api: FakeKubernetes, backend: KubernetesBackend
) -> None:
    """A kubelet's write costs one more round; the cordon is still one that nobody else had."""
    body = json.dumps({"kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409})
    api.scripts.append(Script("PATCH", "nodes/w1", code=409, body=body))

    assert backend.cordon("w1", MARK).owner is Owner.SICKBAY
    assert len(patches(api)) == 2


def test_an_admin_who_cordons_between_read_and_write_keeps_the_node(
    api: FakeKubernetes, backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = api.router.answer

    def admin_first(request: Any) -> Any:
        if request.method == "PATCH" and "unschedulable" not in api.get("nodes", "w1")["spec"]:
            cordon_as(api, "kubectl-cordon")
        return answer(request)

    monkeypatch.setattr(type(api.router), "answer", lambda _, request: admin_first(request))

    with pytest.raises(ConflictError):
        backend.cordon("w1", MARK)

    assert notes(api) == {}
    assert api.get("nodes", "w1")["spec"]["unschedulable"] is True


def test_a_node_that_never_holds_still_is_a_conflict(api: FakeKubernetes, backend: KubernetesBackend) -> None:
    body = json.dumps({"kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409})
    api.scripts.append(Script("PATCH", "nodes/w1", code=409, body=body, times=99))

    with pytest.raises(ConflictError):
        backend.cordon("w1", MARK)
    assert len(patches(api)) == 4


def test_a_cordon_whose_answer_was_lost_is_found_done(
    api: FakeKubernetes, backend: KubernetesBackend
) -> None:
    api.scripts.append(Script("PATCH", "nodes/w1", then="drop_after"))

    with pytest.raises(UnavailableError):
        backend.cordon("w1", MARK)

    assert backend.cordon("w1", MARK).owner is Owner.SICKBAY
    assert len(patches(api)) == 1


def test_a_person_who_cordons_after_us_keeps_the_node_and_our_marks_go(
    api: FakeKubernetes, backend: KubernetesBackend
) -> None:
    backend.cordon("w1", MARK)
    cordon_as(api, "kubectl", on=False)
    cordon_as(api, "kubectl-cordon")

    assert backend.observe_node("w1").owner is Owner.FOREIGN
    with pytest.raises(ConflictError):
        backend.uncordon("w1", MARK)

    assert notes(api) == {}
    assert api.get("nodes", "w1")["spec"]["unschedulable"] is True


def test_what_a_person_left_of_our_marks_is_cleaned(api: FakeKubernetes, backend: KubernetesBackend) -> None:
    backend.cordon("w1", MARK)
    cordon_as(api, "kubectl", on=False)

    assert not backend.uncordon("w1", MARK).is_cordoned
    assert notes(api) == {}


def test_a_node_that_is_not_ready_is_not_returned(api: FakeKubernetes, backend: KubernetesBackend) -> None:
    backend.cordon("w1", MARK)
    api.set_ready("w1", "False")

    with pytest.raises(ConflictError, match="not Ready"):
        backend.uncordon("w1", MARK)
    assert api.get("nodes", "w1")["spec"]["unschedulable"] is True


@pytest.mark.parametrize(
    "key",
    [
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "remediator.aks.microsoft.com/unschedulable",
    ],
)
def test_a_node_that_another_machine_is_taking_out_is_left_alone(
    api: FakeKubernetes, backend: KubernetesBackend, key: str
) -> None:
    api.edit("nodes", "w1", lambda found: found["spec"].update(taints=[{"key": key, "effect": "NoSchedule"}]))

    with pytest.raises(ConflictError, match=key):
        backend.cordon("w1", MARK)
    assert patches(api) == []


def test_the_cases_of_cordons_by_others(api: FakeKubernetes, backend: KubernetesBackend) -> None:
    """F-01: only w2 is released; w1, w3 and w5 stay cordoned; of w4 only stale marks go."""
    incidents = {"w2": "inc-7", "w3": "inc-8", "w4": "inc-9", "w1": "inc-10", "w5": "inc-11"}
    for one in json.loads((CASES / "F-01/input.json").read_text())["items"]:
        name = one["metadata"]["name"]
        if api.find("nodes", name) is not None:
            api.delete("nodes", name)
        meta = {key: one["metadata"][key] for key in ("name", "labels", "annotations")}
        meta["annotations"].update({"sickbay.io/rule": "gpu-xid"} if meta["annotations"] else {})
        api.store.create("nodes", {"metadata": meta, "spec": one["spec"], "status": one["status"]})

    released = []
    for name, incident in incidents.items():
        before = backend.observe_node(name)
        try:
            after = backend.uncordon(name, Mark(incident, "gpu-xid"))
        except ConflictError:
            continue
        if before.is_cordoned and not after.is_cordoned:
            released.append(name)

    assert released == ["w2"]
    assert {name for name in incidents if api.get("nodes", name)["spec"].get("unschedulable")} == {
        "w1",
        "w3",
        "w5",
    }
    assert [key for name in ("w2", "w3", "w4") for key in notes(api, name) if "sickbay.io" in key] == []
    assert notes(api, "w5") != {}  # another incident's: not ours to clean under this one


def test_a_reboot_is_refused_with_what_to_configure(api: FakeKubernetes, backend: KubernetesBackend) -> None:
    backend.cordon("w1", MARK)
    written = api.writes()

    with pytest.raises(RefusedError, match=r"repair\.commands\.reboot"):
        backend.reboot("w1", MARK, ordered_at=0.0)
    assert api.writes() == written


def test_a_missing_right_is_forbidden_and_nothing_is_written(
    api: FakeKubernetes, backend: KubernetesBackend
) -> None:
    api.router.denied = {("patch", "nodes")}

    with pytest.raises(ForbiddenError):
        backend.cordon("w1", MARK)
    assert not backend.observe_node("w1").is_cordoned


def test_observe_lists_work_only(api: FakeKubernetes, backend: KubernetesBackend) -> None:
    daemonset = api.add_daemonset("exporter", namespace="mon")
    api.add_workload("train", gpus=8)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "exporter", "controller": True}
    running_pod = {"spec": {"nodeName": "w2"}, "status": {"phase": "Running"}}
    for name, uid in (("ds-1", daemonset["metadata"]["uid"]), ("ds-orphan", "of a deleted one")):
        api.add_pod(
            name, namespace="mon", metadata={"ownerReferences": [{**owner, "uid": uid}]}, **running_pod
        )
    api.add_pod("static", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}}, **running_pod)
    api.run()

    snapshot = backend.observe()

    assert {job.id for job in snapshot.jobs} == {"default/train-0", "mon/ds-orphan"}
    assert snapshot.nodes["w1"].state is NodeState.ALLOCATED
    assert snapshot.nodes["w3"].state is NodeState.IDLE
    assert [request.path for request in api.requests] == [
        "/api/v1/nodes",
        "/api/v1/pods",
        "/apis/apps/v1/daemonsets",
    ]


def test_observe_goes_on_without_the_right_to_daemonsets(
    api: FakeKubernetes, backend: KubernetesBackend
) -> None:
    api.router.denied = {("list", "daemonsets")}

    assert set(backend.observe().nodes) == {"w1", "w2", "w3", "w4"}


def test_a_bound_pod_that_has_not_started_is_on_its_node(
    api: FakeKubernetes, backend: KubernetesBackend
) -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
    api.add_pod(
        "j-0", metadata={"ownerReferences": [owner]}, spec={"nodeName": "w1"}, status={"phase": "Pending"}
    )

    (job,) = backend.observe().jobs_on("w1")

    assert job.state == "running"
    assert backend.cordon("w1", MARK).state is NodeState.DRAINING
