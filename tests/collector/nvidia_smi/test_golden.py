"""Every captured or reported output, whole: each record with each of its fields, in order.

The expectations stand beside their inputs (``expected.NAME.jsonl`` of ``input.NAME``) in the form that
``sickbay collect`` prints. ``test_cases`` says which of them matter and why.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.encode import to_dict
from collector.nvidia_smi.reader import read_nvidia_smi

DATA = Path(__file__).parents[2] / "data" / "nvidia_smi"
NOW = 1_770_000_000.0
INPUTS = sorted(
    path.relative_to(DATA) for path in DATA.glob("*/input*") if path.suffix not in (".rc", ".args", ".sh")
)
# Nothing could be read: a sentence instead of data, or the table for people.
NOT_READ = {
    "A-11-stdout-device-handle-unknown-error/input.all.stdout",
    "A-11-stdout-device-handle-unknown-error/input.older.stdout",
    "A-12-stdout-no-devices-and-nvml-mismatch/input.mismatch.stdout",
    "A-12-stdout-no-devices-and-nvml-mismatch/input.nodriver.stdout",
    "A-12-stdout-no-devices-and-nvml-mismatch/input.none.stdout",
    "A-12-stdout-no-devices-and-nvml-mismatch/input.unknown.stdout",
    "A-26-text-default-table-err/input.txt",
}


@pytest.mark.parametrize("name", INPUTS, ids=str)
def test_the_whole_answer(name: Path, local_time: Callable[[str], None]) -> None:
    local_time("UTC")
    path = DATA / name
    code, args = path.with_suffix(".rc"), path.with_suffix(".args")
    reading = read_nvidia_smi(
        path.read_bytes(),
        node="n01",
        now=NOW,
        returncode=int(code.read_text()) if code.exists() else None,
        args=args.read_text().split() if args.exists() else None,
    )
    beside = path.with_name(f"{path.name.replace('input', 'expected', 1)}.jsonl")
    expected = [json.loads(line) for line in beside.read_text().splitlines()]
    assert [to_dict(record) for record in reading.records] == expected
    assert reading.ok is (str(name) not in NOT_READ)


def test_every_case_is_there() -> None:
    """A case without an input would be a case without a test."""
    folders = {name.parts[0] for name in INPUTS}
    assert len([folder for folder in folders if folder.startswith("A-")]) == 19
    left = {path.name for path in DATA.iterdir()} - folders
    assert left == {"A-22-proc-nvidia-smi-hangs"}  # a program and no output: test_live runs it
