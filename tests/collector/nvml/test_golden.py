"""A recorded snapshot, whole, as a user reads it: the form of its lines is an input format."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from typer.testing import CliRunner, Result

from sickbay import cli_collect

DATA = Path(__file__).parents[2] / "data" / "nvml" / "mig-and-lost"


def run(*arguments: str, stdin: bytes | None = None) -> Result:
    app = typer.Typer()
    app.callback()(lambda: None)
    cli_collect.register(app)
    return CliRunner().invoke(app, ["collect", "nvml", *arguments], input=stdin)


def test_the_whole_snapshot() -> None:
    """Three H200: one well, one in MIG mode that needs a reset, one that cannot be opened."""
    result = run("--input", str(DATA / "input.jsonl"), "--node", "n01", "--now", "1770000000")
    assert result.exit_code == 0
    printed = [json.loads(line) for line in result.stdout.splitlines()]
    assert printed == [json.loads(line) for line in (DATA / "expected.jsonl").read_text().splitlines()]


def test_a_lost_snapshot_is_nothing_read() -> None:
    result = run("--input", "-", "--node", "n01", stdin=b'{"failed":18}\n')
    assert result.exit_code == 1
    (problem,) = [json.loads(line) for line in result.stdout.splitlines()]
    assert (problem["source"], problem["reason"]) == ("nvml", "driver_library_mismatch")
    assert result.stderr.startswith("nvml: nothing could be read: ")
