"""Errors that the firmware found first and hands to the kernel: APEI generic hardware errors.

One report is many lines that begin with its number: ``{7}[Hardware Error]:``. Texts: Linux
``drivers/acpi/apei/ghes.c``, ``drivers/firmware/efi/cper.c``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from collector.kernel_log.bodies import blank_event
from fleet.identity import normalise_pci
from fleet.observations import Event, EventKind

_LINE = re.compile(r"\{(?P<number>\d{1,10})\}\[Hardware Error\]: +(?P<text>.*)", re.A)
_SEVERITY = re.compile(r"event severity: (\w+)")
_SECTION = re.compile(r"section_type: (.+)")
_PORT = re.compile(r"port_type: \d+, (.+)")
_DEVICE = re.compile(r"device_id: ([0-9a-f:.]+)$")
_VENDOR = re.compile(r"vendor_id: 0x([0-9a-f]{4})\b")
_NVIDIA = "10de"
# A recoverable error is uncorrected; of a PCIe device it is the non-fatal kind.
_PCIE_FATAL = {"corrected": False, "recoverable": False, "fatal": True}
_HOST_FATAL = {"corrected": False, "recoverable": True, "fatal": True}


@dataclass(slots=True)
class _Report:
    number: str
    severity: str | None = None
    pcie: bool = False
    port: str = ""
    device: str | None = None


class FirmwareReports:
    """Reads the reports of one host, line by line. Not thread-safe."""

    def __init__(self) -> None:
        self._report: _Report | None = None

    def take(self, text: str) -> Event | None:
        """The event that this line completes, without node and time; None for every other line.

        A PCIe device that is neither NVIDIA's nor a port is none of ours.
        """
        line = _LINE.match(text)
        if line is None:
            return None
        report = self._report
        if report is None or report.number != line["number"]:
            report = self._report = _Report(line["number"])
        return _read(report, line["text"], text)


def _read(report: _Report, words: str, text: str) -> Event | None:
    if (severity := _SEVERITY.match(words)) is not None:
        report.severity = severity[1]
    elif (section := _SECTION.match(words)) is not None:
        report.pcie = section[1].startswith("PCIe")
        if section[1].startswith(("memory error", "general processor error", "IA32", "ARM processor")):
            fatal = _HOST_FATAL.get(report.severity or "")
            return replace(blank_event(EventKind.MACHINE_CHECK, text), fatal=fatal)
    elif (port := _PORT.match(words)) is not None:
        report.port = port[1]
    elif (device := _DEVICE.match(words)) is not None:
        report.device = normalise_pci(device[1])
    elif report.pcie and report.device is not None and (vendor := _VENDOR.match(words)) is not None:
        if vendor[1] != _NVIDIA and "end point" in report.port:
            return None
        message = f"{text} (event severity: {report.severity}, device {report.device})"
        event = blank_event(EventKind.PCIE_AER, message)
        return replace(event, pci=report.device, fatal=_PCIE_FATAL.get(report.severity or ""))
    return None
