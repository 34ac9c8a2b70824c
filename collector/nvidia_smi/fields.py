"""Which printed value is which signal: the project's table of signals (collector/data/signals.csv) as code.

A field names its places from the preferred one to the last; the first that says something counts. XML
paths are below ``gpu``; they cover the layouts of drivers 418 to 610 (DTD v10 to v13): 535 renamed the
power block, 610 put the limits one level deeper. Column names are canonical (``csv_reader`` knows their
aliases). NVML itself (``collector.nvml``) is asked for the same columns, and for a few that nvidia-smi
has no column for.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from collector.nvidia_smi import cells
from collector.nvidia_smi.cells import Convert


class Layout(Enum):
    """What the keys of a view are: XML paths, the query's columns, or those and NVML's own."""

    XML = auto()
    QUERY = auto()
    NVML = auto()


@dataclass(frozen=True, slots=True)
class Field:
    """``nvml``: names of what only NVML says; it answers those of ``query`` as well."""

    signal: str
    convert: Convert
    xml: tuple[str, ...] = ()
    query: tuple[str, ...] = ()
    nvml: tuple[str, ...] = ()

    def keys(self, layout: Layout) -> tuple[str, ...]:
        """The places of this field in ``layout``, the preferred one first."""
        if layout is Layout.XML:
            return self.xml
        return self.query if layout is Layout.QUERY else (*self.query, *self.nvml)


@dataclass(frozen=True, slots=True)
class EccCounter:
    """A counter that old parts print as a total and newer ones by kind of memory.

    ``totals``: places that hold the whole. ``parts``: one entry per kind of memory; an entry's
    alternatives are tried in turn, and the places of an alternative are added up (DTD v12 split the
    uncorrectable SRAM count into parity and SEC-DED).
    """

    signal: str
    totals: tuple[str, ...]
    parts: tuple[tuple[tuple[str, ...], ...], ...]


_PCIE_GEN = "pci/pci_gpu_link_info/pcie_gen"
_PCIE_WIDTH = "pci/pci_gpu_link_info/link_widths"

FIELDS: tuple[Field, ...] = (
    Field("gpu_temperature_celsius", cells.celsius, ("temperature/gpu_temp",), ("temperature.gpu",)),
    Field(
        "gpu_memory_temperature_celsius", cells.celsius, ("temperature/memory_temp",), ("temperature.memory",)
    ),
    Field(
        "gpu_temperature_limit_celsius",
        cells.celsius,
        ("temperature/gpu_temp_slow_threshold",),
        nvml=("temperature.gpu.slowdown",),
    ),
    Field(
        "gpu_temperature_margin_celsius",
        cells.celsius,
        ("temperature/gpu_temp_tlimit",),
        ("temperature.gpu.tlimit",),
    ),
    Field(
        "gpu_power_watts",
        cells.watts,
        (
            "gpu_power_readings/power_draw",
            "gpu_power_readings/average_power_draw",
            "gpu_power_readings/instant_power_draw",
            "power_readings/power_draw",
        ),
        ("power.draw", "power.draw.average", "power.draw.instant"),
    ),
    Field(
        "gpu_power_limit_watts",
        cells.watts,
        (
            "gpu_power_readings/current_power_limit",
            "gpu_power_readings/gpu_ceiling_power_limit/current_power_limit",
            "power_readings/power_limit",
            "power_readings/enforced_power_limit",
        ),
        ("power.limit", "enforced.power.limit"),
    ),
    Field(
        "gpu_module_power_watts",
        cells.watts,
        (
            "module_power_readings/power_draw",
            "module_power_readings/average_power_draw",
            "module_power_readings/instant_power_draw",
        ),
        ("module.power.draw.average", "module.power.draw.instant"),
    ),
    # The graphics clock is the SM clock's domain; sparse layouts print only the former.
    Field(
        "gpu_sm_clock_hertz",
        cells.hertz,
        ("clocks/sm_clock", "clocks/graphics_clock"),
        ("clocks.sm", "clocks.gr"),
    ),
    Field("gpu_memory_clock_hertz", cells.hertz, ("clocks/mem_clock",), ("clocks.mem",)),
    Field(
        "gpu_sm_clock_max_hertz",
        cells.hertz,
        ("max_clocks/sm_clock", "max_clocks/graphics_clock"),
        ("clocks.max.sm", "clocks.max.gr"),
    ),
    Field("gpu_utilization_ratio", cells.ratio, ("utilization/gpu_util",), ("utilization.gpu",)),
    Field("gpu_memory_utilization_ratio", cells.ratio, ("utilization/memory_util",), ("utilization.memory",)),
    Field("gpu_memory_used_bytes", cells.mebibytes, ("fb_memory_usage/used",), ("memory.used",)),
    Field("gpu_pcie_transmit_bytes_per_second", cells.bytes_per_second, ("pci/tx_util",), nvml=("pcie.tx",)),
    Field("gpu_pcie_receive_bytes_per_second", cells.bytes_per_second, ("pci/rx_util",), nvml=("pcie.rx",)),
    Field(
        "gpu_pcie_link_generation",
        cells.generation,
        (f"{_PCIE_GEN}/current_link_gen", f"{_PCIE_GEN}/device_current_link_gen"),
        ("pcie.link.gen.current", "pcie.link.gen.gpucurrent"),
    ),
    Field(
        "gpu_pcie_link_width",
        cells.lanes,
        (f"{_PCIE_WIDTH}/current_link_width",),
        ("pcie.link.width.current",),
    ),
    Field(
        "gpu_pcie_link_width_max", cells.lanes, (f"{_PCIE_WIDTH}/max_link_width",), ("pcie.link.width.max",)
    ),
    Field("gpu_pcie_replays_total", cells.count, ("pci/replay_counter",), nvml=("pcie.replays",)),
    Field(
        "gpu_retired_pages_corrected",
        cells.count,
        ("retired_pages/multiple_single_bit_retirement/retired_count",),
        ("retired_pages.single_bit_ecc.count",),
    ),
    Field(
        "gpu_retired_pages_uncorrected",
        cells.count,
        ("retired_pages/double_bit_retirement/retired_count",),
        ("retired_pages.double_bit.count",),
    ),
    Field(
        "gpu_retired_pages_pending",
        cells.yes_no,
        ("retired_pages/pending_retirement", "retired_pages/pending_blacklist"),
        ("retired_pages.pending",),
    ),
    Field(
        "gpu_remapped_rows_corrected",
        cells.count,
        ("remapped_rows/remapped_row_corr",),
        ("remapped_rows.correctable",),
    ),
    Field(
        "gpu_remapped_rows_uncorrected",
        cells.count,
        ("remapped_rows/remapped_row_unc",),
        ("remapped_rows.uncorrectable",),
    ),
    Field(
        "gpu_remapped_rows_uncorrected_inactive",
        cells.count,
        query=("remapped_rows.uncorrectable_inactive",),
    ),
    Field(
        "gpu_row_remap_pending",
        cells.yes_no,
        ("remapped_rows/remapped_row_pending",),
        ("remapped_rows.pending",),
    ),
    Field(
        "gpu_row_remap_failed",
        cells.yes_no,
        ("remapped_rows/remapped_row_failure",),
        ("remapped_rows.failure",),
    ),
    Field(
        "gpu_ecc_sram_threshold_exceeded",
        cells.yes_no,
        ("ecc_errors/aggregate/sram_threshold_exceeded",),
        ("ecc.errors.uncorrected.aggregate.sram.thresholdexceeded",),
    ),
    Field(
        "gpu_channel_repair_pending",
        cells.yes_no,
        ("ecc_errors/channel_repair_pending",),
        nvml=("channel_repair_pending",),
    ),
    Field("gpu_energy_joules_total", cells.joules, nvml=("energy",)),
    Field("gpu_power_violation_seconds_total", cells.seconds, nvml=("violation.power",)),
    Field("gpu_thermal_violation_seconds_total", cells.seconds, nvml=("violation.thermal",)),
    Field("gpu_reliability_violation_seconds_total", cells.seconds, nvml=("violation.reliability",)),
    Field("gpu_nvlink_crc_flit_errors_total", cells.count, nvml=("nvlink.crc_flit_errors",)),
    Field("gpu_nvlink_crc_data_errors_total", cells.count, nvml=("nvlink.crc_data_errors",)),
    Field("gpu_nvlink_replay_errors_total", cells.count, nvml=("nvlink.replay_errors",)),
    Field("gpu_nvlink_recovery_errors_total", cells.count, nvml=("nvlink.recovery_errors",)),
)

MEMORY_TOTAL = Field("gpu_memory_total_bytes", cells.mebibytes, ("fb_memory_usage/total",), ("memory.total",))
MEMORY_PARTS = (
    Field("used", cells.mebibytes, ("fb_memory_usage/used",), ("memory.used",)),
    Field("free", cells.mebibytes, ("fb_memory_usage/free",), ("memory.free",)),
    Field("reserved", cells.mebibytes, ("fb_memory_usage/reserved",), ("memory.reserved",)),
)

# What the link can do is the lower of what GPU and slot can do (nvidia-smi --help-query-gpu:
# "possible with this GPU and system configuration"); a slot below the GPU is no fault.
PCIE_GENERATION_MAX = (
    Field(
        "gpu_pcie_link_generation_max",
        cells.generation,
        (f"{_PCIE_GEN}/max_link_gen", f"{_PCIE_GEN}/max_device_link_gen"),
        ("pcie.link.gen.max", "pcie.link.gen.gpumax"),
    ),
    Field(
        "gpu_pcie_link_generation_max",
        cells.generation,
        (f"{_PCIE_GEN}/max_host_link_gen",),
        ("pcie.link.gen.hostmax",),
    ),
)

RECOVERY_ACTION = Field(
    "gpu_recovery_action", cells.recovery_action, ("gpu_recovery_action",), ("gpu_recovery_action",)
)
RESET_REQUIRED = Field(
    "reset_required", cells.yes_no, ("gpu_reset_status/reset_required",), nvml=("reset_status",)
)
DRAIN_AND_RESET = Field(
    "drain_and_reset",
    cells.yes_no,
    ("gpu_reset_status/drain_and_reset_recommended",),
    nvml=("drain_and_reset_status",),
)

FABRIC_STATE = Field("gpu_fabric_state", cells.fabric_state, ("fabric/state",), ("fabric.state",))
FABRIC_STATUS = Field("gpu_fabric_status", cells.fabric_status, ("fabric/status",), ("fabric.status",))
FABRIC_LABELS = {
    "cluster": ("fabric/clusterUuid", "fabric.clusteruuid"),
    "clique": ("fabric/cliqueId", "fabric.cliqueid"),
}


def _ecc(kind: str, old: str, scope: str) -> EccCounter:
    xml, query = f"ecc_errors/{scope}", f"ecc.errors.{kind}ed.{scope}"
    sram = (
        (f"{xml}/sram_{kind}able",),
        (f"{xml}/sram_{kind}able_parity", f"{xml}/sram_{kind}able_secded"),
        (f"{query}.sram",),
        (f"{query}.sram.parity", f"{query}.sram.secded"),
    )
    dram = ((f"{xml}/dram_{kind}able",), (f"{query}.dram",))
    return EccCounter(
        f"gpu_ecc_{kind}ed_{scope}_total", (f"{xml}/{old}/total", f"{query}.total"), (sram, dram)
    )


ECC_COUNTERS = tuple(
    _ecc(kind, old, scope)
    for scope in ("volatile", "aggregate")
    for kind, old in (("correct", "single_bit"), ("uncorrect", "double_bit"))
)

# A MIG device shares its GPU instance's memory; power, temperature and clocks are the board's.
MIG_FIELDS: tuple[Field, ...] = (
    Field("gpu_memory_used_bytes", cells.mebibytes, ("fb_memory_usage/used",), ("memory.used",)),
    Field("gpu_memory_total_bytes", cells.mebibytes, ("fb_memory_usage/total",), ("memory.total",)),
    Field(
        "gpu_ecc_uncorrected_volatile_total",
        cells.count,
        ("ecc_error_count/volatile_count/sram_uncorrectable", "ecc_errors/volatile/sram_uncorrectable"),
        ("ecc.errors.uncorrected.volatile.sram",),
    ),
)

# The bits of nvmlClocksEventReasons (NVML API reference) by the name nvidia-smi gives them.
CLOCK_REASON_BLOCKS = ("clocks_event_reasons", "clocks_throttle_reasons")
CLOCK_REASON_BITS = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "user_defined_clocks": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clocks_setting": 0x100,
    "display_clock_setting": 0x100,
    "board_limit": 0x200,
    "reliability": 0x400,
}
# Columns are chosen by who asks: a mask is rebuilt from them only when all of these were asked for.
CLOCK_REASONS_OF_A_WHOLE_MASK = frozenset(
    {
        "gpu_idle",
        "applications_clocks_setting",
        "sw_power_cap",
        "hw_slowdown",
        "sync_boost",
        "sw_thermal_slowdown",
        "hw_thermal_slowdown",
        "hw_power_brake_slowdown",
    }
)
