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
        ("DELETE", "/api/v1/nodes", 405),
        ("PUT", "/api/v1/nodes/w1", 405),
        ("DELETE", "/api/v1/nodes/w9", 404),
        ("POST", "/api/v1/pods", 405),
        ("GET", "/api/v1/nodes?labelSelector=a%20within%20(b)", 400),
        ("GET", "/api/v1/nodes?watch=true", 400),
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


STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
TAINT = {"key": "a", "effect": "NoSchedule"}


def test_taints_are_one_value_for_either_merge(http: httpx.Client) -> None:
    """``spec.taints`` is atomic: whoever patches it replaces what others put there."""
    for content_type in (MERGE, STRATEGIC):
        assert patch(http, {"spec": {"taints": [{**TAINT, "key": "other"}]}}).status_code == 200
        after = patch(http, {"spec": {"taints": [TAINT]}}, content_type).json()
        assert after["spec"]["taints"] == [TAINT]


def test_conditions_are_merged_by_their_type_in_a_strategic_patch_of_the_status(http: httpx.Client) -> None:
    new = {"type": "GpuHealthy", "status": "False"}
    kinds = {}
    for content_type in (STRATEGIC, MERGE):
        body = {"status": {"conditions": [new]}, "spec": {"unschedulable": True}}
        headers = {"Content-Type": content_type}
        after = http.patch("/api/v1/nodes/w1/status", json=body, headers=headers).json()
        kinds[content_type] = [one["type"] for one in after["status"]["conditions"]]
        assert "unschedulable" not in after["spec"]

    assert kinds == {STRATEGIC: ["Ready", "GpuHealthy"], MERGE: ["GpuHealthy"]}
    assert patch(http, {"status": {"conditions": []}}).json()["status"]["conditions"] == [new]


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ({"op": "add", "path": "/spec/unschedulable", "value": True}, 200),
        ({"op": "test", "path": "/metadata/name", "value": "w1"}, 200),
        ({"op": "test", "path": "/metadata/name", "value": "w2"}, 422),
        ({"op": "remove", "path": "/spec/taints"}, 422),
        ({"op": "replace", "path": "/spec/unschedulable", "value": True}, 422),
        ({"op": "add", "path": "/metadata/annotations/a~1b", "value": "c"}, 422),
        ({"op": "replace", "path": "/metadata/labels/kubernetes.io~1hostname", "value": "c"}, 200),
        ({"op": "move", "from": "/a", "path": "/b"}, 400),
    ],
)
def test_json_patches(http: httpx.Client, operation: dict[str, Any], code: int) -> None:
    assert patch(http, [operation], JSON_PATCH).status_code == code


def test_a_dry_run_changes_nothing(api: FakeKubernetes, http: httpx.Client) -> None:
    api.add_workload("train")
    api.run()
    api.add_budget("pdb", "train", maxUnavailable=1)
    pod = "/api/v1/namespaces/default/pods/train-0"
    before = (api.get("nodes", "w1"), api.get("pods", "train-0", "default"))

    dry = patch(http, {"spec": {"unschedulable": True}}, query="?dryRun=All")
    assert (dry.status_code, dry.json()["spec"]["unschedulable"]) == (200, True)
    assert http.post(f"{pod}/eviction?dryRun=All", json=eviction()).status_code == 201
    assert http.delete(f"{pod}?dryRun=All").status_code == 200
    assert http.delete(f"{pod}?dryRun=Some").status_code == 422

    assert before == (api.get("nodes", "w1"), api.get("pods", "train-0", "default"))
    assert api.get("poddisruptionbudgets", "pdb", "default")["status"]["disruptionsAllowed"] == 1


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("kubernetes.io/hostname=w1", ["w1"]),
        ("kubernetes.io/hostname!=w1", ["w2", "w3", "w4"]),
        ("kubernetes.io/hostname in (w1, w4)", ["w1", "w4"]),
        ("kubernetes.io/hostname notin (w1,w4),kubernetes.io/hostname", ["w2", "w3"]),
        ("pool", ["w2"]),
        ("!pool", ["w1", "w3", "w4"]),
        ("pool!=a", ["w1", "w3", "w4"]),
    ],
)
def test_label_selectors(api: FakeKubernetes, http: httpx.Client, selector: str, names: list[str]) -> None:
    api.edit("nodes", "w2", lambda node: node["metadata"]["labels"].update(pool="a"))

    found = http.get("/api/v1/nodes", params={"labelSelector": selector}).json()["items"]

    assert [node["metadata"]["name"] for node in found] == names


def test_people_get_tables(api: FakeKubernetes, http: httpx.Client) -> None:
    api.edit("nodes", "w1", lambda node: node["spec"].update(unschedulable=True))
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}

    one = http.get("/api/v1/nodes/w1", headers=accept).json()
    all_of_them = http.get("/api/v1/nodes", headers=accept).json()

    assert (one["kind"], one["rows"][0]["cells"][:2]) == ("Table", ["w1", "Ready,SchedulingDisabled"])
    assert one["rows"][0]["object"]["metadata"]["name"] == "w1"
    assert [row["cells"][0] for row in all_of_them["rows"]] == ["w1", "w2", "w3", "w4"]


def _protobuf(*parts: tuple[int, str]) -> bytes:
    """As ``kubectl auth can-i`` asks: it sends protobuf only."""

    def field(number: int, value: bytes) -> bytes:
        return bytes([number << 3 | 2, len(value)]) + value

    attributes = b"".join(field(number, text.encode()) for number, text in parts)
    review = field(1, b"") + field(2, field(1, attributes)) + field(3, field(2, b""))
    made_of = field(1, b"authorization.k8s.io/v1") + field(2, b"SelfSubjectAccessReview")
    return b"k8s\0" + field(1, made_of) + field(2, review) + field(3, b"") + field(4, b"")


@pytest.mark.parametrize(
    ("body", "code", "allowed"),
    [
        (_protobuf((2, "patch"), (3, ""), (5, "nodes")), 201, True),
        (_protobuf((1, "default"), (2, "create"), (5, "pods"), (6, "eviction")), 201, False),
        (b"k8s\0\xff", 400, None),
        (b"{}", 400, None),
    ],
)
def test_rights_may_be_asked_in_protobuf(
    api: FakeKubernetes, http: httpx.Client, body: bytes, code: int, allowed: bool | None
) -> None:
    api.router.denied.add(("create", "pods/eviction"))

    answer = http.post(
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        content=body,
        headers={"Content-Type": "application/vnd.kubernetes.protobuf"},
    )

    assert answer.status_code == code
    assert answer.json()["status"] == ("Failure" if allowed is None else {"allowed": allowed})


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
