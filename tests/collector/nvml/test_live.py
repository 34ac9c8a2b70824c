"""The child process: its deadline, its end, and what the reader makes of it."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pynvml
import pytest

from collector.nvml import child
from collector.nvml.live import read_live
from collector.nvml.reader import read_nvml
from collector.process import Completed, OutputTooLargeError, TimedOutError, ToolMissingError
from fleet.errors import UnavailableError
from fleet.observations import ProblemReason, Reading
from tests.support.fake_nvml import FakeNvml, gpu

NOW = 1_770_000_000.0
ROOT = Path(__file__).parents[3]


def reasons(reading: Reading) -> list[ProblemReason]:
    return [problem.reason for problem in reading.problems]


def module(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """Make ``body`` the ``pynvml`` that a child finds. It builds ``library`` from the stand-in."""
    real = Path(pynvml.__file__).parent
    (folder / "pynvml.py").write_text(
        "import importlib.util, sys, time\n"
        f"spec = importlib.util.spec_from_file_location('pynvml', {str(real / 'pynvml.py')!r})\n"
        "own, real = sys.modules[__name__], importlib.util.module_from_spec(spec)\n"
        "sys.modules['pynvml'] = real\n"
        "spec.loader.exec_module(real)\n"
        "from tests.support.fake_nvml import FakeNvml, Fails, gpu\n"
        f"{body}\n"
        "sys.modules['pynvml'] = library\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), str(ROOT)]))


def test_a_child_asks_and_its_answer_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module(tmp_path, monkeypatch, "library = FakeNvml([gpu(), gpu(1), Fails('GPU_IS_LOST')])")
    reading = read_live(20.0, node="n01", now=NOW)
    assert reading.ok
    assert [(p.reason, p.index, p.node) for p in reading.problems] == [(ProblemReason.GPU_LOST, 2, "n01")]
    found = {s.index: s.value for s in reading.samples if s.signal == "gpu_power_watts"}
    assert found == {0: 501.25, 1: 501.25}


def test_a_hung_call_is_named_and_keeps_what_was_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that never returns, and does not even listen to signals, ends with its process."""
    module(
        tmp_path,
        monkeypatch,
        "import signal\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "library = FakeNvml([gpu(), gpu(1).but(nvmlDeviceGetPowerUsage=lambda _h: time.sleep(600)), gpu(2)])",
    )
    started = time.monotonic()
    reading = read_live(4.0, node="n01", now=NOW)
    assert time.monotonic() - started < 6
    assert reading.ok
    assert [(p.reason, p.index, p.pci, p.count) for p in reading.problems] == [
        (ProblemReason.TIMEOUT, 1, "0000:1a:00.0", 1),
        (ProblemReason.PARTIAL, None, None, 1),
    ]
    assert "nvmlDeviceGetPowerUsage did not return" in reading.problems[0].message
    assert {s.index for s in reading.samples if s.index is not None} == {0}


def test_a_library_that_hangs_at_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module(tmp_path, monkeypatch, "library = FakeNvml([gpu()], nvmlInit=lambda: time.sleep(600))")
    reading = read_live(2.0, node="n01", now=NOW)
    assert not reading.ok
    assert reasons(reading) == [ProblemReason.TIMEOUT]
    assert reading.problems[0].message.startswith("nvmlInit did not return")


def test_a_child_that_does_not_get_as_far_as_its_own_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even the import of the binding may hang; then the reader's own deadline ends the group."""
    (tmp_path / "pynvml.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    started = time.monotonic()
    reading = read_live(1.0, node="n01", now=NOW)
    assert time.monotonic() - started < 3
    assert (reasons(reading), reading.ok) == ([ProblemReason.TIMEOUT], False)


def test_a_child_that_dies_is_a_failed_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pynvml.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    reading = read_live(20.0, node="n01", now=NOW)
    assert (reasons(reading), reading.ok) == ([ProblemReason.QUERY_ERROR], False)
    assert "was ended by signal 11" in reading.problems[0].message


def test_a_binding_that_breaks_says_its_last_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pynvml.py").write_text("raise RuntimeError('half installed')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    reading = read_live(20.0, node="n01", now=NOW)
    assert reasons(reading) == [ProblemReason.QUERY_ERROR]
    assert "half installed" in reading.problems[0].message


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TimedOutError("python did not end"), ProblemReason.TIMEOUT),
        (OutputTooLargeError("too much"), ProblemReason.TOO_LARGE),
        (ToolMissingError("no python"), ProblemReason.TOOL_MISSING),
        (UnavailableError("no fork"), ProblemReason.QUERY_ERROR),
    ],
)
def test_every_way_a_child_can_fail(error: UnavailableError, reason: ProblemReason) -> None:
    def ask(_argv: Sequence[str], _env: Mapping[str, str], _seconds: float) -> Completed:
        raise error

    reading = read_live(5.0, node="n01", now=NOW, ask=ask)
    assert (reasons(reading), reading.ok) == ([reason], False)


def test_no_child_is_started_beside_one_that_cannot_die() -> None:
    def ask(_argv: Sequence[str], _env: Mapping[str, str], _seconds: float) -> Completed:
        raise AssertionError("a second call into a driver that holds the first")

    reading = read_live(5.0, node="n01", now=NOW, ask=ask, stuck=lambda _name: (4711,))
    assert (reasons(reading), reading.ok) == ([ProblemReason.TIMEOUT], False)
    assert "process 4711" in reading.problems[0].message


def test_the_child_gets_its_own_earlier_deadline_and_a_small_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    seen: list[tuple[Sequence[str], Mapping[str, str], float]] = []

    def ask(argv: Sequence[str], env: Mapping[str, str], seconds: float) -> Completed:
        seen.append((argv, env, seconds))
        return Completed(tuple(argv), 0, b'{"missing":"pynvml"}\n', b"", 0.1)

    assert reasons(read_live(10.0, node=None, now=NOW, ask=ask, monotonic=lambda: 100.0)) == [
        ProblemReason.TOOL_MISSING
    ]
    ((argv, env, seconds),) = seen
    assert (argv[0], argv[-1], seconds) == (sys.executable, "109.000", 10.0)
    assert "SECRET_TOKEN" not in env
    assert env["LC_ALL"] == "C"


def ask_in_process(seconds: float, library: Any, **more: Any) -> list[dict[str, Any]]:
    reader, writer = os.pipe()
    try:
        child.ask(seconds, library=library, descriptor=writer, bound=lambda: (), **more)
    finally:
        os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        return [json.loads(line) for line in pipe.read().splitlines()]


def test_without_the_binding_the_child_says_so() -> None:
    (line,) = ask_in_process(5.0, None)
    reading = read_nvml(json.dumps(line).encode() + b"\n", node="n01", now=NOW)
    assert reasons(reading) == [ProblemReason.TOOL_MISSING]
    assert "nvidia-ml-py" in reading.problems[0].message


def test_nothing_follows_the_last_word() -> None:
    """The watchdog's line is the last one, whatever the hung call does when it comes back after all."""
    told, left = threading.Event(), threading.Event()

    def hang(_handle: Any) -> Any:
        told.wait(10)
        return 61

    def leave(_status: int) -> None:
        told.set()
        left.set()

    library = FakeNvml([gpu().but(nvmlDeviceGetMarginTemperature=hang)])
    reader, writer = os.pipe()
    worker = threading.Thread(
        target=child.ask,
        args=(0.2,),
        kwargs={"library": library, "descriptor": writer, "bound": lambda: (), "leave": leave},
        daemon=True,
    )
    worker.start()
    assert left.wait(10)
    worker.join(0.3)
    assert worker.is_alive()  # it waits for ever to write: in the real child the process has ended
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        lines = [json.loads(line) for line in pipe.read().splitlines()]
    assert [next(iter(line)) for line in lines] == ["nvml", "timeout"]
    assert lines[-1]["call"] == "nvmlDeviceGetMarginTemperature"
    assert lines[-1]["pci"] == "00000000:19:00.0"
