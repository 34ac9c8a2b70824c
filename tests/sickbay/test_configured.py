"""From a configuration to what acts by it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.clock import ManualClock
from fleet.errors import UnavailableError
from fleet.marks import Mark
from remediator.lease import RemainingLease
from sickbay.cli import run
from sickbay.config import load_config
from sickbay.configured import backend_from

MINIMAL = "cluster: a\nscheduler: {kind: slurm, slurm: {timeout_seconds: 10}}\nmetrics: {source: scrape}\n"
TOKENS = "http: {allow_anonymous_loopback: true}\n"


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def written(text: str) -> Path:
        path = tmp_path / "c.yaml"
        path.write_text(text)
        return path

    return written


@pytest.mark.parametrize("lease_seconds", [2.0, 5.0, 10.0, 15.0])
def test_a_write_fits_into_any_lease(
    tmp_path: Path, write: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, lease_seconds: float
) -> None:
    """A lease shorter than the scheduler's time-out must not mean that nothing is ever done."""
    programs = {
        "scontrol": 'case "$1" in --version) echo slurm 22.05.8;; *) echo "$@" >> "$0.log";; esac',
        "sinfo": """echo '{"nodes": [{"name": "n1", "state": "idle", "state_flags": []}], "errors": []}'""",
    }
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    clock = ManualClock()
    remaining = RemainingLease(clock)
    remaining.renewed(clock.monotonic(), lease_seconds)
    clock.advance(lease_seconds * 0.3)
    config = load_config(write(MINIMAL + f"lease: {{duration_seconds: {lease_seconds}}}\n" + TOKENS))
    backend = backend_from(config, clock, remaining)
    with pytest.raises(UnavailableError, match="not drained after the drain was sent"):
        backend.cordon("n1", Mark("i-1", "rule", "why"))
    assert (tmp_path / "scontrol.log").read_text().startswith("update NodeName=n1 State=DRAIN")


def test_config_check_reads_the_rules_that_are_named(
    write: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(MINIMAL + TOKENS + "rules: {disabled: [gpu-fell-of-bus], modes: {gpu-nope-x: observe}}\n")
    assert run(["config", "check", str(path)]) == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert [line.split(", so ")[0] for line in warnings] == [
        f"warning: {path}: rules.disabled: there is no rule 'gpu-fell-of-bus' (perhaps 'gpu-fell-off-bus')",
        f"warning: {path}: rules.modes: there is no rule 'gpu-nope-x'",
    ]


def test_config_check_finds_a_rule_directory_that_serve_could_not_use(
    write: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(MINIMAL + TOKENS + "rules: {directories: [/nonexistent-rules]}\n")
    assert run(["config", "check", str(path)]) == 2
    assert "/nonexistent-rules: cannot be listed" in capsys.readouterr().err


def test_config_check_knows_an_agents_file(
    write: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = write("agent: {node: n1}\n")
    assert run(["config", "check", str(path)]) == 2
    assert f"{path}: as an agent's file it is fine: check those with --agent" in capsys.readouterr().err
    assert run(["config", "check", str(path), "--agent"]) == 0
    path.write_text("agent: {node: n1, colour: red}\n")
    assert run(["config", "check", str(path)]) == 2
    assert "--agent" not in capsys.readouterr().err
