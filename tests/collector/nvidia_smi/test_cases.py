"""Output of real layouts and reported failures, each with what must come out of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.nvidia_smi.reader import read_nvidia_smi
from fleet.identity import MigInstance
from fleet.observations import GpuProcess, Problem, ProblemReason, Reading, Sample

DATA = Path(__file__).parents[2] / "data" / "nvidia_smi"
NOW = 1_770_000_000.0
MIB = 2**20


def read(case: str, name: str = "input.xml", args: list[str] | None = None) -> Reading:
    return read_nvidia_smi((DATA / case / name).read_bytes(), node="n01", now=NOW, args=args)


def samples(reading: Reading) -> list[Sample]:
    return [record for record in reading.records if isinstance(record, Sample)]


def processes(reading: Reading) -> list[GpuProcess]:
    return [record for record in reading.records if isinstance(record, GpuProcess)]


def board(reading: Reading) -> dict[str, float]:
    """Values of the one GPU (and of the node) by signal."""
    found = [sample for sample in samples(reading) if sample.mig is None]
    values = {sample.signal: sample.value for sample in found}
    assert len(values) == len(found)
    return values


def of_index(reading: Reading, index: int) -> dict[str, float]:
    return {sample.signal: sample.value for sample in samples(reading) if sample.index == index}


def reasons(reading: Reading) -> list[tuple[ProblemReason, int]]:
    return [(problem.reason, problem.count) for problem in reading.problems]


def absent(values: dict[str, float], *signals: str) -> bool:
    return not set(signals) & set(values)


def test_418_has_few_elements_and_page_retirement() -> None:
    reading = read("A-01-xml-418-v10-sparse-device")
    values = board(reading)
    assert reading.ok
    assert not reading.problems
    info = next(sample for sample in samples(reading) if sample.signal == "gpu_info")
    assert (info.gpu, info.index, info.pci) == ("GPU-417a07ce-6c88-5cf4-bc0f-e629c8d72a8d", 0, "0000:3b:00.0")
    assert info.labels == {"model": "Tesla T4", "driver": "418.87.01"}
    assert values["node_gpu_count"] == 1
    assert values["gpu_temperature_celsius"] == 34
    assert values["gpu_temperature_limit_celsius"] == 93
    assert values["gpu_power_watts"] == 9.72
    assert values["gpu_memory_used_bytes"] == 0
    assert values["gpu_ecc_uncorrected_volatile_total"] == 0
    assert values["gpu_ecc_corrected_aggregate_total"] == 11
    assert values["gpu_ecc_uncorrected_aggregate_total"] == 2
    assert values["gpu_retired_pages_corrected"] == 1
    assert values["gpu_retired_pages_uncorrected"] == 2
    assert values["gpu_retired_pages_pending"] == 1
    assert values["gpu_clock_event_reasons"] == 0x1
    assert absent(values, "gpu_row_remap_pending", "gpu_memory_temperature_celsius", "gpu_recovery_action")


def test_450_counts_sram_and_dram_and_remapped_rows() -> None:
    reading = read("A-02-xml-450-a100-ecc-sram-dram")
    values = board(reading)
    assert not reading.problems
    assert values["gpu_ecc_corrected_volatile_total"] == 0
    assert values["gpu_ecc_uncorrected_volatile_total"] == 1
    assert values["gpu_ecc_corrected_aggregate_total"] == 4
    assert values["gpu_ecc_uncorrected_aggregate_total"] == 1
    assert values["gpu_remapped_rows_corrected"] == 0
    assert values["gpu_remapped_rows_uncorrected"] == 1
    assert values["gpu_row_remap_pending"] == 1
    assert values["gpu_row_remap_failed"] == 0
    assert values["gpu_pcie_replays_total"] == 14
    assert absent(
        values, "gpu_retired_pages_corrected", "gpu_retired_pages_uncorrected", "gpu_retired_pages_pending"
    )
    assert all(sample.mig is None for sample in samples(reading))


def test_mig_devices_that_share_a_gpu_instance_stay_apart() -> None:
    reading = read("A-03-xml-510-mig-shared-gi")
    assert not reading.problems
    memory = {s.mig: s.value for s in samples(reading) if s.signal == "gpu_memory_used_bytes"}
    assert memory == {
        None: 7078 * MIB,
        MigInstance(1, 0): 19 * MIB,
        MigInstance(1, 1): 19 * MIB,
        MigInstance(2, 0): 7040 * MIB,
    }
    sram = {s.mig: s.value for s in samples(reading) if s.signal == "gpu_ecc_uncorrected_volatile_total"}
    assert sram == {MigInstance(1, 0): 0, MigInstance(1, 1): 0, MigInstance(2, 0): 3}
    values = board(reading)
    assert values["gpu_ecc_uncorrected_aggregate_total"] == 3
    assert values["gpu_clock_event_reasons"] == 0
    assert absent(values, "gpu_utilization_ratio", "gpu_row_remap_pending")


def test_535_renamed_blocks_are_the_same_signals() -> None:
    reading = read("A-04-xml-535-renamed-blocks")
    values = board(reading)
    assert not reading.problems
    assert values["gpu_power_watts"] == 611.45
    assert values["gpu_power_limit_watts"] == 700
    assert values["gpu_temperature_celsius"] == 89
    assert values["gpu_temperature_margin_celsius"] == -2
    assert values["gpu_clock_event_reasons"] == 0x4 | 0x8 | 0x40
    assert values["gpu_recovery_action"] == 1
    assert absent(values, "gpu_module_power_watts", "gpu_temperature_limit_celsius")


def test_580_prints_instant_power_only_and_pads_values() -> None:
    reading = read("A-05-xml-580-power-padded-na")
    values = board(reading)
    assert not reading.problems
    assert values["gpu_power_watts"] == 34.09
    assert values["gpu_temperature_celsius"] == 31
    assert values["gpu_temperature_margin_celsius"] == 58
    assert absent(values, "gpu_memory_temperature_celsius")
    assert {sample.time for sample in samples(reading)} == {NOW}


def test_remapped_rows_pending_failed_and_not_supported() -> None:
    reading = read("A-07-csv-remapped-rows-pending-failure", "input.csv")
    assert not reading.problems
    signals = (
        "gpu_remapped_rows_corrected",
        "gpu_remapped_rows_uncorrected",
        "gpu_row_remap_pending",
        "gpu_row_remap_failed",
    )
    assert [of_index(reading, 0)[signal] for signal in signals] == [0, 4, 1, 0]
    assert [of_index(reading, 1)[signal] for signal in signals] == [1, 9, 0, 1]
    assert of_index(reading, 2) == {}


def test_placeholder_rows_are_no_retired_pages() -> None:
    reading = read("A-08-csv-retired-pages-placeholder-rows", "input.csv")
    assert reading == Reading((), ok=True)


@pytest.mark.parametrize("with_args", [True, False])
def test_renamed_headers_and_an_empty_cell(with_args: bool) -> None:
    folder = "A-09-csv-requested-vs-returned-header"
    args = (DATA / folder / "input.args").read_text().split() if with_args else None
    reading = read(folder, "input.csv", args)
    assert not reading.problems
    assert of_index(reading, 0) == {
        "gpu_clock_event_reasons": 0x44,
        "gpu_power_watts": 655.1,
        "gpu_temperature_margin_celsius": -1,
        "gpu_fabric_state": 3,
    }


def test_one_bad_gpu_does_not_cost_the_others() -> None:
    reading = read("A-10-csv-one-bad-gpu-error-cells", "input.csv")
    assert reading.ok
    assert of_index(reading, 0)["gpu_temperature_celsius"] == 38
    assert of_index(reading, 0)["gpu_power_watts"] == 77.1
    assert of_index(reading, 0)["gpu_recovery_action"] == 0
    assert of_index(reading, 1) == {}
    assert of_index(reading, 2)["gpu_temperature_celsius"] == 71
    assert of_index(reading, 2)["gpu_recovery_action"] == 1
    assert set(of_index(reading, 3)) == {"gpu_info"}
    assert [(p.index, p.pci, p.reason, p.count) for p in reading.problems] == [
        (1, "0000:31:00.0", ProblemReason.GPU_LOST, 1),
        (2, "0000:98:00.0", ProblemReason.QUERY_ERROR, 1),
        (3, "0000:b1:00.0", ProblemReason.RESET_REQUIRED, 1),
        (3, "0000:b1:00.0", ProblemReason.QUERY_ERROR, 2),
    ]


@pytest.mark.parametrize(
    ("name", "pci", "rows"),
    [
        ("all", "0000:1b:00.0", 0),
        ("older", "0000:b1:00.0", 0),
        ("mixed", "0000:ca:00.0", 2),
    ],
)
def test_a_device_that_cannot_be_opened_is_lost(name: str, pci: str, rows: int) -> None:
    reading = read("A-11-stdout-device-handle-unknown-error", f"input.{name}.stdout")
    (problem,) = reading.problems
    assert (problem.reason, problem.pci) == (ProblemReason.GPU_LOST, pci)
    assert len(samples(reading)) == rows
    assert reading.ok is (rows > 0)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("none", ProblemReason.NO_DEVICES),
        ("mismatch", ProblemReason.DRIVER_LIBRARY_MISMATCH),
        ("nodriver", ProblemReason.DRIVER_NOT_LOADED),
        ("unknown", ProblemReason.QUERY_ERROR),
    ],
)
def test_failures_of_the_whole_host_are_no_host_without_gpus(name: str, reason: ProblemReason) -> None:
    reading = read("A-12-stdout-no-devices-and-nvml-mismatch", f"input.{name}.stdout")
    (problem,) = reading.records
    assert isinstance(problem, Problem)
    assert (problem.reason, problem.node, problem.gpu) == (reason, "n01", None)
    assert not reading.ok
    assert ("570.195" in problem.message) is (name == "mismatch")


def test_hostile_process_names_cost_themselves_only() -> None:
    reading = read("A-13-xml-process-name-garbage-bytes")
    assert not reading.problems
    assert board(reading)["gpu_temperature_celsius"] == 44
    assert board(reading)["gpu_power_watts"] == 120
    found = processes(reading)
    assert [process.pid for process in found] == [4101, 4102, 4103, 4104]
    assert [process.memory_bytes for process in found] == [512 * MIB, 9 * MIB, 2048 * MIB, 77 * MIB]
    assert found[2].name == "/opt/r&d/run --mode=<fast>"
    assert found[3].name == "/home/u17/mödèle 训练.py"
    for process in found:
        assert process.gpu == "GPU-a28c310a-5f24-5a95-b63a-85894b3a9a09"
        assert process.name is not None
        assert process.name.isprintable()


def test_a_vgpu_guest_has_no_problem() -> None:
    reading = read("A-16-xml-vgpu-guest")
    assert not reading.problems
    values = board(reading)
    assert values["gpu_utilization_ratio"] == 0
    assert absent(
        values,
        "gpu_temperature_celsius",
        "gpu_power_watts",
        "gpu_clock_event_reasons",
        "gpu_pcie_replays_total",
        "gpu_pcie_link_width",
    )


def test_unified_memory_has_no_framebuffer() -> None:
    reading = read("A-18-xml-gb10-unified-memory")
    assert not reading.problems
    values = board(reading)
    assert absent(values, "gpu_memory_used_bytes", "gpu_memory_total_bytes")
    assert values["gpu_pcie_link_width"] == values["gpu_pcie_link_width_max"] == 1
    assert {s.pci for s in samples(reading) if s.gpu} == {"000f:01:00.0"}
    assert [p.memory_bytes for p in processes(reading)] == [63931 * MIB]


def test_the_newest_complete_document_of_a_stream_counts() -> None:
    reading = read("A-19-xml-loop-concatenated-truncated")
    assert [s.value for s in samples(reading) if s.signal == "gpu_temperature_celsius"] == [41]
    assert reasons(reading) == [(ProblemReason.TRUNCATED, 1)]


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("r590", {"driver": "590.48.01", "cuda": "13.1"}),
        ("r610", {"driver": "610.57.04", "cuda": "13.3"}),
    ],
)
def test_versions_are_numbers_and_never_prose(name: str, labels: dict[str, str]) -> None:
    reading = read("A-20-text-version-610-renamed", f"input.{name}.txt")
    (sample,) = reading.records
    assert isinstance(sample, Sample)
    assert (sample.signal, sample.value, sample.labels) == ("gpu_info", 1.0, labels)


def test_the_link_is_judged_by_what_gpu_and_slot_can_do() -> None:
    reading = read("A-23-csv-pcie-link-idle-vs-degraded", "input.csv")
    assert not reading.problems
    link = (
        "gpu_pcie_link_generation",
        "gpu_pcie_link_generation_max",
        "gpu_pcie_link_width",
        "gpu_pcie_link_width_max",
    )
    assert [[of_index(reading, index)[signal] for signal in link] for index in range(4)] == [
        [1, 4, 16, 16],
        [4, 4, 8, 16],
        [1, 5, 16, 16],
        [4, 4, 16, 16],
    ]


def test_clocks_are_taken_from_their_block_and_a_missing_gpu_is_noticed() -> None:
    reading = read("A-24-xml-mixed-content-and-dup-elements")
    values = board(reading)
    assert values["node_gpu_count"] == 2
    assert values["gpu_sm_clock_hertz"] == 210e6
    assert values["gpu_sm_clock_max_hertz"] == 2100e6
    assert reasons(reading) == [(ProblemReason.INCONSISTENT, 1)]
    assert {sample.index for sample in samples(reading)} == {None}


def test_the_table_for_people_gives_no_samples() -> None:
    reading = read("A-26-text-default-table-err", "input.txt")
    assert not reading.ok
    assert not samples(reading)
    assert [(p.reason, p.index, p.pci) for p in reading.problems] == [
        (ProblemReason.QUERY_ERROR, 1, "0000:d8:00.0"),
        (ProblemReason.UNREADABLE, None, None),
    ]
