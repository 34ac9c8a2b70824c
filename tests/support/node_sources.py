"""A GPU node's sources for tests: dcgm-exporter's page, a fake ``nvidia-smi``, a sysfs tree of two cards."""

from __future__ import annotations

import re
from pathlib import Path

FOUR_GPUS = Path(__file__).parents[1] / "data/nvidia_smi/own-580-four-gpus/input.xml"
UUIDS = tuple(f"GPU-5a000000-0000-4000-8000-{number:012d}" for number in range(8))
PCIS = tuple(f"0000:{bus}:00.0" for bus in ("1b", "2b", "3b", "4b", "5b", "6b", "7b", "8b"))

_DEVICE = {
    "GPU_TEMP": 50,
    "MEMORY_TEMP": 45,
    "POWER_USAGE": 400.5,
    "TOTAL_ENERGY_CONSUMPTION": 9876543210,
    "SM_CLOCK": 1980,
    "MEM_CLOCK": 3201,
    "GPU_UTIL": 93,
    "MEM_COPY_UTIL": 41,
    "FB_USED": 1000,
    "FB_FREE": 142000,
    "FB_RESERVED": 771,
    "XID_ERRORS": 0,
    "PCIE_REPLAY_COUNTER": 4,
    "CLOCKS_EVENT_REASONS": 4,
    "ROW_REMAP_FAILURE": 0,
    "ROW_REMAP_PENDING": 0,
    "CORRECTABLE_REMAPPED_ROWS": 1,
    "UNCORRECTABLE_REMAPPED_ROWS": 0,
    "ECC_SBE_VOL_TOTAL": 3,
    "ECC_DBE_VOL_TOTAL": 0,
    "ECC_SBE_AGG_TOTAL": 12,
    "ECC_DBE_AGG_TOTAL": 0,
    "POWER_VIOLATION": 2500000000,
    "THERMAL_VIOLATION": 0,
    "PCIE_LINK_GEN": 5,
    "PCIE_LINK_WIDTH": 16,
}
_PROFILING = [
    "GR_ENGINE_ACTIVE",
    "SM_ACTIVE",
    "SM_OCCUPANCY",
    "PIPE_TENSOR_ACTIVE",
    "DRAM_ACTIVE",
    "PCIE_TX_BYTES",
]


def dcgm_page(gpus: int = 4, *, temperature: float = 50) -> bytes:
    """What dcgm-exporter 4 says of the first ``gpus``; they run at ``temperature`` plus their index."""
    values = {f"DEV_{name}": value for name, value in _DEVICE.items()}
    values |= {f"PROF_{name}": 0.5 for name in _PROFILING}
    lines = []
    for name, value in values.items():
        lines.append(f"# HELP DCGM_FI_{name} What it is.\n# TYPE DCGM_FI_{name} gauge")
        for gpu in range(gpus):
            shown = temperature + gpu if name == "DEV_GPU_TEMP" else value
            lines.append(
                f'DCGM_FI_{name}{{gpu="{gpu}",UUID="{UUIDS[gpu]}",pci_bus_id="0000{PCIS[gpu].upper()}",'
                f'device="nvidia{gpu}",modelName="NVIDIA H200",Hostname="n01",'
                f'DCGM_FI_DRIVER_VERSION="580.65.06"}} {shown}'
            )
    return ("\n".join(lines) + "\n").encode()


def smi_xml(gpus: int = 4) -> str:
    """What ``nvidia-smi -q -x`` of driver 580 says of the first ``gpus`` (8 at most)."""
    head, *regions = re.split(r"(?=\t<gpu id=)", FOUR_GPUS.read_text())
    regions[-1] = regions[-1].partition("</nvidia_smi_log>")[0]
    first = regions[0]
    for number in range(len(regions), gpus):
        bus = PCIS[number].split(":")[1].upper()
        regions.append(
            first.replace(UUIDS[0], UUIDS[number]).replace("00000000:1B:00.0", f"00000000:{bus}:00.0")
        )
    head = head.replace("<attached_gpus>4<", f"<attached_gpus>{gpus}<")
    return head + "".join(regions[:gpus]) + "</nvidia_smi_log>\n"


def fake_smi(folder: Path, xml: str) -> Path:
    """A program ``nvidia-smi`` in ``folder`` (for PATH). While ``folder/hang`` is there it hangs."""
    folder.mkdir(exist_ok=True)
    (folder / "answer.xml").write_text(xml)
    tool = folder / "nvidia-smi"
    tool.write_text(
        "#!/bin/sh\n"
        f"echo asked >> {folder}/calls\n"
        f"[ -e {folder}/hang ] && exec sleep 60\n"
        f"exec cat {folder}/answer.xml\n"
    )
    tool.chmod(0o755)
    return tool


def sysfs(root: Path, *, state: str = "4: ACTIVE") -> Path:
    """``class/infiniband`` with the cards mlx5_0 and mlx5_1, a port each; the folder of the cards."""
    for card in range(2):
        port = root / "class/infiniband" / f"mlx5_{card}" / "ports/1"
        (port / "counters").mkdir(parents=True)
        (port / "state").write_text(f"{state}\n")
        (port / "counters/link_downed").write_text(f"{card}\n")
        (port / "counters/symbol_error").write_text(f"{10 + card}\n")
    return root / "class/infiniband"
