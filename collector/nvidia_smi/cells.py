"""One printed value: a value, absent, or an error of the tool; and what number stands in it.

Three classes of words are kept apart. *Absent*: the device has no such thing (``N/A``, ``Not Supported``,
deprecated functionality); never a problem. *Error*: the driver could not say (``Unknown Error``), or the
device is in a state (``GPU is lost``, ``GPU requires reset``); always a problem. Anything else is a value,
and whoever expects a number says what units it may carry. The error words are those of NVML's
``nvmlErrorString`` (NVML API reference, nvmlReturn_t).
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from fleet.observations import ProblemReason

MAX_NAME_CHARS = 4096
_SENTINEL = 2**53
Convert = Callable[[str], float | None]
"""Bare text of a value to base units, or None when it isn't one."""

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_NUMBER = re.compile(r"(?P<number>[+-]?\d{1,20}(?:\.\d{1,9})?)\s*(?P<unit>[A-Za-z%/]{0,6})")
_ABSENT = frozenset(
    {
        "",
        "-",
        "n/a",
        "na",
        "not supported",
        "not available",
        "not applicable",
        "function not found",
        "no data",
    }
)
_DEPRECATED = ("requested functionality has been deprecated", "deprecated")
_ERRORS: Mapping[str, ProblemReason] = {
    "gpu is lost": ProblemReason.GPU_LOST,
    "gpu requires reset": ProblemReason.RESET_REQUIRED,
    "gpu requires restart": ProblemReason.RESET_REQUIRED,
    "insufficient permission": ProblemReason.PERMISSION_DENIED,
    "insufficient permissions": ProblemReason.PERMISSION_DENIED,
    "timeout": ProblemReason.TIMEOUT,
    "driver not loaded": ProblemReason.DRIVER_NOT_LOADED,
    "driver/library version mismatch": ProblemReason.DRIVER_LIBRARY_MISMATCH,
    **dict.fromkeys(
        (
            "unknown error",
            "err!",
            "uninitialized",
            "invalid argument",
            "not found",
            "insufficient size",
            "insufficient external power",
            "interrupt request issue",
            "corrupted inforom",
            "operating system",
            "in use by another client",
            "insufficient memory",
            "insufficient resources",
            "argument version mismatch",
            "gpu not found",
            "invalid state",
            "not ready",
        ),
        ProblemReason.QUERY_ERROR,
    ),
}
# A device state is one statement about the device, however many of its values repeat it.
DEVICE_STATES = frozenset({ProblemReason.GPU_LOST, ProblemReason.RESET_REQUIRED})


class CellKind(Enum):
    VALUE = auto()
    ABSENT = auto()
    ERROR = auto()


@dataclass(frozen=True, slots=True)
class Cell:
    """``text`` is bare: no surrounding blanks or brackets. ``reason`` is set for an ERROR only."""

    kind: CellKind
    text: str
    reason: ProblemReason | None = None


def decode(data: bytes) -> str:
    """Text of what was printed: UTF-8 (or what its byte order mark says), bad bytes replaced.

    Characters that are illegal in XML and JSON (NUL, other controls, surrogates) are dropped.
    """
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return _CONTROL.sub("", data.decode(encoding, errors="replace"))


def clean_name(text: str) -> str | None:
    """A name chosen by somebody else, on one line and bounded; None when the tool had none to give."""
    name = " ".join(_CONTROL.sub("", text).split())[:MAX_NAME_CHARS]
    bare = name[1:-1].strip() if name.startswith("[") and name.endswith("]") else name
    if bare.lower() in _ABSENT or (bare != name and bare.lower() in _ERRORS):
        return None
    return name


def read_cell(text: str) -> Cell:
    """Classify what is printed for one value, with or without brackets and blanks around it."""
    bare = " ".join(text.split())
    if bare.startswith("[") and bare.endswith("]"):
        bare = bare[1:-1].strip()
    lower = bare.lower()
    if lower in _ABSENT or lower.startswith(_DEPRECATED):
        return Cell(CellKind.ABSENT, bare)
    reason = _ERRORS.get(lower.rstrip("."))
    if reason is None and lower.startswith("gpu is lost"):
        reason = ProblemReason.GPU_LOST
    if reason is not None:
        return Cell(CellKind.ERROR, bare, reason)
    return Cell(CellKind.VALUE, bare)


def unescape(text: str) -> str:
    """XML's five entities and character references; nothing else is ever expanded."""
    if "&" not in text:
        return text
    return _REFERENCE.sub(_expand, text)


_REFERENCE = re.compile(r"&(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9a-fA-F]{1,6});")


def _expand(match: re.Match[str]) -> str:
    return _CONTROL.sub("", html.unescape(match[0]))


def _scaled(
    units: Mapping[str, float], *, low: float = 0.0, high: float = 2.0**53, divide: float = 1.0
) -> Convert:
    """A number with one of ``units`` (lower case; "" is a bare number), within [low, high] base units.

    The limits are far beyond any part; they keep out the all-ones words that drivers print for "unknown".
    """

    def convert(text: str) -> float | None:
        match = _NUMBER.fullmatch(text)
        if match is None:
            return None
        factor = units.get(match["unit"].lower())
        if factor is None:
            return None
        value = float(match["number"]) * factor / divide
        return value if low <= value <= high else None

    return convert


# Old drivers print MB for what is MiB (nvidia-smi manual: the unit was renamed, the value was not).
_MEMORY_UNITS = {"": 2.0**20, "mib": 2.0**20, "mb": 2.0**20, "kib": 2.0**10, "gib": 2.0**30, "bytes": 1.0}

celsius: Convert = _scaled({"": 1.0, "c": 1.0}, low=-100.0, high=200.0)
watts: Convert = _scaled({"": 1.0, "w": 1.0}, high=100_000.0)
hertz: Convert = _scaled({"": 1e6, "mhz": 1e6, "ghz": 1e9}, high=1e11)
ratio: Convert = _scaled({"": 1.0, "%": 1.0}, high=1.0, divide=100.0)
mebibytes: Convert = _scaled(_MEMORY_UNITS, high=2.0**50)
bytes_per_second: Convert = _scaled({"": 1e3, "kb/s": 1e3, "mb/s": 1e6, "gb/s": 1e9}, high=1e15)
joules: Convert = _scaled({"": 1.0, "j": 1.0, "mj": 1e-3})
seconds: Convert = _scaled({"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9})
lanes: Convert = _scaled({"": 1.0, "x": 1.0}, low=1.0, high=32.0)
generation: Convert = _scaled({"": 1.0}, low=1.0, high=16.0)


def count(text: str) -> float | None:
    """A whole number >= 0. Above 2^53 it is a sentinel and none."""
    if re.fullmatch(r"[0-9]{1,16}", text) is None:
        return None
    value = float(text)
    return value if value < _SENTINEL else None


def yes_no(text: str) -> float | None:
    return {"yes": 1.0, "no": 0.0, "1": 1.0, "0": 0.0, "true": 1.0, "false": 0.0}.get(text.lower())


def bitmask(text: str) -> float | None:
    """``0x0000000000000044`` or decimal; beyond 53 bits a float would lie, and no such reason exists."""
    if re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}", text):
        value = int(text, 16)
    elif re.fullmatch(r"\d{1,16}", text):
        value = int(text)
    else:
        return None
    return float(value) if value < _SENTINEL else None


# nvmlDeviceGpuRecoveryAction_t; nvidia-smi prints the short words, the kernel log the long ones.
_RECOVERY = {
    "none": 0.0,
    "reset": 1.0,
    "gpu reset": 1.0,
    "reboot": 2.0,
    "node reboot": 2.0,
    "drain p2p": 3.0,
    "drain and reset": 4.0,
    "drain p2p and reset": 4.0,
    "imex": 5.0,
    "recover imex": 5.0,
    "recover imex domain": 5.0,
    "bus reset": 6.0,
    "system reboot": 7.0,
}


def recovery_action(text: str) -> float | None:
    """The driver's advice as nvmlDeviceGpuRecoveryAction_t; a bare number 0-7 is taken as it is."""
    word = re.sub(r"[\s_-]+", " ", text.lower()).strip().removesuffix(" required").strip()
    if re.fullmatch(r"[0-7]", word):
        return float(word)
    return _RECOVERY.get(word)


# nvmlGpuFabricState_t and nvmlReturn_t (NVML API reference): the status prints the latter's string.
_FABRIC_STATE = {"not supported": 0.0, "not started": 1.0, "in progress": 2.0, "completed": 3.0}
_FABRIC_STATUS = {
    "success": 0.0,
    "uninitialized": 1.0,
    "invalid argument": 2.0,
    "insufficient permissions": 4.0,
    "not found": 6.0,
    "insufficient size": 7.0,
    "insufficient external power": 8.0,
    "driver not loaded": 9.0,
    "timeout": 10.0,
    "interrupt request issue": 11.0,
    "corrupted inforom": 14.0,
    "gpu is lost": 15.0,
    "gpu requires reset": 16.0,
    "operating system": 17.0,
    "driver/library version mismatch": 18.0,
    "in use by another client": 19.0,
    "insufficient memory": 20.0,
    "no data": 21.0,
    "insufficient resources": 23.0,
    "not ready": 27.0,
    "invalid state": 29.0,
    "unknown error": 999.0,
}


def fabric_state(text: str) -> float | None:
    return _FABRIC_STATE.get(text.lower())


def fabric_status(text: str) -> float | None:
    return _FABRIC_STATUS.get(text.lower())
