"""Stamps of log lines to epoch seconds. Every function answers None for a date that does not exist."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta, timezone, tzinfo

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_AHEAD_SECONDS = 86_400.0  # a stamp without a year may lie this far ahead of our clock, not more
_YEARS_BACK = 8  # the longest wait for a 29 February
_ISO = re.compile(
    r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)[T ](?P<clock>\d\d:\d\d:\d\d)"
    r"(?:[.,](?P<fraction>\d{1,9}))?(?P<zone>Z|UTC|[+-]\d\d:?\d\d)?",
    re.ASCII,
)


def _epoch(year: int, month: int, day: int, clock: str, zone: tzinfo | None) -> float | None:
    hour, minute, second = (int(part) for part in clock.split(":"))
    second = min(second, 59)  # a leap second is printed as 60
    try:
        if zone is not None:
            return datetime(year, month, day, hour, minute, second, tzinfo=zone).timestamp()
        datetime(year, month, day, hour, minute, second, tzinfo=UTC)  # mktime would silently roll 31 Feb over
        return time.mktime((year, month, day, hour, minute, second, 0, 0, -1))
    except (ValueError, OverflowError):
        return None


def _fraction(digits: str | None) -> float:
    return int(digits) / 10 ** len(digits) if digits else 0.0


def from_iso(text: str, zone: tzinfo | None) -> float | None:
    """ISO 8601 / RFC 3339 with ``T`` or blank, ``.`` or ``,``; ``zone`` where the text names none."""
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    own = match["zone"]
    if own in ("Z", "UTC"):
        zone = UTC
    elif own:
        hours, minutes = int(own[1:3]), int(own[-2:])
        if hours > 23 or minutes > 59:  # noqa: PLR2004 - a clock
            return None
        offset = timedelta(hours=hours, minutes=minutes)
        zone = timezone(-offset if own[0] == "-" else offset)
    base = _epoch(int(match["year"]), int(match["month"]), int(match["day"]), match["clock"], zone)
    return None if base is None else base + _fraction(match["fraction"])


def from_parts(year: int, month: str, day: str, clock: str, zone: tzinfo | None) -> float | None:
    """``2026, "Feb", "7", "03:15:18"``: the stamp of ``dmesg -T``, which names no zone."""
    if month not in MONTHS:
        return None
    return _epoch(year, MONTHS.index(month) + 1, int(day), clock, zone)


def from_yearless(
    month: str, day: str, clock: str, fraction: str | None, *, now: float, zone: tzinfo | None
) -> float | None:
    """An RFC 3164 stamp: the latest year in which it is not more than a day ahead of ``now``."""
    this_year = datetime.fromtimestamp(now, UTC).year
    for year in range(this_year + 1, this_year - _YEARS_BACK - 1, -1):
        moment = from_parts(year, month, day, clock, zone)
        if moment is not None and moment <= now + _AHEAD_SECONDS:
            return moment + _fraction(fraction)
    return None
