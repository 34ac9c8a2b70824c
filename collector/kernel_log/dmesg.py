"""What ``dmesg`` prints (util-linux ``sys-utils/dmesg.c``): uptime, ``-T``, ``-e``, ``--time-format=iso``,
``-x``, ``-d`` and the caller field; and ``journalctl -o short-monotonic``, which stamps in the same way.
"""

from __future__ import annotations

import re

from collector.kernel_log import timestamps
from collector.kernel_log.context import LogContext
from collector.kernel_log.record import LogRecord, Shape, dated, since_boot

_DELTA = r"(?: *<[ +\d.]{1,24}>)?"
_CALLER = r"(?: ?\[ *[TC]\d{1,10}\])?"
_UPTIME = re.compile(rf"\[ *(?P<uptime>\d{{1,12}}\.\d{{1,9}}){_DELTA}\]{_CALLER} ?(?P<text>.*)", re.S | re.A)
# The names of days and months are those of the user's locale: a month that is none of ours gives no date.
_CTIME = re.compile(
    r"\[[^\s\[\]]{1,8} +(?P<month>[^\s\[\]]{1,8}) +(?P<day>[0-9]{1,2}) (?P<clock>[0-9]{2}:[0-9]{2}:[0-9]{2}) "
    rf"(?P<year>[0-9]{{4}}){_DELTA}\]{_CALLER} ?(?P<text>.*)",
    re.S,
)
_MINUTE = re.compile(
    r"\[(?P<month>[A-Z][a-z]{2}) {1,2}(?P<day>\d{1,2}) (?P<clock>\d\d:\d\d)\] ?(?P<text>.*)", re.S | re.A
)
_LATER = re.compile(r"\[ *\+(?P<seconds>\d{1,9}\.\d{1,9})\] ?(?P<text>.*)", re.S | re.A)
_ISO = re.compile(
    rf"(?P<stamp>\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{{1,9}}(?:Z|[+-]\d\d:?\d\d)?){_CALLER} (?P<text>.*)",
    re.S | re.A,
)
FACILITIES = (
    "kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|ntp|security|console|res\\d|local\\d"
)
LEVELS = "emerg|alert|crit|err|warn|warning|notice|info|debug"
_DECODED = re.compile(rf"(?P<facility>{FACILITIES}) *:(?:{LEVELS}) *: ?(?P<rest>.*)", re.S | re.A)
_MONOTONIC = re.compile(r"(?P<host>[A-Za-z0-9]\S{0,254}) kernel: (?P<text>.*)", re.S | re.A)


class RelativeClock:
    """``dmesg -e`` dates one line per minute; the others say how long after the line before they came."""

    def __init__(self) -> None:
        self._moment: float | None = None

    def set(self, moment: float | None) -> float | None:
        self._moment = moment
        return moment

    def advance(self, seconds: float) -> float | None:
        if self._moment is not None:
            self._moment += seconds
        return self._moment


def split_uptime(text: str) -> tuple[float | None, str]:
    """The kernel's own ``[uptime]`` stamp in seconds, if there is one, and the body behind it."""
    stamped = _UPTIME.match(text)
    return (None, text) if stamped is None else (float(stamped["uptime"]), stamped["text"])


def open_dmesg(line: str, context: LogContext, clock: RelativeClock, *, trusted: bool) -> LogRecord:
    """One line of ``dmesg``, in whichever style; a line of none of them is a bare body."""
    decoded = _DECODED.match(line)
    if decoded is not None:
        by_kernel = decoded["facility"] == "kern" or context.accept_any_facility
        line, trusted = decoded["rest"], trusted and by_kernel
    uptime, text = split_uptime(line)
    if uptime is not None:
        journal = _MONOTONIC.match(text)
        host = None if journal is None else journal["host"]
        text = text if journal is None else journal["text"]
        return since_boot(text, uptime, context, trusted=trusted, shape=Shape.DMESG, host=host)
    iso = _ISO.match(line)
    if iso is not None:
        moment = timestamps.from_iso(iso["stamp"], context.tz)
        return dated(iso["text"], moment, context, trusted=trusted, shape=Shape.DMESG_ISO)
    found = _dated(line, context, clock)
    if found is not None:
        moment, text = found
        return dated(text, moment, context, trusted=trusted, shape=Shape.DMESG_DATED)
    shape = Shape.BARE if decoded is None else Shape.DMESG
    return dated(line, None, context, trusted=trusted, shape=shape)


def _dated(line: str, context: LogContext, clock: RelativeClock) -> tuple[float | None, str] | None:
    """(epoch seconds or None, body) of a line with a bracketed date of dmesg's; None for another line."""
    full = _CTIME.match(line)
    if full is not None:
        moment = timestamps.from_parts(
            int(full["year"]), full["month"], full["day"], full["clock"], context.tz
        )
        return moment, full["text"]
    minute = _MINUTE.match(line)
    if minute is not None:
        moment = timestamps.from_yearless(
            minute["month"], minute["day"], f"{minute['clock']}:00", None, now=context.now, zone=context.tz
        )
        return clock.set(moment), minute["text"]
    later = _LATER.match(line)
    return None if later is None else (clock.advance(float(later["seconds"])), later["text"])
