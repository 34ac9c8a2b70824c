"""Durations for people: ``10m`` on the command line, ``12 min`` in tables. In files they are seconds."""

from __future__ import annotations

import re

from fleet.errors import InvalidInputError

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")
_WHOLE = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?[smhdw])+")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
MAX_SECONDS = 366 * 86_400.0
_MAX_CHARS = 32
_MS_END = 0.9995


def parse_duration(text: str) -> float:
    """``10m``, ``1h30m``, ``90s``, ``2d`` or a plain number of seconds -> seconds, > 0 and at most a year.

    Raises InvalidInputError with what to write instead.
    """
    word = text.strip().lower()
    if len(word) <= _MAX_CHARS and _WHOLE.fullmatch(word):
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(word))
    elif len(word) <= _MAX_CHARS and _NUMBER.fullmatch(word):
        seconds = float(word)
    else:
        raise InvalidInputError(
            f"{text[:_MAX_CHARS]!r} is no duration; write a number and s, m, h, d or w, such as 10m or 1h30m"
        )
    if not 0 < seconds <= MAX_SECONDS:
        raise InvalidInputError(f"the duration {word!r} is out of range; it must be > 0 and at most 366d")
    return seconds


def format_duration(seconds: float) -> str:
    """Seconds -> the two largest units: ``45 s``, ``12 min 5 s``, ``3 h``, ``2 d 4 h``."""
    if seconds < 0:
        return f"-{format_duration(-seconds)}"
    if seconds < _MS_END:  # below, it would read "1000 ms"
        return f"{seconds * 1000:.0f} ms"
    rest = round(seconds)
    parts: list[str] = []
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        count, rest = divmod(rest, size)
        if parts and not count:
            break
        if count:
            parts.append(f"{count} {unit}")
        if len(parts) == 2:  # noqa: PLR2004
            break
    return " ".join(parts)
