"""The real app on a real uvicorn over loopback; behind it a service in memory."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from sickbay.config import Role
from sickbay.http import HttpServer, Identity, TokenAccess, create_app
from tests.support.fake_service import FakeService

TOKENS = {
    "viewer-token": Identity("vera", Role.VIEWER),
    "operator-token": Identity("olga", Role.OPERATOR),
    "agent-n01-token": Identity("n01", Role.AGENT, "n01"),
    "am-token": Identity("alertmanager", Role.ALERTMANAGER),
}

StartServer = Callable[..., HttpServer]
# Plain HTTP only: without this, every client reads the machine's certificates (50 ms each).
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class _Standing:
    """Hands every call to the service of the test that runs: servers are kept over a module's tests."""

    version = FakeService.version

    def __init__(self) -> None:
        self.current = FakeService()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.current, name)


@pytest.fixture
def service() -> FakeService:
    service = FakeService()
    finding = {
        "id": "f1",
        "rule": "xid-79",
        "kind": "xid",
        "gpu": "3",
        "uuid": None,
        "severity": "critical",
        "response": "drain",
        "since": 1_767_225_600.0,
        "evidence": {"code": 79},
    }
    step = {
        "at": 1_767_225_601.0,
        "step": "cordon",
        "phase": "effect",
        "outcome": "done",
        "reason": "cordoned",
        "actor": "sickbay",
    }
    service.put_node("n02", state="draining", verdict="unhealthy", owner="sickbay")
    service.put_incident("inc-1", "n02", blocked_by=["budget"], findings=[finding], steps=[step])
    service.put_incident("inc-0", "n03", state="returned", closed_at=1_767_225_700.0)
    return service


@pytest.fixture
def start(service: FakeService) -> Iterator[StartServer]:
    """Starts servers over ``service``; what a test started is stopped after it."""
    running: list[HttpServer] = []

    def start_server(*, anonymous: bool = False, host: str = "127.0.0.1", **limits: Any) -> HttpServer:
        access = TokenAccess(TOKENS.get, allow_anonymous_loopback=anonymous)
        server = HttpServer(create_app(service, access, **limits), host, 0)
        server.start()
        running.append(server)
        return server

    yield start_server
    for server in running:
        server.stop()


@pytest.fixture(scope="module")
def standing() -> Iterator[tuple[_Standing, HttpServer, HttpServer]]:
    """(service, a server where everybody needs a token, one that lets the loopback in without)."""
    service = _Standing()
    closed, lab = (
        HttpServer(create_app(service, TokenAccess(TOKENS.get, allow_anonymous_loopback=lab)), "127.0.0.1", 0)
        for lab in (False, True)
    )
    closed.start()
    lab.start()
    yield service, closed, lab
    closed.stop()
    lab.stop()


@pytest.fixture
def client(
    service: FakeService, standing: tuple[_Standing, HttpServer, HttpServer]
) -> Iterator[httpx.Client]:
    """A client of a server where everybody needs a token."""
    standing[0].current = service
    with httpx.Client(base_url=standing[1].url, timeout=10, verify=NO_TLS) as client:
        yield client


@pytest.fixture
def anonymous(
    service: FakeService, standing: tuple[_Standing, HttpServer, HttpServer]
) -> Iterator[httpx.Client]:
    """A client of a server that lets the loopback in without a token."""
    standing[0].current = service
    with httpx.Client(base_url=standing[2].url, timeout=10, verify=NO_TLS) as client:
        yield client


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.fixture
def as_operator() -> dict[str, str]:
    return bearer("operator-token")


@pytest.fixture
def as_viewer() -> dict[str, str]:
    return bearer("viewer-token")


@pytest.fixture
def as_agent() -> dict[str, str]:
    return bearer("agent-n01-token")


@pytest.fixture
def as_alertmanager() -> dict[str, str]:
    return bearer("am-token")
