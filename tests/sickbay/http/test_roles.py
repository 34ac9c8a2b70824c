"""Who may do what: every path of the contract, for every role."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.support.fake_service import FakeService

PUSH = {"agent": {"node": "n01", "version": "0.1", "boot_id": "b1", "gpus": 8}, "events": []}
ALERTS = {"version": "4", "status": "firing", "alerts": [{"status": "firing", "labels": {"node": "n01"}}]}
TOKEN_OF = {
    "viewer": "viewer-token",
    "operator": "operator-token",
    "agent": "agent-n01-token",
    "alertmanager": "am-token",
    "wrong": "no-such-token",
}
READS = [
    "/api/v1/session",
    "/api/v1/nodes",
    "/api/v1/nodes/n01",
    "/api/v1/nodes/n01/why",
    "/api/v1/incidents",
    "/api/v1/incidents/inc-1",
    "/api/v1/findings",
]
ACTS = [
    "/api/v1/incidents/inc-1/approve",
    "/api/v1/incidents/inc-1/cancel",
    "/api/v1/nodes/n01/hold",
    "/api/v1/nodes/n01/release",
    "/api/v1/pause",
    "/api/v1/resume",
]
ROUTES: list[tuple[str, str, Any, set[str]]] = [
    *(("GET", path, None, {"viewer", "operator"}) for path in READS),
    *(("POST", path, {"reason": "maintenance of the rack"}, {"operator"}) for path in ACTS),
    ("POST", "/api/v1/events", PUSH, {"agent"}),
    ("POST", "/api/v1/alerts", ALERTS, {"alertmanager"}),
]


@pytest.mark.parametrize("role", [*TOKEN_OF, "none"])
def test_every_route_admits_its_roles_and_no_other(client: httpx.Client, role: str) -> None:
    headers = {"authorization": f"Bearer {TOKEN_OF[role]}"} if role != "none" else {}
    for method, path, body, admitted in ROUTES:
        answer = client.request(method, path, json=body, headers=headers)
        wanted = 401 if role in ("none", "wrong") else 200 if role in admitted else 403
        assert answer.status_code == wanted, (method, path, answer.text)
        if wanted != 200:
            assert answer.json()["error"].strip()


@pytest.mark.parametrize("role", ["none", "agent", "alertmanager"])
def test_the_stream_is_for_readers(client: httpx.Client, role: str) -> None:
    headers = {"authorization": f"Bearer {TOKEN_OF[role]}"} if role != "none" else {}
    assert client.get("/api/v1/stream", headers=headers).status_code == (401 if role == "none" else 403)


def test_anonymous_loopback_is_operator_and_pushes_for_any_node(anonymous: httpx.Client) -> None:
    for method, path, body, _ in ROUTES:
        assert anonymous.request(method, path, json=body).status_code == 200, path
    foreign = {"agent": {**PUSH["agent"], "node": "n04"}, "events": []}
    assert anonymous.post("/api/v1/events", json=foreign).status_code == 200


def test_a_wrong_token_is_refused_even_on_an_anonymous_loopback(anonymous: httpx.Client) -> None:
    for header in ("Bearer wrong", "Basic dXNlcjpwYXNz", "Bearer", ""):
        answer = anonymous.get("/api/v1/nodes", headers={"authorization": header})
        assert answer.status_code == 401, header


def test_health_and_metrics_need_no_token(client: httpx.Client, service: FakeService) -> None:
    assert client.get("/-/healthy").json()["status"] == "ok"
    assert client.get("/-/ready").status_code == 200
    metrics = client.get("/metrics")
    assert metrics.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "sickbay_up 1" in metrics.text
    service.is_ready = False
    answer = client.get("/-/ready")
    assert answer.status_code == 503
    assert answer.json() == {"error": "the store is not writable: disk full"}
    assert client.get("/-/healthy").status_code == 200


def test_forwarded_addresses_count_for_nothing(client: httpx.Client, anonymous: httpx.Client) -> None:
    for name in ("x-forwarded-for", "x-real-ip", "forwarded"):
        value = "for=127.0.0.1" if name == "forwarded" else "127.0.0.1"
        assert client.get("/api/v1/nodes", headers={name: value}).status_code == 401
        assert anonymous.get("/api/v1/nodes", headers={name: "10.0.0.9"}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example:8470", "127.0.0.1.evil.example", "10.0.0.1", ""])
def test_a_name_that_was_pointed_at_the_loopback_is_refused(anonymous: httpx.Client, host: str) -> None:
    answer = anonymous.get("/api/v1/nodes", headers={"host": host})
    assert answer.status_code == 403
    assert "127.0.0.1" in answer.json()["error"]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8470", "127.0.0.1", "[::1]:8470"])
def test_the_loopbacks_own_names_are_accepted(anonymous: httpx.Client, host: str) -> None:
    assert anonymous.get("/api/v1/nodes", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({}, 200),
    ],
)
def test_another_sites_page_cannot_press_the_button(
    anonymous: httpx.Client, service: FakeService, headers: dict[str, str], status: int
) -> None:
    answer = anonymous.post("/api/v1/pause", json={"reason": "test"}, headers=headers)
    assert answer.status_code == status
    assert bool(service.calls) == (status == 200)
