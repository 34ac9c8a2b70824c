"""``sickbay agent`` as its users start it: a process of its own against a real server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.processes import wait_until
from tests.support.recording_controller import RecordingController, Reply

pytestmark = pytest.mark.slow

COMMAND = (sys.executable, "-c", "from sickbay.cli import main; main()", "agent", "--config")
ROOT = Path(__file__).parents[3]
XID_79 = "Jan  1 00:00:00 n01 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"
HEAVY = ("sqlalchemy", "fastapi", "uvicorn", "sklearn", "apscheduler", "kubernetes", "numpy", "remediator")


@pytest.fixture
def controller() -> Iterator[RecordingController]:
    with RecordingController() as running:
        yield running


def configuration(path: Path, url: str, **more: Any) -> Path:
    (path / "kern.log").touch()
    (path / "boot_id").write_text("boot-a\n")
    agent = {
        "node": "n01",
        "controller": url,
        "kernel_log": str(path / "kern.log"),
        "boot_id_file": str(path / "boot_id"),
        "sources": [],
        "listen": "127.0.0.1:0",
        "spool_dir": str(path / "spool"),
    }
    file = path / "sickbay.yaml"
    file.write_text(yaml.safe_dump({"agent": agent | more}))
    return file


def run(config: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, str(config), *more], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


def start(config: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([*COMMAND, str(config)], cwd=ROOT, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_kernel_line_to_controller_and_a_clean_end(
    tmp_path: Path, controller: RecordingController, number: signal.Signals
) -> None:
    token = tmp_path / "token"
    token.write_text("sbn1.abc.def\n")
    process = start(configuration(tmp_path, controller.url, token_file=str(token)))
    try:
        controller.wait_for(lambda: controller.pushes, timeout=30)
        with (tmp_path / "kern.log").open("a") as log:
            log.write(XID_79)
        controller.wait_for(lambda: controller.events)
    finally:
        process.send_signal(number)
        _, stderr = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "stopped (events waiting for the next start: 0)" in stderr
    assert "Traceback" not in stderr
    assert controller.events[0]["code"] == 79
    assert controller.headers[0]["authorization"] == "Bearer sbn1.abc.def"
    assert "sbn1.abc.def" not in stderr


def test_kill_9_loses_nothing_and_reuses_no_sequence(tmp_path: Path, controller: RecordingController) -> None:
    config = configuration(tmp_path, controller.url)
    controller.script = lambda push: Reply(503) if push["events"] else None
    process = start(config)
    try:
        controller.wait_for(lambda: controller.pushes, timeout=30)
        with (tmp_path / "kern.log").open("a") as log:
            log.write(XID_79)
        controller.wait_for(lambda: any(push["events"] for push in controller.pushes))
    finally:
        process.kill()
        process.communicate(timeout=20)
    controller.script = lambda _push: None
    (tmp_path / "boot_id").write_text("boot-b\n")
    process = start(config)
    try:
        controller.wait_for(lambda: controller.events, timeout=30)
        with (tmp_path / "kern.log").open("a") as log:
            log.write(XID_79.replace("79", "48"))
        controller.wait_for(lambda: len(controller.events) == 2)
    finally:
        process.terminate()
        process.communicate(timeout=20)
    first, second = controller.events
    assert (first["boot_id"], second["boot_id"]) == ("boot-a", "boot-b")
    assert second["sequence"] > first["sequence"]


def test_once(tmp_path: Path, controller: RecordingController) -> None:
    config = configuration(tmp_path, controller.url)
    assert run(config, "--once").returncode == 0
    assert len(controller.pushes) == 1
    controller.script = lambda _push: Reply(401, b"no token")
    done = run(config, "--once")
    assert done.returncode == 1
    assert "sickbay agent-token n01" in done.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nodes": "n01"}, "nodes"),
        ({"controller": "controller:8470"}, "controller"),
        ({"token_file": "/nonexistent/token"}, "token"),
        ({"listen": "everywhere"}, "listen"),
    ],
)
def test_bad_configuration_is_exit_2_and_one_line(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    done = run(configuration(tmp_path, "http://127.0.0.1:1", **change))
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "sickbay.yaml" in done.stderr


def test_a_second_agent_is_exit_1_and_one_line(tmp_path: Path, controller: RecordingController) -> None:
    config = configuration(tmp_path, controller.url)
    process = start(config)
    try:
        controller.wait_for(lambda: controller.pushes, timeout=30)
        done = run(config)
    finally:
        process.terminate()
        process.communicate(timeout=20)
    assert done.returncode == 1
    assert "another sickbay agent" in done.stderr


def test_the_agent_process_is_light(tmp_path: Path, controller: RecordingController) -> None:
    """Nothing of the controller is loaded, and it stays below the 60 MiB a node may lend it."""
    script = (
        "import sys, json, atexit, pathlib\n"
        "report = lambda: print(json.dumps([sorted({name.partition('.')[0] for name in sys.modules}),"
        " pathlib.Path('/proc/self/status').read_text()]))\n"
        "atexit.register(report)\n"
        "from sickbay.cli import main; main()\n"
    )
    config = configuration(tmp_path, controller.url, sources=["dcgm", "nvidia-smi", "nic"])
    done = subprocess.run(
        [sys.executable, "-c", script, "agent", "--config", str(config), "--once"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    modules, status = json.loads(done.stdout)
    assert not set(HEAVY) & set(modules)
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    assert int(peak.split()[1]) < 60 * 1024, peak


def test_an_idle_agent_costs_next_to_nothing(tmp_path: Path, controller: RecordingController) -> None:
    process = start(configuration(tmp_path, controller.url))
    try:
        controller.wait_for(lambda: controller.pushes, timeout=30)
        before = cpu_seconds(process.pid)
        started = time.monotonic()
        wait_until(lambda: time.monotonic() - started > 3.0, timeout=10, what="three idle seconds")
        share = (cpu_seconds(process.pid) - before) / (time.monotonic() - started)
    finally:
        process.terminate()
        process.communicate(timeout=20)
    assert share < 0.03, f"{share:.1%} of a core"  # the target is 0.5 %; a clock tick is 10 ms


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
