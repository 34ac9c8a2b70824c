"""Starting, stopping, and a port that somebody else has."""

from __future__ import annotations

import signal
import threading
import time

import httpx
import pytest

from fleet.errors import SickbayError
from sickbay.http import HttpServer, TokenAccess, create_app
from tests.support.fake_service import FakeService

pytestmark = pytest.mark.slow


def server(host: str = "127.0.0.1", port: int = 0, service: FakeService | None = None) -> HttpServer:
    access = TokenAccess(lambda token: None, allow_anonymous_loopback=True)
    return HttpServer(create_app(service or FakeService(), access), host, port)


def test_it_listens_when_start_returns_and_is_gone_after_stop() -> None:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    one = server()
    one.start()
    assert one.port != 0
    assert httpx.get(one.url + "/-/healthy").status_code == 200
    assert handlers == {number: signal.getsignal(number) for number in handlers}
    one.stop()
    one.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(one.url + "/-/healthy")
    again = server(port=one.port)
    again.start()
    assert again.port == one.port
    again.stop()


def test_a_port_that_is_taken_is_one_clear_line() -> None:
    one = server()
    one.start()
    try:
        with pytest.raises(SickbayError, match=rf"cannot listen on 127\.0\.0\.1:{one.port}"):
            server(port=one.port).start()
        with pytest.raises(SickbayError, match="running already"):
            one.start()
    finally:
        one.stop()


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_an_address_that_is_not_ours(host: str) -> None:
    with pytest.raises(SickbayError, match=r"http\.listen"):
        server(host).start()


def test_a_request_in_flight_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    service = FakeService()
    entered = threading.Event()

    def slow() -> bytes:
        entered.set()
        time.sleep(0.5)
        return b"done\n"

    monkeypatch.setattr(service, "render_metrics", slow)
    one = server(service=service)
    one.start()
    answers: list[httpx.Response] = []
    asking = threading.Thread(target=lambda: answers.append(httpx.get(one.url + "/metrics")))
    asking.start()
    entered.wait(5)
    began = time.monotonic()
    one.stop()
    assert time.monotonic() - began < 2.5
    asking.join(5)
    assert answers[0].text == "done\n"


def test_an_idle_connection_does_not_hold_up_the_stop() -> None:
    one = server()
    one.start()
    with httpx.Client(base_url=one.url) as client:
        client.get("/-/healthy")
        began = time.monotonic()
        one.stop()
        assert time.monotonic() - began < 2.5
