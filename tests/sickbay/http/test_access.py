"""Identities: loopback, tokens, sessions and their end."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.clock import ManualClock
from sickbay.config import Http, Role
from sickbay.http.access import (
    MAX_SESSIONS,
    Identity,
    Method,
    TokenAccess,
    access_from_book,
    bearer_token,
    is_loopback,
)
from sickbay.tokens import TokenBook, agent_token

LAB = "127.0.0.1"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False),
        ("0.0.0.0", False),
        ("localhost", False),
        ("", False),
        ("127.0.0.1.evil.example", False),
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer  abc ", "abc"),
        ("Bearer", None),
        ("Bearer ", None),
        ("Basic abc", None),
        ("abc", None),
        ("", None),
        ("Bearer " + "x" * 5000, None),
    ],
)
def test_bearer_headers(header: str, token: str | None) -> None:
    assert bearer_token(header) == token


def test_anonymous_is_for_the_loopback_of_a_configured_lab_only() -> None:
    lab = TokenAccess(lambda token: None, allow_anonymous_loopback=True)
    closed = TokenAccess(lambda token: None)
    found = lab.identify(None, None, LAB)
    assert found is not None
    assert (found.role, found.node, found.method) == (Role.OPERATOR, None, Method.ANONYMOUS)
    assert lab.identify(None, None, "10.0.0.1") is None
    assert lab.identify("Bearer wrong", None, LAB) is None
    assert closed.identify(None, None, LAB) is None


def test_a_session_ends_with_time_logout_or_its_token() -> None:
    clock = ManualClock()
    known = {"t": Identity("vera", Role.VIEWER)}
    access = TokenAccess(known.get, clock=clock, session_seconds=100)

    def open_session() -> str:
        opened = access.open_session("t")
        assert opened is not None
        return opened[0]

    cookie = open_session()
    assert access.identify(None, cookie, "10.0.0.1") == Identity("vera", Role.VIEWER, None, Method.SESSION)
    clock.advance(100)
    assert access.identify(None, cookie, "10.0.0.1") is None

    cookie = open_session()
    access.close_session(cookie)
    assert access.identify(None, cookie, "10.0.0.1") is None

    cookie = open_session()
    known.clear()
    assert access.identify(None, cookie, "10.0.0.1") is None
    assert access.open_session("t") is None


def test_sessions_are_bounded_and_the_oldest_goes_first() -> None:
    access = TokenAccess({"t": Identity("vera", Role.VIEWER)}.get)
    cookies = [opened[0] for _ in range(MAX_SESSIONS + 1) if (opened := access.open_session("t"))]
    assert access.identify(None, cookies[0], "10.0.0.1") is None
    assert access.identify(None, cookies[-1], "10.0.0.1") is not None


def test_the_configured_tokens(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s" * 32)
    (tmp_path / "olga").write_text("o" * 32)
    book = TokenBook(
        Http.model_validate(
            {
                "agent_secret_file": str(tmp_path / "secret"),
                "tokens": [{"name": "olga", "role": "operator", "token_file": str(tmp_path / "olga")}],
            }
        )
    )
    access = access_from_book(book, allow_anonymous_loopback=False)
    assert access.identify("Bearer " + "o" * 32, None, LAB) == Identity("olga", Role.OPERATOR)
    agent = agent_token(b"s" * 32, "n01")
    assert access.identify(f"Bearer {agent}", None, LAB) == Identity("n01", Role.AGENT, "n01")
    assert access.identify(f"Bearer {agent}x", None, LAB) is None
    assert access.identify(None, None, LAB) is None
