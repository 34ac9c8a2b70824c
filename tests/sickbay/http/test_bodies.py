"""Bodies are bounded while they arrive, in bytes and in time, whatever their headers say."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from sickbay.http import HttpServer
from tests.support.fake_service import FakeService

pytestmark = pytest.mark.slow

JSON = {"content-type": "application/json"}
Start = Callable[..., HttpServer]


def post(server: HttpServer, content: Any, **headers: str) -> httpx.Response:
    return httpx.post(server.url + "/api/v1/alerts", content=content, headers={**JSON, **headers}, timeout=10)


def raw(server: HttpServer, head: bytes, rest: Iterator[bytes]) -> bytes:
    """Writes a request by hand and reads until the server closes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(
            b"POST /api/v1/alerts HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n" + head
        )
        try:
            for chunk in rest:
                connection.sendall(chunk)
        except (BrokenPipeError, ConnectionResetError):
            pass
        answer = b""
        try:
            while chunk := connection.recv(65536):
                answer += chunk
        except ConnectionResetError:
            pass
        return answer


def test_a_declared_size_that_is_too_large(start: Start, service: FakeService) -> None:
    server = start(anonymous=True, max_body_bytes=1000)
    answer = post(server, b" " * 5000)
    assert answer.status_code == 413
    assert answer.json() == {"error": "the body is larger than 1000 bytes; send less at once"}
    assert service.calls == []


def test_a_chunked_body_that_is_too_large(start: Start) -> None:
    server = start(anonymous=True, max_body_bytes=1000)
    assert post(server, (b" " * 100 for _ in range(50))).status_code == 413


def test_just_fitting_is_accepted(start: Start) -> None:
    server = start(anonymous=True, max_body_bytes=1000)
    body = b'{"alerts":[]}'
    assert post(server, body.ljust(1000)).status_code == 200
    assert post(server, body.ljust(1001)).status_code == 413


def test_an_endless_body_is_cut_off(start: Start) -> None:
    server = start(anonymous=True, max_body_bytes=10_000)

    def forever() -> Iterator[bytes]:
        end = time.monotonic() + 8
        while time.monotonic() < end:
            yield b"400\r\n" + b" " * 0x400 + b"\r\n"

    began = time.monotonic()
    answer = raw(server, b"Transfer-Encoding: chunked\r\n\r\n", forever())
    assert time.monotonic() - began < 5
    assert answer == b"" or b" 413 " in answer.splitlines()[0]


def test_a_slow_body_is_408(start: Start) -> None:
    server = start(anonymous=True, body_seconds=0.3)
    began = time.monotonic()
    answer = raw(server, b"Content-Length: 100\r\n\r\n", iter([b"{"]))
    assert 0.2 < time.monotonic() - began < 5
    assert b" 408 " in answer.splitlines()[0]
    assert b"did not arrive within 0.3 s" in answer


def test_a_length_that_lies_is_no_way_in(start: Start, service: FakeService) -> None:
    server = start(anonymous=True)
    head = b"Content-Length: 13\r\nConnection: close\r\n\r\n"
    answer = raw(server, head, iter([b'{"alerts":[]}', b"trailing bytes are another request"]))
    assert b" 200 " in answer.splitlines()[0]
    for length in (b"-1", b"1e3", b"13, 14", b"x"):
        answer = raw(server, b"Content-Length: " + length + b"\r\n\r\n", iter([b"{}"]))
        assert b" 400 " in answer.splitlines()[0], length
    assert service.calls == []


def test_a_sender_that_goes_away_leaves_no_trace(start: Start, service: FakeService) -> None:
    server = start(anonymous=True)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(
            b"POST /api/v1/alerts HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b'Content-Length: 100\r\n\r\n{"alerts":[{}]}'
        )
    assert httpx.get(server.url + "/-/healthy").status_code == 200
    assert service.calls == []


def test_who_may_not_send_is_refused_before_the_body(start: Start) -> None:
    server = start(max_body_bytes=1000)
    answer = raw(server, b"Content-Length: 1000000\r\n\r\n", iter([b"{"]))
    assert b" 401 " in answer.splitlines()[0]


def test_an_agent_may_send_less_than_an_alertmanager(start: Start, service: FakeService) -> None:
    server = start(anonymous=True)
    body = b'{"alerts":[],"agent":{"node":"n01","boot_id":"b"},"events":[]}'.ljust(5 * 1024 * 1024)
    assert post(server, body).status_code == 200
    answer = httpx.post(server.url + "/api/v1/events", content=body, headers=JSON, timeout=10)
    assert answer.status_code == 413


def test_the_body_of_an_act_is_small(start: Start) -> None:
    server = start(anonymous=True)
    answer = httpx.post(server.url + "/api/v1/pause", json={"reason": "x" * 20_000})
    assert answer.status_code == 413
