"""Paging and filters, and what reads refuse."""

from __future__ import annotations

import httpx
import pytest

from tests.support.fake_service import FakeService


def test_nodes_are_paged(client: httpx.Client, as_viewer: dict[str, str]) -> None:
    seen: list[str] = []
    after: str | None = None
    for _ in range(10):
        params: dict[str, str | int] = {"limit": 3} | ({"after": after} if after else {})
        page = client.get("/api/v1/nodes", params=params, headers=as_viewer).json()
        seen += [item["name"] for item in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert seen == ["n01", "n02", "n03", "n04"]


def test_incidents_are_filtered_and_paged(client: httpx.Client, as_viewer: dict[str, str]) -> None:
    def ids(**params: object) -> list[str]:
        answer = client.get("/api/v1/incidents", params=params, headers=as_viewer)  # type: ignore[arg-type]
        assert answer.status_code == 200, answer.text
        return [item["id"] for item in answer.json()["items"]]

    assert ids() == ["inc-0", "inc-1"]
    assert ids(state="draining") == ["inc-1"]
    assert ids(node="n03") == ["inc-0"]
    first = client.get("/api/v1/incidents", params={"limit": 1}, headers=as_viewer).json()
    assert ids(before=first["next"]) == ["inc-1"]


@pytest.mark.parametrize(
    "query",
    [
        "nodes?limit=0",
        "nodes?limit=100000",
        "nodes?limit=ten",
        "nodes?after=n[1-4]",
        "incidents?state=open%20ones",
        "incidents?node=../n01",
        "incidents?before=nan",
        "incidents?before=inf",
        "incidents?limit=-1",
        "findings?node=*",
        "findings?include_cleared=perhaps",
        "stream?after=-1",
        "stream?after=99999999999999999999",
    ],
)
def test_a_wrong_parameter_is_400_and_says_which(
    client: httpx.Client, as_viewer: dict[str, str], query: str
) -> None:
    answer = client.get("/api/v1/" + query, headers=as_viewer)
    assert answer.status_code == 400, answer.text
    parameter = query.partition("?")[2].partition("=")[0]
    assert parameter in answer.json()["error"]


def test_cleared_findings_are_asked_for(
    client: httpx.Client, service: FakeService, as_viewer: dict[str, str]
) -> None:
    client.get("/api/v1/findings?node=n02&include_cleared=true", headers=as_viewer)
    assert service.calls == [("findings", {"node": "n02", "include_cleared": True})]


def test_unknown_paths_and_methods_are_sentences(client: httpx.Client) -> None:
    for method, path, status in [
        ("GET", "/nothing", 404),
        ("GET", "/api/v1/nodes/", 404),
        ("GET", "/docs", 404),
        ("DELETE", "/api/v1/nodes", 405),
        ("GET", "/api/v1/events", 405),
    ]:
        answer = client.request(method, path)
        assert answer.status_code == status
        assert answer.json()["error"]


def test_every_answer_carries_the_security_headers(client: httpx.Client) -> None:
    for path in ("/", "/-/healthy", "/api/v1/nodes", "/nothing", "/openapi.json"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "server" not in headers
