"""Human word: strict bodies, a reason where one is needed, the author from the token."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from fleet.errors import InvalidInputError, SickbayError, UnavailableError
from tests.support.fake_service import FakeService

WHY = {"reason": "fan replaced"}


@pytest.mark.parametrize(
    ("path", "body", "call"),
    [
        ("/incidents/inc-1/approve", None, ("approve", {"incident": "inc-1", "reason": ""})),
        ("/incidents/inc-1/approve", WHY, ("approve", {"incident": "inc-1", **WHY})),
        ("/incidents/inc-1/cancel", WHY, ("cancel", {"incident": "inc-1", **WHY})),
        (
            "/nodes/n01/hold",
            {**WHY, "expires_in_seconds": 600, "pool": None},
            ("hold", {"node": "n01", **WHY, "expires_in_seconds": 600.0}),
        ),
        ("/nodes/n01/release", {}, ("release", {"node": "n01", "reason": ""})),
        (
            "/pause",
            {**WHY, "pool": "gpu", "expires_in_seconds": None},
            ("pause", {"pool": "gpu", **WHY, "expires_in_seconds": None}),
        ),
        ("/pause", {"reason": " two\n lines "}, ("pause", {"pool": None, "reason": "two lines"})),
        ("/resume", {"pool": "gpu"}, ("resume", {"pool": "gpu", "reason": ""})),
    ],
)
def test_acts_reach_the_service_with_their_author(
    client: httpx.Client,
    service: FakeService,
    as_operator: dict[str, str],
    path: str,
    body: dict[str, Any] | None,
    call: tuple[str, dict[str, Any]],
) -> None:
    answer = client.post("/api/v1" + path, json=body, headers=as_operator)
    assert answer.status_code == 200, answer.text
    name, arguments = service.calls[-1]
    assert name == call[0]
    assert arguments["author"] == "olga"
    assert call[1].items() <= arguments.items()


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/incidents/inc-1/cancel", {}, "$.reason is required"),
        ("/incidents/inc-1/cancel", {"reason": "  \n"}, "$.reason is required"),
        ("/nodes/n01/hold", {"reason": None}, "$.reason is required"),
        ("/pause", {"pool": "gpu"}, "$.reason is required"),
        ("/pause", {"reason": 3}, "$.reason"),
        ("/pause", {"reason": "x" * 501}, "longer than 500"),
        ("/pause", {"reason": "a\u0000b"}, "control characters"),
        ("/pause", {"reason": "a\u001b[2Jb"}, "control characters"),
        ("/pause", {"reason": "ok \u202edrol"}, "control characters"),
        ("/pause", {**WHY, "author": "root"}, "unknown field `author`"),
        ("/pause", {**WHY, "expires_in_seconds": 0}, "$.expires_in_seconds"),
        ("/pause", {**WHY, "expires_in_seconds": -5}, "$.expires_in_seconds"),
        ("/pause", {**WHY, "expires_in_seconds": 1e12}, "$.expires_in_seconds"),
        ("/pause", {**WHY, "expires_in_seconds": "600"}, "$.expires_in_seconds"),
        ("/pause", {**WHY, "expires_in_seconds": True}, "$.expires_in_seconds"),
        ("/pause", {**WHY, "pool": "a,b"}, "$.pool"),
        ("/pause", {**WHY, "pool": "*"}, "$.pool"),
        ("/pause", {**WHY, "pool": ""}, "$.pool"),
        ("/nodes/n01/hold", {**WHY, "pool": "gpu"}, "$.pool has no meaning here"),
        ("/nodes/n01/release", {"expires_in_seconds": 5}, "$.expires_in_seconds has no meaning here"),
        ("/incidents/inc-1/approve", [], "Expected `object`"),
    ],
)
def test_a_wrong_body_is_400_and_does_nothing(
    client: httpx.Client,
    service: FakeService,
    as_operator: dict[str, str],
    path: str,
    body: object,
    says: str,
) -> None:
    answer = client.post("/api/v1" + path, json=body, headers=as_operator)
    assert answer.status_code == 400, answer.text
    assert says in answer.json()["error"]
    assert service.calls == []


def test_reasons_keep_other_languages(
    client: httpx.Client, service: FakeService, as_operator: dict[str, str]
) -> None:
    for reason in ("Lüfter defekt", "می‌خواهم", "交换机升级", "👩‍🔧 <b>on site</b>"):
        assert client.post("/api/v1/pause", json={"reason": reason}, headers=as_operator).status_code == 200
        assert service.calls[-1][1]["reason"] == reason


NAMES = [
    "n[1-4]",
    "n1,n2",
    "*",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "..%2fn01",
    "%2e%2e",
    "n01%0a",
    "n01%00",
    "n01%20",
    "%EF%BD%8E01",
    "n01%e2%80%8b",
    "%ff",
    "'%20OR%201=1--",
    "n" * 300,
    "-n01",
]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_one_name_names_nothing(
    client: httpx.Client, service: FakeService, as_operator: dict[str, str], name: str
) -> None:
    for method, path in [
        ("GET", f"/api/v1/nodes/{name}"),
        ("GET", f"/api/v1/nodes/{name}/why"),
        ("POST", f"/api/v1/nodes/{name}/hold"),
        ("POST", f"/api/v1/nodes/{name}/release"),
        ("GET", f"/api/v1/incidents/{name}"),
        ("POST", f"/api/v1/incidents/{name}/cancel"),
    ]:
        answer = client.request(method, path, headers=as_operator, json=WHY if method == "POST" else None)
        assert answer.status_code in (404, 405), (path, answer.text)
        assert answer.json()["error"]
    assert service.calls == []


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidInputError("no pool 'x'; there are: gpu"), 400),
        (UnavailableError("slurmctld does not answer"), 503),
        (SickbayError("the ledger is locked"), 503),
    ],
)
def test_what_the_service_says_is_passed_on(
    client: httpx.Client, service: FakeService, as_operator: dict[str, str], error: Exception, status: int
) -> None:
    service.raises = error
    answer = client.post("/api/v1/pause", json=WHY, headers=as_operator)
    assert answer.status_code == status
    assert answer.json() == {"error": str(error)}


def test_a_bug_is_a_sentence_and_no_traceback(
    client: httpx.Client, service: FakeService, as_operator: dict[str, str]
) -> None:
    service.raises = ZeroDivisionError("secret /etc/sickbay/token")
    answer = client.post("/api/v1/pause", json=WHY, headers=as_operator)
    assert answer.status_code == 500
    assert "internal error" in answer.json()["error"]
    assert "secret" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_what_contradicts_the_state_is_409(client: httpx.Client, as_operator: dict[str, str]) -> None:
    answer = client.post("/api/v1/incidents/inc-0/approve", headers=as_operator)
    assert answer.status_code == 409
    assert "closed" in answer.json()["error"]


def test_what_does_not_exist_is_404(client: httpx.Client, as_operator: dict[str, str]) -> None:
    for path in ("/incidents/inc-9/approve", "/nodes/n99/release"):
        answer = client.post("/api/v1" + path, headers=as_operator)
        assert answer.status_code == 404
        assert answer.json()["error"]
