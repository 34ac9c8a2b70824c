"""The page is self-contained and can run nothing but itself; signing in makes a cookie no script can read."""

from __future__ import annotations

import base64
import hashlib
import re

import httpx
import pytest

from sickbay.http.console import build_page
from tests.support.fake_service import FakeService


def sign_in(client: httpx.Client, who: str = "operator") -> httpx.Response:
    return client.post(
        "/login", json={"token": f"{who}-token"}, headers={"origin": str(client.base_url).rstrip("/")}
    )


def test_the_page_loads_nothing_from_anywhere(client: httpx.Client) -> None:
    answer = client.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    page = answer.text
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!data:,)""", page)
    assert not re.search(r"https?://|@import|url\(", page)
    assert "/*SCRIPT*/" not in page
    assert "/*STYLE*/" not in page


def test_only_its_own_script_and_style_may_run() -> None:
    page, policy = build_page()
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        contents = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert len(contents) == 1
        digest = base64.b64encode(hashlib.sha256(contents[0].encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"\son\w+\s*=|\sstyle\s*=", page.partition("<script>")[0])


def test_nothing_is_ever_parsed_as_markup() -> None:
    script = build_page()[0].partition("<script>")[2]
    for sink in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("):
        assert sink not in script


def test_signing_in_and_out(client: httpx.Client, service: FakeService) -> None:
    origin = {"origin": str(client.base_url).rstrip("/")}
    answer = sign_in(client)
    assert answer.status_code == 200
    assert answer.json() == {"name": "olga", "role": "operator", "method": "session", "version": "0.0-test"}
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" not in cookie
    assert "operator-token" not in cookie
    assert client.get("/api/v1/nodes").status_code == 200
    assert client.post("/api/v1/pause", json={"reason": "x"}, headers=origin).status_code == 200
    assert service.calls[-1][1]["author"] == "olga"
    old = dict(client.cookies)
    assert client.post("/logout", headers=origin).status_code == 204
    assert not client.cookies
    assert client.get("/api/v1/nodes").status_code == 401
    assert (
        client.get(
            "/api/v1/nodes", headers={"cookie": f"sickbay_session={old['sickbay_session']}"}
        ).status_code
        == 401
    )


def test_the_cookie_is_secure_over_https(client: httpx.Client) -> None:
    host = client.base_url.netloc.decode()
    answer = client.post("/login", json={"token": "viewer-token"}, headers={"origin": f"https://{host}"})
    assert "Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "same-origin", "origin": "https://evil.example"}, 403),
    ],
)
def test_a_signed_in_browser_acts_for_this_page_only(
    client: httpx.Client, service: FakeService, headers: dict[str, str], status: int
) -> None:
    sign_in(client)
    answer = client.post("/api/v1/pause", json={"reason": "x"}, headers=headers)
    assert answer.status_code == status, answer.text
    assert bool(service.calls) == (status == 200)


def test_a_viewer_signs_in_and_may_not_act(client: httpx.Client) -> None:
    assert sign_in(client, "viewer").json()["role"] == "viewer"
    headers = {"sec-fetch-site": "same-origin"}
    assert client.post("/api/v1/pause", json={"reason": "x"}, headers=headers).status_code == 403


def test_a_session_pushes_nothing(client: httpx.Client) -> None:
    sign_in(client)
    headers = {"sec-fetch-site": "same-origin"}
    assert client.post("/api/v1/alerts", json={"alerts": []}, headers=headers).status_code == 403


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"token": "wrong"}, 401),
        ({"token": ""}, 401),
        ({"token": "agent-n01-token"}, 403),
        ({"token": "am-token"}, 403),
        ({"token": 3}, 400),
        ({}, 400),
        ({"token": "viewer-token", "next": "//evil.example"}, 400),
    ],
)
def test_who_may_not_sign_in(client: httpx.Client, body: object, status: int) -> None:
    answer = client.post("/login", json=body)
    assert answer.status_code == status
    assert "set-cookie" not in answer.headers
    assert answer.json()["error"]


def test_a_form_of_another_page_cannot_sign_anybody_in(client: httpx.Client) -> None:
    assert client.post("/login", data={"token": "viewer-token"}).status_code == 415
    answer = client.post("/login", json={"token": "viewer-token"}, headers={"origin": "https://evil.example"})
    assert answer.status_code == 403


def test_a_stale_cookie_does_not_lock_the_lab_out(anonymous: httpx.Client) -> None:
    answer = anonymous.get("/api/v1/session", headers={"cookie": "sickbay_session=stale"})
    assert answer.json()["method"] == "anonymous"
