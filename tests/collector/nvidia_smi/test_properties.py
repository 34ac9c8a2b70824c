"""Any bytes: records or problems, never a traceback; damage never reaches the GPUs beside it."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector.encode import to_json_line
from collector.nvidia_smi.reader import read_nvidia_smi
from collector.signals import load_signals
from fleet.observations import GpuProcess, Problem, Reading, Sample

DATA = Path(__file__).parents[2] / "data" / "nvidia_smi"
CAPTURES = sorted(
    (path for path in DATA.glob("*/input*") if path.suffix not in (".rc", ".sh", ".args")), key=str
)
FOUR = (DATA / "own-580-four-gpus" / "input.xml").read_bytes()
NOW = 1_770_000_000.0
GRAMMAR = st.sampled_from(
    [
        b"<nvidia_smi_log>", b"</nvidia_smi_log>", b'<gpu id="00000000:05:00.0">', b"</gpu>", b"<uuid>",
        b"GPU-1", b"</uuid>", b"<processes>", b"<process_info>", b"<process_name>", b"</process_name>",
        b"<pid>", b"7", b"N/A", b"[N/A]", b"GPU is lost", b"index, uuid", b", ", b"\n", b"0x44", b"<!--",
        b"-->", b"<!DOCTYPE [", b"]>", b"&amp;", b"&#0;", b"&#55296;", b"\xff", b"\x00", b" MiB", b"-1",
        b"retired_pages.address", b"pid, process_name", b"<attached_gpus>", b"9" * 30, b"| GPU  Name |",
        b"Unable to determine the device handle for GPU", b"Failed to initialize NVML:", b"<temperature>",
        b"<gpu_temp>", b"<mig_devices><mig_device><gpu_instance_id>", b"<ecc_errors><volatile>", b"\xd9\xa3",
        b"DRIVER version : ", b"NVIDIA-SMI version : ",
    ]
)  # fmt: skip
few = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=50)


def check(data: bytes) -> Reading:
    """What every reading must hold."""
    reading = read_nvidia_smi(data, node="n01", now=NOW)
    signals = load_signals()
    assert reading.records or reading.ok
    for record in reading.records:
        assert json.loads(to_json_line(record))
        assert isinstance(record, Sample | GpuProcess | Problem)
        if isinstance(record, Sample):
            assert record.signal in signals
            assert math.isfinite(record.value)
        elif isinstance(record, Problem):
            assert record.count >= 1
            assert "\n" not in record.message
    if not reading.ok:
        assert reading.problems
    return reading


def by_gpu(reading: Reading) -> dict[str | None, set[tuple[str, float]]]:
    found: dict[str | None, set[tuple[str, float]]] = {}
    for record in reading.records:
        if isinstance(record, Sample):
            found.setdefault(record.gpu, set()).add((record.signal, record.value))
    return found


@cache
def _whole() -> dict[str | None, set[tuple[str, float]]]:
    return by_gpu(check(FOUR))


@given(st.binary(max_size=400))
@few
def test_any_bytes(data: bytes) -> None:
    check(data)


@given(st.lists(st.one_of(GRAMMAR, st.binary(max_size=6)), max_size=40))
@few
def test_any_soup_of_the_grammar(pieces: list[bytes]) -> None:
    check(b"".join(pieces))


@given(st.data())
@few
def test_mutated_captures(data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from(CAPTURES)).read_bytes()
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(len(whole), start + 200)))
    check(whole[:start] + data.draw(st.binary(max_size=30)) + whole[end:])


@given(st.integers(0, len(FOUR)))
@few
def test_any_cut_is_told(end: int) -> None:
    reading = check(FOUR[:end])
    if end < FOUR.rindex(b">") + 1:
        assert reading.problems
    found, whole = by_gpu(reading), _whole()
    for uuid, values in found.items():
        assert uuid is None or values == whole[uuid]


@given(st.data())
@few
def test_damage_inside_one_gpu_costs_no_other(data: st.DataObject) -> None:
    """Anything but new GPU or document tags, at any place strictly inside the second GPU."""
    first = FOUR.index(b'<gpu id="00000000:2B:00.0">') + len(b'<gpu id="00000000:2B:00.0">')
    last = FOUR.index(b"</gpu>", first)
    start = data.draw(st.integers(first, last))
    end = data.draw(st.integers(start, min(last, start + 300)))
    alphabet = st.sampled_from([b"<", b">", b"/", b"x", b"\x00", b"\xff", b"&", b"\n", b"</uuid>", b"<pci>"])
    junk = b"".join(data.draw(st.lists(alphabet, max_size=8)))
    reading = check(FOUR[:start] + junk + FOUR[end:])
    whole, found = _whole(), by_gpu(reading)
    for number in (0, 2, 3):
        uuid = f"GPU-5a000000-0000-4000-8000-00000000000{number}"
        assert found[uuid] == whole[uuid]


@given(st.text(max_size=60).filter(lambda name: "\n" not in name and "process_name>" not in name))
@few
def test_any_process_name_costs_itself_only(name: str) -> None:
    old = b"/usr/bin/python3 train.py --rank=1"
    reading = check(FOUR.replace(old, name.encode("utf-8", "surrogatepass")))
    assert by_gpu(reading) == _whole()
    assert [r.pid for r in reading.records if isinstance(r, GpuProcess)] == [4000, 4001, 4002, 4003]
