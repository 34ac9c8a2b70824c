"""Kernel log lines as a GPU node's NVIDIA driver prints them, in the shape of rsyslog or of /dev/kmsg."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum

# NVIDIA open-gpu-kernel-modules, nvidia/src: the message bodies after "NVRM: Xid (PCI:...): <code>, ".
# The pid and name fields came with R470 and R510; from R570 unknown ones are left out.
_BODIES = {
    13: "pid={pid}, name={name}, Graphics Exception: ESR 0x504730=0x2000f 0x504734=0x24 0x504728=0x4c1eb72",
    31: "pid={pid}, name={name}, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 "
    "faulted @ 0x7f12_34560000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
    43: "pid={pid}, name={name}, Ch 0000000e",
    45: "pid={pid}, name={name}, Ch 00000001",
    48: "pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE) has been detected on GPU "
    "in the framebuffer at physical address",
    63: "pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping, reset gpu to activate.",
    64: "pid='<unknown>', name=<unknown>, Row Remapper: Failed to remap row.",
    74: "pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 14"
    "(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    79: "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    94: "pid={pid}, name={name}, Contained: CE User Channel (0x9). RST: No, D-RST: No",
    95: "pid='<unknown>', name=<unknown>, Uncontained: LTC TAG (0x2,0x1). RST: Yes, D-RST: No",
    119: "pid={pid}, name={name}, Timeout after 6s of waiting for RPC response from GPU0 GSP! "
    "Expected function 76 (GSP_RM_CONTROL) (0x20801702 0x4).",
    154: "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
}


class LogShape(StrEnum):
    """How the lines reach an agent: rsyslog's ISO file format, or records of /dev/kmsg."""

    RSYSLOG = "rsyslog"
    KMSG = "kmsg"


def xid_text(pci: str, code: int, *, pid: int, process: str, message: str | None = None) -> str:
    """The kernel's line about one XID. ``pci`` is a normalised address; the driver prints no function.

    ``message`` replaces the body after the code; a code without a known body gets a plain one.
    """
    template = message or _BODIES.get(code, "pid='<unknown>', name=<unknown>, unrecognised error class")
    body = template.replace("{pid}", str(pid)).replace("{name}", process)
    return f"NVRM: Xid (PCI:{pci.rsplit('.', 1)[0]}): {code}, {body}"


def bus_loss_text(pci: str) -> str:
    """The line without an XID that follows (or stands for) XID 79."""
    return f"NVRM: GPU {pci}: GPU has fallen off the bus."


def boot_text() -> str:
    """The first line of every boot."""
    return "Linux version 6.1.0-28-amd64 (debian-kernel@lists.debian.org) #1 SMP PREEMPT_DYNAMIC"


def render(  # one record, in the words of the chosen shape
    text: str, *, shape: LogShape, node: str, at: float, uptime: float, sequence: int, priority: int = 3
) -> bytes:
    """One log line (no newline). ``at`` is epoch seconds, ``uptime`` seconds since the node's boot.

    kmsg: ``priority,sequence,microseconds,-;text`` (Linux, Documentation/ABI/testing/dev-kmsg).
    """
    if shape is LogShape.KMSG:
        return f"{priority},{sequence},{max(0, round(uptime * 1e6))},-;{text}".encode()
    stamp = datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")
    return f"{stamp} {node} kernel: [{max(0.0, uptime):12.6f}] {text}".encode()
