"""Slurm's ways to write a number, a time, an amount of memory, or nothing at all.

Absent is None, never 0: Slurm writes it as null, ``{"set": false}``, ``NO_VAL`` (0xfffffffe),
``INFINITE`` (0xffffffff), -2, ``N/A``, ``Unknown``, ``(null)`` and more (src/common/slurm_protocol_defs.h,
slurm.h; the object form from data_parser v0.0.39).
"""

from __future__ import annotations

import math
import re
import time
from calendar import timegm

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
    }
)
MIB = 1024 * 1024
_UNITS = {"": MIB, "K": 1024, "M": MIB, "G": 1024 * MIB, "T": 1024 * 1024 * MIB, "P": 1024**3 * MIB}
_MEMORY = re.compile(r"^(\d+(?:\.\d+)?)([KMGTP]?)[nc]?$", re.IGNORECASE)
_DURATION = re.compile(r"^(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+)$")
_STANDARD_TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$")
_EPOCH = re.compile(r"^\d{9,11}$")


class UnreadableTimeError(ValueError):
    """A time in a form other than the standard one (SLURM_TIME_FORMAT changes them all)."""


def number(value: object) -> float | None:
    """A JSON number in any era's form; None when it is absent, infinite, a sentinel or no number."""
    if isinstance(value, dict):
        if value.get("infinite") or not value.get("set", "number" in value):
            return None
        return number(value.get("number"))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not math.isfinite(value) or value in _SENTINELS:
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
    """``2026-02-07T02:12:31`` (local time unless ``utc``) or epoch seconds; None when it says "never".

    Raises UnreadableTimeError for every other form: a guess would become a date in year 1.
    """
    word = word.strip()
    if is_absent(word):
        return None
    if _EPOCH.match(word):
        return float(word)
    if _STANDARD_TIME.match(word):
        try:
            parts = time.strptime(word, "%Y-%m-%dT%H:%M:%S")
            return float(timegm(parts)) if utc else time.mktime(parts)
        except (ValueError, OverflowError) as error:
            raise UnreadableTimeError(word) from error
    raise UnreadableTimeError(word)


def text_duration(word: str) -> float | None:
    """``365-00:00:00``, ``1:02:03``, ``2:09`` in seconds; None for UNLIMITED, NOT_SET and the like."""
    match = _DURATION.match(word.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def text_memory(word: str) -> int | None:
    """``118G``, ``1.50T``, ``3696M``; without a unit it is MiB (squeue %m). Bytes."""
    match = _MEMORY.match(word.strip())
    return int(float(match[1]) * _UNITS[match[2].upper()]) if match else None
