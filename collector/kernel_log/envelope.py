"""The envelope of a line: who says it, when, in which boot, and whether it may be believed.

Trust: kernel records only. /dev/kmsg and ``<PRI>`` lines with facility 0 (the kernel forces user writes to
/dev/kmsg to another one, Documentation/ABI/testing/dev-kmsg); journald records with ``_TRANSPORT=kernel``;
syslog lines whose tag is exactly ``kernel`` without a pid; lines that are bare kernel text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from collector.kernel_log import text as texts
from collector.kernel_log import timestamps
from collector.kernel_log.context import LogContext
from fleet.identity import is_node_name
from fleet.observations import TimeSource

_KMSG = re.compile(
    r"(?P<pri>\d{1,4}),(?P<seq>\d{1,19}),(?P<usec>\d{1,19}),[^;]{0,64};(?P<text>.*)", re.S | re.A
)
_PRI = re.compile(r"<(?P<pri>\d{1,3})>(?P<rest>.*)", re.S | re.A)
_RFC5424 = re.compile(
    r"1 (?P<stamp>\S{1,64}) (?P<host>\S{1,255}) (?P<tag>\S{1,64}) (?P<pid>\S{1,128}) \S{1,64} "
    r'(?:-|(?:\[(?:[^\]"]|"(?:[^"\\]|\\.)*")*\])+)(?: \ufeff?(?P<text>.*))?',
    re.S,
)
_RFC3164 = re.compile(
    r"(?P<month>[A-Z][a-z]{2}) {1,2}(?P<day>\d{1,2}) (?P<clock>\d\d:\d\d:\d\d)(?:\.(?P<fraction>\d{1,9}))? "
    r"(?P<rest>.*)",
    re.S | re.A,
)
_ISO = re.compile(
    r"(?:[A-Z][a-z]{2} )?(?P<stamp>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?P<dot>[.,])?(?:(?<=[.,])\d{1,9})?"
    r"(?: UTC|Z|[+-]\d\d:?\d\d)?) (?P<rest>.*)",
    re.S | re.A,
)
_SAID_BY = re.compile(
    r"(?P<host>\S{1,255}) (?P<tag>[^\s:\[]{1,64})(?:\[(?P<pid>[^\]\s]{0,32})\])?:(?: (?P<text>.*))?$", re.S
)
_HOST_ONLY = re.compile(r"(?P<host>\S{1,255}) (?P<text>.*)", re.S)
_DECODED = re.compile(r"(?P<facility>[a-z0-9]{2,8}) *:(?P<level>[a-z]{3,6}) *: ?(?P<rest>.*)", re.S | re.A)
_UPTIME = re.compile(
    r"\[ *(?P<uptime>\d{1,12}\.\d{1,9})(?: *<[ +\d.]{1,24}>)?\](?: ?\[ *[TC]\d{1,10}\])? ?(?P<text>.*)",
    re.S | re.A,
)
_CTIME = re.compile(
    r"\[[A-Z][a-z]{2} (?P<month>[A-Z][a-z]{2}) {1,2}(?P<day>\d{1,2}) (?P<clock>\d\d:\d\d:\d\d) "
    r"(?P<year>\d{4})\] ?(?P<text>.*)",
    re.S | re.A,
)
_BOOT_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """One record, its envelope opened.

    ``tick`` is what time windows are measured by, and comparable only within one ``ticks`` domain: an
    uptime stamp orders records even when nobody knows the date. ``bare``: the line had no envelope.
    ``continued``: a later line of the record before, which had embedded newlines.
    """

    text: str
    time: float
    time_source: TimeSource
    tick: float
    ticks: str
    trusted: bool
    host: str | None = None
    boot_id: str | None = None
    sequence: int | None = None
    bare: bool = False
    continued: bool = False


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record whose envelope is broken, or whose text its logger left out."""

    message: str
    host: str | None = None
    too_large: bool = False


def without_stamp(text: str) -> str:
    """The body behind the kernel's own ``[uptime]`` stamp, if it has one."""
    stamped = _UPTIME.match(text)
    return stamped["text"] if stamped is not None else text


def canonical_boot_id(text: str) -> str:
    """journald's 32 digits in the form of /proc/sys/kernel/random/boot_id; anything else as it is."""
    plain = text.strip().lower().replace("-", "")
    if _BOOT_ID.fullmatch(plain) is None:
        return text.strip()
    return f"{plain[:8]}-{plain[8:12]}-{plain[12:16]}-{plain[16:20]}-{plain[20:]}"


def open_envelope(line: str, context: LogContext) -> LogRecord | Unreadable:
    """Recognise one cleaned line by its content. A line of no known shape is a bare body."""
    if line.startswith("{"):
        return _open_journald(line, context)
    kmsg = _KMSG.match(line)
    if kmsg is not None:
        body = texts.clean(texts.unescape_kmsg(kmsg["text"]))
        uptime = int(kmsg["usec"]) / 1e6
        trusted = _facility_trusted(int(kmsg["pri"]), context)
        return _uptime_record(body, uptime, context, trusted=trusted, sequence=int(kmsg["seq"]))
    priority = _PRI.match(line)
    if priority is None:
        return _open_plain(line, context, trusted=True)
    trusted = _facility_trusted(int(priority["pri"]), context)
    return _open_plain(priority["rest"], context, trusted=trusted, prefixed=True)


def _facility_trusted(priority: int, context: LogContext) -> bool:
    return priority >> 3 == 0 or context.accept_any_facility


def _open_plain(line: str, context: LogContext, *, trusted: bool, prefixed: bool = False) -> LogRecord:
    """A line whose priority, if it had one, is already off."""
    if prefixed and (new := _RFC5424.match(line)) is not None:
        by_kernel = new["tag"] == "kernel" and new["pid"] == "-"
        moment = timestamps.from_iso(new["stamp"], context.tz)
        return _said(new["text"] or "", moment, context, host=new["host"], trusted=trusted and by_kernel)
    old = _RFC3164.match(line)
    if old is not None and old["month"] in timestamps.MONTHS:
        moment = timestamps.from_yearless(
            old["month"], old["day"], old["clock"], old["fraction"], now=context.now, zone=context.tz
        )
        return _open_syslog(old["rest"], moment, context, trusted=trusted)
    iso = _ISO.match(line)
    if iso is not None:
        moment = timestamps.from_iso(iso["stamp"].replace(" UTC", "Z"), context.tz)
        if iso["dot"] == ",":  # dmesg --time-format=iso: no host, no tag
            return _line_record(iso["rest"], moment, context, trusted=trusted)
        return _open_syslog(iso["rest"], moment, context, trusted=trusted)
    decoded = _DECODED.match(line)
    if decoded is not None and _UPTIME.match(decoded["rest"]) is not None:  # dmesg --decode
        by_kernel = decoded["facility"] == "kern" or context.accept_any_facility
        return _open_dmesg(decoded["rest"], context, trusted=trusted and by_kernel)
    return _open_dmesg(line, context, trusted=trusted)


def _open_dmesg(line: str, context: LogContext, *, trusted: bool) -> LogRecord:
    stamped = _UPTIME.match(line)
    if stamped is not None:
        return _uptime_record(stamped["text"], float(stamped["uptime"]), context, trusted=trusted)
    dated = _CTIME.match(line)
    if dated is not None:
        moment = timestamps.from_parts(
            int(dated["year"]), dated["month"], dated["day"], dated["clock"], context.tz
        )
        return _line_record(dated["text"], moment, context, trusted=trusted)
    return _line_record(line, None, context, trusted=trusted, bare=True)


def _open_syslog(rest: str, moment: float | None, context: LogContext, *, trusted: bool) -> LogRecord:
    said = _SAID_BY.match(rest)
    if said is not None:
        by_kernel = said["tag"] == "kernel" and said["pid"] is None
        words = (said["text"] or "") if by_kernel else rest[said.end("host") + 1 :]
        text = texts.clean(texts.unescape_rsyslog(words))
        return _said(text, moment, context, host=said["host"], trusted=trusted and by_kernel)
    host = _HOST_ONLY.match(rest)
    if host is not None:
        return _said(host["text"], moment, context, host=host["host"], trusted=False)
    return _said(rest, moment, context, host=None, trusted=False)


def _said(
    text: str, moment: float | None, context: LogContext, *, host: str | None, trusted: bool
) -> LogRecord:
    """A syslog record; the kernel's own stamp inside it gives way to the logger's date."""
    stamped = _UPTIME.match(text)
    body = stamped["text"] if stamped is not None else text
    if moment is None and stamped is not None:
        return _uptime_record(body, float(stamped["uptime"]), context, trusted=trusted, host=host)
    return _line_record(body, moment, context, trusted=trusted, host=host)


def _line_record(
    text: str,
    moment: float | None,
    context: LogContext,
    *,
    trusted: bool,
    host: str | None = None,
    boot_id: str | None = None,
    bare: bool = False,
) -> LogRecord:
    known = moment is not None
    time = moment if moment is not None else context.now
    return LogRecord(
        text=text,
        time=time,
        time_source=TimeSource.LINE if known else TimeSource.RECEIVED,
        tick=time,
        ticks="date" if known else "received",
        trusted=trusted,
        host=_host(host),
        boot_id=boot_id,
        bare=bare,
    )


def _uptime_record(
    text: str,
    uptime: float,
    context: LogContext,
    *,
    trusted: bool,
    sequence: int | None = None,
    host: str | None = None,
    boot_id: str | None = None,
) -> LogRecord:
    known = context.boot_time is not None
    time = context.boot_time + uptime if context.boot_time is not None else context.now
    return LogRecord(
        text=text,
        time=time,
        time_source=TimeSource.UPTIME if known else TimeSource.RECEIVED,
        tick=time if known else uptime,
        ticks="date" if known else "uptime",
        trusted=trusted,
        host=_host(host),
        boot_id=boot_id,
        sequence=sequence,
    )


def _host(name: str | None) -> str | None:
    """A host that is no plain node name names no node: input never widens a target."""
    return name if name is not None and is_node_name(name) else None


def _open_journald(line: str, context: LogContext) -> LogRecord | Unreadable:
    """A line of ``journalctl -o json`` (systemd's Journal JSON Format)."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return Unreadable("a line starts like JSON and is not: cut off, or no journald record")
    if not isinstance(fields, dict) or not ("MESSAGE" in fields or "_TRANSPORT" in fields):
        return Unreadable("a JSON line without MESSAGE is no journald record")
    host = _host(_text_field(fields, "_HOSTNAME"))
    facility = fields.get("SYSLOG_FACILITY")
    from_kernel = fields.get("_TRANSPORT") == "kernel"
    facility_kernel = facility is None or facility in ("0", 0) or context.accept_any_facility
    trusted = from_kernel and facility_kernel and not isinstance(facility, bool)
    message = _message_field(fields.get("MESSAGE"))
    if message is None:
        too_large = "MESSAGE" in fields and fields["MESSAGE"] is None
        why = "journald left out a MESSAGE that is too large (journalctl --all prints it)"
        return Unreadable(
            why if too_large else "a journald record without a readable MESSAGE", host, too_large
        )
    boot_text = _text_field(fields, "_BOOT_ID")
    boot_id = canonical_boot_id(boot_text) if boot_text else None
    moment = _microseconds(fields, "__REALTIME_TIMESTAMP", "_SOURCE_REALTIME_TIMESTAMP")
    uptime = _microseconds(fields, "_SOURCE_MONOTONIC_TIMESTAMP", "__MONOTONIC_TIMESTAMP")
    body = without_stamp(message)
    if moment is None and uptime is not None:
        return _uptime_record(body, uptime, context, trusted=trusted, host=host, boot_id=boot_id)
    return _line_record(body, moment, context, trusted=trusted, host=host, boot_id=boot_id)


def _text_field(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    return texts.clean(value) if isinstance(value, str) else None


def _message_field(value: object) -> str | None:
    """MESSAGE as text; journald writes text that is not UTF-8 as an array of byte values."""
    if isinstance(value, str):
        return texts.clean(value)
    if isinstance(value, list) and all(isinstance(b, int) and 0 <= b <= 255 for b in value):  # noqa: PLR2004
        return texts.clean(texts.decode(bytes(value)))
    return None


def _microseconds(fields: Mapping[str, Any], *names: str) -> float | None:
    """The first of the fields that holds microseconds (journald writes them as text), in seconds."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:  # noqa: PLR2004
            return int(value) / 1e6
    return None
