"""Bodies without an XID: a lost GPU, a driver that cannot start, PCIe and machine-check errors, hints.

Texts: NVIDIA/open-gpu-kernel-modules ``osapi.c``, ``nv-pci.c``, ``kernel_gsp.c``; Linux
``drivers/pci/pcie/aer.c`` (whose wording changed over the years), ``drivers/edac``,
``arch/x86/kernel/cpu/mce``, ``kernel/hung_task.c``.
"""

from __future__ import annotations

import re
from dataclasses import replace

from collector.kernel_log.bodies import (
    AerVictim,
    ForeignDevice,
    GpuMapping,
    LostPart,
    LostStart,
    NewBoot,
    Nothing,
    ProbeSummary,
    Sighting,
    Statement,
    blank_event,
    one_line,
)
from fleet.identity import normalise_pci
from fleet.observations import Event, EventKind

_BDF = r"(?:PCI:)?(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
_MAPPING = re.compile(rf"NVRM: GPU at (?P<pci>{_BDF}): (?P<uuid>GPU-[0-9a-fA-F-]{{8,64}})", re.A)
_LOST = re.compile(rf"NVRM: (?:The NVIDIA )?GPU (?:at )?(?P<pci>{_BDF})\b:?(?P<rest>.*)", re.S | re.A)
_LOST_WORDS = re.compile(r"fallen\s+off\s+the\s+bus")
_UNSUPPORTED_WORDS = re.compile(r"\bis\s+not\s+supported\b")
_LOST_START = re.compile(rf"NVRM: The NVIDIA GPU (?P<pci>{_BDF})\b", re.A)
_LOST_MIDDLE = re.compile(r"NVRM: (?:\(PCI ID: [0-9a-fA-F:]+\) )?installed in this\b")
_LOST_END = re.compile(r"NVRM: fallen off the bus\b")
_INIT_FAILED = re.compile(rf"NVRM: (?:GPU (?P<pci>{_BDF}): )?RmInitAdapter failed!", re.A)
_INIT_ECHO = re.compile(rf"NVRM: (?:GPU (?P<pci>{_BDF}): )?rm_init_adapter(?:\(\d+\))? failed", re.A)
_PROBE_OLD = re.compile(rf"nvidia: probe of (?P<pci>{_BDF}) failed with error -?\d+", re.A)
_PROBE_NEW = re.compile(rf"nvidia (?P<pci>{_BDF}): probe with driver nvidia failed with error -?\d+", re.A)
# drivers/pci/pci.c: the device answers nothing but ones.
_INACCESSIBLE = re.compile(
    rf"nvidia (?P<pci>{_BDF}): Unable to change power state from \S{{1,10}} to D\d, device inaccessible", re.A
)
_PROBE_FAILED_SUMMARY = re.compile(
    r"NVRM: (?:The NVIDIA probe routine failed for \d+ device|"
    r"None of the NVIDIA devices were (?:probed|initialized))"
)
_NOT_PROBED = re.compile(r"NVRM: The NVIDIA probe routine was not called for \d+ device")
_RESET_REQUIRED = re.compile(r"NVRM: .*\[NV_ERR_RESET_REQUIRED\]", re.S)
_RATE_LIMIT = re.compile(rf"NVRM: Rate limiting GSP RPC error prints for GPU at (?P<pci>{_BDF})", re.A)
_HUNG_TASK = re.compile(
    r"INFO: task (?P<name>.{1,64}):(?P<pid>\d{1,10}) blocked for more than \d+ seconds", re.A
)
_BANNER = re.compile(r"Linux version \d+\.\d+\S* ")

_SEVERITY = r"(?P<severity>Correct(?:ed|able)|Uncorrect(?:ed|able))(?: \((?P<weight>Fatal|Non-Fatal)\))?"
_DEVICE = re.compile(
    r"(?P<driver>[A-Za-z][\w-]{0,31}) (?P<pci>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): ", re.A
)
_AER_HEADER = re.compile(
    rf"AER: (?:Multiple )?{_SEVERITY} error (?:message )?received(?::| from:?) ?"
    rf"(?:id=(?P<id>[0-9a-fA-F]{{4}})|(?P<source>{_BDF}))",
    re.A,
)
_AER_DETAIL = re.compile(rf"(?:AER: )?PCIe Bus Error: severity={_SEVERITY}", re.A)
_AER_VICTIM = re.compile(r"AER: (?:can't recover|device recovery failed)")
# The kernel's echo of an error that the firmware reported (drivers/pci/pcie/aer.c, cper_print_aer).
_AER_STATUS = re.compile(r"AER: aer_status: 0x")
# Downstream port containment has taken the link down (drivers/pci/pcie/dpc.c).
_DPC = re.compile(
    r"DPC: .{0,80}?(?P<what>unmasked uncorrectable error|ERR_FATAL|ERR_NONFATAL)"
    rf"(?: (?:detected|received))?(?: from (?P<source>{_BDF}))?",
    re.A,
)
_BRIDGES = frozenset({"pcieport", "pci"})

_EDAC_RESULT = re.compile(r"EDAC (?:\S{1,32} )?MC\d+: (?:(?P<count>\d{1,9}) )?(?P<kind>CE|UE) ", re.A)
_MCE_EXCEPTION = re.compile(r"(?:mce: )?\[Hardware Error\]: CPU \d+: Machine Check Exception: ", re.A)
_MCE_BANK = re.compile(
    r"(?:mce: )?\[Hardware Error\]: CPU \d+: Machine Check(?: Event)?: \d+ Bank \d+: "
    r"(?P<status>[0-9a-f]{16})",
    re.A,
)
# AMD's decoder (drivers/edac/mce_amd.c) says what it was, then prints the registers.
_MCE_AMD = re.compile(
    r"(?:mce: )?\[Hardware Error\]: (?:(?P<corrected>Corrected error|Deferred error)|"
    r"(?P<fatal>Uncorrected, software \w+ error|System Fatal error))"
)
_MCE_MEMORY = re.compile(r"mce: Uncorrected hardware memory error in user-access at ")
_MCE_LOGGED = re.compile(r"(?:mce: )?\[Hardware Error\]: Machine check events logged")
_MCE_UNCORRECTED_BIT = 61  # MCi_STATUS.UC, Intel SDM volume 3, "Machine-Check Architecture"


def parse_fault(text: str) -> Statement | None:
    """One body that is neither XID nor SXID; None when it says nothing known."""
    if text.startswith("NVRM: "):
        return _parse_driver(text)
    if text.startswith(("nvidia: probe of", "nvidia ")):
        probe = _PROBE_OLD.match(text) or _PROBE_NEW.match(text)
        if probe is not None:
            return _fault(EventKind.DRIVER_FAULT, text, pci=probe["pci"])
        gone = _INACCESSIBLE.match(text)
        if gone is not None:
            return _fault(EventKind.GPU_LOST, text, pci=gone["pci"])
    if "DPC: " in text or "AER: " in text or "PCIe Bus Error" in text:
        return _parse_aer(text)
    if text.startswith(("EDAC", "mce: ", "[Hardware Error]")):
        return _parse_machine_check(text)
    hung = _HUNG_TASK.match(text)
    if hung is not None:
        event = blank_event(EventKind.OTHER, text)
        return Sighting(replace(event, pid=int(hung["pid"]), process=one_line(hung["name"])))
    if _BANNER.match(text) is not None:
        return NewBoot(blank_event(EventKind.BOOT, text))
    return None


def _fault(kind: EventKind, text: str, *, pci: str | None, echo: bool = False) -> Sighting:
    address = normalise_pci(pci) if pci is not None else None
    return Sighting(replace(blank_event(kind, text), pci=address), echo=echo)


def _parse_driver(text: str) -> Statement | None:
    mapping = _MAPPING.match(text)
    if mapping is not None:
        pci = normalise_pci(mapping["pci"])
        return GpuMapping(pci, mapping["uuid"]) if pci is not None else None
    failed = _INIT_FAILED.match(text)
    if failed is not None:
        return _fault(EventKind.DRIVER_FAULT, text, pci=failed["pci"])
    echo = _INIT_ECHO.match(text)
    if echo is not None:
        return _fault(EventKind.DRIVER_FAULT, text, pci=echo["pci"], echo=True)
    lost = _parse_lost(text)
    if lost is not None:
        return lost
    if _PROBE_FAILED_SUMMARY.match(text) is not None:
        return ProbeSummary(blank_event(EventKind.DRIVER_FAULT, text))
    if _NOT_PROBED.match(text) is not None:
        return _fault(EventKind.DRIVER_FAULT, text, pci=None)
    limited = _RATE_LIMIT.match(text)
    if limited is not None:
        return _fault(EventKind.OTHER, text, pci=limited["pci"])
    if _RESET_REQUIRED.match(text) is not None:
        return _fault(EventKind.OTHER, text, pci=None)  # for some GPU of this host: it does not say which
    return None


def _parse_lost(text: str) -> Statement | None:
    match = _LOST.match(text)
    if match is not None:
        if _LOST_WORDS.search(match["rest"]) is not None:
            return _fault(EventKind.GPU_LOST, text, pci=match["pci"])
        if _UNSUPPORTED_WORDS.search(match["rest"]) is not None:
            return _fault(EventKind.DRIVER_FAULT, text, pci=match["pci"])
        start = _LOST_START.match(text)
        pci = normalise_pci(start["pci"]) if start is not None else None
        return LostStart(pci, one_line(text)) if pci is not None else None
    if _LOST_END.match(text) is not None:
        return LostPart(lost=True, message=one_line(text))
    if _LOST_MIDDLE.match(text) is not None:
        if _LOST_WORDS.search(text) is not None:
            return LostPart(lost=True, message=one_line(text))
        unsupported = _UNSUPPORTED_WORDS.search(text) is not None
        return LostPart(lost=False if unsupported else None, message=one_line(text))
    return None


def _parse_aer(text: str) -> Statement | None:
    device = _DEVICE.match(text)
    if device is None:
        return None
    body = text[device.end() :]
    driver, reporter = device["driver"], normalise_pci(device["pci"])
    if reporter is None:
        return None
    ours = driver == "nvidia" or driver.startswith("nvidia-")
    if not ours and driver not in _BRIDGES:
        return ForeignDevice(reporter)
    if _AER_STATUS.match(body) is not None:
        return AerVictim(reporter, one_line(text))
    header = _AER_HEADER.match(body)
    if header is not None:
        source = (
            _from_requester_id(header["id"], reporter) if header["id"] else normalise_pci(header["source"])
        )
        return Sighting(_aer_event(text, header, source or reporter))
    detail = _AER_DETAIL.match(body)
    if detail is not None:
        return Sighting(_aer_event(text, detail, reporter), echo=True)
    if _AER_VICTIM.match(body) is not None:
        return AerVictim(reporter, one_line(text)) if ours else Nothing()
    contained = _DPC.match(body)
    if contained is not None:
        source = normalise_pci(contained["source"]) if contained["source"] else None
        event = blank_event(EventKind.PCIE_AER, text)
        fatal = contained["what"] != "ERR_NONFATAL"
        return Sighting(replace(event, pci=source or reporter, fatal=fatal), echo=True)
    return None


def _aer_event(text: str, match: re.Match[str], pci: str) -> Event:
    fatal = match["severity"].startswith("Uncorrect") and match["weight"] == "Fatal"
    return replace(blank_event(EventKind.PCIE_AER, text), pci=pci, fatal=fatal)


def _from_requester_id(text: str, reporter: str) -> str:
    """``id=0018`` of older kernels: bus, device and function in 8, 5 and 3 bits; the reporter's domain."""
    value = int(text, 16)
    domain = reporter.split(":", 1)[0]
    return f"{domain}:{value >> 8:02x}:{value >> 3 & 0x1F:02x}.{value & 7}"


def _parse_machine_check(text: str) -> Statement | None:
    result = _EDAC_RESULT.match(text)
    if result is not None:
        count = 1 if result["count"] is None else int(result["count"])
        if count == 0:
            return Nothing()
        event = replace(blank_event(EventKind.MACHINE_CHECK, text), fatal=result["kind"] == "UE", count=count)
        return Sighting(event)
    amd = _MCE_AMD.match(text)
    if amd is not None:
        event = blank_event(EventKind.MACHINE_CHECK, text)
        return Sighting(replace(event, fatal=amd["fatal"] is not None), echo=True)
    if _MCE_EXCEPTION.match(text) is not None or _MCE_MEMORY.match(text) is not None:
        return Sighting(replace(blank_event(EventKind.MACHINE_CHECK, text), fatal=True), echo=True)
    bank = _MCE_BANK.match(text)
    if bank is not None:
        fatal = bool(int(bank["status"], 16) >> _MCE_UNCORRECTED_BIT & 1)
        return Sighting(replace(blank_event(EventKind.MACHINE_CHECK, text), fatal=fatal), echo=True)
    if _MCE_LOGGED.match(text) is not None:
        return Sighting(blank_event(EventKind.MACHINE_CHECK, text))  # seen for months on healthy machines
    return None
