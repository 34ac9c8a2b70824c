"""The client over real HTTP against the fake API: paths, pages, deadlines, errors."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.kubernetes.auth import CredentialsError, load_credentials
from collector.kubernetes.client import KubernetesClient
from collector.kubernetes.live import read_live
from collector.kubernetes.rights import RIGHTS, Right, Role, missing_rights
from fleet.clock import ManualClock, SystemClock
from fleet.errors import (
    BackendError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    RateLimitedError,
    RefusedError,
    UnavailableError,
)
from fleet.observations import Allocation, ProblemReason
from tests.fakes.kubernetes_api import TOKEN, FakeKubernetes, Script, running
from tests.support.kubernetes_clients import client_of

RBAC = 'nodes is forbidden: User "u" cannot list resource "nodes" in API group "" at the cluster scope'


@pytest.fixture
def api() -> Iterator[FakeKubernetes]:
    with running(clock=ManualClock()) as fake:
        yield fake


@pytest.fixture
def client(api: FakeKubernetes, tmp_path: Path) -> Iterator[KubernetesClient]:
    with client_of(api, tmp_path, timeout_seconds=2.0, page_items=3) as made:
        yield made


def status(code: int, message: str, reason: str = "") -> str:
    return json.dumps(
        {"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code}
    )


# -- lists


def test_a_list_is_read_in_pages_to_its_end(api: FakeKubernetes, client: KubernetesClient) -> None:
    api.add_node("w5")

    assert [node.metadata.name for node in client.list_nodes()] == ["w1", "w2", "w3", "w4", "w5"]
    assert [request.query.get("limit") for request in api.requests] == ["3", "3"]


def test_an_expired_page_starts_the_list_again(api: FakeKubernetes, client: KubernetesClient) -> None:
    api.router.expire_continues = 1

    assert len(client.list_nodes()) == 4
    assert ["continue" in request.query for request in api.requests] == [False, True, False, True]


def test_a_list_that_always_expires_is_no_short_list(api: FakeKubernetes, client: KubernetesClient) -> None:
    api.router.expire_continues = 99

    with pytest.raises(UnavailableError):
        client.list_nodes()


def test_pods_are_listed_without_the_finished_ones(api: FakeKubernetes, client: KubernetesClient) -> None:
    for phase in ("Running", "Succeeded", "Failed", "Pending"):
        api.add_pod(phase.lower(), spec={"nodeName": "w1"}, status={"phase": phase})
    api.add_pod("elsewhere", spec={"nodeName": "w2"}, status={"phase": "Running"})

    assert {pod.id for pod in client.list_pods()} == {
        "default/running",
        "default/pending",
        "default/elsewhere",
    }
    assert {pod.id for pod in client.list_pods_on("w1")} == {"default/running", "default/pending"}


# -- what goes wrong


@pytest.mark.parametrize(
    ("code", "body", "error"),
    [
        (404, status(404, 'nodes "w1" not found', "NotFound"), NotFoundError),
        (409, status(409, "modified", "Conflict"), ConflictError),
        (403, status(403, RBAC, "Forbidden"), ForbiddenError),
        (403, status(403, "ValidatingAdmissionPolicy 'x' denied request: no", "Forbidden"), RefusedError),
        (422, status(422, "invalid", "Invalid"), RefusedError),
        (400, status(400, "bad", "BadRequest"), RefusedError),
        (429, "too many requests", RateLimitedError),
        (500, status(500, "etcd", "InternalError"), UnavailableError),
        (504, status(504, "Timeout", "Timeout"), UnavailableError),
        (502, "<html>bad gateway</html>", UnavailableError),
        (302, "", UnavailableError),
        (200, "<html>log in</html>", UnavailableError),
        (200, '{"kind": "Node", "apiVersion": "v1"}', UnavailableError),
    ],
)
def test_an_answer_that_is_no_success(
    api: FakeKubernetes, client: KubernetesClient, code: int, body: str, error: type[BackendError]
) -> None:
    api.scripts.append(Script("GET", "nodes/w1$", code=code, body=body, times=9))

    with pytest.raises(error):
        client.get_node("w1")


def test_a_list_answered_with_a_page_of_something_else_is_no_empty_cluster(
    api: FakeKubernetes, client: KubernetesClient
) -> None:
    api.scripts.append(Script("GET", "nodes$", code=200, body='{"kind": "Status", "status": "Success"}'))

    with pytest.raises(UnavailableError):
        client.list_nodes()


def test_a_transient_403_is_asked_again(api: FakeKubernetes, client: KubernetesClient) -> None:
    """Right after its start a kube-apiserver refuses rights that exist."""
    api.scripts.append(Script("GET", "nodes$", code=403, body=status(403, RBAC, "Forbidden")))
    before = api.clock.monotonic()

    assert len(client.list_nodes()) == 4
    assert api.clock.monotonic() - before == 2.0


def test_an_expired_token_is_renewed_once(api: FakeKubernetes, tmp_path: Path) -> None:
    with client_of(api, tmp_path, token="old") as client:
        with pytest.raises(ForbiddenError):
            client.list_nodes()
        api.kubeconfig(tmp_path)  # rotated in place

        assert len(client.list_nodes()) == 4


def test_a_busy_server_gets_its_pause_from_all_calls(api: FakeKubernetes, client: KubernetesClient) -> None:
    api.scripts.append(Script("GET", "nodes$", code=429, body="busy", headers={"Retry-After": "7"}))
    with pytest.raises(RateLimitedError) as first:
        client.list_nodes()
    asked = len(api.requests)

    with pytest.raises(RateLimitedError):
        client.get_node("w1")

    assert first.value.retry_after_seconds == 7
    assert len(api.requests) == asked
    assert isinstance(api.clock, ManualClock)
    api.clock.advance(7.5)
    assert client.get_node("w1").metadata.name == "w1"


@pytest.mark.parametrize("then", ["hang", "drip", "drop"])
def test_a_call_ends_within_its_deadline(api: FakeKubernetes, tmp_path: Path, then: str) -> None:
    api.scripts.append(Script("GET", "nodes/w1$", then=then, seconds=3.0))
    with client_of(api, tmp_path, clock=SystemClock(), timeout_seconds=0.4) as client:
        started = time.monotonic()
        with pytest.raises(UnavailableError):
            client.get_node("w1")
        assert time.monotonic() - started < 1.0


def test_nobody_at_the_address_is_unavailable(tmp_path: Path) -> None:
    with running() as gone:
        path = gone.kubeconfig(tmp_path)
    client = KubernetesClient(load_credentials(path), clock=ManualClock())

    with pytest.raises(UnavailableError):
        client.list_nodes()
    client.close()


def test_our_own_limit_holds(api: FakeKubernetes, tmp_path: Path) -> None:
    with client_of(api, tmp_path, max_qps=2.0, timeout_seconds=1.0) as client:
        before = api.clock.monotonic()
        for _ in range(4):
            client.get_node("w1")
        assert api.clock.monotonic() - before == pytest.approx(2.0)  # two at once, then one a second


# -- writes


def test_a_patch_carries_the_version_that_was_read(api: FakeKubernetes, client: KubernetesClient) -> None:
    read = client.get_node("w1")

    after = client.patch_node(read, {"metadata": {"annotations": {"sickbay.io/x": "1"}}})

    sent = api.requests[-1]
    assert sent.headers["content-type"] == "application/merge-patch+json"
    assert sent.body["metadata"]["resourceVersion"] == read.metadata.resource_version
    assert (after.metadata.annotations or {})["sickbay.io/x"] == "1"
    with pytest.raises(ConflictError):
        client.patch_node(read, {"metadata": {"annotations": {"sickbay.io/x": "2"}}})


def test_an_eviction_is_policy_v1_and_names_the_uid(api: FakeKubernetes, client: KubernetesClient) -> None:
    made = api.add_pod("p", spec={"nodeName": "w1"}, status={"phase": "Running"})

    answer = client.evict(client.get_pod("default", "p").metadata)

    assert answer.code == 201
    sent = api.requests[-1]
    assert sent.path == "/api/v1/namespaces/default/pods/p/eviction"
    assert sent.body == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "p", "namespace": "default"},
        "deleteOptions": {"preconditions": {"uid": made["metadata"]["uid"]}},
    }


def test_a_write_is_not_begun_without_leave(api: FakeKubernetes, tmp_path: Path) -> None:
    asked: list[float] = []

    def no(seconds: float) -> None:
        asked.append(seconds)
        raise UnavailableError("not called: the lease is over")

    with client_of(api, tmp_path, may_act=no, timeout_seconds=3.0) as client:
        node = client.get_node("w1")
        with pytest.raises(UnavailableError):
            client.patch_node(node, {})

    assert asked == [3.0]
    assert api.writes() == []


def test_a_name_cannot_leave_its_place_in_the_path(api: FakeKubernetes, client: KubernetesClient) -> None:
    with pytest.raises(NotFoundError):
        client.get_node("../../version")
    assert api.requests[-1].path.startswith("/api/v1/nodes/")


# -- who we are


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=30)


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A CA, a server's certificate for 127.0.0.1 and a client's."""
    folder = tmp_path / "pki"
    folder.mkdir()
    new = (
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    )
    openssl(folder, *new, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=ca")
    for name, extension in (
        ("server", "subjectAltName=IP:127.0.0.1"),
        ("client", "extendedKeyUsage=clientAuth"),
        ("stranger", "extendedKeyUsage=clientAuth"),
    ):
        by = () if name == "stranger" else ("-CA", "ca.crt", "-CAkey", "ca.key")
        signed = (*by, "-addext", extension, "-addext", "basicConstraints=CA:FALSE")
        openssl(
            folder, *new, "-keyout", f"{name}.key", "-out", f"{name}.crt", "-subj", f"/CN={name}", *signed
        )
    return folder


@pytest.mark.services
@pytest.mark.parametrize(
    ("authority", "with_certificate", "works"),
    [("ca.crt", True, True), (None, True, True), ("server.crt", True, False), ("ca.crt", False, False)],
)
def test_both_sides_prove_who_they_are(
    tmp_path: Path, certificates: Path, authority: str | None, with_certificate: bool, works: bool
) -> None:
    """``authority`` None is the operator's own insecure-skip-tls-verify."""
    pair = {"client-certificate": "client.crt", "client-key": "client.key"}
    user = {key: str(certificates / name) for key, name in pair.items()} if with_certificate else {}
    trust = (
        {"certificate-authority": str(certificates / authority)}
        if authority
        else {"insecure-skip-tls-verify": True}
    )
    api = FakeKubernetes()
    api.serve_tls(certificates / "server.crt", certificates / "server.key", clients=certificates / "ca.crt")
    with api, client_of(api, tmp_path, user=user, cluster=trust) as client:
        api.add_node("w1")
        if works:
            assert [node.metadata.name for node in client.list_nodes()] == ["w1"]
            return
        with pytest.raises(UnavailableError):
            client.list_nodes()


@pytest.mark.services
def test_a_certificate_that_was_replaced_is_used(tmp_path: Path, certificates: Path) -> None:
    """The call that meets the refusal fails; the next one has what stands in the files by then."""
    mine = tmp_path / "mine"
    mine.mkdir()
    pair = {"client-certificate": "client.crt", "client-key": "client.key"}
    for name in pair.values():  # at first one of a stranger
        (mine / name).write_bytes((certificates / name.replace("client", "stranger")).read_bytes())
    user = {key: str(mine / name) for key, name in pair.items()}
    trust = {"certificate-authority": str(certificates / "ca.crt")}
    api = FakeKubernetes()
    api.serve_tls(certificates / "server.crt", certificates / "server.key", clients=certificates / "ca.crt")
    with api, client_of(api, tmp_path, user=user, cluster=trust) as client:
        api.add_node("w1")
        for name in pair.values():
            (mine / name).write_bytes((certificates / name).read_bytes())
        with pytest.raises(UnavailableError):
            client.list_nodes()

        assert [node.metadata.name for node in client.list_nodes()] == ["w1"]


def plugin(folder: Path, script: str) -> dict[str, object]:
    """A kubeconfig user whose credentials come from a command (client-go "exec" plugins)."""
    command = folder / "plugin"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    api_version = "client.authentication.k8s.io/v1"
    return {
        "token": None,
        "exec": {"apiVersion": api_version, "command": str(command), "interactiveMode": "Never"},
    }


def test_a_plugin_is_asked_for_a_token_and_again_when_it_is_refused(
    api: FakeKubernetes, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("stale")
    credential = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":'
    user = plugin(tmp_path, f"echo '{credential}\"'$(cat {token})'\"}}}}'")
    with client_of(api, tmp_path, user=user, timeout_seconds=2.0) as client:
        token.write_text(TOKEN)

        assert client.get_node("w1").metadata.name == "w1"
    assert [request.headers["authorization"] for request in api.requests] == [
        "Bearer stale",
        f"Bearer {TOKEN}",
    ]


def test_a_plugin_that_hangs_is_told(
    api: FakeKubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.kubernetes.auth._LOAD_SECONDS", 0.2)

    with pytest.raises(CredentialsError, match=r"within 0\.2 s: a hung exec plugin\?"):
        load_credentials(api.kubeconfig(tmp_path, user=plugin(tmp_path, "exec sleep 2")))


def test_a_missing_right_is_seen_behind_long_names(api: FakeKubernetes, client: KubernetesClient) -> None:
    long = RBAC.replace('"u"', f'"system:serviceaccount:{"n" * 63}:{"a" * 253}"')
    api.scripts.append(Script("GET", "/nodes", times=2, code=403, body=status(403, long, "Forbidden")))

    with pytest.raises(ForbiddenError):
        client.list_nodes()


def test_rights_are_asked_not_tried(api: FakeKubernetes, client: KubernetesClient) -> None:
    api.router.denied = {("create", "pods/eviction"), ("patch", "nodes")}

    assert missing_rights(Role.OBSERVER, client.may) == ()
    assert missing_rights(Role.ACTOR, client.may) == (
        Right("patch", "nodes"),
        Right("create", "pods", subresource="eviction"),
    )
    assert len(RIGHTS[Role.ACTOR]) == len({str(right) for right in RIGHTS[Role.ACTOR]})


@pytest.mark.parametrize("text", ["", "not: [valid", "[]", "{}", '{"contexts": 7}'])
def test_a_file_that_is_no_kubeconfig_is_one_clear_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)

    with pytest.raises(CredentialsError, match="no Kubernetes credentials from kubeconfig"):
        load_credentials(tmp_path / "config")


def test_a_context_that_does_not_exist_is_told(api: FakeKubernetes, tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="prod"):
        load_credentials(api.kubeconfig(tmp_path), "prod")


def test_a_live_look_gives_records_or_a_problem(api: FakeKubernetes, tmp_path: Path) -> None:
    path = api.kubeconfig(tmp_path)

    assert [node.name for node in read_live(2.0, kubeconfig=path).nodes] == ["w1", "w2", "w3", "w4"]

    api.router.denied = {("list", "nodes")}
    refused = read_live(2.0, kubeconfig=path, clock=ManualClock())
    assert not refused.ok
    assert [problem.reason for problem in refused.problems] == [ProblemReason.PERMISSION_DENIED]
    assert not read_live(2.0, kubeconfig=tmp_path / "nowhere").ok


@pytest.mark.parametrize(("code", "gpus", "told"), [(200, 2, 0), (403, None, 1), (404, None, 0)])
def test_a_live_look_asks_for_claims_where_pods_have_some(
    api: FakeKubernetes, tmp_path: Path, code: int, gpus: int | None, told: int
) -> None:
    """Older servers have the API under older versions only, or not at all."""
    claims = [{"name": "gpus", "resourceClaimName": "c"}]
    spec = {"nodeName": "w1", "containers": [], "resourceClaims": claims}
    api.add_pod("p", spec=spec, status={"phase": "Running"})
    results = [{"driver": "gpu.nvidia.com", "pool": "w1", "device": f"gpu-{index}"} for index in (0, 5)]
    claim = {
        "metadata": {"name": "c", "namespace": "default"},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": "p"}],
        },
    }
    body = json.dumps({"kind": "ResourceClaimList", "metadata": {}, "items": [claim]})
    if code != 404:
        refusal = status(code, "resourceclaims is forbidden by a policy", "Forbidden")
        body = body if code == 200 else refusal
        api.scripts.append(Script("GET", "/v1beta2/resourceclaims", code=code, body=body))

    reading = read_live(2.0, kubeconfig=api.kubeconfig(tmp_path), clock=api.clock)

    assert [(job.gpus, job.gpu_use.value) for job in reading.jobs] == [(gpus, "claim")]
    held = [(one.index, one.pods) for one in reading.records if isinstance(one, Allocation)]
    assert held == ([(0, ("default/p",)), (5, ("default/p",))] if gpus else [])
    assert [problem.reason for problem in reading.problems] == [ProblemReason.PARTIAL] * told
