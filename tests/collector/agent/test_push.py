"""The pusher against a real HTTP server that fails in scripted ways."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.agent.backoff import Backoff
from collector.agent.boot import BootId
from collector.agent.inventory import GpuIdentity
from collector.agent.push import Pusher
from collector.agent.settings import AgentSettings
from collector.agent.spool import NewEvent, Spool
from collector.agent.stats import AgentCollector, AgentStats, registry_of
from collector.agent.transport import HttpTransport
from fleet.clock import ManualClock
from tests.support.recording_controller import Json, RecordingController, Reply

pytestmark = pytest.mark.slow


class Gpus:
    """An inventory that knows what it is told."""

    def __init__(self) -> None:
        self.known: tuple[GpuIdentity, ...] | None = None

    def current(self, boot_id: str) -> tuple[GpuIdentity, ...] | None:
        return self.known


class Bench:
    """A pusher, its spool and its boot ID file, in front of a controller."""

    def __init__(self, tmp_path: Path, url: str, **more: Any) -> None:
        self.boot_id_file = tmp_path / "boot_id"
        self.boot_id_file.write_text("boot-a\n")
        self.clock = ManualClock()
        self.stats = AgentStats()
        self.gpus = Gpus()
        self.settings = AgentSettings(
            node="n01",
            controller=url,
            spool_dir=tmp_path / "spool",
            boot_id_file=self.boot_id_file,
            connect_timeout_seconds=1.0,
            read_timeout_seconds=2.0,
            version="1.2.3",
            **more,
        )
        self.spool = Spool(tmp_path / "spool", clock=self.clock, report=lambda problem: None)
        self.pusher = Pusher(
            settings=self.settings,
            clock=self.clock,
            spool=self.spool,
            transport=HttpTransport(self.settings, self.clock),
            boot_id=BootId(self.boot_id_file),
            inventory=self.gpus,
            stats=self.stats,
            uniform=lambda: 0.0,
        )

    def add(self, *numbers: int, boot: str = "boot-a") -> list[int]:
        events = [NewEvent(boot_id=boot, event=event(n)) for n in numbers]
        return [entry.sequence for entry in self.spool.add(events)]

    def metric(self, name: str, **labels: str) -> float | None:
        registry = registry_of(
            AgentCollector(stats=self.stats, version="1", spool=lambda: (self.spool.depth, True, 0))
        )
        return registry.get_sample_value(f"sickbay_agent_{name}", labels)

    def close(self) -> None:
        self.pusher.close()
        self.spool.close()


def event(number: int) -> Json:
    return {"type": "event", "kind": "xid", "code": 79, "node": "n01", "time": 1767225600.0 + number}


def times(events: list[Json]) -> list[int]:
    return [int(item["time"] - 1767225600.0) for item in events]


@pytest.fixture
def controller() -> Iterator[RecordingController]:
    with RecordingController() as running:
        yield running


@pytest.fixture
def bench(tmp_path: Path, controller: RecordingController) -> Iterator[Bench]:
    made = Bench(tmp_path, controller.url, token="secret")
    yield made
    made.close()


def always(status: int, body: bytes = b"no", **headers: str) -> Callable[[Json], Reply]:
    return lambda _push: Reply(status, body, headers)


def test_a_heartbeat_is_a_push_without_events(bench: Bench, controller: RecordingController) -> None:
    outcome = bench.pusher.push()
    assert outcome.ok
    assert outcome.wait_seconds == 15.0
    assert controller.pushes == [
        {"agent": {"node": "n01", "version": "1.2.3", "boot_id": "boot-a", "gpus": None}, "events": []}
    ]
    assert controller.headers[0]["authorization"] == "Bearer secret"
    assert controller.headers[0]["content-type"] == "application/json"
    assert bench.metric("last_push_timestamp_seconds") == bench.clock.now()


@pytest.mark.parametrize(
    ("known", "told"),
    [
        (None, None),
        ((), []),
        (
            (GpuIdentity("GPU-1", 0, "0000:3b:00.0"),),
            [{"uuid": "GPU-1", "index": 0, "pci": "0000:3b:00.0"}],
        ),
    ],
)
def test_unknown_gpus_are_null_and_none_is_an_empty_list(
    bench: Bench, controller: RecordingController, known: tuple[GpuIdentity, ...] | None, told: object
) -> None:
    bench.gpus.known = known
    bench.pusher.push()
    assert controller.pushes[0]["agent"]["gpus"] == told


def test_events_carry_their_own_epoch_and_sequence(bench: Bench, controller: RecordingController) -> None:
    (old,) = bench.add(1, boot="boot-before")
    (now,) = bench.add(2)
    assert bench.pusher.push().ok
    assert controller.accepted == {
        ("boot-before", old): {**event(1), "boot_id": "boot-before", "sequence": old},
        ("boot-a", now): {**event(2), "boot_id": "boot-a", "sequence": now},
    }
    assert bench.spool.depth == 0


def test_the_boot_id_is_read_again_before_each_push(bench: Bench, controller: RecordingController) -> None:
    bench.pusher.push()
    bench.boot_id_file.write_text("boot-b\n")
    bench.pusher.push()
    assert [push["agent"]["boot_id"] for push in controller.pushes] == ["boot-a", "boot-b"]


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe", b"two words", b"x" * 300])
def test_without_a_boot_id_nothing_is_sent_and_nothing_lost(
    bench: Bench, controller: RecordingController, content: bytes
) -> None:
    bench.add(1)
    bench.boot_id_file.write_bytes(content)
    assert not bench.pusher.push().ok
    assert controller.pushes == []
    bench.boot_id_file.write_text("boot-b")
    assert bench.pusher.push().ok
    assert len(controller.events) == 1


def test_many_events_go_in_batches_in_order(bench: Bench, controller: RecordingController) -> None:
    bench.add(*range(450))
    assert bench.pusher.push().ok
    assert [len(push["events"]) for push in controller.pushes] == [200, 200, 50]
    assert times(controller.events) == list(range(450))


def test_duplicates_are_settled(bench: Bench, controller: RecordingController) -> None:
    bench.add(1, 2)

    def store_and_fail(push: Json) -> Reply:
        controller.store(push)
        return Reply(500)

    controller.script = store_and_fail
    assert not bench.pusher.push().ok
    assert bench.spool.depth == 2
    controller.script = lambda _push: None
    assert bench.pusher.push().ok
    assert bench.spool.depth == 0
    assert len(controller.accepted) == 2


def test_a_rejected_event_is_told_of_and_dropped(
    bench: Bench, controller: RecordingController, caplog: pytest.LogCaptureFixture
) -> None:
    controller.reject = lambda item: "n02 is not you" if item["time"] == event(2)["time"] else None
    bench.add(1, 2, 3)
    assert bench.pusher.push().ok
    assert times(controller.events) == [1, 3]
    assert bench.spool.depth == 0
    assert "n02 is not you" in caplog.text
    assert bench.metric("rejected_events_total") == 1


@pytest.mark.parametrize("status", [400, 422, 413])
def test_one_bad_event_does_not_block_the_rest(
    bench: Bench, controller: RecordingController, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    bad = {event(3)["time"], event(117)["time"]}
    controller.script = lambda push: (
        Reply(status, b"event is odd") if any(item["time"] in bad for item in push["events"]) else None
    )
    bench.add(*range(150))
    assert bench.pusher.push().ok
    assert times(controller.events) == [n for n in range(150) if n not in (3, 117)]
    assert bench.spool.depth == 0
    assert caplog.text.count("given up") == 2


def test_a_controller_that_understands_nothing_costs_no_event(
    bench: Bench, controller: RecordingController
) -> None:
    controller.script = always(400, b"agent.version: too new")
    bench.add(*range(10))
    outcome = bench.pusher.push()
    assert not outcome.ok
    assert outcome.refused
    assert bench.spool.depth == 10
    assert len(controller.pushes) == 2


def test_a_batch_that_is_too_large_is_halved_and_stays_halved(
    bench: Bench, controller: RecordingController
) -> None:
    controller.script = lambda push: Reply(413) if len(push["events"]) > 60 else None
    bench.add(*range(400))
    assert bench.pusher.push().ok
    assert times(controller.events) == list(range(400))
    assert len(controller.pushes) < 25


@pytest.mark.parametrize(
    ("status", "next_step"),
    [
        (401, "sickbay agent-token n01"),
        (403, "agent.token_file"),
        (404, "sickbay nodes"),
        (409, "see its log"),
        (301, "check agent.controller"),
        (405, "check agent.controller"),
    ],
)
def test_a_refusal_is_told_once_with_the_next_step_and_tried_slowly(
    bench: Bench,
    controller: RecordingController,
    caplog: pytest.LogCaptureFixture,
    status: int,
    next_step: str,
) -> None:
    caplog.set_level(logging.INFO, logger="collector.agent")
    controller.script = always(status)
    bench.add(1)
    outcomes = [bench.pusher.push() for _ in range(3)]
    assert {(o.ok, o.refused, o.wait_seconds) for o in outcomes} == {(False, True, 30.0)}
    assert len(caplog.records) == 1
    assert next_step in caplog.text
    controller.script = lambda _push: None
    assert bench.pusher.push().ok
    assert len(controller.events) == 1
    assert "answers again" in caplog.text


def test_a_new_token_needs_no_restart(tmp_path: Path, controller: RecordingController) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("old\n")
    bench = Bench(tmp_path, controller.url, token="old", token_file=token_file)
    controller.script = lambda _push: (
        Reply(401) if controller.headers[-1]["authorization"] != "Bearer new" else None
    )
    assert bench.pusher.push().wait_seconds == 30.0
    token_file.write_text("new\n")
    assert bench.pusher.push().wait_seconds == 0.0
    assert bench.pusher.push().ok
    bench.close()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>Welcome</html>",
        b"[]",
        b'{"accepted":1}',
        b'{"accepted":1,"duplicates":0,"rejected":null}',
    ],
)
def test_a_friendly_page_of_somebody_else_settles_nothing(
    bench: Bench, controller: RecordingController, body: bytes
) -> None:
    controller.script = always(200, body)
    bench.add(1)
    outcome = bench.pusher.push()
    assert not outcome.ok
    assert outcome.refused
    assert bench.spool.depth == 1
    assert bench.metric("push_failures_total", reason="not_the_api") == 1


@pytest.mark.parametrize("items", [[{"index": 7, "reason": "x"}], [{"index": -1, "reason": "x"}], [None, 3]])
def test_a_rejection_of_nothing_we_sent_rejects_nothing(
    bench: Bench, controller: RecordingController, items: list[object]
) -> None:
    controller.script = always(200, json.dumps({"accepted": 1, "duplicates": 0, "rejected": items}).encode())
    bench.add(1)
    assert bench.pusher.push().ok
    assert bench.metric("rejected_events_total") == 0


def test_failures_back_off_and_success_resets(bench: Bench, controller: RecordingController) -> None:
    controller.script = always(503)
    waits = [bench.pusher.push().wait_seconds for _ in range(9)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    controller.script = lambda _push: None
    assert bench.pusher.push().ok
    controller.script = always(503)
    assert bench.pusher.push().wait_seconds == 0.5
    assert bench.metric("pushes_total") == 11
    assert bench.metric("push_failures_total", reason="busy") == 10


@pytest.mark.parametrize(("asked", "waited"), [("20", 20.0), ("100000", 60.0), ("soon", 0.5), ("-3", 0.5)])
def test_retry_after_is_heard_within_reason(
    bench: Bench, controller: RecordingController, asked: str, waited: float
) -> None:
    controller.script = always(429, **{"Retry-After": asked})
    assert bench.pusher.push().wait_seconds == waited


def test_nobody_listening_is_one_clear_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(tmp_path, "http://127.0.0.1:1")
    bench.add(1)
    assert [bench.pusher.push().ok for _ in range(3)] == [False] * 3
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "cannot reach http://127.0.0.1:1/api/v1/events" in caplog.text
    assert bench.spool.depth == 1
    bench.close()


def test_a_connection_closed_under_our_hands_is_tried_again_at_once(
    bench: Bench, controller: RecordingController
) -> None:
    bench.pusher.push()
    answers = itertools.chain([Reply(hang_up=True)], itertools.repeat(None))
    controller.script = lambda _push: next(answers)
    bench.add(1)
    assert bench.pusher.push().ok
    assert len(controller.events) == 1


def test_an_event_that_is_no_json_is_given_up_alone(bench: Bench, controller: RecordingController) -> None:
    bench.spool.add([NewEvent(boot_id="boot-a", event={**event(1), "time": float("nan")})])
    bench.add(2)
    assert bench.pusher.push().ok
    assert times(controller.events) == [2]


def test_latency_is_measured_from_reading_to_answer(bench: Bench) -> None:
    bench.spool.add([NewEvent(boot_id="boot-a", event=event(1), read_at=bench.clock.monotonic())])
    bench.clock.advance(0.04)
    bench.pusher.push()
    assert bench.metric("line_to_push_seconds_bucket", le="0.025") == 0
    assert bench.metric("line_to_push_seconds_bucket", le="0.05") == 1
    assert bench.metric("line_to_push_seconds_count") == 1


def test_jitter_halves_at_most() -> None:
    numbers = iter([0.0, 0.999999, 0.5])
    backoff = Backoff(lambda: next(numbers))
    assert backoff.failed() == 0.5
    assert backoff.failed() == pytest.approx(0.5, rel=1e-3)
    assert backoff.refused() == 22.5
