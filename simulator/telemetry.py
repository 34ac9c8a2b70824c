"""What a simulated node's dcgm-exporter would answer: text with the values of a busy training fleet.

Levels are shaped on H100 boards (700 W, 1.98 GHz boost) and on the published percentiles of the AcmeTrace
clusters; they are plausible, not measured. Names and label set are those of dcgm-exporter 4.x.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntFlag

from simulator.fleet import SimulatedFleet, SimulatedGpu, SimulatedNode
from simulator.ports import FleetScheduler

MODEL = "NVIDIA H100 80GB HBM3"
DRIVER = "580.65.06"


class ClockReason(IntFlag):
    """NVML's clocks event reasons (nvml.h, ``nvmlClocksEventReason*``)."""

    NONE = 0x0
    GPU_IDLE = 0x1
    SW_POWER_CAP = 0x4
    HW_SLOWDOWN = 0x8
    SW_THERMAL = 0x20
    HW_THERMAL = 0x40
    HW_POWER_BRAKE = 0x80


@dataclass(slots=True)
class _GpuTrouble:
    """What ails one GPU, each until a time (epoch seconds), or for good."""

    hot_until: float = 0.0
    braked_until: float = 0.0
    uncorrected: int = 0
    remap_pending: bool = False
    remap_failed: bool = False


@dataclass(slots=True)
class _Family:
    """One metric family: its help, its type, and a line per GPU."""

    name: str
    help: str
    kind: str
    lines: list[str] = field(default_factory=list)


class SimulatedTelemetry:
    """One dcgm-exporter per node. Equal seeds, equal noise. Thread-safe."""

    def __init__(self, fleet: SimulatedFleet, scheduler: FleetScheduler, *, seed: int = 1) -> None:
        self._fleet = fleet
        self._scheduler = scheduler
        self._random = random.Random(seed)  # noqa: S311 - a simulation, not a secret
        self._trouble: dict[tuple[str, int], _GpuTrouble] = {}
        self._away_until: dict[str, float] = {}
        self._lock = threading.Lock()

    # -- faults

    def slow_by_heat(self, node: str, gpu_index: int, seconds: float) -> None:
        """A fan dies: the GPU's own thermal slowdown drops its clock for ``seconds``."""
        with self._lock:
            self._of(node, gpu_index).hot_until = self._fleet.clock.now() + seconds

    def brake_power(self, node: str, gpu_index: int, seconds: float) -> None:
        """The power supply asserts the hardware power brake for ``seconds``."""
        with self._lock:
            self._of(node, gpu_index).braked_until = self._fleet.clock.now() + seconds

    def add_uncorrected_errors(self, node: str, gpu_index: int, count: int = 1) -> None:
        """Double-bit errors: the volatile counter grows, a row remap is pending."""
        with self._lock:
            trouble = self._of(node, gpu_index)
            trouble.uncorrected += count
            trouble.remap_pending = True

    def fail_row_remap(self, node: str, gpu_index: int) -> None:
        """No spare row is left: the remap fails, and no reset or reboot mends that."""
        with self._lock:
            self._of(node, gpu_index).remap_failed = True

    def exporter_away(self, node: str, seconds: float) -> None:
        """The exporter does not answer for ``seconds``; node and GPUs are fine."""
        with self._lock:
            self._away_until[node] = self._fleet.clock.now() + seconds

    def is_away(self, node: str) -> bool:
        """The exporter does not answer now, by a fault of its own."""
        with self._lock:
            return self._fleet.clock.now() < self._away_until.get(node, 0.0)

    def booted(self, node: str) -> None:
        """A reboot resets the volatile counters and applies pending row remaps."""
        with self._lock:
            for (name, _), trouble in self._trouble.items():
                if name == node:
                    trouble.uncorrected = 0
                    trouble.remap_pending = False

    # -- the answer

    def exposition(self, node: str) -> bytes | None:
        """The exporter's answer now; None when nobody answers (node down, or exporter away)."""
        machine = self._fleet.node(node)
        with self._lock:
            if not machine.up or self._fleet.clock.now() < self._away_until.get(node, 0.0):
                return None
            busy = sum(job.gpus_per_node for job in self._scheduler.jobs_on(node))
            families = _families()
            for gpu in machine.present_gpus:
                labels = _labels(machine, gpu)
                for name, value in self._values(machine, gpu, busy=gpu.index < busy):
                    families[name].lines.append(f"{name}{{{labels}}} {value}")
        return _render(families)

    def _of(self, node: str, gpu_index: int) -> _GpuTrouble:
        return self._trouble.setdefault((node, gpu_index), _GpuTrouble())

    def _values(self, node: SimulatedNode, gpu: SimulatedGpu, *, busy: bool) -> Iterator[tuple[str, str]]:
        now = self._fleet.clock.now()
        trouble = self._trouble.get((node.name, gpu.index), _GpuTrouble())
        hot, braked = busy and now < trouble.hot_until, busy and now < trouble.braked_until
        noise = self._random.gauss
        reasons = ClockReason.NONE if busy else ClockReason.GPU_IDLE
        clock, power, temperature = (1965.0, 620.0, 62.0) if busy else (345.0, 72.0, 33.0)
        if hot:
            reasons |= ClockReason.HW_THERMAL | ClockReason.HW_SLOWDOWN
            clock, power, temperature = 1080.0, 380.0, 89.0
        if braked:
            reasons |= ClockReason.HW_POWER_BRAKE | ClockReason.HW_SLOWDOWN
            clock, power = 900.0, 300.0
        utilisation = min(100.0, max(0.0, noise(98, 1))) if busy else 0.0
        yield "DCGM_FI_DEV_GPU_TEMP", f"{temperature + noise(0, 1.0):.0f}"
        yield "DCGM_FI_DEV_POWER_USAGE", f"{power + noise(0, 8.0):.3f}"
        yield "DCGM_FI_DEV_SM_CLOCK", f"{clock + (noise(0, 8.0) if busy else 0):.0f}"
        yield "DCGM_FI_DEV_GPU_UTIL", f"{utilisation:.0f}"
        yield "DCGM_FI_DEV_FB_USED", f"{61_000 if busy else 4}"
        yield "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", f"{int(reasons)}"
        yield "DCGM_FI_DEV_XID_ERRORS", "0"
        yield "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", f"{trouble.uncorrected}"
        yield "DCGM_FI_DEV_ROW_REMAP_PENDING", f"{int(trouble.remap_pending)}"
        yield "DCGM_FI_DEV_ROW_REMAP_FAILURE", f"{int(trouble.remap_failed)}"
        yield "DCGM_FI_DEV_PCIE_LINK_GEN", "5" if busy else "1"
        yield "DCGM_FI_DEV_PCIE_LINK_WIDTH", "16"
        if busy:
            yield "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", f"{max(0.0, noise(0.42, 0.02)):.6f}"


def _families() -> dict[str, _Family]:
    kinds = (
        ("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", "gauge"),
        ("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", "gauge"),
        ("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", "gauge"),
        ("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", "gauge"),
        ("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", "gauge"),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "Current clock event reasons (bitmask).", "gauge"),
        ("DCGM_FI_DEV_XID_ERRORS", "Value of the last XID error encountered.", "gauge"),
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "Total number of double-bit volatile ECC errors.", "counter"),
        ("DCGM_FI_DEV_ROW_REMAP_PENDING", "Whether remapping of rows is pending.", "gauge"),
        ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "Whether remapping of rows has failed.", "gauge"),
        ("DCGM_FI_DEV_PCIE_LINK_GEN", "PCIe current link generation.", "gauge"),
        ("DCGM_FI_DEV_PCIE_LINK_WIDTH", "PCIe current link width.", "gauge"),
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "Ratio of cycles the tensor pipe is active.", "gauge"),
    )
    return {name: _Family(name, text, kind) for name, text, kind in kinds}


def _labels(node: SimulatedNode, gpu: SimulatedGpu) -> str:
    domain, rest = gpu.pci.split(":", 1)
    pairs = {
        "gpu": str(gpu.index),
        "UUID": gpu.uuid,
        "pci_bus_id": f"0000{domain}:{rest.upper()}",
        "device": f"nvidia{gpu.index}",
        "modelName": MODEL,
        "hostname": node.name,
        "DCGM_FI_DRIVER_VERSION": DRIVER,
    }
    return ",".join(f'{name}="{value}"' for name, value in pairs.items())


def _render(families: dict[str, _Family]) -> bytes:
    text: list[str] = []
    for family in families.values():
        if family.lines:
            text += [
                f"# HELP {family.name} {family.help}",
                f"# TYPE {family.name} {family.kind}",
                *family.lines,
            ]
    return ("\n".join(text) + "\n").encode() if text else b""
