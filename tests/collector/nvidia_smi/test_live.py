"""A real child process stands in for nvidia-smi."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from collector.nvidia_smi import live
from fleet.observations import GpuProcess, ProblemReason, Reading, Sample

DATA = Path(__file__).parents[2] / "data" / "nvidia_smi"
NOW = 1_770_000_000.0
ONE_GPU = """<nvidia_smi_log>
<timestamp>Mon Feb  2 10:00:00 2026</timestamp><attached_gpus>1</attached_gpus>
<gpu id="00000000:{bus}:00.0"><temperature><gpu_temp>40 C</gpu_temp></temperature></gpu>
</nvidia_smi_log>"""


def script(folder: Path, body: str) -> str:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def ask(tool: str, *, timeout: float = 10.0, gpus: tuple[str, ...] = ()) -> Reading:
    return live.read_live(timeout, node="n01", now=NOW, tool=tool, gpus=lambda: gpus)


def reasons(reading: Reading) -> list[ProblemReason]:
    return [problem.reason for problem in reading.problems]


def test_an_answer_is_dated_now(tmp_path: Path) -> None:
    source = DATA / "own-580-four-gpus" / "input.xml"
    reading = ask(script(tmp_path, f'[ "$*" = "-q -x" ] && cat {source}'))
    assert reading.ok
    assert not reading.problems
    assert {record.time for record in reading.records if isinstance(record, Sample | GpuProcess)} == {NOW}
    assert sum(1 for r in reading.records if isinstance(r, Sample) and r.signal == "gpu_info") == 4


def test_a_hang_with_a_child_on_the_pipe_ends_in_time(tmp_path: Path) -> None:
    tool = script(tmp_path, (DATA / "A-22-proc-nvidia-smi-hangs" / "input.sh").read_text())
    started = time.monotonic()
    reading = ask(tool, timeout=0.5)
    assert time.monotonic() - started < 4
    assert not reading.ok
    assert reasons(reading) == [ProblemReason.TIMEOUT]
    assert len(reading.records) == 1


def test_a_missing_tool(tmp_path: Path) -> None:
    reading = ask(str(tmp_path / "nvidia-smi"))
    assert not reading.ok
    assert reasons(reading) == [ProblemReason.TOOL_MISSING]


def test_a_killed_tool_gives_no_samples(tmp_path: Path) -> None:
    source = DATA / "own-580-four-gpus" / "input.xml"
    reading = ask(script(tmp_path, f"cat {source}; kill -9 $$"))
    assert not reading.ok
    assert reasons(reading) == [ProblemReason.TIMEOUT]
    assert len(reading.records) == 1


def test_a_sentence_on_either_output_is_understood(tmp_path: Path) -> None:
    sentence = "Failed to initialize NVML: Driver/library version mismatch"
    for redirect in ("", " >&2"):
        reading = ask(script(tmp_path, f"echo '{sentence}'{redirect}; exit 18"))
        assert reasons(reading) == [ProblemReason.DRIVER_LIBRARY_MISMATCH]
        assert not reading.ok


def test_a_bad_exit_without_a_word_is_partial(tmp_path: Path) -> None:
    source = DATA / "own-580-four-gpus" / "input.xml"
    reading = ask(script(tmp_path, f"cat {source}; exit 14"))
    assert reading.ok
    assert reasons(reading) == [ProblemReason.PARTIAL]


def test_one_unreachable_gpu_does_not_hide_the_others(tmp_path: Path) -> None:
    answers = {bus: tmp_path / bus for bus in ("17", "65")}
    for bus, path in answers.items():
        path.write_text(ONE_GPU.format(bus=bus))
    tool = script(
        tmp_path,
        f"""case "$*" in
  "-q -x") echo 'Unable to determine the device handle for GPU0000:1B:00.0: Unknown Error'; exit 255;;
  "-q -x -i 0000:17:00.0") cat {answers["17"]};;
  "-q -x -i 0000:65:00.0") cat {answers["65"]};;
  *) exit 3;;
esac""",
    )
    reading = ask(tool, gpus=("0000:17:00.0", "0000:1b:00.0", "0000:65:00.0"))
    assert reading.ok
    assert [(p.reason, p.pci) for p in reading.problems] == [(ProblemReason.GPU_LOST, "0000:1b:00.0")]
    found = [record for record in reading.records if isinstance(record, Sample)]
    assert [(s.signal, s.pci, s.index) for s in found] == [
        ("gpu_temperature_celsius", "0000:17:00.0", None),
        ("gpu_temperature_celsius", "0000:65:00.0", None),
    ]


def test_single_queries_share_the_one_deadline(tmp_path: Path) -> None:
    tool = script(
        tmp_path,
        """case "$*" in
  "-q -x") echo 'Unable to determine the device handle for GPU0000:1B:00.0: Unknown Error';;
  *) sleep 30;;
esac""",
    )
    started = time.monotonic()
    reading = ask(tool, timeout=1.0, gpus=tuple(f"0000:{bus}:00.0" for bus in ("17", "65", "98")))
    assert time.monotonic() - started < 5
    assert not reading.ok
    assert reasons(reading) == [ProblemReason.GPU_LOST, ProblemReason.TIMEOUT, ProblemReason.TIMEOUT]


def test_the_environment_is_reduced_and_english(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    seen = tmp_path / "env"
    ask(script(tmp_path, f"env > {seen}; echo 'No devices were found'"))
    variables = dict(line.partition("=")[::2] for line in seen.read_text().splitlines())
    assert "SECRET_TOKEN" not in variables
    assert variables["LC_ALL"] == "C"
    assert variables["PATH"] == os.environ["PATH"]


def test_bound_gpus_are_the_pci_addresses_of_the_driver(tmp_path: Path) -> None:
    for name in ("0000:1b:00.0", "0000:17:00.0", "bind", "module", "000f:01:00.0"):
        (tmp_path / name).mkdir()
    assert live.bound_gpus(tmp_path) == ("0000:17:00.0", "0000:1b:00.0", "000f:01:00.0")
    assert live.bound_gpus(tmp_path / "absent") == ()
