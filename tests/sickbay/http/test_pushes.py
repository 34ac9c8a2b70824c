"""What must be taken and what must be refused at the door, on captured and constructed payloads."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.identity import is_node_name
from sickbay.config import Role
from sickbay.http.access import Identity
from sickbay.http.bodies import decode_json
from sickbay.http.errors import HttpError
from sickbay.http.pushes import parse_notification, parse_push
from tests.support.fake_service import FakeService

DATA = Path(__file__).parents[2] / "data" / "http" / "alertmanager"
JSON = {"content-type": "application/json"}
AGENT = {"node": "n01", "version": "0.1.0", "boot_id": "6f3c9a", "gpus": 8}
AS_N01 = Identity("n01", Role.AGENT, "n01")


@pytest.mark.parametrize(
    ("file", "status", "handed_on", "says"),
    [
        ("alertmanager_0_25.json", 200, 1, None),
        ("mixed_firing_resolved.json", 200, 3, None),
        ("truncated_group.json", 200, 3, None),
        ("grafana_unified.json", 200, 4, None),
        ("odd_labels.json", 200, 7, None),
        ("future_fields.json", 200, 1, None),
        ("wrong_or_legacy_a.json", 400, None, "legacy format not supported"),
        ("wrong_or_legacy_b.json", 200, 1, None),
        ("wrong_or_legacy_c.json", 200, 0, None),
        ("wrong_or_legacy_d.json", 400, None, "$ is a list"),
        ("wrong_or_legacy_e.json", 200, 1, None),
        ("wrong_or_legacy_g.json", 400, None, "not valid JSON"),
        ("wrong_or_legacy_h.json", 200, 0, None),
    ],
)
def test_notifications(
    client: httpx.Client,
    service: FakeService,
    as_alertmanager: dict[str, str],
    file: str,
    status: int,
    handed_on: int | None,
    says: str | None,
) -> None:
    body = (DATA / file).read_bytes()
    answer = client.post("/api/v1/alerts", content=body, headers={**JSON, **as_alertmanager})
    assert answer.status_code == status, answer.text
    if says is not None:
        assert says in answer.json()["error"]
        assert service.calls == []
        return
    assert answer.json()["accepted"] == handed_on
    if handed_on:
        assert service.calls[0][1]["alerts"] == json.loads(body.decode("utf-8-sig"))["alerts"]


def test_an_old_version_is_taken_with_a_warning(
    client: httpx.Client, as_alertmanager: dict[str, str]
) -> None:
    body = (DATA / "wrong_or_legacy_b.json").read_bytes()
    answer = client.post("/api/v1/alerts", content=body, headers={**JSON, **as_alertmanager})
    assert answer.json()["warnings"] == ["version is '3'; read as version 4"]


@pytest.mark.parametrize(
    "content_type",
    [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "json"],
)
@pytest.mark.parametrize("path", ["/api/v1/alerts", "/api/v1/events"])
def test_what_is_not_json_is_415(anonymous: httpx.Client, path: str, content_type: str | None) -> None:
    headers = {"content-type": content_type} if content_type else {}
    answer = anonymous.post(path, content=b"payload=%7B%22version%22%3A%224%22%7D", headers=headers)
    assert answer.status_code == 415
    assert "application/json" in answer.json()["error"]


def test_compressed_bodies_are_415(anonymous: httpx.Client) -> None:
    headers = {**JSON, "content-encoding": "gzip"}
    assert anonymous.post("/api/v1/alerts", content=b"\x1f\x8b", headers=headers).status_code == 415


@pytest.mark.parametrize(
    "kind", ["application/json; charset=utf-8", "APPLICATION/JSON", "application/x+json"]
)
def test_spellings_of_json(anonymous: httpx.Client, kind: str) -> None:
    answer = anonymous.post("/api/v1/alerts", content=b'{"alerts":[]}', headers={"content-type": kind})
    assert answer.status_code == 200


def test_thousands_of_alerts_in_one_notification(anonymous: httpx.Client, service: FakeService) -> None:
    alerts = [
        {"status": "firing", "labels": {"node": f"n{i // 8:04d}", "gpu": str(i % 8)}, "d": "x" * 300}
        for i in range(5000)
    ]
    answer = anonymous.post("/api/v1/alerts", json={"version": "4", "alerts": alerts})
    assert answer.json() == {"accepted": 5000, "duplicates": 0}
    assert len(service.calls) == 1


@pytest.mark.parametrize("path", ["/api/v1/alerts", "/api/v1/events"])
def test_a_store_that_cannot_store_is_503(anonymous: httpx.Client, service: FakeService, path: str) -> None:
    service.broken = True
    body = {"version": "4", "alerts": [{}], "agent": AGENT, "events": []}
    answer = anonymous.post(path, json=body)
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert "disk full" in answer.json()["error"]


def test_an_agents_push(client: httpx.Client, service: FakeService, as_agent: dict[str, str]) -> None:
    event = {"kind": "xid", "code": 79, "node": "n01", "time": 1.0, "boot_id": "6f3c9a", "sequence": 1}
    push = {"agent": AGENT, "events": [event, {**event, "node": "n02"}, "nonsense"], "future": 1}
    first = client.post("/api/v1/events", json=push, headers=as_agent)
    assert first.status_code == 200
    assert (first.json()["accepted"], first.json()["duplicates"]) == (1, 0)
    assert [r["index"] for r in first.json()["rejected"]] == [1, 2]
    again = client.post("/api/v1/events", json=push, headers=as_agent)
    assert (again.json()["accepted"], again.json()["duplicates"]) == (0, 1)


def test_an_agent_speaks_for_its_own_node_only(
    client: httpx.Client, service: FakeService, as_agent: dict[str, str]
) -> None:
    for node in ("n02", "N01", "n01 ", "n[01-04]", "n01,n02", "*", "", "n01\n"):
        answer = client.post(
            "/api/v1/events", json={"agent": {**AGENT, "node": node}, "events": []}, headers=as_agent
        )
        assert answer.status_code == 403, node
    assert service.calls == []


def test_an_unknown_node_is_404(anonymous: httpx.Client, service: FakeService) -> None:
    answer = anonymous.post("/api/v1/events", json={"agent": {**AGENT, "node": "n99"}, "events": []})
    assert answer.status_code == 404
    assert "n99" in answer.json()["error"]


@pytest.mark.parametrize(
    ("agent", "where"),
    [
        ({"node": "n[1-4]"}, "$.agent.node"),
        ({"node": "n1,n2"}, "$.agent.node"),
        ({"node": "../n01"}, "$.agent.node"),
        ({"node": "n01\n"}, "$.agent.node"),
        ({"node": "n01\u200b"}, "$.agent.node"),
        ({"node": "ｎ01"}, "$.agent.node"),
        ({"node": "*"}, "$.agent.node"),
        ({"node": ""}, "$.agent.node"),
        ({"node": "n" * 300}, "$.agent.node"),
        ({"node": None}, "$.agent.node"),
        ({"node": ["n01"]}, "$.agent.node"),
        ({"boot_id": ""}, "$.agent.boot_id"),
        ({"boot_id": None}, "$.agent.boot_id"),
        ({"boot_id": 7}, "$.agent.boot_id"),
        ({"boot_id": "b" * 129}, "$.agent.boot_id"),
        ({"boot_id": "a b"}, "$.agent.boot_id"),
        ({"boot_id": "a\n"}, "$.agent.boot_id"),
        ({"version": 1}, "$.agent.version"),
        ({"version": "v" * 65}, "$.agent.version"),
        ({"gpus": -1}, "$.agent.gpus"),
        ({"gpus": True}, "$.agent.gpus"),
        ({"gpus": 8.0}, "$.agent.gpus"),
        ({"gpus": "8"}, "$.agent.gpus"),
        ({"gpus": {}}, "$.agent.gpus"),
    ],
)
def test_a_malformed_envelope_says_where(
    anonymous: httpx.Client, service: FakeService, agent: dict[str, Any], where: str
) -> None:
    answer = anonymous.post("/api/v1/events", json={"agent": {**AGENT, **agent}, "events": []})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"].startswith(where)
    assert service.calls == []


@pytest.mark.parametrize("gpus", [None, 0, 8, [], ["GPU-1", "GPU-2"]])
def test_gpus_in_every_form(anonymous: httpx.Client, service: FakeService, gpus: object) -> None:
    push = {"agent": {**AGENT, "gpus": gpus}, "events": []}
    assert anonymous.post("/api/v1/events", json=push).status_code == 200
    assert service.calls[0][1]["agent"]["gpus"] == gpus


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"3", b'"x"', b"{}", b'{"agent":{}}', b"[" * 100_000])
@pytest.mark.parametrize("path", ["/api/v1/alerts", "/api/v1/events"])
def test_nonsense_is_400_with_one_sentence(anonymous: httpx.Client, path: str, body: bytes) -> None:
    answer = anonymous.post(path, content=body, headers=JSON)
    assert answer.status_code == 400
    assert "\n" not in answer.json()["error"]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["agent", "events", "alerts", "node", "boot_id", "version", "gpus", "x"]),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)


def refusal(parse: Callable[[Any], object], body: object) -> int | None:
    """The status with which ``parse`` refuses ``body``; None when it takes it. Anything else is raised."""
    try:
        parse(body)
    except HttpError as refused:
        return refused.status
    return None


@settings(deadline=None)
@given(JSON_VALUES)
def test_any_json_is_taken_or_refused(body: object) -> None:
    assert refusal(parse_notification, body) in (None, 400)
    assert refusal(lambda value: parse_push(value, AS_N01), body) in (None, 400, 403)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_refused(body: bytes) -> None:
    assert refusal(decode_json, body) in (None, 400)


@settings(deadline=None)
@given(st.text(max_size=20) | st.from_regex(r"[a-z0-9._,\[\]\n-]{1,12}", fullmatch=True))
def test_no_push_reaches_the_service_under_a_name_that_is_not_one(name: str) -> None:
    push = {"agent": {"node": name, "boot_id": "b"}, "events": []}
    status = refusal(lambda value: parse_push(value, Identity("lab", Role.OPERATOR)), push)
    if status is None:
        assert re.fullmatch(r"[A-Za-z0-9._-]+", name)
        assert is_node_name(name)
    else:
        assert status == 400
