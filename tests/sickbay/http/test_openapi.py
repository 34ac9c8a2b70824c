"""The OpenAPI document is served and true."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from sickbay.http import schemas

CONTRACT = {
    "/": {"get"},
    "/-/healthy": {"get"},
    "/-/ready": {"get"},
    "/metrics": {"get"},
    "/login": {"post"},
    "/logout": {"post"},
    "/api/v1/alerts": {"post"},
    "/api/v1/events": {"post"},
    "/api/v1/session": {"get"},
    "/api/v1/nodes": {"get"},
    "/api/v1/nodes/{name}": {"get"},
    "/api/v1/nodes/{name}/why": {"get"},
    "/api/v1/nodes/{name}/hold": {"post"},
    "/api/v1/nodes/{name}/release": {"post"},
    "/api/v1/incidents": {"get"},
    "/api/v1/incidents/{incident_id}": {"get"},
    "/api/v1/incidents/{incident_id}/approve": {"post"},
    "/api/v1/incidents/{incident_id}/cancel": {"post"},
    "/api/v1/findings": {"get"},
    "/api/v1/pause": {"post"},
    "/api/v1/resume": {"post"},
    "/api/v1/stream": {"get"},
}


@pytest.fixture
def document(client: httpx.Client) -> dict[str, Any]:
    answer = client.get("/openapi.json")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def test_it_lists_every_route_of_the_contract_and_no_other(document: dict[str, Any]) -> None:
    assert {path: set(operations) for path, operations in document["paths"].items()} == CONTRACT


def test_no_route_promises_what_it_does_not_do(document: dict[str, Any]) -> None:
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert "422" not in operation["responses"], path
            assert "security" in operation, path
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    schema = response["content"]["application/json"]["schema"]
                    assert schema == {"$ref": "#/components/schemas/ErrorAnswer"}, (path, status)


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    def references(value: object) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [found for inner in value.values() for found in references(inner)]
        return [found for inner in value for found in references(inner)] if isinstance(value, list) else []

    for reference in references(document):
        node: Any = document
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/api/v1/session", schemas.SessionAnswer),
        ("/api/v1/nodes", schemas.NodePage),
        ("/api/v1/nodes/n01", schemas.NodeItem),
        ("/api/v1/nodes/n02/why", schemas.Why),
        ("/api/v1/incidents", schemas.IncidentPage),
        ("/api/v1/incidents/inc-1", schemas.IncidentDetail),
        ("/api/v1/findings", schemas.FindingPage),
    ],
)
def test_answers_are_what_it_says(
    client: httpx.Client, as_viewer: dict[str, str], path: str, model: type[schemas._Answer]
) -> None:
    answer = client.get(path, headers=as_viewer)
    assert answer.status_code == 200
    model.model_validate_json(answer.content)
