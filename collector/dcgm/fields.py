"""Which metric carries which signal, in which unit, and what it can sanely say.

Names: dcgm-exporter's counter files (``etc/default-counters.csv``, ``etc/1.x-compatibility-metrics.csv``),
the field tables of DCGM 4.6 (renamed fields, old names kept as aliases) and go-dcgm's legacy names. Units:
DCGM's ``dcgm_fields.h``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from types import MappingProxyType

from collector.signals import Signal, SignalKind, SignalTarget, load_signals

OWN_PREFIX = "sickbay_"
# Parts of memory.total where the exporter does not give the total itself; never printed.
FREE_MEMORY = "_free_memory_bytes"
RESERVED_MEMORY = "_reserved_memory_bytes"

_MIB = 2.0**20
_MEGA = 1e6
_MILLI = 1e-3
_NANO = 1e-9
_PERCENT = 1e-2

# What DCGM counts in another unit than ours. The violation counters are nanoseconds in every release: headers
# and help texts before DCGM 4.1 said microseconds (dcgm-exporter pull request 589).
_SCALES: Mapping[str, float] = {
    "gpu_energy_joules_total": _MILLI,
    "gpu_sm_clock_hertz": _MEGA,
    "gpu_memory_clock_hertz": _MEGA,
    "gpu_sm_clock_max_hertz": _MEGA,
    "gpu_utilization_ratio": _PERCENT,
    "gpu_memory_utilization_ratio": _PERCENT,
    "gpu_memory_used_bytes": _MIB,
    "gpu_memory_total_bytes": _MIB,
    "gpu_power_violation_seconds_total": _NANO,
    "gpu_thermal_violation_seconds_total": _NANO,
    "gpu_reliability_violation_seconds_total": _NANO,
    FREE_MEMORY: _MIB,
    RESERVED_MEMORY: _MIB,
}

# What a GPU instance has of its own; every other signal of a MIG GPU belongs to the board.
_PER_INSTANCE = frozenset(
    {
        "gpu_utilization_ratio",
        "gpu_memory_utilization_ratio",
        "gpu_memory_used_bytes",
        "gpu_memory_total_bytes",
        "gpu_sm_active_ratio",
        "gpu_sm_occupancy_ratio",
        "gpu_tensor_active_ratio",
        "gpu_dram_active_ratio",
        "gpu_engine_active_ratio",
        "gpu_pcie_transmit_bytes_per_second",
        "gpu_pcie_receive_bytes_per_second",
        "gpu_nvlink_transmit_bytes_per_second",
        "gpu_nvlink_receive_bytes_per_second",
        FREE_MEMORY,
        RESERVED_MEMORY,
    }
)

# Other names of a metric in signals.csv: DCGM 4.6's, and the 1.x namespace (--use-old-namespace).
_ALIASES: Mapping[str, tuple[str, ...]] = {
    "DCGM_FI_DEV_GPU_TEMP": ("DCGM_FI_DEV_GPU_TEMP_CELSIUS", "dcgm_gpu_temp"),
    "DCGM_FI_DEV_MEMORY_TEMP": ("DCGM_FI_DEV_MEMORY_TEMP_CELSIUS", "dcgm_memory_temp"),
    "DCGM_FI_DEV_SLOWDOWN_TEMP": ("DCGM_FI_DEV_GPU_TEMP_SLOWDOWN_CELSIUS",),
    "DCGM_FI_DEV_GPU_TEMP_LIMIT": ("DCGM_FI_DEV_GPU_TEMP_MARGIN_CELSIUS",),
    "DCGM_FI_DEV_POWER_USAGE": ("DCGM_FI_DEV_BOARD_POWER_WATTS", "dcgm_power_usage"),
    "DCGM_FI_DEV_POWER_USAGE_INSTANT": ("DCGM_FI_DEV_BOARD_POWER_RAW_WATTS",),
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": ("DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS",),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": ("DCGM_FI_DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS",),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("dcgm_total_energy_consumption",),
    "DCGM_FI_DEV_SM_CLOCK": ("dcgm_sm_clock",),
    "DCGM_FI_DEV_MEM_CLOCK": ("dcgm_memory_clock",),
    # Field 203 is a whole number of percent under its new name, too.
    "DCGM_FI_DEV_GPU_UTIL": ("DCGM_FI_DEV_GPU_UTIL_RATIO", "dcgm_gpu_utilization"),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("dcgm_mem_copy_utilization",),
    "DCGM_FI_DEV_FB_USED": ("dcgm_fb_used",),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", "dcgm_fi_prof_gr_engine_active"),
    "DCGM_FI_PROF_SM_ACTIVE": ("DCGM_FI_PROF_SM_UTIL_RATIO", "dcgm_fi_prof_sm_active"),
    "DCGM_FI_PROF_SM_OCCUPANCY": ("DCGM_FI_PROF_SM_OCCUPANCY_RATIO", "dcgm_fi_prof_sm_occupancy"),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("DCGM_FI_PROF_TENSOR_UTIL_RATIO", "dcgm_fi_prof_pipe_tensor_active"),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("DCGM_FI_PROF_DRAM_UTIL_RATIO", "dcgm_fi_prof_dram_active"),
    "DCGM_FI_PROF_PCIE_TX_BYTES": ("dcgm_fi_prof_pcie_tx_bytes",),
    "DCGM_FI_PROF_PCIE_RX_BYTES": ("dcgm_fi_prof_pcie_rx_bytes",),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": ("DCGM_FI_DEV_PCIE_REPLAY_TOTAL", "dcgm_pcie_replay_counter"),
    "DCGM_FI_DEV_POWER_VIOLATION": ("dcgm_power_violation",),
    "DCGM_FI_DEV_THERMAL_VIOLATION": ("dcgm_thermal_violation",),
    "DCGM_FI_DEV_RELIABILITY_VIOLATION": ("dcgm_reliability_violation",),
    "DCGM_FI_DEV_XID_ERRORS": ("DCGM_FI_DEV_XID_ERROR", "dcgm_xid_errors"),
    "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION": ("DCGM_FI_DEV_GPU_RECOVERY_ACTION",),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": ("dcgm_ecc_sbe_volatile_total",),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("dcgm_ecc_dbe_volatile_total",),
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": ("dcgm_ecc_sbe_aggregate_total",),
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": ("dcgm_ecc_dbe_aggregate_total",),
    "DCGM_FI_DEV_RETIRED_SBE": ("DCGM_FI_DEV_PAGE_RETIRED_SBE_TOTAL", "dcgm_retired_pages_sbe"),
    "DCGM_FI_DEV_RETIRED_DBE": ("DCGM_FI_DEV_PAGE_RETIRED_DBE_TOTAL", "dcgm_retired_pages_dbe"),
    "DCGM_FI_DEV_RETIRED_PENDING": ("DCGM_FI_DEV_PAGE_RETIRED_PENDING", "dcgm_retired_pages_pending"),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": ("DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL",),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": ("DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL",),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("DCGM_FI_DEV_ROW_REMAP_FAILED",),
    "DCGM_FI_DEV_THRESHOLD_SRM": ("DCGM_FI_DEV_SRAM_EXCEEDED",),
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": (
        "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL",
        "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_PER_LINK_TOTAL",
        "dcgm_nvlink_flit_crc_error_count_total",
    ),
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": (
        "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_TOTAL",
        "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_PER_LINK_TOTAL",
        "dcgm_nvlink_data_crc_error_count_total",
    ),
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": (
        "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_TOTAL",
        "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_PER_LINK_TOTAL",
        "dcgm_nvlink_replay_error_count_total",
    ),
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": (
        "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL",
        "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_PER_LINK_TOTAL",
        "dcgm_nvlink_recovery_error_count_total",
    ),
}
_MEMORY_PARTS: Mapping[str, tuple[str, ...]] = {
    FREE_MEMORY: ("DCGM_FI_DEV_FB_FREE", "dcgm_fb_free"),
    RESERVED_MEMORY: ("DCGM_FI_DEV_FB_RESERVED",),
}


class Zero(Enum):
    """What a printed 0 means."""

    VALUE = auto()
    # Exporters before DCGM 4 print 0 where a part has no such sensor, and for a link that is not there.
    ABSENT = auto()
    # A powered card does not stand at 0 degrees.
    IMPLAUSIBLE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """How one metric becomes a signal. ``low`` and ``high`` bound the value after ``scale``,
    ``instance_high`` that of a GPU instance.

    ``rank``: of several metrics for one signal the lowest wins. ``whole``: only whole numbers make sense.
    """

    signal: str
    target: SignalTarget
    scale: float
    rank: int
    low: float
    high: float
    instance_high: float
    zero: Zero
    whole: bool
    boolean: bool
    info: bool
    per_instance: bool


@cache
def load_fields() -> Mapping[str, Field]:
    """Every metric name the reader understands: dcgm-exporter's and our own exporters'."""
    fields: dict[str, Field] = {}
    for signal in load_signals().values():
        for name, rank in _names(signal):
            fields[name] = _field(signal.name, signal, rank=rank, scale=_SCALES.get(signal.name, 1.0))
        fields[signal.metric_name] = _field(signal.name, signal, rank=0, scale=1.0)
    total = load_signals()["gpu_memory_total_bytes"]
    for part, names in _MEMORY_PARTS.items():
        for name in names:
            fields[name] = _field(part, total, rank=0, scale=_SCALES[part])
    return MappingProxyType(fields)


def find_field(fields: Mapping[str, Field], name: str) -> Field | None:
    """The field of a metric. OpenMetrics and OpenTelemetry add ``_total`` to counters that lack it."""
    return fields.get(name) or (fields.get(name[: -len("_total")]) if name.endswith("_total") else None)


def _names(signal: Signal) -> Iterator[tuple[str, int]]:
    for rank, name in enumerate(signal.dcgm_names):
        # The two names of the clock reasons are one field of two driver generations.
        same = 0 if signal.kind is SignalKind.BITMASK else rank
        for alias in (name, *_ALIASES.get(name, ())):
            yield alias, same


def _field(name: str, signal: Signal, *, rank: int, scale: float) -> Field:
    low, high = _bounds(signal)
    return Field(
        signal=name,
        target=signal.target,
        scale=scale,
        rank=rank,
        low=low,
        high=high,
        instance_high=_INSTANCE_RATIO if signal.unit == "ratio" else high,
        zero=_ZEROS.get(name, Zero.VALUE),
        whole=signal.unit in {"enum", "bitmask", "bool"} or name == "gpu_xid_last_code",
        boolean=signal.unit == "bool",
        info=signal.kind is SignalKind.INFO,
        per_instance=name in _PER_INSTANCE,
    )


_ZEROS: Mapping[str, Zero] = {
    "gpu_temperature_celsius": Zero.IMPLAUSIBLE,
    "gpu_memory_temperature_celsius": Zero.ABSENT,
    "gpu_temperature_limit_celsius": Zero.ABSENT,
    "gpu_power_limit_watts": Zero.ABSENT,
    "gpu_memory_total_bytes": Zero.ABSENT,
    "gpu_pcie_link_generation": Zero.ABSENT,
    "gpu_pcie_link_generation_max": Zero.ABSENT,
    "gpu_pcie_link_width": Zero.ABSENT,
    "gpu_pcie_link_width_max": Zero.ABSENT,
}
_LIMITS: Mapping[str, tuple[float, float]] = {
    "gpu_temperature_margin_celsius": (-50.0, 150.0),
    "gpu_pcie_link_generation": (0.0, 16.0),
    "gpu_pcie_link_generation_max": (0.0, 16.0),
    "gpu_pcie_link_width": (0.0, 64.0),
    "gpu_pcie_link_width_max": (0.0, 64.0),
    "gpu_xid_last_code": (0.0, 65535.0),
    "node_load_ratio": (0.0, 1e6),
}
# Shares of a GPU instance overshoot by a fifth and more: an artefact, no fault (DCGM issue 152).
_INSTANCE_RATIO = 1.5
_UNIT_LIMITS: Mapping[str, tuple[float, float]] = {
    "celsius": (-40.0, 200.0),
    "watts": (0.0, 20_000.0),
    "hertz": (0.0, 2e10),
    # Far above is a glitch of the counter (DCGM issue 199); sampled shares overshoot a little.
    "ratio": (0.0, 1.05),
    "bool": (0.0, 1e6),
    "enum": (0.0, 255.0),
    "bitmask": (0.0, 2.0**53),
    "bytes": (0.0, 2.0**50),
    "bytes/s": (0.0, 1e14),
}


def _bounds(signal: Signal) -> tuple[float, float]:
    return _LIMITS.get(signal.name) or _UNIT_LIMITS.get(signal.unit, (0.0, 2.0**63))
