"""What NVML answers, through the snapshot, to records."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from collector.nvidia_smi.reader import read_nvidia_smi
from collector.nvml.reader import read_nvml
from collector.nvml.snapshot import Snapshot
from collector.signals import load_signals
from fleet.identity import MigInstance
from fleet.observations import GpuProcess, ProblemReason, Reading, Sample
from tests.support.fake_nvml import Fails, FakeGpu, FakeNvml, gpu, process

NOW = 1_770_000_000.0
FOUR = Path(__file__).parents[2] / "data" / "nvidia_smi" / "own-580-four-gpus" / "input.xml"
FIRST, SECOND = "0000:19:00.0", "0000:1a:00.0"


def lines_of(library: Any, bound: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    Snapshot(library, lines.append, bound=bound).take()
    return lines


def printed(lines: list[dict[str, Any]]) -> bytes:
    return b"".join(f"{json.dumps(line)}\n".encode() for line in lines)


def read(library: Any, bound: tuple[str, ...] = ()) -> Reading:
    return read_nvml(printed(lines_of(library, bound)), node="n01", now=NOW)


def of(reading: Reading, index: int, mig: MigInstance | None = None) -> dict[str, float]:
    return {s.signal: s.value for s in reading.samples if s.index == index and s.mig == mig}


def problems(reading: Reading) -> list[tuple[ProblemReason, int | None, str | None, int]]:
    return [(p.reason, p.index, p.pci, p.count) for p in reading.problems]


def test_a_whole_gpu() -> None:
    reading = read(FakeNvml([gpu()], nvmlSystemGetProcessName="/usr/bin/python3"))
    assert reading.ok
    assert not reading.problems
    assert of(reading, 0) == {
        "gpu_info": 1,
        "gpu_temperature_celsius": 61,
        "gpu_memory_temperature_celsius": 55,
        "gpu_temperature_margin_celsius": 26,
        "gpu_power_watts": 501.25,
        "gpu_power_limit_watts": 700,
        "gpu_energy_joules_total": 9_876_543.21,
        "gpu_sm_clock_hertz": 1969e6,
        "gpu_memory_clock_hertz": 3201e6,
        "gpu_sm_clock_max_hertz": 1980e6,
        "gpu_utilization_ratio": 0.91,
        "gpu_memory_utilization_ratio": 0.4,
        "gpu_memory_used_bytes": 1001 * 2**20,
        "gpu_memory_total_bytes": 143771 * 2**20,
        "gpu_pcie_transmit_bytes_per_second": 685e3,
        "gpu_pcie_receive_bytes_per_second": 324e3,
        "gpu_pcie_link_generation": 5,
        "gpu_pcie_link_generation_max": 5,
        "gpu_pcie_link_width": 16,
        "gpu_pcie_link_width_max": 16,
        "gpu_pcie_replays_total": 4,
        "gpu_clock_event_reasons": 4,
        "gpu_ecc_corrected_volatile_total": 3,
        "gpu_ecc_uncorrected_volatile_total": 0,
        "gpu_ecc_corrected_aggregate_total": 12,
        "gpu_ecc_uncorrected_aggregate_total": 1,
        "gpu_ecc_sram_threshold_exceeded": 0,
        "gpu_channel_repair_pending": 0,
        "gpu_remapped_rows_corrected": 0,
        "gpu_remapped_rows_uncorrected": 2,
        "gpu_row_remap_pending": 1,
        "gpu_row_remap_failed": 0,
        "gpu_power_violation_seconds_total": 2.5,
        "gpu_thermal_violation_seconds_total": 0,
        "gpu_nvlink_crc_flit_errors_total": 0,
        "gpu_nvlink_replay_errors_total": 7,
        "gpu_nvlink_recovery_errors_total": 2**33,
        "gpu_recovery_action": 0,
        "gpu_fabric_state": 3,
        "gpu_fabric_status": 0,
    }
    assert reading.records[-1] == GpuProcess(
        node="n01",
        gpu="GPU-5a000000-0000-4000-8000-000000000000",
        pid=4711,
        time=NOW,
        name="/usr/bin/python3",
        memory_bytes=2**30,
    )
    by_signal = {sample.signal: sample for sample in reading.samples}
    assert by_signal["gpu_info"].labels == {
        "model": "NVIDIA H200",
        "driver": "580.65.06",
        "vbios": "96.00.A5.00.01",
    }
    assert by_signal["gpu_fabric_state"].labels == {
        "cluster": "6b000000-0000-4000-8000-000000000001",
        "clique": "3",
    }
    assert by_signal["gpu_power_watts"] == Sample(
        node="n01",
        signal="gpu_power_watts",
        value=501.25,
        time=NOW,
        gpu="GPU-5a000000-0000-4000-8000-000000000000",
        index=0,
        pci=FIRST,
    )
    assert by_signal["node_gpu_count"].value == 1
    assert by_signal["node_gpu_count"].gpu is None


def test_both_sources_say_the_same_of_one_gpu() -> None:
    """The signals that nvidia-smi gives of this GPU, NVML gives with the same value and labels."""
    smi = read_nvidia_smi(FOUR.read_bytes(), node="n01", now=NOW)
    xml = {s.signal: (s.value, dict(s.labels)) for s in smi.samples if s.index == 1}
    nvml = {s.signal: (s.value, dict(s.labels)) for s in read(FakeNvml([gpu()])).samples if s.index == 0}
    same = {
        "gpu_info",
        "gpu_temperature_celsius",
        "gpu_memory_temperature_celsius",
        "gpu_temperature_margin_celsius",
        "gpu_power_watts",
        "gpu_power_limit_watts",
        "gpu_sm_clock_hertz",
        "gpu_memory_clock_hertz",
        "gpu_sm_clock_max_hertz",
        "gpu_utilization_ratio",
        "gpu_memory_utilization_ratio",
        "gpu_memory_used_bytes",
        "gpu_memory_total_bytes",
        "gpu_fabric_state",
        "gpu_fabric_status",
        "gpu_pcie_link_width",
    }
    assert {name: nvml[name] for name in same} == {name: xml[name] for name in same}
    assert set(xml) <= set(nvml)
    assert {s for s in nvml if s not in load_signals()} == set()


@pytest.mark.parametrize("function", [name for name in vars(pynvml) if name.startswith("nvmlDeviceGet")])
def test_any_one_call_that_is_not_supported_costs_nothing_else(function: str) -> None:
    if function in ("nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"):
        return
    whole = of(read(FakeNvml([gpu()])), 0)
    reading = read(FakeNvml([gpu().but(**{function: Fails("NOT_SUPPORTED")}), gpu(1)]))
    assert reading.ok
    assert not reading.problems
    assert of(reading, 1) == whole
    left = of(reading, 0)
    assert {name: whole[name] for name in left} == left or function in (
        "nvmlDeviceGetPowerUsage",  # the average stands in
        "nvmlDeviceGetTotalEccErrors",  # the sum of SRAM and DRAM stands in
    )
    assert len(left) >= len(whole) - 12  # the field values together are the most


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("UNKNOWN", ProblemReason.QUERY_ERROR),
        ("NO_PERMISSION", ProblemReason.PERMISSION_DENIED),
        ("TIMEOUT", ProblemReason.TIMEOUT),
        ("RESET_REQUIRED", ProblemReason.RESET_REQUIRED),
        ("GPU_IS_LOST", ProblemReason.GPU_LOST),
        ("IRQ_ISSUE", ProblemReason.QUERY_ERROR),
        ("CORRUPTED_INFOROM", ProblemReason.QUERY_ERROR),
        ("IN_USE", ProblemReason.QUERY_ERROR),
        ("MEMORY", ProblemReason.QUERY_ERROR),
        ("NOT_READY", ProblemReason.QUERY_ERROR),
        ("INVALID_ARGUMENT", ProblemReason.QUERY_ERROR),
    ],
)
def test_one_failing_call_is_one_problem_of_that_gpu(error: str, reason: ProblemReason) -> None:
    reading = read(FakeNvml([gpu().but(nvmlDeviceGetTemperature=Fails(error)), gpu(1)]))
    assert problems(reading) == [(reason, 0, FIRST, 1)]
    assert "temperature.gpu" in reading.problems[0].message
    assert "gpu_temperature_celsius" not in of(reading, 0)
    assert of(reading, 0)["gpu_power_watts"] == 501.25
    assert of(reading, 1)["gpu_temperature_celsius"] == 61


@pytest.mark.parametrize(
    "error",
    ["NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "NO_DATA", "DEPRECATED", "ARGUMENT_VERSION_MISMATCH",
     "VGPU_ECC_NOT_SUPPORTED", "FREQ_NOT_SUPPORTED", "RESET_TYPE_NOT_SUPPORTED"],
)  # fmt: skip
def test_what_the_device_or_driver_does_not_have_is_absent(error: str) -> None:
    reading = read(FakeNvml([gpu().but(nvmlDeviceGetTemperature=Fails(error))]))
    assert not reading.problems
    assert "gpu_temperature_celsius" not in of(reading, 0)


@pytest.mark.parametrize("error", ["UNKNOWN", "NO_PERMISSION", "GPU_IS_LOST"])
def test_a_failing_field_is_its_own_problem_and_another_call_may_stand_in(error: str) -> None:
    device = gpu().but(
        fields={"NVML_FI_DEV_REMAPPED_PENDING": Fails(error), "NVML_FI_DEV_MEMORY_TEMP": Fails(error)}
    )
    device.calls["nvmlDeviceGetRemappedRows"] = (0, 2, 1, 0)
    reading = read(FakeNvml([device]))
    (problem,) = reading.problems
    assert problem.reason is not ProblemReason.UNRECOGNISED_VALUE
    assert problem.index == 0
    values = of(reading, 0)
    assert values["gpu_row_remap_pending"] == 1
    assert "gpu_memory_temperature_celsius" not in values


def test_when_all_field_values_fail_the_older_calls_answer() -> None:
    device = gpu().but(nvmlDeviceGetFieldValues=Fails("FUNCTION_NOT_FOUND"))
    device.calls["nvmlDeviceGetRemappedRows"] = (1, 0, 0, 1)
    reading = read(FakeNvml([device]))
    assert not reading.problems
    values = of(reading, 0)
    assert (values["gpu_remapped_rows_corrected"], values["gpu_row_remap_failed"]) == (1, 1)
    assert "gpu_nvlink_replay_errors_total" not in values
    denied = read(FakeNvml([gpu().but(nvmlDeviceGetFieldValues=Fails("NO_PERMISSION"))]))
    assert {p.reason for p in denied.problems} == {ProblemReason.PERMISSION_DENIED}
    assert of(denied, 0)["gpu_temperature_celsius"] == 61


def test_a_lost_gpu_is_one_problem_with_its_address() -> None:
    """The driver answers name and address of a lost card from memory; that is no sign of life."""
    lost = FakeGpu(
        calls=dict.fromkeys(
            [name for name in vars(pynvml) if name.startswith("nvmlDeviceGet")], Fails("GPU_IS_LOST")
        )
    )
    for name in (
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetPciInfo",
        "nvmlDeviceGetName",
        "nvmlDeviceGetVbiosVersion",
    ):
        lost.calls[name] = gpu(1).calls[name]
    reading = read(FakeNvml([gpu(), lost, gpu(2)]))
    assert problems(reading) == [(ProblemReason.GPU_LOST, 1, SECOND, 1)]
    assert reading.problems[0].gpu == "GPU-5a000000-0000-4000-8000-000000000001"
    assert of(reading, 1) == {}
    assert of(reading, 0) == of(reading, 2) != {}


@pytest.mark.parametrize("error", ["GPU_IS_LOST", "UNKNOWN", "IRQ_ISSUE"])
def test_a_gpu_that_cannot_be_opened_gets_the_address_nobody_answered_for(error: str) -> None:
    bound = (FIRST, SECOND, "0000:1b:00.0")
    reading = read(FakeNvml([gpu(), Fails(error), gpu(2)]), bound)
    assert problems(reading) == [(ProblemReason.GPU_LOST, 1, SECOND, 1)]
    assert reading.ok
    assert of(reading, 2)["gpu_temperature_celsius"] == 61


def test_a_gpu_that_says_neither_name_nor_address_gets_the_one_left_over() -> None:
    calls = [name for name in vars(pynvml) if name.startswith("nvmlDeviceGet")]
    lost = FakeGpu(calls=dict.fromkeys(calls, Fails("GPU_IS_LOST")))
    reading = read(FakeNvml([gpu(), lost]), (FIRST, SECOND))
    assert problems(reading) == [(ProblemReason.GPU_LOST, 1, SECOND, 1)]
    assert problems(read(FakeNvml([gpu(), lost]))) == [(ProblemReason.GPU_LOST, 1, None, 1)]


def test_two_gpus_that_cannot_be_opened_are_not_mixed_up() -> None:
    reading = read(
        FakeNvml([Fails("GPU_IS_LOST"), Fails("NO_PERMISSION"), gpu(2)]), (FIRST, SECOND, "0000:1b:00.0")
    )
    assert problems(reading) == [
        (ProblemReason.GPU_LOST, 0, None, 1),
        (ProblemReason.PERMISSION_DENIED, 1, None, 1),
    ]
    assert all(f"{FIRST}, {SECOND}" in p.message for p in reading.problems)


def test_all_gpus_lost_is_no_reading() -> None:
    reading = read(FakeNvml([Fails("GPU_IS_LOST")]), (FIRST,))
    assert not reading.ok
    assert problems(reading) == [(ProblemReason.GPU_LOST, 0, FIRST, 1)]
    assert [(s.signal, s.value) for s in reading.samples] == [("node_gpu_count", 1)]


@pytest.mark.parametrize(
    ("error", "reason", "says"),
    [
        ("DRIVER_NOT_LOADED", ProblemReason.DRIVER_NOT_LOADED, "load the nvidia kernel module"),
        ("LIB_RM_VERSION_MISMATCH", ProblemReason.DRIVER_LIBRARY_MISMATCH, "reload the driver"),
        ("LIBRARY_NOT_FOUND", ProblemReason.TOOL_MISSING, "libnvidia-ml"),
        ("NO_PERMISSION", ProblemReason.PERMISSION_DENIED, "/dev/nvidia*"),
        ("GPU_IS_LOST", ProblemReason.GPU_LOST, "reboot"),
        ("TIMEOUT", ProblemReason.TIMEOUT, "did not answer"),
        ("UNKNOWN", ProblemReason.QUERY_ERROR, "container"),
    ],
)
def test_a_library_that_does_not_start(error: str, reason: ProblemReason, says: str) -> None:
    reading = read(FakeNvml([gpu()], nvmlInit=Fails(error)))
    assert not reading.ok
    assert problems(reading) == [(reason, None, None, 1)]
    assert says in reading.problems[0].message
    assert not reading.samples


def test_no_device_is_no_host_without_gpus() -> None:
    reading = read(FakeNvml([]))
    assert not reading.ok
    assert problems(reading) == [(ProblemReason.NO_DEVICES, None, None, 1)]
    assert not reading.samples


def test_an_older_module_and_an_older_driver() -> None:
    """Texts as bytes, the old name of the clock reasons, the first memory structure, no page of the new."""
    device = gpu().but(
        nvmlDeviceGetUUID=b"GPU-5a000000-0000-4000-8000-000000000000",
        nvmlDeviceGetName=b"Tesla T4",
        nvmlDeviceGetCurrentClocksEventReasons=Fails("FUNCTION_NOT_FOUND"),
        nvmlDeviceGetCurrentClocksThrottleReasons=0x1,
        nvmlDeviceGetMemoryInfo=Fails("NOT_SUPPORTED"),
        nvmlDeviceGetGpuFabricInfoV=Fails("FUNCTION_NOT_FOUND"),
        nvmlDeviceGetSramEccErrorStatus=Fails("FUNCTION_NOT_FOUND"),
        nvmlDeviceGetRetiredPages=[0x1000, 0x2000],
        nvmlDeviceGetRetiredPagesPendingStatus=1,
        fields={
            "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION": Fails("INVALID_ARGUMENT"),
            "NVML_FI_DEV_RESET_STATUS": 1,
            "NVML_FI_DEV_DRAIN_AND_RESET_STATUS": 0,
        },
    )

    def memory(_handle: Any, *version: Any) -> Any:
        if version:
            raise TypeError("takes 1 positional argument but 2 were given")
        return gpu().calls["nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2]

    device.calls["nvmlDeviceGetMemoryInfo"] = memory
    reading = read(FakeNvml([device], nvmlSystemGetDriverVersion=b"450.80.02"))
    assert not reading.problems
    values = of(reading, 0)
    assert values["gpu_memory_total_bytes"] == 143771 * 2**20
    assert values["gpu_clock_event_reasons"] == 1
    assert values["gpu_recovery_action"] == 1
    assert values["gpu_retired_pages_corrected"] == values["gpu_retired_pages_uncorrected"] == 2
    assert values["gpu_retired_pages_pending"] == 1
    info = next(s for s in reading.samples if s.signal == "gpu_info")
    assert info.labels["driver"] == "450.80.02"
    assert info.labels["model"] == "Tesla T4"


def test_a_module_without_a_function_or_constant() -> None:
    class Old(FakeNvml):
        def __getattr__(self, name: str) -> Any:
            if name in ("nvmlDeviceGetRepairStatus", "nvmlMemory_v2", "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION",
                        "c_nvmlGpuFabricInfo_v2_t", "NVMLLibraryMismatchError"):  # fmt: skip
                raise AttributeError(name)
            return super().__getattr__(name)

    reading = read(Old([gpu()]))
    assert not reading.problems
    assert "gpu_recovery_action" not in of(reading, 0)
    assert of(reading, 0)["gpu_temperature_celsius"] == 61


def test_the_bindings_own_mismatch_error_is_a_function_not_found() -> None:
    def refuse(*_arguments: Any) -> Any:
        raise pynvml.NVMLLibraryMismatchError("unversioned function")

    reading = read(FakeNvml([gpu().but(nvmlDeviceGetComputeRunningProcesses=refuse)]))
    assert not reading.problems
    assert not [r for r in reading.records if isinstance(r, GpuProcess)]


@pytest.mark.parametrize(
    ("action", "value"), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6), (7, 7), (8, None)]
)
def test_the_recovery_action(action: int, value: float | None) -> None:
    reading = read(FakeNvml([gpu().but(fields={"NVML_FI_DEV_GET_GPU_RECOVERY_ACTION": action})]))
    assert of(reading, 0).get("gpu_recovery_action") == value
    assert bool(reading.problems) is (value is None)


@pytest.mark.parametrize(
    ("calls", "signal", "value"),
    [
        ({"nvmlDeviceGetPcieReplayCounter": 0xFFFFFFFF}, "gpu_pcie_replays_total", None),
        ({"nvmlDeviceGetTemperature": 0xFFFFFFFF}, "gpu_temperature_celsius", None),
        ({"nvmlDeviceGetUtilizationRates": {"gpu": 4_000_000, "memory": 10}}, "gpu_utilization_ratio", None),
        ({"nvmlDeviceGetCurrentClocksEventReasons": 2**64 - 1}, "gpu_clock_event_reasons", None),
    ],
)
def test_a_number_that_nothing_has_is_no_value(calls: dict[str, Any], signal: str, value: None) -> None:
    calls = {name: SimpleNamespace(**v) if isinstance(v, dict) else v for name, v in calls.items()}
    reading = read(FakeNvml([gpu().but(**calls)]))
    assert problems(reading) == [(ProblemReason.UNRECOGNISED_VALUE, 0, FIRST, 1)]
    assert of(reading, 0).get(signal) is value


@pytest.mark.parametrize(
    ("state", "status", "expected", "count"),
    [
        (0, 0, (None, None), 0),
        (1, 0, (1, 0), 0),
        (2, 27, (2, 27), 0),
        (3, 999, (3, 999), 0),
        (3, 15, (3, 15), 0),
        (9, 0, (None, 0), 1),
        (3, 4242, (3, None), 1),
    ],
)
def test_the_fabric(state: int, status: int, expected: tuple[Any, Any], count: int) -> None:
    info = {"state": state, "status": status, "clusterUuid": bytes(16), "cliqueId": 0}
    reading = read(FakeNvml([gpu().but(nvmlDeviceGetGpuFabricInfoV=info)]))
    values = of(reading, 0)
    assert (values.get("gpu_fabric_state"), values.get("gpu_fabric_status")) == expected
    assert [p.reason for p in reading.problems] == [ProblemReason.UNRECOGNISED_VALUE] * count


def test_module_power_of_a_superchip() -> None:
    scope = "NVML_POWER_SCOPE_MODULE"
    device = gpu().but(
        nvmlDeviceGetPowerUsage=Fails("NOT_SUPPORTED"),
        fields={
            ("NVML_FI_DEV_POWER_AVERAGE", scope): Fails("NOT_SUPPORTED"),
            ("NVML_FI_DEV_POWER_INSTANT", scope): 880_500,
        },
    )
    reading = read(FakeNvml([device]))
    assert of(reading, 0)["gpu_module_power_watts"] == 880.5
    assert of(reading, 0)["gpu_power_watts"] == 500


def mig(gi: int, ci: int, name: str, used: int, errors: Any = 0) -> FakeGpu:
    return FakeGpu(
        calls={
            "nvmlDeviceGetGpuInstanceId": gi,
            "nvmlDeviceGetComputeInstanceId": ci,
            "nvmlDeviceGetName": name,
            ("nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2): SimpleNamespace(
                total=2**33, used=used, free=0
            ),
            "nvmlDeviceGetMemoryErrorCounter": errors,
        }
    )


def test_mig_devices() -> None:
    device = gpu().but(nvmlDeviceGetMigMode=[1, 1], nvmlDeviceGetUtilizationRates=Fails("NOT_SUPPORTED"))
    device.mig = [
        mig(1, 0, "NVIDIA H200 MIG 1c.3g.71gb", 19),
        mig(1, 1, "NVIDIA H200 MIG 1c.3g.71gb", 20),
        None,
        mig(2, 0, "NVIDIA H200 MIG 1g.18gb+me", 21, errors=3),
        mig(3, 0, "renamed by somebody", 22, errors=Fails("UNKNOWN")),
        Fails("UNKNOWN"),
    ]
    reading = read(FakeNvml([device]))
    found = {(s.mig, s.signal): s.value for s in reading.samples if s.mig is not None}
    shared = [MigInstance(1, 0, "1c.3g.71gb"), MigInstance(1, 1, "1c.3g.71gb")]
    small, odd = MigInstance(2, 0, "1g.18gb+me"), MigInstance(3, 0, None)
    assert found == {
        **{(one, "gpu_memory_used_bytes"): 19 + n for n, one in enumerate((*shared, small, odd))},
        **{(one, "gpu_memory_total_bytes"): 2**33 for one in (*shared, small, odd)},
        **{
            (one, "gpu_ecc_uncorrected_volatile_total"): v
            for one, v in ((*[(s, 0) for s in shared], (small, 3)))
        },
    }
    assert problems(reading) == [(ProblemReason.QUERY_ERROR, 0, FIRST, 2)]
    assert len([s for s in reading.samples if s.signal == "gpu_power_watts"]) == 1


def test_without_mig_no_mig_device_is_asked_for() -> None:
    library = FakeNvml([gpu()])
    read(library)
    assert "nvmlDeviceGetMaxMigDeviceCount" not in library.asked


def test_processes_of_all_kinds_are_there_once() -> None:
    def name(pid: int) -> str:
        if pid == 7:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)
        return f"/opt/p{pid}\n\x00é"

    device = gpu().but(
        nvmlDeviceGetComputeRunningProcesses=[process(7, None), process(8, 1024)],
        nvmlDeviceGetMPSComputeRunningProcesses=[process(8, 1024), process(9, 2**64 - 1)],
        nvmlDeviceGetGraphicsRunningProcesses=Fails("NO_PERMISSION"),
    )
    reading = read(FakeNvml([device], nvmlSystemGetProcessName=name))
    found = [r for r in reading.records if isinstance(r, GpuProcess)]
    assert [(p.pid, p.name, p.memory_bytes) for p in found] == [
        (7, None, None),
        (8, "/opt/p8 é", 1024),
        (9, "/opt/p9 é", None),
    ]
    assert problems(reading) == [
        (ProblemReason.PERMISSION_DENIED, 0, FIRST, 1),
        (ProblemReason.UNRECOGNISED_VALUE, 0, FIRST, 1),
    ]


def test_a_snapshot_that_breaks_off() -> None:
    whole = printed(lines_of(FakeNvml([gpu(), gpu(1)])))
    cut = whole[: whole.rindex(b'{"gpu": 1') + 40]
    reading = read_nvml(cut, node="n01", now=NOW)
    assert reading.ok
    assert problems(reading) == [(ProblemReason.TRUNCATED, None, None, 1)]
    assert of(reading, 0)["gpu_temperature_celsius"] == 61
    assert of(reading, 1) == {}


@pytest.mark.parametrize(
    ("data", "reasons"),
    [
        (b"", [ProblemReason.UNREADABLE]),
        (b"\n \n", [ProblemReason.UNREADABLE]),
        (b"<nvidia_smi_log/>\n", [ProblemReason.UNREADABLE]),
        (b"[1]\n", [ProblemReason.UNREADABLE]),
        (b'{"what":1}\n', [ProblemReason.UNREADABLE, ProblemReason.TRUNCATED]),
        (b'{"missing":"pynvml"}\n', [ProblemReason.TOOL_MISSING]),
        (b'{"nvml":1,"count":-1}\n{"end":true}\n', [ProblemReason.UNREADABLE]),
        (b'{"nvml":1,"count":2}\n{"end":true}\n', [ProblemReason.INCONSISTENT]),
        (b'{"nvml":1,"count":1}\n{"lost":null}\n{"end":true}\n',
         [ProblemReason.UNREADABLE, ProblemReason.INCONSISTENT]),
        (b'{"nvml":1,"count":1}\n{"gpu":0}\n{"gpu":0}\n{"end":true}\n', [ProblemReason.INCONSISTENT]),
        (b'{"nvml":1,"count":3}\n{"gpu":0}\n{"timeout":9,"call":"nvmlDeviceGetName","gpu":1}\n',
         [ProblemReason.TIMEOUT, ProblemReason.PARTIAL]),
        (b'{"nvml":1,"count":400}\n{"end":true}\n', [ProblemReason.INCONSISTENT, ProblemReason.TOO_LARGE]),
    ],
)  # fmt: skip
def test_what_is_no_snapshot(data: bytes, reasons: list[ProblemReason]) -> None:
    assert [p.reason for p in read_nvml(data, node=None, now=NOW).problems] == reasons
