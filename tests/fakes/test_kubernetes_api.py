"""The fake is strict: what a real kube-apiserver refuses, it refuses too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fakes.kubernetes_api import TOKEN, FakeKubernetes, running

MERGE = "application/merge-patch+json"


@pytest.fixture
def api() -> Iterator[FakeKubernetes]:
    with running() as fake:
        yield fake


@pytest.fixture
def http(api: FakeKubernetes) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {TOKEN}", "User-Agent": "test/1"}
    with httpx.Client(base_url=api.url, headers=headers) as client:
        yield client


def patch(http: httpx.Client, body: Any, content_type: str = MERGE, query: str = "") -> httpx.Response:
    return http.patch(f"/api/v1/nodes/w1{query}", json=body, headers={"Content-Type": content_type})


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/api/v1/nodes/w1", 200),
        ("GET", "/api/v1/nodes/w9", 404),
        ("GET", "/api/v1/namespaces/default/nodes", 404),
        ("GET", "/api/v1/pods/p", 404),
        ("GET", "/api/v1/nodes?limits=5", 400),
        ("GET", "/api/v1/pods?fieldSelector=spec.node=w1", 400),
        ("GET", "/apis/policy/v1beta1/namespaces/default/poddisruptionbudgets", 404),
        ("DELETE", "/api/v1/nodes/w1", 405),
        ("POST", "/api/v1/namespaces/default/pods/p/binding", 404),
    ],
)
def test_paths_verbs_and_parameters(http: httpx.Client, method: str, path: str, code: int) -> None:
    answer = http.request(method, path)

    assert answer.status_code == code
    if code != 200:
        assert answer.json()["kind"] == "Status"


@pytest.mark.parametrize(
    ("body", "content_type", "code"),
    [
        ({"spec": {"unschedulable": True}}, MERGE, 200),
        ({"spec": {"unschedulable": True}}, "application/json", 415),
        ({"spec": {"unschedulable": "true"}}, MERGE, 400),
        ({"spec": {"unscheduleable": True}}, MERGE, 400),
        ({"metadata": {"annotations": {"a": 1}}}, MERGE, 400),
        ({"metadata": {"resourceVersion": "1"}, "spec": {"unschedulable": True}}, MERGE, 409),
        ({"metadata": {"uid": "another"}}, MERGE, 409),
        ({"metadata": {"name": "w2"}}, MERGE, 400),
    ],
)
def test_patches(http: httpx.Client, body: Any, content_type: str, code: int) -> None:
    assert patch(http, body, content_type).status_code == code


def test_a_patch_of_nothing_keeps_the_version_and_each_manager_its_fields(http: httpx.Client) -> None:
    first = patch(http, {"spec": {"unschedulable": True}}, query="?fieldManager=one").json()
    again = patch(http, {"spec": {"unschedulable": True}}, query="?fieldManager=two").json()
    noted = patch(http, {"metadata": {"annotations": {"a": "b"}}}).json()
    gone = patch(http, {"spec": {"unschedulable": None}}).json()

    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    owners = {entry["manager"]: entry["fieldsV1"] for entry in noted["metadata"]["managedFields"]}
    assert owners["one"] == {"f:spec": {"f:unschedulable": {}}}
    assert owners["test"] == {"f:metadata": {"f:annotations": {"f:a": {}}}}
    assert "one" not in {entry["manager"] for entry in gone["metadata"]["managedFields"]}


def eviction(name: str = "train-0", **options: Any) -> dict[str, Any]:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return {**body, "deleteOptions": options}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (eviction("other"), 400),
        ({**eviction(), "apiVersion": "v1"}, 400),
        (eviction(preconditions={"uuid": "x"}), 400),
        (eviction(gracePeriodSeconds=-1), 400),
        (eviction(preconditions={"uid": "x"}), 409),
        (eviction(dryRun=["All"]), 201),
    ],
)
def test_evictions(api: FakeKubernetes, http: httpx.Client, body: Any, code: int) -> None:
    api.add_workload("train")
    api.run()

    assert http.post("/api/v1/namespaces/default/pods/train-0/eviction", json=body).status_code == code
    assert "deletionTimestamp" not in api.get("pods", "train-0", "default")["metadata"]


def test_a_refused_uid_spends_the_budget_all_the_same(api: FakeKubernetes, http: httpx.Client) -> None:
    api.add_workload("train")
    api.run()
    api.add_budget("pdb", "train", maxUnavailable=1)

    http.post("/api/v1/namespaces/default/pods/train-0/eviction", json=eviction(preconditions={"uid": "x"}))

    status = api.get("poddisruptionbudgets", "pdb", "default")["status"]
    assert (status["disruptionsAllowed"], list(status["disruptedPods"])) == (0, ["train-0"])


def test_a_second_eviction_may_only_shorten_the_grace(api: FakeKubernetes, http: httpx.Client) -> None:
    api.add_workload("train")
    api.run()
    path = "/api/v1/namespaces/default/pods/train-0/eviction"

    ends = []
    for options in ({}, {"gracePeriodSeconds": 600}, {"gracePeriodSeconds": 5}):
        assert http.post(path, json=eviction(**options)).status_code == 201
        ends.append(api.get("pods", "train-0", "default")["metadata"]["deletionTimestamp"])

    assert ends[0] == ends[1] > ends[2]


def test_nobody_without_the_token(api: FakeKubernetes) -> None:
    assert httpx.get(f"{api.url}/api/v1/nodes").status_code == 401
