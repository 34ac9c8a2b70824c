"""The real service behind the door: a fault told over HTTP, and every answer as the contract says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from sickbay.http import HttpServer, TokenAccess, create_app, schemas
from tests.support.rig import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path)
    rig.tick(20)
    rig.submit(sorted(rig.cluster.agents.nodes)[0])
    return rig


@pytest.fixture
def lab(rig: Rig) -> Iterator[httpx.Client]:
    access = TokenAccess(lambda token: None, allow_anonymous_loopback=True)
    server = HttpServer(create_app(rig.app.service, access), "127.0.0.1", 0)
    server.start()
    try:
        with httpx.Client(base_url=server.url, timeout=10) as client:
            yield client
    finally:
        server.stop()
        rig.store.close()


def push(rig: Rig, node: str) -> dict[str, object]:
    contact = rig.cluster.agents.contact(node)
    assert contact is not None
    event = {
        "kind": "xid",
        "code": 79,
        "node": node,
        "pci": "0000:3b:00.0",
        "time": rig.clock.now(),
        "boot_id": contact["boot_id"],
        "sequence": 1000,
    }
    return {"agent": contact, "events": [event]}


def test_a_fault_told_over_http_and_read_back(rig: Rig, lab: httpx.Client) -> None:
    node = sorted(rig.cluster.agents.nodes)[0]
    told = push(rig, node)
    first = lab.post("/api/v1/events", json=told).json()
    assert schemas.EventsAnswer.model_validate(first).accepted == 1
    again = lab.post("/api/v1/events", json=told).json()
    assert (again["accepted"], again["duplicates"]) == (0, 1)
    rig.tick(8)

    incidents = lab.get("/api/v1/incidents").json()
    assert schemas.IncidentPage.model_validate(incidents).items[0].node == node
    incident_id = incidents["items"][0]["id"]
    for path, model in [
        ("/api/v1/nodes", schemas.NodePage),
        (f"/api/v1/nodes/{node}", schemas.NodeItem),
        (f"/api/v1/nodes/{node}/why", schemas.Why),
        (f"/api/v1/incidents/{incident_id}", schemas.IncidentDetail),
        ("/api/v1/findings", schemas.FindingPage),
    ]:
        answer = lab.get(path)
        assert answer.status_code == 200, answer.text
        model.model_validate_json(answer.content)
    why = lab.get(f"/api/v1/nodes/{node}/why").json()
    assert why["verdict"] == "unhealthy"
    assert why["incident"]["id"] == incident_id

    with lab.stream("GET", "/api/v1/stream?after=0") as stream:
        data = next(line for line in stream.iter_lines() if line.startswith("data: "))
    assert {"id", "node", "incident", "state", "step", "reason"} <= json.loads(data[6:]).keys()


def test_words_of_people_over_http(rig: Rig, lab: httpx.Client) -> None:
    node = sorted(rig.cluster.agents.nodes)[1]
    why = {"reason": "fan is being replaced"}
    assert lab.post(f"/api/v1/nodes/{node}/hold", json={**why, "expires_in_seconds": 60}).status_code == 200
    assert lab.post(f"/api/v1/nodes/{node}/release").status_code == 200
    assert lab.post("/api/v1/pause", json={**why, "pool": "gpu"}).status_code == 200
    assert lab.post("/api/v1/resume", json={"pool": "gpu"}).status_code == 200
    assert lab.post("/api/v1/pause", json={**why, "pool": "nothing"}).status_code == 400
    assert lab.post("/api/v1/nodes/n99/hold", json=why).status_code == 404
    assert lab.post("/api/v1/incidents/i-99/approve").status_code == 404
    assert lab.get("/metrics").status_code == 200
    assert lab.get("/-/ready").status_code == 200


def test_alerts_over_http(rig: Rig, lab: httpx.Client) -> None:
    path = Path(__file__).parents[2] / "data" / "http" / "alertmanager" / "odd_labels.json"
    headers = {"content-type": "application/json"}
    answer = lab.post("/api/v1/alerts", content=path.read_bytes(), headers=headers)
    assert answer.status_code == 200
    schemas.AlertsAnswer.model_validate_json(answer.content)
