"""The read loop's pass, with a source and a parser that do as told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from collector.agent.boot import BootId, epoch_of
from collector.agent.complaints import Complaints, ProblemLog
from collector.agent.reader import KernelLogReader
from collector.agent.spool import Spool
from collector.agent.stats import AgentCollector, AgentStats, registry_of
from collector.encode import to_dict
from fleet.clock import ManualClock
from fleet.observations import Event, EventKind, Problem, ProblemReason

Step = list[bytes] | Exception


class ScriptedSource:
    """Gives one step a read, then nothing."""

    def __init__(self, steps: list[Step], problems: Sequence[Problem] = ()) -> None:
        self.steps = steps
        self.problems = list(problems)
        self.closed = 0

    def read_lines(self, timeout_seconds: float) -> list[bytes]:
        step = self.steps.pop(0) if self.steps else []
        if isinstance(step, Exception):
            raise step
        return step

    def take_problems(self) -> list[Problem]:
        found, self.problems = self.problems, []
        return found

    def close(self) -> None:
        self.closed += 1


class ScriptedParser:
    """``xid`` is an event, ``old`` one of an earlier boot, ``bad`` a problem, ``boom`` a defect."""

    def __init__(self, epoch: Callable[[], str | None]) -> None:
        self.epoch = epoch

    def feed(self, line: bytes) -> Sequence[Event | Problem]:
        match line:
            case b"boom":
                raise RuntimeError("a defect")
            case b"bad":
                return [Problem(source="kernel-log", reason=ProblemReason.UNTRUSTED, message="forged")]
            case b"old":
                return [an_event(boot_id="0f" * 16)]
            case b"nan":
                return [an_event(time=float("nan"), message="a\ud800b" + "x" * 10_000)]
            case b"torn":
                return [an_event(uncertain=True)]
        return [an_event(boot_id=self.epoch())]

    def flush(self, now: float) -> Sequence[Event | Problem]:
        return []

    def close(self) -> Sequence[Event | Problem]:
        return [an_event(count=7)]


def an_event(**more: Any) -> Event:
    fields = {"kind": EventKind.XID, "code": 79, "node": "somebody-else", "time": 1767225600.0}
    return Event(**(fields | more))


class Bench:
    def __init__(self, tmp_path: Path, steps: list[Step], problems: Sequence[Problem] = ()) -> None:
        self.clock = ManualClock()
        self.stats = AgentStats()
        self.boot_id_file = tmp_path / "boot_id"
        self.boot_id_file.write_text("boot-a")
        self.source = ScriptedSource(steps, problems)
        self.opened = 0
        self.paused: list[float] = []
        self.rings = 0
        self.fail_to_open: Exception | None = None
        problem_log = ProblemLog(self.stats, self.clock)
        self.spool = Spool(tmp_path / "spool", clock=self.clock, report=problem_log.tell)
        self.reader = KernelLogReader(
            node="n01",
            open_source=self._open,
            parser_for=ScriptedParser,
            encode=to_dict,
            boot_id=BootId(self.boot_id_file),
            spool=self.spool,
            stats=self.stats,
            problems=problem_log,
            clock=self.clock,
            uniform=lambda: 0.0,
            wake=self._ring,
            pause=self.paused.append,
            wait_seconds=0.0,
        )

    def _open(self) -> ScriptedSource:
        self.opened += 1
        if self.fail_to_open is not None:
            raise self.fail_to_open
        return self.source

    def _ring(self) -> None:
        self.rings += 1

    def metric(self, name: str, **labels: str) -> float | None:
        collector = AgentCollector(stats=self.stats, version="1", spool=lambda: (0, True, 0))
        return registry_of(collector).get_sample_value(f"sickbay_agent_{name}", labels)

    def pushed(self) -> list[tuple[str, dict[str, Any]]]:
        return [(entry.boot_id, dict(entry.event)) for entry in self.spool.peek(100)]


def test_a_line_becomes_an_event_in_our_own_name_and_wakes_the_pusher(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[b"xid"], []])
    assert bench.reader.step() == 1
    ((boot_id, event),) = bench.pushed()
    assert (boot_id, event["node"], event["kind"], event["code"]) == ("boot-a", "n01", "xid", 79)
    assert bench.rings == 1
    assert bench.reader.step() == 0
    assert bench.rings == 1
    assert bench.metric("events_total", kind="xid") == 1


def test_the_epoch_is_the_boot_id_at_the_time_of_reading(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[b"xid"], [b"xid"]])
    bench.reader.step()
    bench.boot_id_file.write_text("boot-b")
    bench.reader.step()
    assert [boot_id for boot_id, _ in bench.pushed()] == ["boot-a", "boot-b"]


def test_an_event_of_an_earlier_boot_keeps_its_epoch(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[b"old"]])
    bench.reader.step()
    assert bench.pushed()[0][0] == "0f0f0f0f-0f0f-0f0f-0f0f-0f0f0f0f0f0f"


@pytest.mark.parametrize(
    ("own", "current", "epoch"),
    [
        (None, "boot-a", "boot-a"),
        ("boot-a", "boot-a", "boot-a"),
        ("boot-0", "boot-a", "boot-0"),
        ("0123456789abcdef0123456789abcdef",) + ("01234567-89ab-cdef-0123-456789abcdef",) * 2,
        ("01234567-89AB-cdef-0123-456789abcdef",) + ("0123456789abcdef0123456789abcdef",) * 2,
        ("f" * 32, "01234567-89ab-cdef-0123-456789abcdef", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    ],
)
def test_journald_and_the_kernel_write_one_boot_in_two_ways(
    own: str | None, current: str, epoch: str
) -> None:
    assert epoch_of(own, current) == epoch


def test_uncertain_events_are_passed_on_as_such(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[b"torn"]])
    bench.reader.step()
    assert bench.pushed()[0][1]["uncertain"] is True


def test_problems_are_counted_and_told_but_not_passed_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gap = Problem(source="kernel-log", reason=ProblemReason.PARTIAL, message="a gap", count=3)
    bench = Bench(tmp_path, [[b"bad"] * 5, []], [gap])
    bench.reader.step()
    assert bench.pushed() == []
    assert bench.metric("problems_total", source="kernel-log", reason="untrusted") == 5
    assert bench.metric("problems_total", source="kernel-log", reason="partial") == 3
    assert caplog.text.count("forged") == 1
    assert caplog.text.count("a gap") == 1


def test_without_a_boot_id_lines_wait(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[b"xid", b"xid"], [b"bad"]])
    bench.boot_id_file.write_text("")
    for _ in range(3):
        assert bench.reader.step() == 0
    assert bench.paused == [0.2] * 3
    assert bench.source.steps == [[b"bad"]], "nothing more is read meanwhile"
    bench.boot_id_file.write_text("boot-b")
    assert bench.reader.step() == 2
    assert [boot_id for boot_id, _ in bench.pushed()] == ["boot-b", "boot-b"]
    bench.reader.step()
    assert bench.source.steps == []


def test_a_source_that_fails_is_opened_again_with_back_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="collector.agent")
    broken = OSError(5, "Input/output error")
    bench = Bench(tmp_path, [[b"xid"], broken, broken, broken, [b"xid"]])
    for _ in range(5):
        bench.reader.step()
    assert len(bench.pushed()) == 2
    assert bench.opened == 4
    assert bench.source.closed == 3
    assert bench.paused == [0.5, 1.0, 2.0]
    assert bench.metric("loop_failures_total", part="source") == 3
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_source_that_cannot_be_opened_is_one_clear_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path, [[b"xid"]])
    bench.fail_to_open = PermissionError(13, "Permission denied", "/dev/kmsg")
    for _ in range(4):
        assert bench.reader.step() == 0
    assert len(caplog.records) == 1
    assert "agent.kernel_log" in caplog.text
    bench.fail_to_open = None
    assert bench.reader.step() == 1


def test_a_line_that_trips_the_parser_costs_only_itself(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[b"xid", b"boom", b"xid"]])
    assert bench.reader.step() == 2
    assert bench.metric("loop_failures_total", part="parser") == 1


def test_what_json_cannot_hold_is_mended(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[b"nan"]])
    bench.reader.step()
    event = bench.pushed()[0][1]
    assert (event["time"], event["time_source"]) == (bench.clock.now(), "received")
    assert event["message"].startswith("a?bxxx")
    assert len(event["message"]) == 4096


def test_closing_writes_down_what_the_parser_held(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[b"xid"]])
    bench.reader.step()
    bench.reader.close()
    assert [event["count"] for _, event in bench.pushed()] == [1, 7]
    assert bench.source.closed == 1


def test_complaints_are_told_once_a_minute_with_the_number_kept_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    complaints = Complaints(logging.getLogger("collector.agent.test"), clock)
    for _ in range(10):
        complaints.say("a", "a is odd")
    complaints.say("b", "b is odd")
    clock.advance(60.0)
    complaints.say("a", "a is odd")
    assert caplog.messages == ["a is odd", "b is odd", "a is odd (and 9 more like it)"]
