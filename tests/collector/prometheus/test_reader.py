"""A Prometheus as a source: what it answers, what it does not, and what is made of half an answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from collector.prometheus.client import PrometheusClient, PrometheusError
from collector.prometheus.reader import PrometheusReader
from fleet.clock import ManualClock
from tests.support.fake_exporter import Exchange, fake_exporter

SIGNALS = ("gpu_temperature_celsius", "gpu_power_watts")
Vector = list[dict[str, Any]]
Answers = dict[str, Vector]


def series(node: str, gpu: int, value: object = "40", **labels: str) -> dict[str, Any]:
    metric = {"node": node, "gpu": str(gpu), "uuid": f"GPU-{node}-{gpu}", "cluster": "alpha"} | labels
    return {"metric": {k: v for k, v in metric.items() if v}, "value": [1_767_225_600.5, value]}


def body(result: object) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


@contextmanager
def prometheus(answer: Callable[[Exchange, str], None]) -> Iterator[tuple[str, list[dict[str, list[str]]]]]:
    asked: list[dict[str, list[str]]] = []

    def respond(exchange: Exchange) -> None:
        query = parse_qs(urlsplit(exchange.path).query)
        asked.append(query)
        answer(exchange, query["query"][0])

    with fake_exporter(respond) as server:
        yield server.url.removesuffix("/metrics"), asked


def from_table(answers: Answers) -> Callable[[Exchange, str], None]:
    return lambda exchange, query: exchange.answer(
        body(answers.get(query.removeprefix("sickbay_"), [])), Content_Type="application/json"
    )


@contextmanager
def reader_of(
    answer: Callable[[Exchange, str], None], clock: ManualClock | None = None
) -> Iterator[PrometheusReader]:
    with prometheus(answer) as (url, _):
        client = PrometheusClient(url, timeout_seconds=5.0)
        yield PrometheusReader(
            client, SIGNALS, cluster="alpha", clock=clock or ManualClock(), pass_seconds=10.0
        )
        client.close()


def test_a_reading_per_node() -> None:
    answers = {
        "gpu_temperature_celsius": [series("n1", 0), series("n1", 1, "41.5"), series("n2", 0)],
        "gpu_power_watts": [series("n1", 0, "600")],
    }
    with reader_of(from_table(answers)) as reader:
        n1, n2 = reader.read()
    assert (n1.target.node, n1.ok, n2.target.node, n2.ok) == ("n1", True, "n2", True)
    found = [(s.signal, s.gpu, s.index, s.value, s.time) for s in n1.reading.samples]
    at = 1_767_225_600.5
    assert found == [
        ("gpu_temperature_celsius", "GPU-n1-0", 0, 40.0, at),
        ("gpu_temperature_celsius", "GPU-n1-1", 1, 41.5, at),
        ("gpu_power_watts", "GPU-n1-0", 0, 600.0, at),
    ]
    assert n1.reading.problems == ()
    assert {tuple(s.labels) for s in n1.reading.samples} == {()}


def test_each_signal_is_asked_once_at_our_time() -> None:
    clock = ManualClock()
    with prometheus(from_table({})) as (url, asked):
        client = PrometheusClient(url, timeout_seconds=5.0)
        PrometheusReader(client, SIGNALS, cluster="alpha", clock=clock, pass_seconds=10.0).read()
        client.close()
    assert [q["query"][0] for q in asked] == [f"sickbay_{name}" for name in SIGNALS]
    assert {q["time"][0] for q in asked} == {f"{clock.now():.3f}"}
    assert {q["timeout"][0] for q in asked} == {"5s"}


def test_a_failed_query_makes_every_answer_a_partial_one() -> None:
    """Else a GPU that only the failed signal knew would look as if it had vanished."""

    def answer(exchange: Exchange, query: str) -> None:
        if query == "sickbay_gpu_power_watts":
            exchange.answer(
                b'{"status":"error","error":"query processing would load too many samples"}', status=422
            )
        else:
            exchange.answer(body([series("n1", 0)]))

    with reader_of(answer) as reader:
        (n1,) = reader.read()
    assert n1.ok
    assert [p.reason.value for p in n1.reading.problems] == ["query_error"]
    assert "sickbay_gpu_power_watts" in n1.reading.problems[0].message
    assert "422" in n1.reading.problems[0].message


def test_a_node_without_current_series_is_silent_and_in_time_forgotten() -> None:
    answers: Answers = {"gpu_temperature_celsius": [series("n1", 0), series("n2", 0)]}
    clock = ManualClock()
    with reader_of(from_table(answers), clock) as reader:
        assert [r.ok for r in reader.read()] == [True, True]
        answers["gpu_temperature_celsius"].pop()
        clock.advance(15.0)
        n1, n2 = reader.read()
        assert (n1.ok, n2.ok, n2.error) == (True, False, "Prometheus has no current series of this node")
        clock.advance(3700.0)
        assert [r.target.node for r in reader.read()] == ["n1"]


def test_a_prometheus_that_is_away_leaves_every_node_silent() -> None:
    clock = ManualClock()
    answers = {"gpu_temperature_celsius": [series("n1", 0)]}
    with prometheus(from_table(answers)) as (url, _):
        client = PrometheusClient(url, timeout_seconds=2.0)
        reader = PrometheusReader(client, SIGNALS, cluster="alpha", clock=clock, pass_seconds=10.0)
        assert [r.ok for r in reader.read()] == [True]
    (n1,) = reader.read()
    client.close()
    assert not n1.ok
    assert "refused" in str(n1.error).lower()


def test_series_of_another_cluster_are_not_ours() -> None:
    answers = {"gpu_temperature_celsius": [series("n1", 0), series("n1", 1, cluster="beta")]}
    with reader_of(from_table(answers)) as reader:
        (n1,) = reader.read()
    assert [s.index for s in n1.reading.samples] == [0]


def test_labels_that_name_no_node_or_no_gpu_are_nobodys() -> None:
    answers = {
        "gpu_temperature_celsius": [
            series("n1", 0),
            series("n[1-9]", 0),
            series("", 0),
            series("n1", 1, uuid=""),
            series("n1", 2, "NaN"),
            series("n1", 3, "+Inf"),
        ]
    }
    with reader_of(from_table(answers)) as reader:
        (n1,) = reader.read()
    assert [s.index for s in n1.reading.samples] == [0]


def test_a_slice_names_its_gpu_and_is_not_the_board() -> None:
    answers = {"gpu_power_watts": [series("n1", 0, gi="7", profile="1g.10gb")]}
    with reader_of(from_table(answers)) as reader:
        (n1,) = reader.read()
    (sample,) = n1.reading.samples
    assert sample.mig is not None
    assert sample.mig.gi == 7


def _answers(data: bytes, **options: Any) -> Callable[[Exchange, str], None]:
    return lambda exchange, _: exchange.answer(data, **options)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (_answers(b"<html>login</html>", Content_Type="text/html"), "no vector"),
        (_answers(b"{}"), "no vector"),
        (_answers(b'{"status":"success","data":{"result":[{"metric":{}}]}}'), "no vector"),
        (_answers(b'{"status":"success","data":{"result":[{"metric":{},"value":[1,"x"]}]}}'), "no vector"),
        (_answers(b'{"status":"success","data":{"result":7}}'), "no vector"),
        (_answers(b"", status=302, Location="http://elsewhere.example/"), "302"),
        (_answers(b"not now", status=503), "503"),
    ],
)
def test_what_is_no_answer_is_one_error(answer: Callable[[Exchange, str], None], says: str) -> None:
    with prometheus(answer) as (url, _):
        client = PrometheusClient(url, timeout_seconds=5.0)
        with pytest.raises(PrometheusError, match=says) as caught:
            client.query("up", at=1.0)
        client.close()
    assert "\n" not in str(caught.value)


def test_a_body_that_drips_ends_at_the_deadline() -> None:
    def drip(exchange: Exchange, _: str) -> None:
        exchange.send_response(200)
        exchange.send_header("Content-Length", "1000000")
        exchange.end_headers()
        while not exchange.server.stopped.wait(0.1):
            exchange.raw(b" " * 200_000 if exchange.server.connections == 0 else b" ")

    with prometheus(drip) as (url, _):
        client = PrometheusClient(url, timeout_seconds=0.5)
        with pytest.raises(PrometheusError, match=r"0\.5 s"):
            client.query("up", at=1.0)
        client.close()


def test_a_body_beyond_the_limit_is_refused() -> None:
    with prometheus(_answers(b" " * 4096)) as (url, _):
        client = PrometheusClient(url, timeout_seconds=5.0, max_bytes=1024)
        with pytest.raises(PrometheusError, match="1024 are allowed"):
            client.query("up", at=1.0)
        client.close()
