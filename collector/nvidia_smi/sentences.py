"""What nvidia-smi says instead of data, or beside it: one sentence, not on standard error.

The decision rests on the sentence: exit codes differ between driver generations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from collector.nvidia_smi.cells import read_cell
from collector.nvidia_smi.records import Findings, Identity, quoted
from fleet.identity import normalise_pci
from fleet.observations import ProblemReason

_PCI = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]"
# "GPU0000:1B:00.0", "GPU 0000:B1:00.0", "GPU1: 0000:34:00.0", "GPU 0": the spelling changed over time.
_HANDLE = re.compile(
    rf"^Unable to determine the device handle for gpu\s*(?:(?P<index>\d{{1,3}}):\s+)?"
    rf"(?P<pci>{_PCI})?\s*:?\s*(?P<why>.*)$",
    re.IGNORECASE,
)
_INIT = re.compile(r"^Failed to initialize NVML:\s*(?P<why>.*)$", re.IGNORECASE)
_LIBRARY = re.compile(r"^NVML library version:\s*(?P<version>[\d.]{1,32})\s*$", re.IGNORECASE)
_NO_DEVICES = re.compile(r"^No devices were found\b", re.IGNORECASE)
_NO_DRIVER = re.compile(
    r"couldn't communicate with the NVIDIA driver|couldn't find libnvidia-ml|driver is not loaded"
    r"|^NVIDIA-SMI has failed",
    re.IGNORECASE,
)
_INFOROM = re.compile(rf"infoROM is corrupted at gpu\s*(?P<pci>{_PCI})", re.IGNORECASE)
_BAD_QUERY = re.compile(
    r"is not a valid field to query|^Invalid combination of input arguments|^Option \S+ is not recognized"
    r"|^ERROR: Option|^Error: |^No properties to query",
    re.IGNORECASE,
)
_NOT_INSTALLED = re.compile(r"nvidia-smi\S*:? (?:command )?not found|nvidia-smi.*No such file", re.IGNORECASE)
_DENIED = re.compile(r"insufficient permissions?|permission denied", re.IGNORECASE)
# Second sentences of a message above: they say nothing new.
_CONTINUATION = re.compile(
    r"^(?:Make sure that the latest NVIDIA driver|This can also be happening if|Reboot the system"
    r"|Please also try adding directory|details and steps that can be taken to resolve"
    r"|Failed to properly shut ?down NVML)",
    re.IGNORECASE,
)
# An answer, and an empty one.
_NO_PROCESSES = re.compile(
    r"^No running (?:compute |graphics )?process(?:es)? (?:were )?found\b", re.IGNORECASE
)
_INIT_REASONS: tuple[tuple[re.Pattern[str], ProblemReason, str], ...] = (
    (
        re.compile(r"version mismatch", re.IGNORECASE),
        ProblemReason.DRIVER_LIBRARY_MISMATCH,
        "the loaded kernel module and the installed library differ; reload the driver or reboot the node",
    ),
    (
        re.compile(r"driver not loaded", re.IGNORECASE),
        ProblemReason.DRIVER_NOT_LOADED,
        "load the nvidia kernel module",
    ),
    (
        re.compile(r"insufficient permission", re.IGNORECASE),
        ProblemReason.PERMISSION_DENIED,
        "let the reader's user open /dev/nvidia*",
    ),
    (re.compile(r"gpu is lost", re.IGNORECASE), ProblemReason.GPU_LOST, "reboot the node"),
    (re.compile(r"timeout", re.IGNORECASE), ProblemReason.TIMEOUT, "the driver did not answer"),
)


@dataclass(slots=True)
class _Said:
    """What the lines so far have said."""

    found: Findings
    library: str | None = None
    mismatch: bool = False


def read_sentences(lines: Iterable[str], found: Findings) -> list[str]:
    """Report every known sentence as a problem; the lines that are none of them, in order."""
    rest: list[str] = []
    said = _Said(found)
    for line in lines:
        text = line.strip()
        if not text or not any(read(text, said) for read in _READERS):
            rest.append(line)
    if said.mismatch:
        version = f" (library {said.library})" if said.library else ""
        found.problem(
            ProblemReason.DRIVER_LIBRARY_MISMATCH,
            f"NVML does not start: driver/library version mismatch{version}; {_INIT_REASONS[0][2]}",
        )
    return rest


def _handle(text: str, said: _Said) -> bool:
    """A GPU that cannot be opened at all: unreachable, whatever word stands for why."""
    match = _HANDLE.match(text)
    if match is None:
        return False
    why = match["why"].strip() or "no reason given"
    reason = read_cell(re.split(r"[.]\s", why, maxsplit=1)[0]).reason or ProblemReason.QUERY_ERROR
    if reason is ProblemReason.QUERY_ERROR:
        reason = ProblemReason.GPU_LOST
    identity = Identity(
        index=int(match["index"]) if match["index"] else None,
        pci=normalise_pci(match["pci"]) if match["pci"] else None,
    )
    said.found.problem(
        reason, f"{identity.label} cannot be opened: nvidia-smi says {quoted(why)}", identity=identity
    )
    return True


def _init(text: str, said: _Said) -> bool:
    match = _INIT.match(text)
    if match is None:
        return False
    why = match["why"]
    if _INIT_REASONS[0][0].search(why):
        said.mismatch = True
        return True
    for pattern, reason, advice in _INIT_REASONS[1:]:
        if pattern.search(why):
            said.found.problem(reason, f"NVML does not start: {quoted(why)}; {advice}")
            return True
    said.found.problem(
        ProblemReason.QUERY_ERROR,
        f"NVML does not start: {quoted(why)}; inside a container, the device cgroup may be lost",
    )
    return True


def _library(text: str, said: _Said) -> bool:
    match = _LIBRARY.match(text)
    if match is None:
        return False
    said.library = match["version"]
    return True


def _inforom(text: str, said: _Said) -> bool:
    match = _INFOROM.search(text)
    if match is None:
        return False
    identity = Identity(pci=normalise_pci(match["pci"]))
    said.found.problem(
        ProblemReason.UNREADABLE, f"{identity.label}: its infoROM is corrupted", identity=identity
    )
    return True


def _plain(pattern: re.Pattern[str], reason: ProblemReason, advice: str) -> Callable[[str, _Said], bool]:
    def read(text: str, said: _Said) -> bool:
        if pattern.search(text) is None:
            return False
        said.found.problem(reason, f"nvidia-smi says {quoted(text)}; {advice}")
        return True

    return read


def _continuation(text: str, _said: _Said) -> bool:
    return _CONTINUATION.match(text) is not None


def _no_processes(text: str, said: _Said) -> bool:
    if _NO_PROCESSES.match(text) is None:
        return False
    said.found.understood = True
    return True


_READERS: tuple[Callable[[str, _Said], bool], ...] = (
    _handle,
    _init,
    _library,
    _inforom,
    _plain(_NO_DEVICES, ProblemReason.NO_DEVICES, "compare with the GPUs this node should have"),
    _plain(_NO_DRIVER, ProblemReason.DRIVER_NOT_LOADED, "load the nvidia kernel module"),
    _plain(_NOT_INSTALLED, ProblemReason.TOOL_MISSING, "install it, or leave this source out"),
    _plain(_BAD_QUERY, ProblemReason.QUERY_ERROR, "this driver does not know the query"),
    _plain(_DENIED, ProblemReason.PERMISSION_DENIED, "let the reader's user open /dev/nvidia*"),
    _continuation,
    _no_processes,
)
