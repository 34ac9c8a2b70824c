"""The envelope of a line: who says it, when, in which boot, and whether it may be believed.

Trust: kernel records only. /dev/kmsg and ``<PRI>`` lines with facility 0 (the kernel forces user writes to
/dev/kmsg to another one, Documentation/ABI/testing/dev-kmsg); journald records with ``_TRANSPORT=kernel``;
syslog lines whose tag is exactly ``kernel`` without a pid; lines that are bare kernel text.
"""

from __future__ import annotations

import re
from dataclasses import replace

from collector.kernel_log import text as texts
from collector.kernel_log import timestamps
from collector.kernel_log.context import LogContext
from collector.kernel_log.dmesg import FACILITIES, LEVELS, RelativeClock, open_dmesg, split_uptime
from collector.kernel_log.journal import open_json
from collector.kernel_log.record import (
    LogRecord,
    Opened,
    Shape,
    Unreadable,
    canonical_boot_id,
    dated,
    since_boot,
)

_KMSG = re.compile(
    r"(?P<pri>\d{1,4}),(?P<seq>\d{1,19}),(?P<usec>\d{1,19}),[^;]{0,64};(?P<text>.*)", re.S | re.A
)
_PRI = re.compile(r"<(?P<pri>\d{1,3})>(?P<rest>.*)", re.S | re.A)
_RFC5424 = re.compile(
    r"1 (?P<stamp>-|\d{4}-\S{1,59}) (?P<host>\S{1,255}) (?P<tag>\S{1,64}) (?P<pid>\S{1,128}) \S{1,64} "
    r'(?:-|(?:\[(?:[^\]"\\]|\\.|"(?:[^"\\]|\\.)*")*\])+)(?: \ufeff?(?P<text>.*))?',
    re.S,
)
_RFC3164 = re.compile(
    r"(?:(?P<year>\d{4}) )?(?P<month>[A-Z][a-z]{2}) {1,2}(?P<day>\d{1,2}) (?:(?P<later_year>\d{4}) )?"
    r"(?P<clock>\d\d:\d\d:\d\d)(?:\.(?P<fraction>\d{1,9}))? (?P<rest>.*)",
    re.S | re.A,
)
_ISO = re.compile(
    r"(?P<weekday>[A-Z][a-z]{2} )?(?P<stamp>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?"
    r"(?: UTC|Z|[+-]\d\d:?\d\d)?)(?P<zone> [A-Z]{2,5}| [+-]\d{2,4})? (?P<rest>.*)",
    re.S | re.A,
)
_UNIX = re.compile(
    r"(?P<seconds>\d{9,10}\.\d{6}) (?P<rest>[A-Za-z0-9]\S{0,254} [^\s:\[]{1,64}.*)", re.S | re.A
)
# BusyBox syslogd names facility and level between host and tag.
_SAID_BY = re.compile(
    r"(?P<host>[\w:.]\S{0,254}) "
    rf"(?:(?P<facility>{FACILITIES})\.(?:{LEVELS}) )?"
    r"(?P<tag>[^\s:\[]{1,64})(?:\[(?P<pid>[^\]\s]{0,32})\])?:(?: (?P<text>.*))?$",
    re.S,
)
_HOSTLESS = re.compile(r"kernel: (?P<text>.*)", re.S)
_HOST_ONLY = re.compile(r"(?P<host>[\w:.]\S{0,254}) (?P<text>.*)", re.S)
# The Kubernetes container runtime interface: stamp, stream, F(ull) or P(artial), what the container said.
_CONTAINER = re.compile(r"(?:stdout|stderr) [FP] (?P<text>.*)", re.S)


def open_envelope(line: str, context: LogContext, clock: RelativeClock) -> list[Opened]:
    """Recognise one cleaned line by its content. A line of no known shape is a bare body.

    One record, except for a line that is a whole JSON array.
    """
    if line.startswith(("{", "[{")):
        return open_json(line, context)
    return [_open_line(line, context, clock)]


def _open_line(line: str, context: LogContext, clock: RelativeClock) -> LogRecord:
    kmsg = _KMSG.match(line)
    if kmsg is not None:
        body = texts.clean(texts.unescape_kmsg(kmsg["text"]))
        uptime = int(kmsg["usec"]) / 1e6
        trusted = _facility_trusted(int(kmsg["pri"]), context)
        return since_boot(body, uptime, context, trusted=trusted, shape=Shape.KMSG, sequence=int(kmsg["seq"]))
    priority = _PRI.match(line)
    trusted = True
    if priority is not None:
        trusted = _facility_trusted(int(priority["pri"]), context)
        line = priority["rest"]
    syslog = _open_new_syslog(line, context, trusted=trusted) or _open_old_syslog(
        line, context, trusted=trusted
    )
    record = syslog or open_dmesg(line, context, clock, trusted=trusted)
    return record if priority is None else replace(record, style=f"{record.style} pri")


def _facility_trusted(priority: int, context: LogContext) -> bool:
    return priority >> 3 == 0 or context.accept_any_facility


def _open_new_syslog(line: str, context: LogContext, *, trusted: bool) -> LogRecord | None:
    """RFC 5424, with or without its PRI."""
    new = _RFC5424.match(line)
    if new is None:
        return None
    by_kernel = new["tag"] == "kernel" and new["pid"] == "-"
    moment = timestamps.from_iso(new["stamp"], context.tz)
    return _said(
        new["text"] or "",
        moment,
        context,
        host=new["host"],
        trusted=trusted and by_kernel,
        shape=Shape.SYSLOG_NEW,
    )


def _open_old_syslog(line: str, context: LogContext, *, trusted: bool) -> LogRecord | None:
    """RFC 3164 with its stamp, an ISO stamp, or epoch seconds (``journalctl -o short-unix``)."""
    old = _RFC3164.match(line)
    if old is not None and old["month"] in timestamps.MONTHS:
        moment = _bsd_moment(old, context)
        record = _open_said(old["rest"], moment, context, trusted=trusted, shape=Shape.SYSLOG)
        # journalctl pads the day with a zero, syslog with a blank.
        return replace(record, style=f"{record.style} 0") if old["day"][0] == "0" else record
    iso = _ISO.match(line)
    if iso is not None:
        rest = iso["rest"]
        if iso["zone"] is not None and iso["weekday"] is None:
            # A host, after all: only ``-o short-full`` names a zone by its letters.
            rest = f"{iso['zone'][1:]} {rest}"
        moment = timestamps.from_iso(iso["stamp"].replace(" UTC", "Z"), context.tz)
        return _open_said(rest, moment, context, trusted=trusted, shape=Shape.SYSLOG_ISO)
    unix = _UNIX.match(line)
    if unix is not None:
        moment = float(unix["seconds"])
        return _open_said(unix["rest"], moment, context, trusted=trusted, shape=Shape.SYSLOG_ISO)
    return None


def _bsd_moment(stamp: re.Match[str], context: LogContext) -> float | None:
    year = stamp["year"] or stamp["later_year"]
    if year is not None:
        return timestamps.from_parts(int(year), stamp["month"], stamp["day"], stamp["clock"], context.tz)
    return timestamps.from_yearless(
        stamp["month"], stamp["day"], stamp["clock"], stamp["fraction"], now=context.now, zone=context.tz
    )


def _open_said(
    rest: str, moment: float | None, context: LogContext, *, trusted: bool, shape: Shape
) -> LogRecord:
    """Host, tag and text behind a syslog stamp."""
    container = _CONTAINER.match(rest)
    if container is not None:
        return _said(container["text"], moment, context, host=None, trusted=False, shape=shape)
    hostless = _HOSTLESS.match(rest)
    if hostless is not None:
        return _said(hostless["text"], moment, context, host=None, trusted=trusted, shape=shape)
    said = _SAID_BY.match(rest)
    if said is not None:
        by_kernel = said["tag"] == "kernel" and said["pid"] is None and said["facility"] in (None, "kern")
        words = (said["text"] or "") if by_kernel else rest[said.end("host") + 1 :]
        text = texts.clean(texts.unescape_rsyslog(words))
        return _said(text, moment, context, host=said["host"], trusted=trusted and by_kernel, shape=shape)
    host = _HOST_ONLY.match(rest)
    if host is not None:
        return _said(host["text"], moment, context, host=host["host"], trusted=False, shape=shape)
    return _said(rest, moment, context, host=None, trusted=False, shape=shape)


def _said(
    text: str, moment: float | None, context: LogContext, *, host: str | None, trusted: bool, shape: Shape
) -> LogRecord:
    """A syslog record; the kernel's own stamp inside it gives way to the logger's date."""
    uptime, body = split_uptime(text)
    if moment is None and uptime is not None:
        return since_boot(body, uptime, context, trusted=trusted, host=host, shape=shape)
    return dated(body, moment, context, trusted=trusted, host=host, shape=shape, uptime=uptime)


__all__ = ["LogRecord", "Opened", "Unreadable", "canonical_boot_id", "open_envelope"]
