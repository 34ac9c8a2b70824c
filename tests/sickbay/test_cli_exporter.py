"""``sickbay exporter`` as a person runs it: real processes, Slurm's commands played from captured output."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from fleet.scheduler import NodeRecord, NodeState
from sickbay import cli
from sickbay.cli_exporter import DEFAULT_LISTEN, pool_of
from sickbay.config import load_config
from tests.fakes.kubernetes_api import running
from tests.support.processes import free_ports, wait_until

SICKBAY = Path(sys.executable).with_name("sickbay")
DATA = Path(__file__).parents[1] / "data" / "slurm" / "22.05"
_COMMAND = """#!/bin/sh
echo "{name}" >> {calls}
{then}
"""


class FakeSlurm:
    """A folder for PATH with sinfo, squeue and scontrol; ``calls`` is what was run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._calls = folder / "calls"
        self.says("scontrol", "echo slurm 22.05.8")
        self.shows("sinfo", DATA / "02_draining" / "sinfo.json")
        self.shows("squeue", DATA / "06_requeuehold" / "squeue.json")

    def shows(self, name: str, captured: Path) -> None:
        self.says(name, f"exec cat {captured}")

    def says(self, name: str, then: str) -> None:
        path = self.folder / name
        path.write_text(_COMMAND.format(name=name, calls=self._calls, then=then))
        path.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self._calls.read_text().split() if self._calls.exists() else []

    def command(self, *args: str) -> tuple[list[str], dict[str, str]]:
        env = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"}
        return [str(SICKBAY), "exporter", "slurm", *args], env

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        argv, env = self.command(*args)
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=60)

    @contextmanager
    def served(self, *args: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
        port = free_ports(1)[0]
        argv, env = self.command("--listen", f"127.0.0.1:{port}", *args)
        process = subprocess.Popen(argv, env=env, stderr=subprocess.DEVNULL)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until(lambda: answers(url), timeout=30, what="the exporter to answer")
            yield process, url
        finally:
            process.kill()
            process.wait()


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/-/healthy", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def is_ready(url: str) -> bool:
    return httpx.get(f"{url}/-/ready", timeout=5).status_code == 200


@pytest.fixture
def slurm(tmp_path: Path) -> FakeSlurm:
    folder = tmp_path / "bin"
    folder.mkdir()
    return FakeSlurm(folder)


def test_once_prints_the_metrics(slurm: FakeSlurm) -> None:
    done = slurm.run("--once")

    assert (done.returncode, done.stderr) == (0, "")
    assert "sickbay_scheduler_exporter_up 1.0\n" in done.stdout
    assert 'sickbay_scheduler_nodes{owner="foreign",pool="default",state="draining"} 1.0\n' in done.stdout
    assert 'sickbay_scheduler_pending_jobs{reason="held"} 1.0\n' in done.stdout
    assert slurm.calls == ["scontrol", "sinfo", "squeue"]


def test_an_empty_list_with_errors_is_a_failure_although_slurm_exits_0(slurm: FakeSlurm) -> None:
    slurm.shows("sinfo", DATA / "controller_down_sinfo.json")

    done = slurm.run("--once")

    assert done.returncode == 1
    assert done.stderr.startswith("sickbay exporter: slurm could not be read: ")
    assert done.stderr.count("\n") == 1
    assert "sickbay_scheduler_exporter_up 0.0\n" in done.stdout
    assert 'sickbay_scheduler_exporter_read_failures_total{reason="unavailable"} 1.0\n' in done.stdout
    assert "sickbay_scheduler_nodes" not in done.stdout
    assert "sickbay_scheduler_gpus" not in done.stdout


def test_many_scrapes_are_one_read(slurm: FakeSlurm) -> None:
    with slurm.served() as (_, url):
        wait_until(lambda: is_ready(url), timeout=30, what="the first read")
        texts = {httpx.get(f"{url}/metrics").text for _ in range(20)}

        assert len(texts) == 1
        assert "sickbay_scheduler_gpus{" in texts.pop()
        assert slurm.calls == ["scontrol", "sinfo", "squeue"]
        assert httpx.get(f"{url}/metrics").headers["content-type"].startswith("text/plain; version=0.0.4")
        assert httpx.get(url).status_code == 200
        assert httpx.get(f"{url}/elsewhere").status_code == 404


def test_a_scheduler_that_goes_away_takes_its_numbers_along_and_brings_them_back(slurm: FakeSlurm) -> None:
    with slurm.served("--interval", "1s") as (_, url):

        def shown() -> str:
            return httpx.get(f"{url}/metrics").text

        wait_until(lambda: "_exporter_up 1.0" in shown(), timeout=30, what="a good read")
        slurm.shows("sinfo", DATA / "controller_down_sinfo.json")
        wait_until(lambda: "_exporter_up 0.0" in shown(), timeout=30, what="a failed read")
        text = shown()
        assert "sickbay_scheduler_nodes{" not in text
        assert "sickbay_scheduler_exporter_last_read_timestamp_seconds" in text
        assert is_ready(url)  # it is ready to say that the scheduler is away
        slurm.shows("sinfo", DATA / "02_draining" / "sinfo.json")
        wait_until(lambda: "_exporter_up 1.0" in shown(), timeout=30, what="a good read again")
        assert "sickbay_scheduler_nodes{" in shown()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once_also_in_the_middle_of_a_read(
    slurm: FakeSlurm, number: signal.Signals
) -> None:
    slurm.says("sinfo", "exec sleep 8")
    with slurm.served() as (process, url):
        wait_until(lambda: "sinfo" in slurm.calls, timeout=30, what="the read to begin")
        assert not is_ready(url)
        sent = time.monotonic()
        process.send_signal(number)
        assert process.wait(10) == 0
        assert time.monotonic() - sent < 3.0


def test_a_port_that_is_taken_is_one_line_with_the_next_step(slurm: FakeSlurm) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        done = slurm.run("--listen", f"127.0.0.1:{port}")

    assert done.returncode == 1
    assert done.stderr == (
        f"sickbay: 127.0.0.1:{port} is in use by another program; end that one, or choose another port "
        "with --listen\n"
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("scheduler: {kind: kubernetes}\n", "scheduler.kind is kubernetes, not slurm as asked for"),
        ("agent: {}\n", "has no scheduler section"),
        ("scheduler: {kind: slurm, slrm: {}}\n", "unknown key"),
        ("scheduler: {slurm: {transport: rest, url: 'http://x:1'}}\n", "rest is not in this version"),
        ("scheduler: [\n", ""),
    ],
)
def test_a_bad_configuration_is_one_line_and_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, line: str
) -> None:
    path = tmp_path / "sickbay.yaml"
    path.write_text(text)

    assert cli.run(["exporter", "slurm", "--config", str(path), "--once"]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"{path}:")
    assert line in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["pbs"], "'pbs' is not one of 'slurm', 'kubernetes'"),
        (["slurm", "--listen", "8471"], "--listen: '8471' is no listen address"),
        (["slurm", "--interval", "soon"], "--interval: 'soon' is no duration"),
        (["slurm", "--interval", "0.1s"], "--interval: 0.1s is too often"),
    ],
)
def test_bad_usage_is_one_line_and_2(capsys: pytest.CaptureFixture[str], args: list[str], line: str) -> None:
    assert cli.run(["exporter", *args]) == 2
    err = capsys.readouterr().err
    assert line in err
    assert err.count("\n") == 1


def test_a_kubeconfig_that_is_not_there_is_a_bad_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sickbay.yaml"
    path.write_text("scheduler: {kind: kubernetes, kubernetes: {kubeconfig: nowhere}}\n")

    assert cli.run(["exporter", "kubernetes", "--config", str(path), "--once"]) == 2
    assert capsys.readouterr().err.startswith(f"{path}: scheduler.kubernetes: ")


def test_kubernetes_once(tmp_path: Path) -> None:
    with running() as api:
        api.kubeconfig(tmp_path)
        path = tmp_path / "sickbay.yaml"
        path.write_text("scheduler: {kind: kubernetes, kubernetes: {kubeconfig: kubeconfig}}\n")

        done = subprocess.run(
            [str(SICKBAY), "exporter", "kubernetes", "--config", str(path), "--once"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    assert (done.returncode, done.stderr) == (0, "")
    assert 'reason="none",status="idle"} 32.0\n' in done.stdout


def test_pools_are_the_controllers(tmp_path: Path) -> None:
    path = tmp_path / "sickbay.yaml"
    path.write_text(
        "scheduler: {kind: slurm}\n"
        "pools:\n"
        "  - {name: first, match: {nodes: 'n[1-2]'}}\n"
        "  - {name: second, match: {partition: gpu}}\n"
    )
    pool = pool_of(load_config(path, "agent").pools)

    assert [
        pool(NodeRecord(name=name, state=NodeState.IDLE, partitions=partitions))
        for name, partitions in (("n1", ("gpu",)), ("n3", ("gpu",)), ("n4", ("cpu",)))
    ] == ["first", "second", "unmanaged"]
    assert pool_of(())(NodeRecord(name="n1", state=NodeState.IDLE)) == "default"


def test_the_address_and_the_interval_come_from_the_configuration(slurm: FakeSlurm, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        path = tmp_path / "sickbay.yaml"
        path.write_text(
            f"scheduler: {{kind: slurm}}\nexporter: {{listen: '{address}', interval_seconds: 45}}\n"
        )

        done = slurm.run("--config", str(path))
        shown = slurm.run("--config", str(path), "--once").stdout

    assert done.stderr.startswith(f"sickbay: {address} is in use by another program")
    assert "sickbay_scheduler_exporter_interval_seconds 45.0\n" in shown


def test_the_default_port_is_nobodys() -> None:
    assert DEFAULT_LISTEN.rpartition(":")[2] not in ("8470", "9870", "9400", "9341", "9090", "9093", "9100")


@pytest.mark.services
def test_promtool_has_nothing_to_say_about_what_is_printed(slurm: FakeSlurm) -> None:
    promtool = shutil.which("promtool")
    assert promtool is not None, "promtool is missing: apt-get install prometheus"
    text = slurm.run("--once").stdout
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
