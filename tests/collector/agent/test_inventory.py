"""The GPU inventory: the tool's answers, and what may be said when it gives none."""

from __future__ import annotations

import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.agent.inventory import (
    STALE_SECONDS,
    CachedInventory,
    GpuIdentity,
    QueryError,
    parse_gpus,
    query_gpus,
)
from collector.agent.stats import AgentStats
from fleet.clock import ManualClock

ONE = "GPU-1d4a5b6c-0000-1111-2222-333344445555, 0, 00000000:3B:00.0\n"
TWO = ONE + "GPU-2d4a5b6c-0000-1111-2222-333344445555, 1, 00000001:AF:00.0\n"
FIRST = GpuIdentity("GPU-1d4a5b6c-0000-1111-2222-333344445555", 0, "0000:3b:00.0")
SECOND = GpuIdentity("GPU-2d4a5b6c-0000-1111-2222-333344445555", 1, "0001:af:00.0")


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        (ONE, (FIRST,)),
        (TWO, (FIRST, SECOND)),
        ("\n" + ONE + "\n", (FIRST,)),
        ("No devices were found\n", ()),
        ("", None),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", None),
        (ONE + "[GPU is lost], [GPU is lost], 00000000:AF:00.0\n", None),
        (ONE + "Unable to determine the device handle for GPU 0000:AF:00.0: Unknown Error\n", None),
        (ONE + ONE, None),
        ("GPU-1d4a5b6c, 0, [N/A]\n", None),
        ("GPU-1d4a5b6c, -1, 00000000:3B:00.0\n", None),
        ("\x00\xff, \n", None),
    ],
)
def test_all_of_the_answer_or_nothing(text: str, gpus: tuple[GpuIdentity, ...] | None) -> None:
    assert parse_gpus(text) == gpus


@pytest.fixture
def tool(tmp_path: Path) -> Callable[[str], tuple[str, ...]]:
    def make(script: str) -> tuple[str, ...]:
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return (str(path),)

    return make


def test_the_tool_is_asked(tool: Callable[[str], tuple[str, ...]]) -> None:
    assert query_gpus(tool(f"printf '{TWO}'")) == (FIRST, SECOND)
    assert query_gpus(tool("echo 'No devices were found'; exit 6")) == ()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18", "exited 18 and said"),
        (f"printf '{ONE}'; exit 15", "exited 15"),
        ("exit 0", "no output"),
    ],
)
def test_a_failing_tool_says_nothing_about_gpus(
    tool: Callable[[str], tuple[str, ...]], script: str, said: str
) -> None:
    with pytest.raises(QueryError, match=said):
        query_gpus(tool(script))


def test_a_missing_tool_is_unknown() -> None:
    with pytest.raises(QueryError, match="not installed"):
        query_gpus(("nvidia-smi-that-is-not-there",))


def test_a_hanging_tool_is_ended_with_its_children(
    tool: Callable[[str], tuple[str, ...]], tmp_path: Path
) -> None:
    child = tmp_path / "child"
    started = time.monotonic()
    with pytest.raises(QueryError, match="did not end within"):
        query_gpus(tool(f"sleep 60 & echo $! > {child}; wait"), deadline_seconds=0.5)
    assert time.monotonic() - started < 5
    pid = int(child.read_text())
    status = Path(f"/proc/{pid}/status")
    assert not status.exists() or "zombie" in status.read_text()


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.boot = "boot-a"
        self.answer: tuple[GpuIdentity, ...] | Exception = (FIRST,)
        self.changes = 0
        self.asked = 0
        self.inventory = CachedInventory(
            clock=self.clock,
            stats=AgentStats(),
            boot_id=lambda: self.boot,
            changed=self._changed,
            query=self._query,
        )

    def _changed(self) -> None:
        self.changes += 1

    def _query(self) -> tuple[GpuIdentity, ...]:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_unknown_until_asked_then_known_and_told_once() -> None:
    bench = Bench()
    assert bench.inventory.current("boot-a") is None
    bench.inventory.refresh()
    bench.inventory.refresh()
    assert bench.inventory.current("boot-a") == (FIRST,)
    assert bench.changes == 1
    bench.answer = (FIRST, SECOND)
    bench.inventory.refresh()
    assert bench.changes == 2


def test_a_failure_makes_it_unknown_at_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.inventory.refresh()
    bench.answer = QueryError("the driver hangs")
    bench.inventory.refresh()
    bench.inventory.refresh()
    assert bench.inventory.current("boot-a") is None
    assert caplog.text.count("the driver hangs") == 1


def test_an_old_answer_is_no_answer() -> None:
    bench = Bench()
    bench.inventory.refresh()
    bench.clock.advance(STALE_SECONDS)
    assert bench.inventory.current("boot-a") == (FIRST,)
    bench.clock.advance(0.1)
    assert bench.inventory.current("boot-a") is None


def test_gpus_of_an_earlier_boot_say_nothing_about_this_one() -> None:
    bench = Bench()
    bench.inventory.refresh()
    bench.boot = "boot-b"
    assert bench.inventory.current("boot-b") is None
    bench.inventory.refresh()
    assert bench.inventory.current("boot-b") == (FIRST,)


def test_a_reboot_while_the_tool_ran_leaves_it_unknown() -> None:
    bench = Bench()

    def query() -> tuple[GpuIdentity, ...]:
        bench.boot = "boot-b"
        return (FIRST,)

    inventory = CachedInventory(
        clock=bench.clock, stats=AgentStats(), boot_id=lambda: bench.boot, changed=lambda: None, query=query
    )
    inventory.refresh()
    assert inventory.current("boot-b") is None


def test_the_side_thread_survives_a_defect() -> None:
    bench = Bench()
    bench.answer = RuntimeError("a defect")
    bench.inventory.start()
    deadline = time.monotonic() + 5
    while bench.asked == 0 and time.monotonic() < deadline:
        bench.inventory.current("boot-a")
    bench.answer = (FIRST,)
    bench.boot = "boot-b"
    bench.inventory._wake.set()
    while bench.inventory.current("boot-b") is None and time.monotonic() < deadline:
        time.sleep(0.005)
    assert bench.inventory.current("boot-b") == (FIRST,)
    bench.inventory.stop()
