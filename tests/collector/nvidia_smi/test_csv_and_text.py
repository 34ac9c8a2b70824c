"""CSV queries, sentences, versions, and what is no data source."""

from __future__ import annotations

import time

import pytest

from collector.nvidia_smi.reader import read_nvidia_smi
from fleet.observations import GpuProcess, ProblemReason, Reading, Sample

NOW = 1_770_000_000.0
HANDLE = "Unable to determine the device handle for"


def read(text: str, args: list[str] | None = None, returncode: int | None = None) -> Reading:
    return read_nvidia_smi(text.encode(), node="n01", now=NOW, args=args, returncode=returncode)


def samples(reading: Reading) -> list[tuple[int | None, str, float]]:
    return [(r.index, r.signal, r.value) for r in reading.records if isinstance(r, Sample)]


def processes(reading: Reading) -> list[tuple[str | None, int, str | None, int | None]]:
    return [(r.gpu, r.pid, r.name, r.memory_bytes) for r in reading.records if isinstance(r, GpuProcess)]


def reasons(reading: Reading) -> list[tuple[ProblemReason, int]]:
    return [(problem.reason, problem.count) for problem in reading.problems]


@pytest.mark.parametrize(
    ("header", "cell", "expected"),
    [
        ("power.draw [W]", "10.5 W", [(0, "gpu_power_watts", 10.5)]),
        ("power.draw [W]", "10.5", [(0, "gpu_power_watts", 10.5)]),
        ("gpu.power.draw.instant [W]", "7 W", [(0, "gpu_power_watts", 7)]),
        ("clocks.current.sm [MHz]", "1980 MHz", [(0, "gpu_sm_clock_hertz", 1980e6)]),
        ("clocks.gr [MHz]", "300", [(0, "gpu_sm_clock_hertz", 300e6)]),
        ("clocks.max.sm [MHz]", "1980", [(0, "gpu_sm_clock_max_hertz", 1980e6)]),
        ("memory.used [MiB]", "44", [(0, "gpu_memory_used_bytes", 44 * 2**20)]),
        ("utilization.gpu [%]", "25 %", [(0, "gpu_utilization_ratio", 0.25)]),
        ("retired_pages.sbe", "2", [(0, "gpu_retired_pages_corrected", 2)]),
        ("retired_pages.pending", "Yes", [(0, "gpu_retired_pages_pending", 1)]),
        ("remapped_rows.uncorrectable_inactive", "3", [(0, "gpu_remapped_rows_uncorrected_inactive", 3)]),
        (
            "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded",
            "No",
            [(0, "gpu_ecc_sram_threshold_exceeded", 0)],
        ),
        ("ecc.errors.corrected.volatile.total", "4", [(0, "gpu_ecc_corrected_volatile_total", 4)]),
        ("clocks_throttle_reasons.active", "0x0000000000000008", [(0, "gpu_clock_event_reasons", 8)]),
        ("gpu_recovery_action", "Drain P2P", [(0, "gpu_recovery_action", 3)]),
        ("fabric.status", "Success", [(0, "gpu_fabric_status", 0)]),
        ("count", "8", [(None, "node_gpu_count", 8)]),
        ("module.power.draw.instant [W]", "900.00 W", [(0, "gpu_module_power_watts", 900)]),
        ("enforced.power.limit [W]", "650.00 W", [(0, "gpu_power_limit_watts", 650)]),
        ("memory.used [MiB]", "[N/A]", []),
        ("memory.used [MiB]", "[Not Supported]", []),
        ("display_mode", "[Requested functionality has been deprecated]", []),
        ("fan.speed [%]", "30 %", []),
    ],
)
def test_one_column(header: str, cell: str, expected: list[tuple[int | None, str, float]]) -> None:
    reading = read(f"index, {header}\n0, {cell}\n")
    assert samples(reading) == expected
    assert not reading.problems
    assert reading.ok


def test_a_total_is_preferred_to_its_parts() -> None:
    stem = "ecc.errors.uncorrected.volatile"
    text = f"index, {stem}.dram, {stem}.sram, {stem}.total\n0, 1, 2, 4\n1, 1, 2, [N/A]\n2, [N/A], 2, [N/A]\n"
    signal = "gpu_ecc_uncorrected_volatile_total"
    assert samples(read(text)) == [(0, signal, 4), (1, signal, 3), (2, signal, 2)]


def test_flags_rebuild_a_mask_only_when_all_were_asked_for() -> None:
    flags = (
        "gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown",
        "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown", "sync_boost",
    )  # fmt: skip
    names = ", ".join(f"clocks_event_reasons.{flag}" for flag in flags)
    states = ", ".join("Active" if "hw_" in flag else "Not Active" for flag in flags)
    assert samples(read(f"index, {names}\n0, {states}\n")) == [(0, "gpu_clock_event_reasons", 0xC8)]
    assert samples(read("index, clocks_event_reasons.hw_slowdown\n0, Not Active\n")) == []


def test_a_mask_that_its_flags_contradict_is_nobodys() -> None:
    text = "index, clocks_event_reasons.active, clocks_event_reasons.hw_slowdown\n0, 0x4, Active\n"
    reading = read(text)
    assert samples(reading) == []
    assert reasons(reading) == [(ProblemReason.INCONSISTENT, 1)]


def test_the_model_driver_and_vbios_are_labels() -> None:
    reading = read("index, name, driver_version, vbios_version\n0, NVIDIA L40S, 570.86.15, 95.02.66.00.01\n")
    (sample,) = reading.records
    assert isinstance(sample, Sample)
    assert sample.labels == {"model": "NVIDIA L40S", "driver": "570.86.15", "vbios": "95.02.66.00.01"}


def test_without_a_header_the_arguments_name_the_columns() -> None:
    args = ["--query-gpu=index,temperature.gpu", "--format=csv,noheader,nounits"]
    expected = [(0, "gpu_temperature_celsius", 30.0), (1, "gpu_temperature_celsius", 31.0)]
    assert samples(read("0, 30\n1, 31\n", args)) == expected
    assert samples(read("0, 30\n1, 31\n", ["--query-gpu", *args[0].split("=")[1:]])) == expected
    assert not read("0, 30\n1, 31\n").ok


def test_rows_without_a_name_are_not_mixed_up() -> None:
    assert samples(read("temperature.gpu\n30\n")) == [(None, "gpu_temperature_celsius", 30)]
    reading = read("temperature.gpu\n30\n31\n")
    assert samples(reading) == []
    assert reasons(reading) == [(ProblemReason.UNREADABLE, 2)]


def test_loop_mode_gives_the_newest_row_of_a_gpu_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    rows = [f"2026/02/02 10:00:0{n}.250, {n % 2}, {30 + n}" for n in range(4)]
    try:
        reading = read("\n".join(("timestamp, index, temperature.gpu", *rows)))
    finally:
        monkeypatch.undo()
        time.tzset()
    found = [(r.index, r.value, r.time) for r in reading.records if isinstance(r, Sample)]
    assert found == [(0, 32, 1770026402.25), (1, 33, 1770026403.25)]


def test_rows_that_do_not_fit_are_counted() -> None:
    reading = read("index, temperature.gpu\n0, 30\nKilled\n1, 31, 5\n2, 32\n")
    assert [index for index, _signal, _value in samples(reading)] == [0, 2]
    assert reasons(reading) == [(ProblemReason.UNREADABLE, 2)]


def test_a_torn_last_row_is_truncated() -> None:
    reading = read("index, temperature.gpu, pstate\n0, 30, P0\n1, 3")
    assert [index for index, _signal, _value in samples(reading)] == [0]
    assert reasons(reading) == [(ProblemReason.TRUNCATED, 1)]


def test_a_header_alone_is_an_empty_answer() -> None:
    assert read("gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n") == Reading((), ok=True)


def test_processes_with_commas_in_their_names() -> None:
    reading = read(
        "timestamp, gpu_name, gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n"
        "2026/09/01 20:47:29.320, NVIDIA H200, GPU-a, 12, python -c a, b,c, 5 MiB\n"
        "2026/09/01 20:47:29.320, NVIDIA H200, GPU-b, 13, [Not Found], [N/A]\n"
        "2026/09/01 20:47:29.320, NVIDIA H200, GPU-b, x, y, [N/A]\n"
    )
    assert processes(reading) == [("GPU-a", 12, "python -c a, b,c", 5 * 2**20), ("GPU-b", 13, None, None)]
    assert [(p.reason, p.gpu) for p in reading.problems] == [(ProblemReason.UNREADABLE, "GPU-b")]


def test_a_process_column_may_be_called_name() -> None:
    reading = read("pid, name, used_memory [MiB]\n5, python, 7\n")
    assert processes(reading) == [(None, 5, "python", 7 * 2**20)]


def test_accounted_processes_are_none_that_run() -> None:
    reading = read(
        "gpu_uuid, pid, gpu_utilization [%], max_memory_usage [MiB], time [ms]\nGPU-a, 1, 2 %, 3 MiB, 4\n"
    )
    assert not reading.ok
    assert reasons(reading) == [(ProblemReason.UNREADABLE, 1)]


def test_retired_pages_are_counted_by_cause() -> None:
    header = "gpu_uuid, retired_pages.address, retired_pages.cause\n"
    rows = [
        "GPU-a, 0x00000000003a91f2, Single Bit ECC",
        "GPU-a, 0x0000000000010f00, Double Bit ECC",
        "GPU-a, 0x0000000000010f01, Double Bit ECC",
        "GPU-b, [N/A], Double Bit ECC",
        "GPU-c, [GPU is lost], Double Bit ECC",
        "GPU-d, 0x10, Cosmic Rays",
        "GPU-d, somewhere, Double Bit ECC",
    ]
    reading = read(header + "\n".join(rows) + "\n")
    found = [(r.gpu, r.signal, r.value) for r in reading.records if isinstance(r, Sample)]
    assert found == [
        ("GPU-a", "gpu_retired_pages_corrected", 1),
        ("GPU-a", "gpu_retired_pages_uncorrected", 2),
    ]
    assert [(p.gpu, p.reason) for p in reading.problems] == [
        ("GPU-c", ProblemReason.GPU_LOST),
        ("GPU-d", ProblemReason.UNRECOGNISED_VALUE),
        ("GPU-d", ProblemReason.UNREADABLE),
    ]


@pytest.mark.parametrize(
    ("text", "reason", "index", "pci"),
    [
        (f"{HANDLE} GPU1: 0000:34:00.0: Unknown Error", "gpu_lost", 1, "0000:34:00.0"),
        (f"{HANDLE} GPU 0: Unknown Error", "gpu_lost", 0, None),
        (f"{HANDLE} gpu 0000:34:00.0: GPU requires reset", "reset_required", None, "0000:34:00.0"),
        (
            f"{HANDLE} GPU 0000000F:01:00.0: Insufficient Permissions",
            "permission_denied",
            None,
            "000f:01:00.0",
        ),
        ("Failed to initialize NVML: Insufficient Permissions", "permission_denied", None, None),
        ("Failed to initialize NVML: Driver Not Loaded", "driver_not_loaded", None, None),
        ("Failed to initialize NVML: GPU is lost", "gpu_lost", None, None),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", "driver_not_loaded", None, None),
        ('Field "temperature.cpu" is not a valid field to query.', "query_error", None, None),
        ("bash: line 1: nvidia-smi: command not found", "tool_missing", None, None),
        ("WARNING: infoROM is corrupted at gpu 0000:3B:00.0", "unreadable", None, "0000:3b:00.0"),
        ("", "unreadable", None, None),
        ("hello", "unreadable", None, None),
        ("<html><body>login</body></html>", "unreadable", None, None),
        ('{"gpus": []}', "unreadable", None, None),
        ("==============NVSMI LOG==============\n\nAttached GPUs : 1\n", "unreadable", None, None),
        ("GPU 0: NVIDIA H200 (UUID: GPU-00000000-0000-0000-0000-000000000000)", "unreadable", None, None),
    ],
)
def test_what_is_no_data_says_why(text: str, reason: str, index: int | None, pci: str | None) -> None:
    reading = read(text)
    assert [(p.reason.value, p.index, p.pci) for p in reading.problems] == [(reason, index, pci)]
    assert not reading.ok
    assert "\n" not in reading.problems[0].message


def test_a_version_that_is_prose_is_a_problem() -> None:
    reading = read("NVIDIA-SMI version  : 610.1.2\nDRIVER version      : Deprecated\nCUDA version : 13.3\n")
    (sample,) = [r for r in reading.records if isinstance(r, Sample)]
    assert sample.labels == {"cuda": "13.3"}
    assert reasons(reading) == [(ProblemReason.UNRECOGNISED_VALUE, 1)]


def test_a_bad_exit_is_said_only_when_nothing_else_is() -> None:
    rows = "index, temperature.gpu\n0, 30\n"
    assert reasons(read(rows, returncode=0)) == []
    assert reasons(read(rows, returncode=14)) == [(ProblemReason.PARTIAL, 1)]
    assert reasons(read("No devices were found\n", returncode=6)) == [(ProblemReason.NO_DEVICES, 1)]


@pytest.mark.parametrize("text", ["No running processes found\n", "No running compute processes found"])
def test_no_processes_is_an_answer(text: str) -> None:
    reading = read(text)
    assert reading.ok
    assert not reading.records


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "Unable to determine the device handle for gpu 0000:C1:00.0: The NVIDIA kernel module detected "
            "an issue with GPU interrupts.Consult the Common Problems Chapter of the Driver README for\n"
            "details and steps that can be taken to resolve this issue.\n",
            ProblemReason.GPU_LOST,
        ),
        (
            "Failed to initialize NVML: GPU access blocked by the operating system\n"
            "Failed to properly shut down NVML: GPU access blocked by the operating system\n",
            ProblemReason.QUERY_ERROR,
        ),
    ],
)
def test_a_message_of_two_lines_is_one_problem(text: str, reason: ProblemReason) -> None:
    reading = read(text)
    assert not reading.ok
    assert reasons(reading) == [(reason, 1)]
