"""Slurm's ways to write a number, a time, an amount of memory, or nothing at all.

Absent is None, never 0: Slurm writes it as null, ``{"set": false}``, ``NO_VAL`` (0xfffffffe),
``INFINITE`` (0xffffffff), -2, ``N/A``, ``Unknown``, ``(null)`` and more (src/common/slurm_protocol_defs.h,
slurm.h; the object form from data_parser v0.0.39).
"""

from __future__ import annotations

import math
import re
from datetime import datetime

_SENTINELS = frozenset(
    {0xFFFE, 0xFFFF, 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF, -1, -2}
)
ABSENT_WORDS = frozenset(
    {
        "",
        "none",
        "n/a",
        "unknown",
        "(null)",
        "null",
        "not_set",
        "invalid",
        "unlimited",
        "infinite",
        "partition_limit",
        "none assigned",
        "unassigned",
    }
)
MIB = 1024 * 1024
_UNITS = {"": MIB, "K": 1024, "M": MIB, "G": 1024 * MIB, "T": 1024 * 1024 * MIB, "P": 1024**3 * MIB}
_MEMORY = re.compile(r"^(\d{1,15}(?:\.\d{1,9})?)([KMGTP]?)[nc]?$", re.IGNORECASE | re.ASCII)
# [days-]hours:minutes:seconds, minutes:seconds; with days also days-hours and days-hours:minutes (sbatch(1)).
_DURATION = re.compile(
    r"^(?:(?P<days>\d{1,6})-(?P<h>\d{1,2})(?::(?P<m>\d\d)(?::(?P<s>\d\d))?)?"
    r"|(?:(?P<hours>\d{1,8}):)?(?P<minutes>\d{1,8}):(?P<seconds>\d\d))$",
    re.ASCII,
)
_STANDARD_TIME = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(Z|[+-]\d\d:?\d\d)?$", re.ASCII)
_EPOCH = re.compile(r"^\d{9,11}$", re.ASCII)


class UnreadableTimeError(ValueError):
    """A time in a form other than the standard one (SLURM_TIME_FORMAT changes it), or an ambiguous one."""

    def __init__(self, word: str, why: str) -> None:
        super().__init__(word)
        self.sentence = f"time {word[:40]!r} {why}"


def number(value: object) -> float | None:
    """A JSON number in any era's form; None when it is absent, infinite, a sentinel or no number."""
    if isinstance(value, dict):
        if value.get("infinite") or not value.get("set", "number" in value):
            return None
        value = value.get("number")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None  # also an object in an object
    if value in _SENTINELS or not math.isfinite(value):
        return None
    return float(value)


def count(value: object) -> int | None:
    """``number`` as a whole number of at least 0."""
    found = number(value)
    return int(found) if found is not None and found >= 0 else None


def moment(value: object) -> float | None:
    """A JSON time in epoch seconds; 0 means "never" in Slurm and is absent here."""
    found = number(value)
    return found if found is not None and found > 0 else None


def text(value: object) -> str | None:
    """A JSON string that says something, exactly as it is; None for null, empty and non-strings."""
    return value if isinstance(value, str) and value not in ("", "(null)") else None


def words(value: object) -> tuple[str, ...]:
    """A comma separated string or a list of strings, blanks dropped."""
    if isinstance(value, str):
        return tuple(word.strip() for word in value.split(",") if word.strip())
    if isinstance(value, list):
        return tuple(word for word in value if isinstance(word, str) and word)
    return ()


def is_absent(word: str) -> bool:
    return word.strip().lower() in ABSENT_WORDS


def text_time(word: str, *, utc: bool) -> float | None:
    """``2026-02-07T02:12:31`` (local unless ``utc`` or with an offset) or epoch seconds; None for "never".

    Raises UnreadableTimeError for every other form, and for a local time that the clock passes twice or
    never (when summer time ends or begins): a guess would become a wrong hour, or a date in year 1.
    """
    word = word.strip()
    if is_absent(word):
        return None
    if _EPOCH.match(word):
        return float(word)
    match = _STANDARD_TIME.match(word)
    if match is None:
        raise UnreadableTimeError(word, "is in no known form")
    try:
        wall = datetime.fromisoformat(match[1])
        if match[2] or utc:
            offset = match[2] or "Z"
            return datetime.fromisoformat(match[1] + ("+00:00" if offset == "Z" else offset)).timestamp()
        return _local(word, wall)
    except (ValueError, OverflowError, OSError) as error:
        if isinstance(error, UnreadableTimeError):
            raise
        raise UnreadableTimeError(word, "is no date") from error


def _local(word: str, wall: datetime) -> float:
    first, second = wall.timestamp(), wall.replace(fold=1).timestamp()
    if first == second:
        return first
    if datetime.fromtimestamp(first) == wall:  # noqa: DTZ006 - local wall clock is what is compared
        raise UnreadableTimeError(word, "is in the hour that this machine's clock passes twice")
    raise UnreadableTimeError(word, "is in the hour that this machine's clock leaves out")


def text_duration(word: str) -> float | None:
    """``365-00:00:00``, ``1:02:03``, ``2:09`` in seconds; None for UNLIMITED, NOT_SET and the like."""
    match = _DURATION.match(word.strip())
    if match is None:
        return None
    part = {name: int(value or 0) for name, value in match.groupdict().items()}
    hours, minutes = part["h"] + part["hours"], part["m"] + part["minutes"]
    return float(((part["days"] * 24 + hours) * 60 + minutes) * 60 + part["s"] + part["seconds"])


def text_memory(word: str) -> int | None:
    """``118G``, ``1.50T``, ``3696M``; without a unit it is MiB (squeue %m). Bytes."""
    match = _MEMORY.match(word.strip())
    return int(float(match[1]) * _UNITS[match[2].upper()]) if match else None
