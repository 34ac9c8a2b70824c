"""One value after the other replaced by each word the tool has for "no value": the right problem, or none."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.nvidia_smi.reader import read_nvidia_smi
from fleet.observations import GpuProcess, ProblemReason, Reading

DATA = Path(__file__).parents[2] / "data" / "nvidia_smi"
GB200 = (DATA / "own-610-gb200" / "input.xml").read_text()
NOW = 1_770_000_000.0
UUIDS = [f"GPU-b2000000-0000-4000-8000-00000000000{number}" for number in range(2)]
ABSENT = ["N/A", "[N/A]", " N/A ", "[Not Supported]", "Not Supported", "", "\n\t\t\t", "No data",
          "Requested functionality has been deprecated", "Function Not Found"]  # fmt: skip
ERRORS = {
    "Unknown Error": ProblemReason.QUERY_ERROR,
    "[Unknown Error]": ProblemReason.QUERY_ERROR,
    "ERR!": ProblemReason.QUERY_ERROR,
    "GPU requires reset": ProblemReason.RESET_REQUIRED,
    "[GPU requires reset]": ProblemReason.RESET_REQUIRED,
    "GPU is lost": ProblemReason.GPU_LOST,
    "[GPU is lost]": ProblemReason.GPU_LOST,
    "Insufficient Permissions": ProblemReason.PERMISSION_DENIED,
    "[Insufficient Permissions]": ProblemReason.PERMISSION_DENIED,
    "Timeout": ProblemReason.TIMEOUT,
}
# Names, and blocks whose words are values or somebody else's text.
_TEXTS = {"uuid", "pci_bus_id", "product_name", "process_name", "pid", "used_memory", "type", "status",
          "gpu_instance_id", "compute_instance_id", "state", "cliqueId", "clusterUuid", "summary",
          "bandwidth", "route_recovery_in_progress"}  # fmt: skip
SECOND = GB200.index('<gpu id="00000009:01:00.0">')
LEAVES = [
    match
    for match in re.finditer(r"<(\w+)>([^<>]*)</\1>", GB200)
    if match.start() > SECOND and match[1] not in _TEXTS
]


def read(text: str) -> Reading:
    return read_nvidia_smi(text.encode(), node="n01", now=NOW)


def values(reading: Reading, gpu: str) -> dict[str, float]:
    return {sample.signal: sample.value for sample in reading.samples if sample.gpu == gpu}


WHOLE = read(GB200)
FIRST, OTHER = values(WHOLE, UUIDS[0]), values(WHOLE, UUIDS[1])


def replaced(match: re.Match[str], word: str) -> str:
    return GB200[: match.start(2)] + word + GB200[match.end(2) :]


def test_there_is_something_to_replace() -> None:
    assert len(LEAVES) > 80
    assert not WHOLE.problems
    assert len(FIRST) == len(OTHER) == 34


@pytest.mark.parametrize("word", ABSENT, ids=repr)
def test_an_absent_value_is_no_problem_and_no_zero(word: str) -> None:
    for leaf in LEAVES:
        reading = read(replaced(leaf, word))
        assert not reading.problems, leaf[1]
        assert values(reading, UUIDS[0]) == FIRST
        left = values(reading, UUIDS[1])
        changed = {name for name in left if left[name] != OTHER[name]}
        # Another place may stand in (power, clocks), and a sum goes on without a part that isn't there.
        assert changed <= {
            "gpu_power_watts",
            "gpu_sm_clock_max_hertz",
            "gpu_sm_clock_hertz",
            "gpu_pcie_link_generation",
            "gpu_pcie_link_generation_max",
            "gpu_clock_event_reasons",
            "gpu_ecc_uncorrected_volatile_total",
            "gpu_ecc_uncorrected_aggregate_total",
            "gpu_ecc_corrected_aggregate_total",
            "gpu_memory_total_bytes",
        }, leaf[1]
        assert len(OTHER) - len(left) <= 1, leaf[1]


@pytest.mark.parametrize(("word", "reason"), ERRORS.items(), ids=str)
def test_an_error_is_one_problem_of_that_gpu(word: str, reason: ProblemReason) -> None:
    for leaf in LEAVES:
        reading = read(replaced(leaf, word))
        (problem,) = reading.problems
        assert (problem.reason, problem.gpu, problem.index, problem.pci, problem.count) == (
            reason,
            UUIDS[1],
            1,
            "0009:01:00.0",
            1,
        ), leaf[1]
        assert leaf[1] in problem.message
        assert values(reading, UUIDS[0]) == FIRST
        assert values(reading, UUIDS[1])
        assert [r.pid for r in reading.records if isinstance(r, GpuProcess)] == [88001, 88002]


@pytest.mark.parametrize("word", ["Unknown Error", "GPU is lost", "N/A", "", "garbage", "\x00\xff"])
def test_a_gpu_whose_name_cannot_be_read_keeps_its_address(word: str) -> None:
    reading = read(GB200.replace(UUIDS[1], word))
    second = {s.signal for s in reading.samples if s.pci == "0009:01:00.0"}
    assert second >= set(OTHER) - {"gpu_info"}
    assert {s.gpu for s in reading.samples if s.pci == "0009:01:00.0"} == {None}
    assert values(reading, UUIDS[0]) == FIRST


# --- the query's columns ----------------------------------------------------------------------------------

COLUMNS = {
    "temperature.gpu": "61",
    "temperature.memory": "55",
    "temperature.gpu.tlimit": "26",
    "power.draw [W]": "501.25 W",
    "power.draw.average [W]": "501.25 W",
    "power.draw.instant [W]": "499.00 W",
    "enforced.power.limit [W]": "700.00 W",
    "module.power.draw.average [W]": "880.10 W",
    "clocks.current.sm [MHz]": "1969 MHz",
    "clocks.current.memory [MHz]": "3201 MHz",
    "clocks.max.sm [MHz]": "1980 MHz",
    "utilization.gpu [%]": "91 %",
    "utilization.memory [%]": "40 %",
    "memory.total [MiB]": "143771 MiB",
    "memory.used [MiB]": "1001 MiB",
    "pcie.link.gen.gpucurrent": "5",
    "pcie.link.gen.max": "5",
    "pcie.link.width.current": "16",
    "pcie.link.width.max": "16",
    "clocks_event_reasons.active": "0x0000000000000004",
    "ecc.errors.corrected.volatile.total": "3",
    "ecc.errors.uncorrected.volatile.total": "0",
    "ecc.errors.corrected.aggregate.total": "12",
    "ecc.errors.uncorrected.aggregate.total": "1",
    "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded": "No",
    "remapped_rows.correctable": "0",
    "remapped_rows.uncorrectable": "2",
    "remapped_rows.uncorrectable_inactive": "1",
    "remapped_rows.pending": "Yes",
    "remapped_rows.failure": "No",
    "gpu_recovery_action": "Reset",
    "fabric.state": "Completed",
    "fan.speed [%]": "30 %",
    "a.column.of.a.later.driver": "new",
}
_IDENTITY = {"index": "{n}", "uuid": "GPU-{n}", "pci.bus_id": "00000000:0{n}:00.0"}


def table(cells: dict[str, str], *, order: list[str] | None = None) -> str:
    """Two GPUs; ``cells`` of the second one replace those above."""
    names = order or [*_IDENTITY, *COLUMNS]
    rows = [", ".join(names)]
    for number, other in ((0, {}), (1, cells)):
        row = {**{k: v.format(n=number) for k, v in _IDENTITY.items()}, **COLUMNS, **other}
        rows.append(", ".join(row[name] for name in names))
    return "\n".join([*rows, ""])


def by_index(reading: Reading, index: int) -> dict[str, float]:
    return {s.signal: s.value for s in reading.samples if s.index == index}


def test_columns_in_any_order_with_or_without_units() -> None:
    whole = by_index(read(table({})), 0)
    assert len(whole) == 30
    backwards = read(table({}, order=[*reversed(COLUMNS), *_IDENTITY]))
    assert by_index(backwards, 0) == by_index(backwards, 1) == whole
    bare = {name: re.sub(r" (?:W|MHz|%|MiB)$", "", cell) for name, cell in COLUMNS.items()}
    assert by_index(read(table(bare)), 1) == whole


@pytest.mark.parametrize("column", COLUMNS)
def test_any_cell(column: str) -> None:
    whole = by_index(read(table({})), 0)
    for word in ("[N/A]", "[Not Supported]", "", "N/A", "[Requested functionality has been deprecated]"):
        reading = read(table({column: word}))
        assert not reading.problems
        assert by_index(reading, 0) == whole
        assert len(whole) - len(by_index(reading, 1)) <= 1
    for word, reason in ERRORS.items():
        reading = read(table({column: word}))
        if word == "Timeout" and column == "fabric.state":
            continue
        assert [(p.reason, p.index, p.pci, p.count) for p in reading.problems] == [
            (reason, 1, "0000:01:00.0", 1)
        ]
        assert by_index(reading, 0) == whole


@pytest.mark.parametrize("hours", [-1, 0, 1])
def test_a_row_is_dated_by_its_own_local_time(hours: int, local_time: Callable[[str], None]) -> None:
    local_time(f"XXX{-hours:+d}")  # POSIX counts westward
    reading = read("timestamp, index, temperature.gpu\n2026/09/01 20:47:29.320, 0, 40\n")
    (sample,) = reading.samples
    assert sample.time == pytest.approx(1_788_295_649.32 - 3600 * hours, rel=0, abs=1e-3)
