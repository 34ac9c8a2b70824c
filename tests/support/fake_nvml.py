"""A stand-in for the ``pynvml`` module: its names only (others are refused), chosen answers."""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml

Answer = Any
"""A value, an NVML error code wrapped in ``fails``, or a callable of the call's arguments."""


class Fails:
    """The answer "this call fails with that nvmlReturn_t"."""

    def __init__(self, name: str) -> None:
        self.code = getattr(pynvml, f"NVML_ERROR_{name}")


NOT_SUPPORTED = Fails("NOT_SUPPORTED")


@dataclass
class FakeGpu:
    """``calls``: function -> answer (or, for one set of arguments, (function, *arguments) -> answer);
    ``fields``: a field's name, or (name, scope's name) -> answer. What isn't there is not supported.
    """

    calls: dict[Any, Answer] = field(default_factory=dict)
    fields: dict[Any, Answer] = field(default_factory=dict)
    mig: Sequence[FakeGpu | Fails | None] = ()

    def but(self, *, fields: Mapping[Any, Answer] | None = None, **calls: Answer) -> FakeGpu:
        """A copy in which these calls and fields answer otherwise."""
        other = FakeGpu(dict(self.calls), dict(self.fields), self.mig)
        for name, answer in calls.items():
            for key in [key for key in other.calls if key == name or key[0] == name]:
                del other.calls[key]
            other.calls[name] = answer
        other.fields.update(fields or {})
        return other


class FakeNvml:
    """The module. ``gpus``: what nvmlDeviceGetHandleByIndex finds; a ``Fails`` there has no handle."""

    NVMLError = pynvml.NVMLError

    def __init__(self, gpus: Sequence[FakeGpu | Fails] = (), **system: Answer) -> None:
        self._gpus = gpus
        self._system: dict[str, Answer] = {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlDeviceGetCount": len(gpus),
            "nvmlSystemGetDriverVersion": "580.65.06",
            "nvmlSystemGetNVMLVersion": "13.580.65.06",
            "nvmlSystemGetProcessName": Fails("NOT_FOUND"),
            **system,
        }
        self.asked: list[str] = []
        for gpu in gpus:
            if isinstance(gpu, FakeGpu):
                _check_names(gpu)

    def __getattr__(self, name: str) -> Any:
        real = getattr(pynvml, name)
        if not name.startswith("nvml") or not callable(real):
            return real

        def call(*arguments: Any) -> Any:
            self.asked.append(name)
            return self._answer(name, arguments)

        return call

    def _answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        if name in self._system:
            return _give(self._system[name], arguments)
        if name == "nvmlDeviceGetHandleByIndex":
            gpu = self._gpus[arguments[0]]
            return _give(gpu, arguments)
        gpu = arguments[0]
        assert isinstance(gpu, FakeGpu), f"{name}: the first argument is no handle"
        if name == "nvmlDeviceGetFieldValues" and name not in gpu.calls:
            return [_entry(gpu, ids) for ids in arguments[1]]
        if name == "nvmlDeviceGetMaxMigDeviceCount" and gpu.mig:
            return len(gpu.mig)
        if name == "nvmlDeviceGetMigDeviceHandleByIndex":
            device = gpu.mig[arguments[1]]
            return _give(Fails("NOT_FOUND") if device is None else device, arguments)
        return self._of(gpu, name, arguments[1:])

    def _of(self, gpu: FakeGpu, name: str, rest: tuple[Any, ...]) -> Any:
        given = gpu.calls.get((name, *rest)) if _hashable(rest) else None
        answer = gpu.calls.get(name, NOT_SUPPORTED) if given is None else given
        if isinstance(answer, Mapping) and rest and hasattr(rest[0], "_obj"):
            for attribute, value in answer.items():
                _fill(rest[0]._obj, attribute, value)
            return pynvml.NVML_SUCCESS
        return _give(answer, (gpu, *rest))


def _give(answer: Answer, arguments: tuple[Any, ...]) -> Any:
    if isinstance(answer, Fails):
        raise pynvml.NVMLError(answer.code)
    if isinstance(answer, Callable):  # type: ignore[arg-type]
        return answer(*arguments)
    return answer


def _fill(structure: ctypes.Structure, attribute: str, value: Any) -> None:
    if isinstance(value, bytes):
        target = getattr(structure, attribute)
        target[: len(value)] = list(value)
    else:
        assert any(name == attribute for name, *_type in structure._fields_), attribute
        setattr(structure, attribute, value)


def _hashable(values: tuple[Any, ...]) -> bool:
    return all(isinstance(value, int | str) for value in values)


def _entry(gpu: FakeGpu, ids: tuple[int, int]) -> Any:
    """One value of nvmlDeviceGetFieldValues, in the real module's structure."""
    entry = pynvml.c_nvmlFieldValue_t()
    entry.fieldId, entry.scopeId = ids
    answer = NOT_SUPPORTED
    for key, given in gpu.fields.items():
        name, scope = key if isinstance(key, tuple) else (key, None)
        if getattr(pynvml, name) == ids[0] and (0 if scope is None else getattr(pynvml, scope)) == ids[1]:
            answer = given
    if isinstance(answer, Fails):
        entry.nvmlReturn = answer.code
        return entry
    if isinstance(answer, float):
        entry.valueType, entry.value.dVal = pynvml.NVML_VALUE_TYPE_DOUBLE, answer
    elif answer < 0:
        entry.valueType, entry.value.siVal = pynvml.NVML_VALUE_TYPE_SIGNED_INT, answer
    elif answer < 2**32:
        entry.valueType, entry.value.uiVal = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, answer
    else:
        entry.valueType, entry.value.ullVal = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, answer
    return entry


def _check_names(gpu: FakeGpu) -> None:
    names = [key if isinstance(key, str) else key[0] for key in (*gpu.calls, *gpu.fields)]
    unknown = [name for name in names if not hasattr(pynvml, name)]
    assert not unknown, f"pynvml has no {unknown}"


def process(pid: int, used: int | None) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, usedGpuMemory=used, gpuInstanceId=None, computeInstanceId=None)


def gpu(number: int = 0) -> FakeGpu:
    """An H200 in an NVSwitch system that answers everything it has; the same one for the same number."""
    return copy.deepcopy(_h200(number))


def _h200(number: int) -> FakeGpu:
    volatile, aggregate = pynvml.NVML_VOLATILE_ECC, pynvml.NVML_AGGREGATE_ECC
    return FakeGpu(
        calls={
            "nvmlDeviceGetUUID": f"GPU-5a000000-0000-4000-8000-{number:012d}",
            "nvmlDeviceGetPciInfo": SimpleNamespace(busId=f"00000000:{0x19 + number:02X}:00.0"),
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetVbiosVersion": "96.00.A5.00.01",
            "nvmlDeviceGetTemperature": 61,
            "nvmlDeviceGetMarginTemperature": 26,
            "nvmlDeviceGetPowerUsage": 501250,
            "nvmlDeviceGetPowerManagementLimit": 700000,
            "nvmlDeviceGetEnforcedPowerLimit": 700000,
            "nvmlDeviceGetTotalEnergyConsumption": 9_876_543_210,
            ("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM): 1969,
            ("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM): 3201,
            ("nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_SM): 1980,
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=91, memory=40),
            ("nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2): SimpleNamespace(
                total=143771 * 2**20, used=1001 * 2**20, free=142147 * 2**20
            ),
            ("nvmlDeviceGetPcieThroughput", pynvml.NVML_PCIE_UTIL_TX_BYTES): 685,
            ("nvmlDeviceGetPcieThroughput", pynvml.NVML_PCIE_UTIL_RX_BYTES): 324,
            "nvmlDeviceGetCurrPcieLinkGeneration": 5,
            "nvmlDeviceGetMaxPcieLinkGeneration": 5,
            "nvmlDeviceGetGpuMaxPcieLinkGeneration": 5,
            "nvmlDeviceGetCurrPcieLinkWidth": 16,
            "nvmlDeviceGetMaxPcieLinkWidth": 16,
            "nvmlDeviceGetPcieReplayCounter": 4,
            "nvmlDeviceGetCurrentClocksEventReasons": 0x4,
            ("nvmlDeviceGetTotalEccErrors", 0, volatile): 3,
            ("nvmlDeviceGetTotalEccErrors", 1, volatile): 0,
            ("nvmlDeviceGetTotalEccErrors", 0, aggregate): 12,
            ("nvmlDeviceGetTotalEccErrors", 1, aggregate): 1,
            "nvmlDeviceGetSramEccErrorStatus": {"aggregateUncParity": 1, "bThresholdExceeded": 0},
            "nvmlDeviceGetRepairStatus": [0, 0],
            ("nvmlDeviceGetViolationStatus", pynvml.NVML_PERF_POLICY_POWER): SimpleNamespace(
                violationTime=2_500_000_000
            ),
            ("nvmlDeviceGetViolationStatus", pynvml.NVML_PERF_POLICY_THERMAL): SimpleNamespace(
                violationTime=0
            ),
            "nvmlDeviceGetGpuFabricInfoV": {
                "state": pynvml.NVML_GPU_FABRIC_STATE_COMPLETED,
                "status": pynvml.NVML_SUCCESS,
                "clusterUuid": bytes.fromhex("6b000000000040008000000000000001"),
                "cliqueId": 3,
            },
            "nvmlDeviceGetMigMode": [0, 0],
            "nvmlDeviceGetComputeRunningProcesses": [process(4711, 2**30)],
        },
        fields={
            "NVML_FI_DEV_MEMORY_TEMP": 55,
            "NVML_FI_DEV_POWER_AVERAGE": 500_000,
            "NVML_FI_DEV_POWER_INSTANT": 499_900,
            "NVML_FI_DEV_REMAPPED_COR": 0,
            "NVML_FI_DEV_REMAPPED_UNC": 2,
            "NVML_FI_DEV_REMAPPED_PENDING": 1,
            "NVML_FI_DEV_REMAPPED_FAILURE": 0,
            "NVML_FI_DEV_REMAPPED_ROWS_UNC_INACTIVE": Fails("INVALID_ARGUMENT"),
            "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION": 0,
            "NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": 0,
            "NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": 7,
            "NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": 2**33,
        },
    )
