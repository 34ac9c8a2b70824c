"""``sickbay collect`` as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from fleet.observations import Problem, ProblemReason, Reading
from sickbay import cli_collect

DATA = Path(__file__).parents[1] / "data" / "kernel_log"
XID79 = b"NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"


def run(*args: str, stdin: bytes | None = None) -> Result:
    app = typer.Typer()
    cli_collect.register(app)

    @app.callback()
    def root() -> None:
        """Several commands: the name of this one is part of the line."""

    return CliRunner().invoke(app, ["collect", *args], input=stdin)


def lines(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    "path", sorted(DATA.glob("*/input*")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_every_captured_log_is_printed(path: Path) -> None:
    printed = lines(run("kernel-log", "--input", str(path), "--now", "2026-03-15T00:00:00Z", "--node", "n01"))
    assert printed
    assert {item["type"] for item in printed} <= {"event", "problem"}
    assert {item["node"] for item in printed} == {"n01"}


def test_an_event_has_every_key() -> None:
    path = DATA / "C-01-same-event-eight-encodings" / "input.kmsg.log"
    (event,) = lines(
        run("kernel-log", "--input", str(path), "--now", "1773532800", "--boot-time", "2026-02-07T03:00:00Z")
    )
    assert event == {
        "type": "event",
        "kind": "xid",
        "code": 119,
        "node": None,
        "gpu": None,
        "pci": "0000:9a:00.0",
        "mig": None,
        "time": 1770434118.022134,
        "time_source": "uptime",
        "pid": 31877,
        "process": "nvidia-smi",
        "cause": None,
        "link": None,
        "unit": None,
        "registers": [],
        "fatal": None,
        "recovery_action": None,
        "uncertain": False,
        "count": 1,
        "message": "NVRM: Xid (PCI:0000:9A:00): 119, pid=31877, name=nvidia-smi, Timeout after 6s of waiting "
        "for RPC response from GPU4 GSP! Expected function 103 (GSP_RM_ALLOC) (0x2093 0x4).",
    }


def test_standard_input() -> None:
    (event,) = lines(run("kernel-log", "--input", "-", "--now", "1773532800.5", stdin=XID79))
    assert (event["code"], event["time"], event["time_source"]) == (79, 1773532800.5, "received")


def test_a_valid_log_without_faults_prints_nothing() -> None:
    assert lines(run("kernel-log", "--input", "-", stdin=b"")) == []
    assert lines(run("kernel-log", "--input", "-", stdin=b"[1.0] usb 1-1: new device\n")) == []


def test_what_cannot_be_read_at_all_exits_1_with_a_reason() -> None:
    result = run("kernel-log", "--input", "-", stdin=bytes(range(128, 256)))
    assert result.exit_code == 1
    assert json.loads(result.stdout)["reason"] == "unreadable"
    assert result.stderr.startswith("kernel-log: nothing could be read: ")


def test_prometheus_text() -> None:
    result = run("kernel-log", "--input", "-", "--node", "n01", "--format", "prometheus", stdin=XID79 * 3)
    assert result.exit_code == 0
    assert (
        'sickbay_kernel_events_total{code="79",kind="xid",node="n01",pci="0000:3b:00.0"} 3.0' in result.stdout
    )


@pytest.mark.parametrize(
    "args",
    [
        ("alertmanager",),
        ("nic", "--input", "-"),
        ("crystal-ball",),
        ("kernel-log", "--input", "/does/not/exist"),
        ("kernel-log", "--input", "/"),
        ("kernel-log", "--input", "-", "--node", "n[1-4]"),
        ("kernel-log", "--input", "-", "--now", "soon"),
        ("kernel-log", "--input", "-", "--now", "nan"),
        ("kernel-log", "--input", "-", "--boot-time=-5"),
        ("kernel-log", "--input", "-", "--timeout", "0"),
    ],
)
def test_bad_usage_is_one_clear_line(args: tuple[str, ...]) -> None:
    result = run(*args, stdin=XID79)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1


def test_a_captured_slurm_answer_goes_to_its_reader() -> None:
    text = b"NodeName=n01 Arch=x86_64 CPUTot=2\n   State=IDLE+DRAIN ThreadsPerCore=1\n   Partitions=gpu\n\n"
    (node,) = lines(run("slurm", "--input", "-", stdin=text))
    assert (node["type"], node["name"], node["state"]) == ("node", "n01", "drained")


def test_the_ring_buffer_without_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    device = tmp_path / "kmsg"
    device.write_bytes(b"3,1,2000000,-;" + XID79)
    monkeypatch.setattr(cli_collect, "DEVICE", device)
    (event,) = lines(run("kernel-log", "--now", "1773532800", "--boot-time", "1773530000"))
    assert (event["time"], event["time_source"]) == (1773530002.0, "uptime")
    monkeypatch.setattr(cli_collect, "DEVICE", tmp_path / "missing")
    assert run("kernel-log").exit_code == 1


def test_a_source_that_fails_whole_exits_1(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(source="slurm", reason=ProblemReason.CONTROLLER_UNREACHABLE, message="no answer")
    monkeypatch.setitem(cli_collect._SOURCES, "slurm", lambda _: Reading(records=(problem,), ok=False))
    result = run("slurm")
    assert result.exit_code == 1
    assert "no answer" in result.stderr


def test_a_captured_exporter_answer_goes_to_its_reader(tmp_path: Path) -> None:
    line = b'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-1",Hostname="dcgm-exporter-x7k2p"} 41\n'
    inventory = tmp_path / "inventory.json"
    inventory.write_text('{"node": "n01", "aliases": ["dcgm-exporter-x7k2p"], "expected_gpus": 8}')
    sample, problem = lines(run("dcgm", "--input", "-", "--inventory", str(inventory), stdin=line))
    assert (sample["node"], sample["gpu"], sample["signal"], sample["value"]) == (
        "n01",
        "GPU-1",
        "gpu_temperature_celsius",
        41.0,
    )
    assert (problem["reason"], problem["count"]) == ("partial", 7)

    cut = tmp_path / "answer.om"
    cut.write_bytes(line)
    reasons = [r["reason"] for r in lines(run("dcgm", "--input", str(cut), "--node", "n01")) if "reason" in r]
    assert "truncated" in reasons
    assert run("dcgm", "--input", "-", "--inventory", "/does/not/exist", stdin=line).exit_code == 2
