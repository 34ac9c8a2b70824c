"""The runner comes back in time, whatever the program does to its pipes and its group."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from collector.process import OutputTooLargeError, TimedOutError, ToolMissingError, run
from fleet.errors import UnavailableError

ENV = {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}
# A stand-in for a wedged tool: half a header, deaf to TERM, and a grandchild that keeps the pipe open.
WEDGED = """trap '' TERM
printf 'index, uu'
( trap '' TERM; echo $$ > "$1"; exec sleep 90 ) &
echo $! > "$1"
wait
"""


def test_output_and_exit_status_come_back() -> None:
    done = run(["sh", "-c", "echo out; echo err >&2; exit 3"], env=ENV, timeout_seconds=10)

    assert (done.rc, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
    assert done.argv[0] == "sh"
    assert done.duration < 10


def test_only_the_given_environment_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")

    done = run(["env"], env={**ENV, "A": "b"}, timeout_seconds=10)

    assert b"A=b" in done.stdout
    assert b"SQUEUE_FORMAT" not in done.stdout


def test_arguments_are_never_seen_by_a_shell() -> None:
    nasty = "GPU 3; touch /tmp/x $(id) `id` \"'\n| & State=DOWN"

    assert run(["printf", "%s", nasty], env=ENV, timeout_seconds=10).stdout.decode() == nasty


def test_standard_input_is_empty() -> None:
    assert run(["cat"], env=ENV, timeout_seconds=10).stdout == b""


def test_a_wedged_program_and_its_child_are_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "child"
    started = time.monotonic()

    with pytest.raises(TimedOutError, match="did not end within"):
        run(["sh", "-c", WEDGED, "sh", str(pid_file)], env=ENV, timeout_seconds=0.5)

    assert time.monotonic() - started < 5
    child = int(pid_file.read_text())
    assert _gone(child)


def test_a_child_that_holds_the_pipe_after_the_program_ended_is_not_waited_for() -> None:
    started = time.monotonic()

    done = run(["sh", "-c", "echo done; sleep 60 & exit 0"], env=ENV, timeout_seconds=30)

    assert (done.rc, done.stdout) == (0, b"done\n")
    assert time.monotonic() - started < 10


def test_a_program_that_closes_its_pipes_is_still_timed_out() -> None:
    with pytest.raises(TimedOutError):
        run(["sh", "-c", "exec >&- 2>&-; sleep 60"], env=ENV, timeout_seconds=0.3)


def test_large_output_within_the_bound_is_whole() -> None:
    done = run(["head", "-c", "5000000", "/dev/zero"], env=ENV, timeout_seconds=20)

    assert len(done.stdout) == 5_000_000


def test_endless_output_is_cut_off() -> None:
    with pytest.raises(OutputTooLargeError):
        run(["yes"], env=ENV, timeout_seconds=20, max_output_bytes=100_000)


def test_a_missing_or_closed_tool_is_said_so(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.write_text("#!/bin/sh\n")
    closed.chmod(0o644)

    for name in ("no-such-program-here", str(closed)):
        with pytest.raises(ToolMissingError) as caught:
            run([name], env=ENV, timeout_seconds=5)
        assert name in str(caught.value)
        assert isinstance(caught.value, UnavailableError)


def test_a_signalled_program_has_a_negative_status() -> None:
    assert run(["sh", "-c", "kill -KILL $$"], env=ENV, timeout_seconds=5).rc == -9


def _gone(pid: int) -> bool:
    for _ in range(100):
        state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, check=False).stdout
        if not state.strip() or state.strip().startswith(b"Z"):
            return True
        time.sleep(0.02)
    return False
