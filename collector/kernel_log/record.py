"""One record of a log, its envelope opened: what it says, when, by whom, and whether it may be believed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from collector.kernel_log.context import LogContext
from fleet.identity import is_node_name
from fleet.observations import TimeSource

_BOOT_ID = re.compile(r"[0-9a-f]{32}")


class Shape(StrEnum):
    """In which form a record stood there. The same event in two shapes came from two readers of one log."""

    KMSG = "kmsg"
    JOURNAL = "journal"
    DMESG = "dmesg"
    DMESG_JSON = "dmesg-json"
    DMESG_DATED = "dmesg-dated"
    DMESG_ISO = "dmesg-iso"
    SYSLOG = "syslog"
    SYSLOG_ISO = "syslog-iso"
    SYSLOG_NEW = "syslog-5424"
    BARE = "bare"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """One record, its envelope opened.

    ``tick`` is what time windows are measured by, and comparable only within one ``ticks`` domain: an
    uptime stamp orders records even when nobody knows the date. ``uptime``: the kernel's own stamp, in
    seconds, wherever the record carries it. ``bare``: the line had no envelope. ``continued``: a later line
    of the record before, which had embedded newlines. ``style``: what else tells one logger's lines of that
    shape from another's.
    """

    text: str
    time: float
    time_source: TimeSource
    tick: float
    ticks: str
    trusted: bool
    shape: Shape
    style: str = ""
    host: str | None = None
    boot_id: str | None = None
    sequence: int | None = None
    uptime: float | None = None
    continued: bool = False

    @property
    def bare(self) -> bool:
        return self.shape is Shape.BARE


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record whose envelope is broken, or whose text its logger left out."""

    message: str
    host: str | None = None
    too_large: bool = False
    truncated: bool = False


Opened = LogRecord | Unreadable


def host_name(name: str | None) -> str | None:
    """A host that is no plain node name names no node: input never widens a target."""
    return name if name is not None and is_node_name(name) else None


def canonical_boot_id(text: str) -> str:
    """journald's 32 digits in the form of /proc/sys/kernel/random/boot_id; anything else as it is."""
    plain = text.strip().lower().replace("-", "")
    if _BOOT_ID.fullmatch(plain) is None:
        return text.strip()
    return f"{plain[:8]}-{plain[8:12]}-{plain[12:16]}-{plain[16:20]}-{plain[20:]}"


def dated(
    text: str,
    moment: float | None,
    context: LogContext,
    *,
    trusted: bool,
    shape: Shape,
    host: str | None = None,
    boot_id: str | None = None,
    uptime: float | None = None,
) -> LogRecord:
    """A record with a date of its own (epoch seconds), or with None: received now."""
    known = moment is not None
    time = moment if moment is not None else context.now
    return LogRecord(
        text=text,
        time=time,
        time_source=TimeSource.LINE if known else TimeSource.RECEIVED,
        tick=time,
        ticks="date" if known else "received",
        trusted=trusted,
        shape=shape,
        host=host_name(host),
        boot_id=boot_id,
        uptime=uptime,
        style="" if uptime is None else "uptime",
    )


def since_boot(
    text: str,
    uptime: float,
    context: LogContext,
    *,
    trusted: bool,
    shape: Shape,
    sequence: int | None = None,
    host: str | None = None,
    boot_id: str | None = None,
) -> LogRecord:
    """A record whose only date is the kernel's uptime stamp (seconds)."""
    known = context.boot_time is not None
    time = context.boot_time + uptime if context.boot_time is not None else context.now
    return LogRecord(
        text=text,
        time=time,
        time_source=TimeSource.UPTIME if known else TimeSource.RECEIVED,
        tick=time if known else uptime,
        ticks="date" if known else "uptime",
        trusted=trusted,
        shape=shape,
        host=host_name(host),
        boot_id=boot_id,
        sequence=sequence,
        uptime=uptime,
    )
