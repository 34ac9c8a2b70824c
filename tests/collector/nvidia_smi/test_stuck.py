"""A call that was killed and cannot die: seen in /proc, and nothing is started beside it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from collector import process
from collector.nvidia_smi import live
from collector.nvidia_smi.stuck import unkillable
from fleet.observations import ProblemReason

NOW = 1_770_000_000.0


def entry(
    proc: Path, pid: int, *, name: str = "nvidia-smi", state: str = "D (disk sleep)", shared: int = 0x100
) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "comm").write_text(f"{name}\n")
    (folder / "status").write_text(
        f"Name:\t{name}\nUmask:\t0022\nState:\t{state}\nPid:\t{pid}\nSigQ:\t1/1\n"
        f"SigPnd:\t0000000000000000\nShdPnd:\t{shared:016x}\nSigBlk:\t0000000000000000\n"
    )


def test_only_killed_ones_in_state_d_count(tmp_path: Path) -> None:
    entry(tmp_path, 30)
    entry(tmp_path, 7)
    entry(tmp_path, 8, shared=0)  # waits in the kernel, as any call does for a moment
    entry(tmp_path, 9, state="Z (zombie)")
    entry(tmp_path, 10, state="S (sleeping)")
    entry(tmp_path, 11, name="nvidia-smi-wrap")
    entry(tmp_path, 12, shared=0x4000)  # asked to end by SIGTERM only
    (tmp_path / "13").mkdir()  # has ended while we looked
    (tmp_path / "self").mkdir()
    (tmp_path / "meminfo").write_text("MemTotal: 1 kB\n")
    assert unkillable("nvidia-smi", tmp_path) == (7, 30)


def test_a_long_name_is_found_by_what_the_kernel_keeps_of_it(tmp_path: Path) -> None:
    entry(tmp_path, 5, name="a-name-that-is-")
    assert unkillable("a-name-that-is-too-long", tmp_path) == (5,)


def test_without_proc_nobody_is_stuck(tmp_path: Path) -> None:
    assert unkillable("nvidia-smi", tmp_path / "proc") == ()


def test_the_machines_own_proc_can_be_read() -> None:
    comm = Path("/proc/self/comm").read_text().strip()
    assert os.getpid() not in unkillable(comm)


def test_no_call_is_started_beside_a_stuck_one(tmp_path: Path) -> None:
    mark = tmp_path / "started"
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ntouch {mark}\n")
    tool.chmod(0o755)
    asked: list[str] = []

    def stuck(name: str) -> tuple[int, ...]:
        asked.append(name)
        return (4711,)

    reading = live.read_live(5.0, node="n01", now=NOW, tool=str(tool), gpus=tuple, stuck=stuck)
    assert asked == ["nvidia-smi"]
    assert not mark.exists()
    assert not reading.ok
    (problem,) = reading.problems
    assert (problem.reason, problem.node) == (ProblemReason.TIMEOUT, "n01")
    assert "process 4711" in problem.message


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the one left to the kernel, on purpose
def test_a_process_that_no_signal_reaches_does_not_hold_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What state D does to SIGKILL: it is sent, and nothing happens."""
    mark = tmp_path / "pid"
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\necho $$ > {mark}\nprintf 'index, uu'\nexec sleep 60\n")
    tool.chmod(0o755)
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(process.os, "killpg", lambda group, number: sent.append((group, number)))
    started = time.monotonic()
    reading = live.read_live(0.5, node="n01", now=NOW, tool=str(tool), gpus=tuple)
    took = time.monotonic() - started
    pid = int(mark.read_text())
    os.kill(pid, 0)  # it is still there
    os.kill(pid, signal.SIGKILL)
    assert took < 4
    assert sent == [(pid, signal.SIGKILL)]
    assert [p.reason for p in reading.problems] == [ProblemReason.TIMEOUT]
    assert not reading.ok


def test_a_hung_call_and_its_child_are_both_ended(tmp_path: Path) -> None:
    mark = tmp_path / "pids"
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        f"#!/bin/sh\ntrap '' TERM\necho $$ >> {mark}\n"
        f"( trap '' TERM; exec sleep 60 ) &\necho $! >> {mark}\nwait\n"
    )
    tool.chmod(0o755)
    reading = live.read_live(0.5, node="n01", now=NOW, tool=str(tool), gpus=tuple)
    assert [p.reason for p in reading.problems] == [ProblemReason.TIMEOUT]
    pids = [int(line) for line in mark.read_text().split()]
    assert len(pids) == 2
    deadline = time.monotonic() + 5
    while any(_lives(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(_lives(pid) for pid in pids)


def _lives(pid: int) -> bool:
    """True for a process that has not ended (one that nobody has collected yet has)."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
