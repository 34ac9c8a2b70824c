"""Faults without an XID of their own, and what must not become an event; NVLink, NVSwitch, processes."""

# ruff: noqa: E501 - lines as they are printed

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from collector.kernel_log import LogContext, read_kernel_log
from fleet.observations import EventKind, Reading

NOW = datetime(2026, 3, 15, tzinfo=UTC).timestamp()
Told = list[tuple[str, str | None, bool | None, int]]


def read(*bodies: str) -> Reading:
    """The bodies as records 10 ms apart."""
    lines = [f"[{100 + number / 100:12.6f}] {body}" for number, body in enumerate(bodies)]
    return read_kernel_log("\n".join(lines).encode(), LogContext(node="n01", now=NOW, tz=UTC))


def firmware(*lines: str) -> list[str]:
    return [f"{{1}}[Hardware Error]: {line}" for line in lines]


# what is printed -> (kind, pci, fatal, count)
FAULTS: dict[str, tuple[list[str], Told]] = {
    "AER of Linux 6, corrected, with all its lines": (
        [
            "pcieport 0000:15:01.0: AER: Correctable error message received from 0000:17:00.0",
            "nvidia 0000:17:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)",
            "nvidia 0000:17:00.0:   device [10de:2330] error status/mask=00001000/0000e000",
            "nvidia 0000:17:00.0:    [12] Timeout",
        ],
        [("pcie_aer", "0000:17:00.0", False, 1)],
    ),
    "AER, fatal, recovery failed": (
        [
            "pcieport 0000:40:01.1: AER: Multiple Uncorrectable (Fatal) error message received from 0000:41:00.0",
            "nvidia 0000:41:00.0: AER: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer, "
            "(Completer ID)",
            "nvidia 0000:41:00.0: AER:   device [10de:2330] error status/mask=00004000/00000000",
            "nvidia 0000:41:00.0: AER:    [14] CmpltTO                (First)",
            "nvidia 0000:41:00.0: AER:   TLP Header: 40000001 0000000f 6c0004fc 00000000",
            "nvidia 0000:41:00.0: AER: can't recover (no error_detected callback)",
            "pcieport 0000:40:01.1: AER: Root Port link has been reset (0)",
            "pcieport 0000:40:01.1: AER: device recovery failed",
        ],
        [("pcie_aer", "0000:41:00.0", True, 1)],
    ),
    "AER, not fatal, requester": (
        [
            "pcieport 0000:40:01.1: AER: Uncorrected (Non-Fatal) error received: 0000:41:00.0",
            "nvidia 0000:41:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, "
            "(Requester ID)",
        ],
        [("pcie_aer", "0000:41:00.0", False, 1)],
    ),
    "AER of a device that no longer answers": (
        [
            "pcieport 0000:40:01.1: AER: Uncorrected (Fatal) error received: 0000:41:00.0",
            "nvidia 0000:41:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Inaccessible, "
            "(Unregistered Agent ID)",
        ],
        [("pcie_aer", "0000:41:00.0", True, 1)],
    ),
    "AER of the root port itself": (
        [
            "pcieport 0000:40:01.1: AER: Corrected error received: 0000:40:01.1",
            "pcieport 0000:40:01.1: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        ],
        [("pcie_aer", "0000:40:01.1", False, 1)],
    ),
    "AER of an NVSwitch": (
        [
            "nvidia-nvswitch 0000:05:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"
        ],
        [("pcie_aer", "0000:05:00.0", False, 1)],
    ),
    "AER of a disk is none of ours": (
        [
            "pcieport 0000:00:1d.0: AER: Corrected error received: 0000:84:00.0",
            "nvme 0000:84:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        ],
        [],
    ),
    "AER and DPC at start-up": (
        [
            "pcieport 0000:40:01.1: AER: enabled with IRQ 28",
            "pcieport 0000:40:01.1: DPC: enabled with IRQ 28",
            "pcieport 0000:40:01.1: DPC: error containment capabilities: Int Msg #0, RPExt+ PoisonedTLP+ SwTrigger+",
        ],
        [],
    ),
    "a link taken down by its port": (
        [
            "pcieport 0000:40:01.1: DPC: containment event, status:0x1f01 source:0x0000",
            "pcieport 0000:40:01.1: DPC: unmasked uncorrectable error detected",
            "pcieport 0000:40:01.1: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, "
            "(Receiver ID)",
        ],
        [("pcie_aer", "0000:40:01.1", True, 1)],
    ),
    "a link taken down because of its device": (
        [
            "pcieport 0000:40:01.1: DPC: containment event, status:0x1f05: ERR_FATAL received from 0000:41:00.0"
        ],
        [("pcie_aer", "0000:41:00.0", True, 1)],
    ),
    "the firmware found a PCIe error": (
        [
            *firmware(
                "Hardware error from APEI Generic Hardware Error Source: 512",
                "event severity: recoverable",
                " Error 0, type: recoverable",
                "  section_type: PCIe error",
                "  port_type: 0, PCIe end point",
                "  device_id: 0000:3b:00.0",
                "  vendor_id: 0x10de, device_id: 0x20b2",
            ),
            "nvidia 0000:3b:00.0: AER: aer_status: 0x00004000, aer_mask: 0x00000000",
            "nvidia 0000:3b:00.0: AER:    [14] CmpltTO",
        ],
        [("pcie_aer", "0000:3b:00.0", False, 1)],
    ),
    "the firmware found a disk's error": (
        firmware(
            "event severity: corrected",
            "  section_type: PCIe error",
            "  port_type: 0, PCIe end point",
            "  device_id: 0000:84:00.0",
            "  vendor_id: 0x144d, device_id: 0xa80a",
        ),
        [],
    ),
    "the firmware found a memory error, and EDAC counts it": (
        [
            *firmware("event severity: corrected", "  section_type: memory error"),
            "EDAC MC0: 3 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0)",
        ],
        [("machine_check", None, False, 3)],
    ),
    "AMD's decoder": (
        [
            "[Hardware Error]: Corrected error, no action required.",
            "[Hardware Error]: CPU:24 (19:11:1) MC17_STATUS[-|CE|MiscV|AddrV|-|-|SyndV|CECC|-|-|-]: 0x9c20410",
            "[Hardware Error]: Error Addr: 0x0000000000000000",
            "EDAC MC1: 1 CE Cannot decode normalized address on mc#1csrow#2channel#5 (csrow:2 channel:5)",
        ],
        [("machine_check", None, False, 1)],
    ),
    "a machine check that was fatal": (
        [
            "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5: bea0000000000108",
            "[Hardware Error]: System Fatal error.",
        ],
        [("machine_check", None, True, 1)],
    ),
    "EDAC before it counted": (
        [
            'EDAC MC0: CE page 0x283, offset 0xce0, grain 8, syndrome 0x6ec3, row 0, channel 1 "DIMM_B1": x',
            "EDAC MC: Ver: 3.0.0",
            "EDAC MC0: Giving out device to module i10nm_edac controller Intel_10nm MC0: DEV 0000:7e:0c.0",
        ],
        [("machine_check", None, False, 1)],
    ),
    "a CPU that is too hot is no machine check": (
        ["mce: CPU3: Core temperature above threshold, cpu clock throttled (total events = 1)"],
        [],
    ),
    "the driver cannot start, with and without an address": (
        [
            "NVRM: GPU 0000:9c:00.0: RmInitAdapter failed! (0x23:0x65:1438)",
            "NVRM: GPU 0000:9c:00.0: rm_init_adapter failed, device minor number 3",
            "NVRM: RmInitAdapter failed! (0x26:0xffff:1106)",
            "NVRM: rm_init_adapter(0) failed",
        ],
        [("driver_fault", "0000:9c:00.0", None, 1), ("driver_fault", None, None, 1)],
    ),
    "a device without memory regions": (
        [
            "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:",
            "NVRM: BAR1 is 0M @ 0x0 (PCI:0000:3b:00.0)",
            "nvidia: probe of 0000:3b:00.0 failed with error -1",
            "NVRM: The NVIDIA probe routine failed for 1 device(s).",
            "NVRM: None of the NVIDIA devices were initialized.",
        ],
        [("driver_fault", "0000:3b:00.0", None, 1)],
    ),
    "a device that reads as ones": (
        ["nvidia 0000:3b:00.0: Unable to change power state from D3cold to D0, device inaccessible"],
        [("gpu_lost", "0000:3b:00.0", None, 1)],
    ),
    "and then gets its XID": (
        [
            "nvidia 0000:3b:00.0: Unable to change power state from D3cold to D0, device inaccessible",
            "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        ],
        [("xid", "0000:3b:00.0", None, 1)],
    ),
    "drivers that talk": (
        [
            "nvidia-modeset: ERROR: GPU:0: Idling display engine timed out: 0x0000c67d:0:0:0x00000040",
            "nvidia-modeset: Loading NVIDIA Kernel Mode Setting Driver for UNIX platforms  550.54.15",
            "nvidia: loading out-of-tree module taints kernel.",
            "nvidia-nvlink: Nvlink Core is being initialized, major device number 511",
            "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build",
            "nvidia_uvm: module uses symbols nvUvmInterfaceDisableAccessCntr from proprietary module nvidia",
            "NVRM: GPU4 RPC history (CPU -> GSP):",
            "NVRM:     entry function                   data0              data1",
            "NVRM:      0    76   GSP_RM_CONTROL        0x0000000020802a17 0x0000000000000008",
            "NVRM: GPU4 RPC event history (CPU <- GSP):",
            "NVRM:      0    4108 UCODE_LIBOS_PRINT     0x0000000000000079 0x0000000000000000",
            "NVRM: A GPU crash dump has been created. If possible, please run",
        ],
        [],
    ),
}


@pytest.mark.parametrize(("bodies", "told"), FAULTS.values(), ids=FAULTS.keys())
def test_faults(bodies: list[str], told: Told) -> None:
    reading = read(*bodies)
    assert [(e.kind.value, e.pci, e.fatal, e.count) for e in reading.events] == told
    assert reading.problems == ()


@pytest.mark.parametrize(
    ("body", "name", "pid"),
    [
        ("INFO: task python:1234 blocked for more than 120 seconds.", "python", 1234),
        ("INFO: task kworker/u257:1:98 blocked for more than 120 seconds.", "kworker/u257:1", 98),
        ("INFO: task a b:12 blocked for more than 241 seconds.", "a b", 12),
    ],
)
def test_hung_tasks(body: str, name: str, pid: int) -> None:
    (event,) = read(body, "      Tainted: P           OE     5.15.0-119-generic").events
    assert (event.kind, event.process, event.pid) == (EventKind.OTHER, name, pid)


# text behind the code -> link, unit, fatal, registers
NVLINK: dict[str, tuple[int | None, str | None, bool | None, tuple[str, ...]]] = {
    "144, SAW_MVB Fatal XC1 i1 Link 12 (0x00000021 0x00000002)": (
        12,
        "SAW_MVB",
        True,
        ("0x00000021", "0x00000002"),
    ),
    "145, pid=1, name=a, b, RLW_REMAP Nonfatal XC0 i0 Link -1 (0x1 0x2 0x3 0x4 0x5 0x6 0x7)": (
        None,
        "RLW_REMAP",
        False,
        ("0x1", "0x2", "0x3", "0x4", "0x5", "0x6", "0x7"),
    ),
    "146, TLW_RX Non-Fatal XC0 i0 Link 3 (0x1": (3, "TLW_RX", False, ("0x1",)),
    "147, TREX Nonfatal XC0 i0 Link 04": (4, "TREX", False, ()),
    "148, NVLPW Fatal XC0 i0 Link 17 (0xDEADBEEF 0XABC)": (17, "NVLPW", True, ("0xdeadbeef", "0xabc")),
    "149, NETIR_LINK_DOWN FATAL Link 03 (0x1, 0x2)": (3, "NETIR_LINK_DOWN", True, ("0x1", "0x2")),
    "150, MSE Fatal XC0 i0 Link 00 ()": (0, "MSE", True, ()),
    "74, pid='<unknown>', name=<unknown>, NVLink: non-fatal error detected on link 3(0x0, 0x1)": (
        3,
        None,
        False,
        ("0x0", "0x1"),
    ),
    "74, NVLink: fatal error detected on link 11 (0x10000, 0x0": (11, None, True, ("0x10000", "0x0")),
    "74, NVLink: Internal error": (None, None, None, ()),
}


@pytest.mark.parametrize(("text", "expected"), NVLINK.items())
def test_nvlink_dumps(text: str, expected: tuple[object, ...]) -> None:
    (event,) = read(f"NVRM: Xid (PCI:0018:01:00): {text}").events
    assert (event.link, event.unit, event.fatal, event.registers) == expected


@pytest.mark.parametrize(
    ("body", "code", "fatal", "link", "uncertain"),
    [
        (
            "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 61 LTSSM Fault Up",
            20034,
            True,
            61,
            False,
        ),
        (
            "nvidia-nvswitch2: SXid (PCI:0000:05:00.0): 22013, Non-Fatal, Link 60 Minion",
            22013,
            False,
            60,
            False,
        ),
        ("nvidia-nvswitch: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 1 x", 12028, False, 1, False),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 10004, Non-fatal, Temperature 100C",
            10004,
            False,
            None,
            False,
        ),
        ("nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034", 20034, None, None, True),
        ("nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 23005, Severity 0 Engine 03", 23005, None, None, False),
    ],
)
def test_nvswitch(body: str, code: int, fatal: bool | None, link: int | None, uncertain: bool) -> None:
    (event,) = read(body).events
    assert (event.kind, event.code, event.fatal, event.link, event.uncertain) == (
        EventKind.SXID,
        code,
        fatal,
        link,
        uncertain,
    )


# text behind the code -> pid, process, cause
PROCESSES: dict[str, tuple[int | None, str | None, int | None]] = {
    "pid=1234, name=python3, Ch 00000008": (1234, "python3", None),
    "pid=1234, name=my prog, v2, Ch 00000008, intr 00000000. MMU Fault: ENGINE": (1234, "my prog, v2", None),
    "pid=1, name='quoted name', Ch 00000008": (1, "'quoted name'", None),
    'pid=1, name="a, b", GPU has fallen off the bus.': (1, '"a, b"', None),
    "pid=1, name=日本語, Ch 00000001": (1, "日本語", None),
    "pid='<unknown>', name=<unknown>, Ch 00000001": (None, None, None),
    "pid=<unknown>, name=<unknown>, Ch 00000001": (None, None, None),
    "name=foo, Ch 00000001": (None, "foo", None),
    "pid=123, Ch 00000001": (123, None, None),
    "pid=123, name=, Ch 00000001": (123, None, None),
    "pid=123, name=x, fa2c(2a18) 00000000": (123, "x", None),
    "pid=12, name=a=b;c|d, errorString CTX SWITCH TIMEOUT, Info 0x2c014": (12, "a=b;c|d", None),
    "pid=-1, name=foo, Ch 00000001": (None, None, None),
    "pid=12, name=GPU worker, Ch 00000008": (12, "GPU worker", None),
    "pid=12, name=kworker/0:1, Ch 00000008 caused by previous Xid 94": (12, "kworker/0:1", 94),
    "Ch 00000008 caused by previous Xid 149": (None, None, 149),
}


@pytest.mark.parametrize(("text", "expected"), PROCESSES.items())
def test_processes_and_causes(text: str, expected: tuple[object, ...]) -> None:
    (event,) = read(f"NVRM: Xid (PCI:0000:3b:00): 45, {text}").events
    assert (event.pid, event.process, event.cause) == expected
