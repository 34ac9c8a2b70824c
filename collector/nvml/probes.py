"""Which call answers which column: the table that ``snapshot`` walks for every GPU.

Columns have the names of nvidia-smi's query and values its units, so that one table of fields
(``collector.nvidia_smi.fields``) reads both. Units are those of the NVML API reference: milliwatts,
millijoules, MHz, bytes, percent, kB/s, nanoseconds of violation time.
"""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from collector.nvml.library import Asker, NvmlFailure, NvmlReturn, code_of, text_of, word_of

Texts = tuple[str | None, ...]
# What reading an answer of another shape than the documented one raises.
MISSHAPEN = (TypeError, AttributeError, ValueError, OverflowError)
# What a 32 or 64 bit register reads when nothing answers on the bus, or NVML has no value.
_ALL_ONES = frozenset({0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})


@dataclass(frozen=True, slots=True)
class Probe:
    """One call and the ``columns`` it answers, in the order of what ``read`` returns (None: no value).

    ``arguments`` are constants by name. ``structure``: the name of a structure that the call fills in.
    Of several probes of one column the first that gives a value counts; the others are not asked.
    """

    columns: tuple[str, ...]
    function: str
    read: Callable[[Any], Texts]
    arguments: tuple[str, ...] = ()
    structure: str | None = None

    def ask(self, asker: Asker, handle: object) -> Texts:
        """The texts of the columns. Raises NvmlFailure."""
        arguments = [asker.constant(name) for name in self.arguments]
        if self.structure is None:
            return self._texts(asker.ask(self.function, handle, *arguments))
        filled = asker.constant(self.structure)()
        asker.ask(self.function, handle, ctypes.byref(filled), *arguments)
        return self._texts(filled)

    def _texts(self, answer: Any) -> Texts:
        """One text for each column; an answer of another shape than documented is no value of any."""
        try:
            texts = self.read(answer)
        except MISSHAPEN:
            texts = ()
        if len(texts) == len(self.columns):
            return texts
        return (f"an answer of the type {type(answer).__name__}",) * len(self.columns)


@dataclass(frozen=True, slots=True)
class FieldProbe:
    """A value of nvmlDeviceGetFieldValues: its field id and scope (constants by name)."""

    column: str
    field: str
    read: Callable[[Any], Texts]
    scope: str | None = None


def number(value: object) -> str:
    """A whole number; all ones stay hexadecimal, which no count is."""
    whole = int(value)  # type: ignore[call-overload]  # whatever the library calls a number
    return hex(whole) if whole in _ALL_ONES else str(whole)


def _one(unit: str = "", divide: float = 1.0) -> Callable[[Any], Texts]:
    def read(value: Any) -> Texts:
        text = number(value) if divide == 1.0 else f"{value / divide:.3f}"
        return (f"{text} {unit}".rstrip(),)

    return read


def _text(value: Any) -> Texts:
    return (text_of(value),)


def _length(value: Any) -> Texts:
    return (str(len(list(value))),)


def _mask(value: Any) -> Texts:
    return (hex(int(value)),)


def _memory(value: Any) -> Texts:
    return tuple(f"{number(part)} bytes" for part in (value.total, value.used, value.free))


def _utilization(value: Any) -> Texts:
    return (f"{number(value.gpu)} %", f"{number(value.memory)} %")


def _several(value: Any) -> Texts:
    return tuple(number(part) for part in value)


def _violation(value: Any) -> Texts:
    return (f"{int(value.violationTime)} ns",)


def _sram(value: Any) -> Texts:
    return tuple(
        number(part)
        for part in (
            value.volatileCor,
            value.volatileUncParity,
            value.volatileUncSecDed,
            value.aggregateCor,
            value.aggregateUncParity,
            value.aggregateUncSecDed,
            value.bThresholdExceeded,
        )
    )


# nvmlGpuFabricState_t, in nvidia-smi's words.
_FABRIC_STATES = {0: "[Not Supported]", 1: "Not Started", 2: "In Progress", 3: "Completed"}


def _fabric(value: Any) -> Texts:
    state = int(value.state)
    if state == 0:
        return ("[Not Supported]", None, None, None)
    status = int(value.status)
    known = code_of(status)
    word = "Success" if known is NvmlReturn.SUCCESS else word_of(known)
    return (
        _FABRIC_STATES.get(state, str(state)),
        str(status) if known is NvmlReturn.UNKNOWN and status != NvmlReturn.UNKNOWN else word,
        str(uuid.UUID(bytes=bytes(value.clusterUuid))),
        str(int(value.cliqueId)),
    )


_ECC_KINDS = (
    ("corrected", "NVML_MEMORY_ERROR_TYPE_CORRECTED"),
    ("uncorrected", "NVML_MEMORY_ERROR_TYPE_UNCORRECTED"),
)
_ECC_SCOPES = (("volatile", "NVML_VOLATILE_ECC"), ("aggregate", "NVML_AGGREGATE_ECC"))
_FABRIC_COLUMNS = ("fabric.state", "fabric.status", "fabric.clusteruuid", "fabric.cliqueid")
_MEMORY_COLUMNS = ("memory.total", "memory.used", "memory.free")

FIELD_PROBES: tuple[FieldProbe, ...] = (
    FieldProbe("temperature.memory", "NVML_FI_DEV_MEMORY_TEMP", _one("C")),
    FieldProbe("power.draw.average", "NVML_FI_DEV_POWER_AVERAGE", _one("W", 1e3), "NVML_POWER_SCOPE_GPU"),
    FieldProbe("power.draw.instant", "NVML_FI_DEV_POWER_INSTANT", _one("W", 1e3), "NVML_POWER_SCOPE_GPU"),
    FieldProbe(
        "module.power.draw.average", "NVML_FI_DEV_POWER_AVERAGE", _one("W", 1e3), "NVML_POWER_SCOPE_MODULE"
    ),
    FieldProbe(
        "module.power.draw.instant", "NVML_FI_DEV_POWER_INSTANT", _one("W", 1e3), "NVML_POWER_SCOPE_MODULE"
    ),
    FieldProbe("ecc.errors.corrected.volatile.total", "NVML_FI_DEV_ECC_SBE_VOL_TOTAL", _one()),
    FieldProbe("ecc.errors.uncorrected.volatile.total", "NVML_FI_DEV_ECC_DBE_VOL_TOTAL", _one()),
    FieldProbe("ecc.errors.corrected.aggregate.total", "NVML_FI_DEV_ECC_SBE_AGG_TOTAL", _one()),
    FieldProbe("ecc.errors.uncorrected.aggregate.total", "NVML_FI_DEV_ECC_DBE_AGG_TOTAL", _one()),
    FieldProbe("remapped_rows.correctable", "NVML_FI_DEV_REMAPPED_COR", _one()),
    FieldProbe("remapped_rows.uncorrectable", "NVML_FI_DEV_REMAPPED_UNC", _one()),
    FieldProbe("remapped_rows.pending", "NVML_FI_DEV_REMAPPED_PENDING", _one()),
    FieldProbe("remapped_rows.failure", "NVML_FI_DEV_REMAPPED_FAILURE", _one()),
    FieldProbe("remapped_rows.uncorrectable_inactive", "NVML_FI_DEV_REMAPPED_ROWS_UNC_INACTIVE", _one()),
    FieldProbe("gpu_recovery_action", "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", _one()),
    FieldProbe("reset_status", "NVML_FI_DEV_RESET_STATUS", _one()),
    FieldProbe("drain_and_reset_status", "NVML_FI_DEV_DRAIN_AND_RESET_STATUS", _one()),
    FieldProbe("nvlink.crc_flit_errors", "NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", _one()),
    FieldProbe("nvlink.crc_data_errors", "NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", _one()),
    FieldProbe("nvlink.replay_errors", "NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", _one()),
    FieldProbe("nvlink.recovery_errors", "NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", _one()),
)

PROBES: tuple[Probe, ...] = (
    Probe(("name",), "nvmlDeviceGetName", _text),
    Probe(("vbios_version",), "nvmlDeviceGetVbiosVersion", _text),
    Probe(("temperature.gpu",), "nvmlDeviceGetTemperature", _one("C"), ("NVML_TEMPERATURE_GPU",)),
    Probe(
        ("temperature.gpu.slowdown",),
        "nvmlDeviceGetTemperatureThreshold",
        _one("C"),
        ("NVML_TEMPERATURE_THRESHOLD_SLOWDOWN",),
    ),
    Probe(("temperature.gpu.tlimit",), "nvmlDeviceGetMarginTemperature", _one("C")),
    Probe(("power.draw",), "nvmlDeviceGetPowerUsage", _one("W", 1e3)),
    Probe(("power.limit",), "nvmlDeviceGetPowerManagementLimit", _one("W", 1e3)),
    Probe(("enforced.power.limit",), "nvmlDeviceGetEnforcedPowerLimit", _one("W", 1e3)),
    Probe(("energy",), "nvmlDeviceGetTotalEnergyConsumption", _one("mJ")),
    Probe(("clocks.sm",), "nvmlDeviceGetClockInfo", _one("MHz"), ("NVML_CLOCK_SM",)),
    Probe(("clocks.mem",), "nvmlDeviceGetClockInfo", _one("MHz"), ("NVML_CLOCK_MEM",)),
    Probe(("clocks.max.sm",), "nvmlDeviceGetMaxClockInfo", _one("MHz"), ("NVML_CLOCK_SM",)),
    Probe(("utilization.gpu", "utilization.memory"), "nvmlDeviceGetUtilizationRates", _utilization),
    # The second version tells what the driver reserves from what is used, as nvidia-smi does since 510.
    Probe(_MEMORY_COLUMNS, "nvmlDeviceGetMemoryInfo", _memory, ("nvmlMemory_v2",)),
    Probe(_MEMORY_COLUMNS, "nvmlDeviceGetMemoryInfo", _memory),
    Probe(("pcie.tx",), "nvmlDeviceGetPcieThroughput", _one("KB/s"), ("NVML_PCIE_UTIL_TX_BYTES",)),
    Probe(("pcie.rx",), "nvmlDeviceGetPcieThroughput", _one("KB/s"), ("NVML_PCIE_UTIL_RX_BYTES",)),
    Probe(("pcie.link.gen.current",), "nvmlDeviceGetCurrPcieLinkGeneration", _one()),
    Probe(("pcie.link.gen.max",), "nvmlDeviceGetMaxPcieLinkGeneration", _one()),
    Probe(("pcie.link.gen.gpumax",), "nvmlDeviceGetGpuMaxPcieLinkGeneration", _one()),
    Probe(("pcie.link.width.current",), "nvmlDeviceGetCurrPcieLinkWidth", _one()),
    Probe(("pcie.link.width.max",), "nvmlDeviceGetMaxPcieLinkWidth", _one()),
    Probe(("pcie.replays",), "nvmlDeviceGetPcieReplayCounter", _one()),
    Probe(("clocks_event_reasons.active",), "nvmlDeviceGetCurrentClocksEventReasons", _mask),
    Probe(("clocks_event_reasons.active",), "nvmlDeviceGetCurrentClocksThrottleReasons", _mask),
    *(
        Probe((f"ecc.errors.{kind}.{scope}.total",), "nvmlDeviceGetTotalEccErrors", _one(), (error, counter))
        for kind, error in _ECC_KINDS
        for scope, counter in _ECC_SCOPES
    ),
    Probe(
        (
            "ecc.errors.corrected.volatile.sram",
            "ecc.errors.uncorrected.volatile.sram.parity",
            "ecc.errors.uncorrected.volatile.sram.secded",
            "ecc.errors.corrected.aggregate.sram",
            "ecc.errors.uncorrected.aggregate.sram.parity",
            "ecc.errors.uncorrected.aggregate.sram.secded",
            "ecc.errors.uncorrected.aggregate.sram.thresholdexceeded",
        ),
        "nvmlDeviceGetSramEccErrorStatus",
        _sram,
        structure="c_nvmlEccSramErrorStatus_v1_t",
    ),
    *(
        Probe(
            (f"ecc.errors.{kind}.{scope}.dram",),
            "nvmlDeviceGetMemoryErrorCounter",
            _one(),
            (error, counter, "NVML_MEMORY_LOCATION_DRAM"),
        )
        for kind, error in _ECC_KINDS
        for scope, counter in _ECC_SCOPES
    ),
    Probe(
        ("retired_pages.single_bit_ecc.count",),
        "nvmlDeviceGetRetiredPages",
        _length,
        ("NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS",),
    ),
    Probe(
        ("retired_pages.double_bit.count",),
        "nvmlDeviceGetRetiredPages",
        _length,
        ("NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR",),
    ),
    Probe(("retired_pages.pending",), "nvmlDeviceGetRetiredPagesPendingStatus", _one()),
    Probe(
        (
            "remapped_rows.correctable",
            "remapped_rows.uncorrectable",
            "remapped_rows.pending",
            "remapped_rows.failure",
        ),
        "nvmlDeviceGetRemappedRows",
        _several,
    ),
    Probe(("channel_repair_pending", "tpc_repair_pending"), "nvmlDeviceGetRepairStatus", _several),
    Probe(("violation.power",), "nvmlDeviceGetViolationStatus", _violation, ("NVML_PERF_POLICY_POWER",)),
    Probe(("violation.thermal",), "nvmlDeviceGetViolationStatus", _violation, ("NVML_PERF_POLICY_THERMAL",)),
    Probe(
        ("violation.reliability",),
        "nvmlDeviceGetViolationStatus",
        _violation,
        ("NVML_PERF_POLICY_RELIABILITY",),
    ),
    Probe(_FABRIC_COLUMNS, "nvmlDeviceGetGpuFabricInfoV", _fabric, structure="c_nvmlGpuFabricInfo_v2_t"),
    Probe(_FABRIC_COLUMNS, "nvmlDeviceGetGpuFabricInfo", _fabric, structure="c_nvmlGpuFabricInfo_t"),
    Probe(("mig.mode.current", "mig.mode.pending"), "nvmlDeviceGetMigMode", _several),
)

MIG_PROBES: tuple[Probe, ...] = (
    Probe(_MEMORY_COLUMNS, "nvmlDeviceGetMemoryInfo", _memory, ("nvmlMemory_v2",)),
    Probe(_MEMORY_COLUMNS, "nvmlDeviceGetMemoryInfo", _memory),
    Probe(
        ("ecc.errors.uncorrected.volatile.sram",),
        "nvmlDeviceGetMemoryErrorCounter",
        _one(),
        ("NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_VOLATILE_ECC", "NVML_MEMORY_LOCATION_SRAM"),
    ),
)

PROCESS_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
)

# nvmlValueType_t: the member of the union that holds a field's value.
_MEMBERS = {
    "NVML_VALUE_TYPE_DOUBLE": "dVal",
    "NVML_VALUE_TYPE_UNSIGNED_INT": "uiVal",
    "NVML_VALUE_TYPE_UNSIGNED_LONG": "ulVal",
    "NVML_VALUE_TYPE_UNSIGNED_LONG_LONG": "ullVal",
    "NVML_VALUE_TYPE_SIGNED_LONG_LONG": "sllVal",
    "NVML_VALUE_TYPE_SIGNED_INT": "siVal",
    "NVML_VALUE_TYPE_UNSIGNED_SHORT": "usVal",
}


def ask_fields(asker: Asker, handle: object) -> dict[str, str | NvmlReturn]:
    """All field probes in one call: a text, or the code that stands for why there is none.

    A driver that does not know a field id answers "invalid argument" for that one: it is absent. When the
    call itself fails, every field has its code.
    """
    wanted = [(probe, ids) for probe in FIELD_PROBES if (ids := _ids(asker, probe)) is not None]
    if not wanted:
        return {}
    try:
        entries = asker.ask("nvmlDeviceGetFieldValues", handle, [ids for _probe, ids in wanted])
    except NvmlFailure as failure:
        return {probe.column: failure.code for probe, _ids in wanted}
    members = {asker.constant(name): member for name, member in _MEMBERS.items()}
    return {
        probe.column: _field_text(probe, entry, members)
        for (probe, _ids), entry in zip(wanted, entries, strict=True)
    }


def _ids(asker: Asker, probe: FieldProbe) -> tuple[int, int] | None:
    try:
        scope = 0 if probe.scope is None else asker.constant(probe.scope)
        return asker.constant(probe.field), scope
    except NvmlFailure:
        return None


def _field_text(probe: FieldProbe, entry: Any, members: dict[int, str]) -> str | NvmlReturn:
    code = code_of(entry.nvmlReturn)
    if code is NvmlReturn.INVALID_ARGUMENT:
        return NvmlReturn.NOT_SUPPORTED
    if code is not NvmlReturn.SUCCESS:
        return code
    member = members.get(entry.valueType)
    if member is None:
        return f"a value of the type {entry.valueType}"
    (text,) = probe.read(getattr(entry.value, member))
    return text if text is not None else NvmlReturn.NOT_SUPPORTED
