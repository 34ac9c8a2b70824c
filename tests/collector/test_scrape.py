"""The direct scrape against real servers that answer well, wrongly, slowly or never."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import pytest

from collector.deadline_http import Fetcher
from collector.scrape import Scraper, ScrapeTarget, TargetReading, scrape_once
from fleet.clock import SystemClock
from fleet.errors import InvalidInputError
from fleet.observations import ProblemReason, Sample
from tests.support.fake_exporter import Exchange, Respond, fake_exporter, silent_port

CASES = Path(__file__).parents[1] / "data" / "dcgm" / "B-16-scrape-http-failures"
LINE = b'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-11111111-aaaa",Hostname="n01"} 41\n'
MAX_BYTES = 100_000
TIMEOUT = 0.5

services = pytest.mark.services


def scrape(url: str, *, passes: int = 1) -> TargetReading:
    scraper = Scraper(
        [ScrapeTarget("n01", url)], timeout_seconds=TIMEOUT, clock=SystemClock(), max_bytes=MAX_BYTES
    )
    try:
        for _ in range(passes):
            (result,) = scraper.scrape_all()
        return result
    finally:
        scraper.close()


def replay(name: str) -> Respond:
    """The bytes of a captured answer, with its body's length where the capture has none."""

    def respond(exchange: Exchange) -> None:
        head, _, body = (CASES / name).read_bytes().partition(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length")]
        lines.append(b"Content-Length: %d" % len(body))
        exchange.raw(b"\r\n".join(lines) + b"\r\n\r\n" + body)

    return respond


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def drip(head: bytes, piece: bytes) -> Respond:
    def respond(exchange: Exchange) -> None:
        exchange.raw(head)
        while not exchange.server.stopped.wait(0.05):
            exchange.raw(piece)

    return respond


def endless(exchange: Exchange) -> None:
    exchange.raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while not exchange.server.stopped.is_set():
        exchange.raw(chunk(LINE * 100))


def bomb(exchange: Exchange) -> None:
    exchange.answer(gzip.compress(LINE * 20_000), Content_Encoding="gzip")


def announced(exchange: Exchange) -> None:
    exchange.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n" + LINE)


def cut(exchange: Exchange) -> None:
    exchange.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 500\r\n\r\n" + LINE)
    exchange.close_connection = True


def cut_chunk(exchange: Exchange) -> None:
    exchange.raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(LINE) + b"40\r\nDCGM")
    exchange.close_connection = True


def cut_gzip(exchange: Exchange) -> None:
    exchange.answer(gzip.compress(LINE * 50)[:-12], Content_Encoding="gzip")


def nonsense(exchange: Exchange) -> None:
    exchange.raw(b"SSH-2.0-OpenSSH_9.2\r\n")
    exchange.close_connection = True


def says(status: int, body: bytes = b"", **headers: str) -> Respond:
    return lambda exchange: exchange.answer(body, status=status, **headers)


@services
@pytest.mark.parametrize(
    ("respond", "reason"),
    [
        (replay("input.a.http"), ProblemReason.QUERY_ERROR),
        (replay("input.b.http"), ProblemReason.NO_DEVICES),
        (replay("input.c.http"), ProblemReason.NO_DEVICES),
        (replay("input.d.http"), ProblemReason.UNREADABLE),
        (replay("input.e.http"), ProblemReason.UNREADABLE),
        (says(200, b"<html>Sign in</html>"), ProblemReason.UNREADABLE),
        (says(200, LINE, Content_Type="application/json"), ProblemReason.UNREADABLE),
        (says(200, LINE, Content_Encoding="br"), ProblemReason.UNREADABLE),
        (says(200, LINE, Content_Type="application/openmetrics-text; version=1.0.0"), None),
        (says(302, LINE, Location="/elsewhere"), ProblemReason.QUERY_ERROR),
        (says(401), ProblemReason.PERMISSION_DENIED),
        (says(404, b"404 page not found\n"), ProblemReason.QUERY_ERROR),
        (says(204), ProblemReason.QUERY_ERROR),
        (endless, ProblemReason.TOO_LARGE),
        (bomb, ProblemReason.TOO_LARGE),
        (announced, ProblemReason.TOO_LARGE),
        (cut, ProblemReason.TRUNCATED),
        (cut_chunk, ProblemReason.TRUNCATED),
        (cut_gzip, ProblemReason.TRUNCATED),
        (nonsense, ProblemReason.UNREADABLE),
        (drip(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk(LINE)), ProblemReason.TIMEOUT),
        (drip(b"HTTP/1.1 200 OK\r\n", b"X-Still: here\r\n"), ProblemReason.TIMEOUT),
        (drip(b"HTTP/1.1 200 OK\r\nX-Long: ", b"z"), ProblemReason.TIMEOUT),
        (drip(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n", b"D"), ProblemReason.TIMEOUT),
    ],
)
def test_what_an_answer_is_worth(respond: Respond, reason: ProblemReason | None) -> None:
    with fake_exporter(respond) as server:
        started = time.monotonic()
        result = scrape(server.url)
        took = time.monotonic() - started
    assert took < TIMEOUT + 1
    if reason is None:
        # Without "# EOF" the answer is cut, but what was read stands; the reader says that a part is missing.
        assert result.ok
        assert [p.reason for p in result.reading.problems] == [ProblemReason.TRUNCATED]
        return
    assert (result.ok, result.reading.ok) == (False, False)
    assert reason in [problem.reason for problem in result.reading.problems]
    assert result.error
    assert "\n" not in result.error
    assert not any(isinstance(record, Sample) for record in result.reading.records)
    assert len(server.requests) == 1, "a redirect must not be followed, nor a refusal asked again"


@services
@pytest.mark.parametrize(
    "respond",
    [
        says(200, LINE),
        says(200, LINE[:-1]),
        says(200, gzip.compress(LINE), Content_Encoding="gzip"),
        says(200, LINE + b"# EOF", Content_Type="application/openmetrics-text; version=1.0.0; charset=utf-8"),
        lambda exchange: exchange.raw(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(LINE) + b"0\r\n\r\n"
        ),
    ],
    ids=["length", "no line feed", "gzip", "openmetrics", "chunked"],
)
def test_a_good_answer(respond: Respond) -> None:
    with fake_exporter(respond) as server:
        result = scrape(server.url, passes=3)
        assert server.connections == 1, "the connection is kept"
        assert server.headers[0]["x-prometheus-scrape-timeout-seconds"] == "0.5"
    (sample,) = [r for r in result.reading.records if isinstance(r, Sample)]
    assert (result.ok, result.error, result.reading.problems) == (True, None, ())
    assert (sample.node, sample.gpu, sample.value) == ("n01", "GPU-11111111-aaaa", 41.0)
    assert abs(sample.time - time.time()) < 60


@services
def test_a_kept_connection_that_the_server_closed_is_opened_again() -> None:
    def close_after(exchange: Exchange) -> None:
        exchange.answer(LINE)
        exchange.close_connection = True  # without saying so: what an idle time-out looks like

    with fake_exporter(close_after) as server:
        assert scrape(server.url, passes=3).ok
        assert (len(server.requests), server.connections) == (3, 3)


@services
def test_nobody_there_and_nobody_answering() -> None:
    with fake_exporter(says(200, LINE)) as server:
        gone = server.url
    assert scrape(gone).reading.problems[0].reason is ProblemReason.QUERY_ERROR
    with silent_port() as url:
        assert scrape(url).reading.problems[0].reason is ProblemReason.TIMEOUT


@services
def test_the_dead_do_not_hold_up_the_living() -> None:
    line = LINE.replace(b"n01", b"exporter-x7k2p")
    with fake_exporter(says(200, line)) as server, silent_port() as silent:
        targets = [ScrapeTarget(f"dead{n}", silent) for n in range(6)]
        targets += [ScrapeTarget(f"n{n:02d}", server.url) for n in range(10)]
        scraper = Scraper(
            targets,
            timeout_seconds=0.3,
            pass_seconds=1.0,
            workers=2,
            clock=SystemClock(),
            max_bytes=MAX_BYTES,
        )
        try:
            scraper.scrape_all()
            started = time.monotonic()
            results = scraper.scrape_all()
            took = time.monotonic() - started
        finally:
            scraper.close()
    assert [r.target for r in results] == targets
    assert [r.ok for r in results] == [False] * 6 + [True] * 10
    assert took < 1.5
    assert {p.reason for r in results[:6] for p in r.reading.problems} == {ProblemReason.TIMEOUT}


@services
def test_a_pass_ends_even_while_a_worker_is_stuck() -> None:
    def slow(exchange: Exchange) -> None:
        exchange.server.stopped.wait(5)

    with fake_exporter(slow) as server:
        scraper = Scraper(
            [ScrapeTarget("n01", server.url)], timeout_seconds=5, pass_seconds=0.3, clock=SystemClock()
        )
        started = time.monotonic()
        (result,) = scraper.scrape_all()
        assert time.monotonic() - started < 1
        scraper.close()
    assert (result.ok, result.reading.problems[0].reason) == (False, ProblemReason.TIMEOUT)


@services
def test_one_exporter_once_is_its_own_host() -> None:
    with fake_exporter(says(200, LINE)) as server:
        reading = scrape_once(server.url, node=None, timeout_seconds=2, clock=SystemClock())
    assert [r.node for r in reading.records if isinstance(r, Sample)] == ["n01"]


@pytest.mark.parametrize(
    "url",
    [
        "n01:9400",
        "ftp://n01/metrics",
        "http:///metrics",
        "http://n01:99999/metrics",
        "http://user:secret@n01:9400/metrics",
        "http://n01:9400/a b",
        "http://n01:9400/\r\nX: y",
    ],
)
def test_an_address_that_can_never_work_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Fetcher(url, headers={}, max_bytes=1)
    assert "secret" not in str(caught.value)


def test_a_node_may_stand_there_once() -> None:
    twice = [ScrapeTarget("n01", "http://a:1/metrics"), ScrapeTarget("n01", "http://b:1/metrics")]
    with pytest.raises(InvalidInputError, match="twice"):
        Scraper(twice, timeout_seconds=1, clock=SystemClock())


def test_no_targets_is_an_empty_pass() -> None:
    scraper = Scraper([], timeout_seconds=1, clock=SystemClock())
    assert scraper.scrape_all() == ()
    scraper.close()


@services
@pytest.mark.parametrize(
    ("host", "ok"),
    [("n01", True), ("n02.example", False), ("N02", False), ("exporter-x7k2p", True), ("n03", True)],
)
def test_the_exporter_of_another_target_is_not_believed(host: str, ok: bool) -> None:
    """Two addresses mixed up: a node must not be judged by its neighbour's GPUs. A pod is no neighbour."""
    line = LINE.replace(b'Hostname="n01"', b'Hostname="%s"' % host.encode())
    with fake_exporter(says(200, line)) as server, silent_port() as silent:
        targets = [ScrapeTarget("n01", server.url), ScrapeTarget("n02", silent)]
        scraper = Scraper(targets, timeout_seconds=TIMEOUT, clock=SystemClock())
        try:
            result, _ = scraper.scrape_all()
        finally:
            scraper.close()
    assert result.ok is ok
    if not ok:
        (problem,) = result.reading.problems
        assert (problem.reason, problem.node, problem.count) == (ProblemReason.CONFLICT, "n01", 1)
        assert result.error == (
            f"the exporter of {host!r} answers at the address of n01: nothing of it is used; "
            "correct the target's address"
        )
