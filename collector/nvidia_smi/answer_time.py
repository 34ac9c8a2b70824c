"""When an answer was given: nvidia-smi prints local time without a zone."""

from __future__ import annotations

import re
import time

_MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), start=1
    )
}
_XML = re.compile(r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d{2}):(\d{2}):(\d{2}) (\d{4})")
_CSV = re.compile(r"(\d{4})/(\d{2})/(\d{2}) (\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?")


def parse_time(text: str) -> float | None:
    """``Tue Mar  3 06:11:09 2020`` (XML) or ``2025/10/02 04:44:10.118`` (CSV) to epoch seconds, or None.

    Local time (``TZ``), like every zone-less time this project reads.
    """
    stripped = text.strip()
    if match := _XML.fullmatch(stripped):
        month = _MONTHS.get(match[1].lower())
        if month is None:
            return None
        day, hour, minute, second, year = (int(match[group]) for group in range(2, 7))
        return _local(year, month, day, hour, minute, second)
    if match := _CSV.fullmatch(stripped):
        year, month, day, hour, minute, second = (int(match[group]) for group in range(1, 7))
        whole = _local(year, month, day, hour, minute, second)
        return None if whole is None else whole + float(f"0.{match[7] or 0}")
    return None


def _local(year: int, month: int, day: int, hour: int, minute: int, second: int) -> float | None:
    if not (1970 <= year <= 9999 and 1 <= month <= 12 and 1 <= day <= 31):  # noqa: PLR2004 - a calendar's limits
        return None
    if hour > 23 or minute > 59 or second > 60:  # noqa: PLR2004 - a clock's limits
        return None
    try:
        return time.mktime((year, month, day, hour, minute, second, -1, -1, -1))
    except (OverflowError, ValueError):
        return None
