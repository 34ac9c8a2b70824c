"""Server-sent events: what comes, from where, how many at once, and how they end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest

from sickbay.http import HttpServer
from tests.support.fake_service import FakeService

pytestmark = pytest.mark.slow

Start = Callable[..., HttpServer]


@contextmanager
def stream(server: HttpServer, query: str = "", **headers: str) -> Iterator[Iterator[str]]:
    with httpx.stream("GET", f"{server.url}/api/v1/stream{query}", headers=headers, timeout=10) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield answer.iter_lines()


def wait_for(lines: Iterator[str], start: str) -> str:
    return next(line for line in lines if line.startswith(start))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_changes_come_as_they_happen_and_not_the_past(start: Start, service: FakeService) -> None:
    service.emit(node="n01", reason="long ago")
    with stream(start(anonymous=True)) as lines:
        assert wait_for(lines, ":") == ": from 1"
        service.emit(node="n02", incident="inc-1", state="draining", reason="first\nsecond line")
        assert wait_for(lines, "id:") == "id: 2"
        change = json.loads(next(lines).removeprefix("data: "))
        assert change["node"] == "n02"
        assert change["reason"] == "first\nsecond line"


def test_a_browser_goes_on_where_it_was(start: Start, service: FakeService) -> None:
    for number in range(3):
        service.emit(node="n01", reason=str(number))
    server = start(anonymous=True)
    for query, headers, first in [
        ("?after=0", {}, "id: 1"),
        ("?after=2", {}, "id: 3"),
        ("?after=0", {"last-event-id": "1"}, "id: 2"),
    ]:
        with stream(server, query, **headers) as lines:
            assert wait_for(lines, "id:") == first


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "9" * 30, "²"])
def test_a_position_that_is_none_is_400(start: Start, last: str) -> None:
    headers = {"last-event-id": last.encode()}
    answer = httpx.get(start(anonymous=True).url + "/api/v1/stream", headers=headers)
    assert answer.status_code == 400


def test_silence_is_filled_with_comments(start: Start) -> None:
    with stream(start(anonymous=True, keep_alive_seconds=0.5)) as lines:
        assert wait_for(lines, ": keep-alive")


def test_streams_are_bounded_and_places_come_back(start: Start) -> None:
    server = start(anonymous=True, max_streams=2)
    with stream(server) as one, stream(server) as two:
        wait_for(one, ": from")
        wait_for(two, ": from")
        refused = httpx.get(server.url + "/api/v1/stream")
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        # Open streams take nothing from reads and pushes.
        assert httpx.get(server.url + "/api/v1/nodes").status_code == 200
    wait_until(lambda: server.app.streams.open_count == 0)
    with stream(server) as lines:
        assert wait_for(lines, ": from")


def test_a_store_that_fails_ends_the_stream_cleanly(start: Start, service: FakeService) -> None:
    with stream(start(anonymous=True)) as lines:
        wait_for(lines, ": from")
        service.broken = True
        assert wait_for(lines, ": end")


def test_stopping_the_server_ends_its_streams(start: Start) -> None:
    server = start(anonymous=True)
    with stream(server) as lines:
        wait_for(lines, ": from")
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 2.5
        assert ": end" in list(lines)


def test_a_position_of_another_ledger_begins_at_the_end_of_this_one(
    start: Start, service: FakeService
) -> None:
    for number in range(3):
        service.emit(node="n01", reason=str(number))
    server = start(anonymous=True)
    with stream(server, **{"last-event-id": "4711"}) as lines:
        assert wait_for(lines, ":") == ": from 3"
        service.emit(node="n02", reason="new")
        assert wait_for(lines, "id:") == "id: 4"


def test_a_stream_ends_with_the_session_that_opened_it(start: Start) -> None:
    server = start(keep_alive_seconds=0.3)
    with httpx.Client(base_url=server.url, timeout=10) as browser:
        browser.post("/login", json={"token": "viewer-token"})
        cookie = f"sickbay_session={browser.cookies['sickbay_session']}"
        with stream(server, cookie=cookie) as lines:
            wait_for(lines, ": keep-alive")
            assert browser.post("/logout", headers={"origin": server.url}).status_code == 204
            assert wait_for(lines, ": end") == ": end"
