"""What a reader of the kernel log must be told, because the lines do not say it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo

SOURCE = "kernel-log"


@dataclass(frozen=True, slots=True)
class LogContext:
    """The surroundings of a line at the moment it is read.

    - ``node``: the node the log belongs to; wins over the host in the line. None: believe the line.
    - ``now``: epoch seconds; fills in the year of RFC 3164 stamps and the time of lines without one.
    - ``boot_time``: epoch seconds of uptime 0; without it uptime stamps say nothing about the date.
    - ``tz``: the zone of stamps that carry none; None: the process's local zone (``TZ``).
    - ``boot_id``: the boot that lines belong to which do not name one themselves.
    - ``accept_any_facility``: also believe kernel-transport records of other facilities. Only for
      injecting test events by writing to /dev/kmsg, whose facility the kernel forces away from 0.
    - ``driver``: the NVIDIA driver's version; decides how the registers of an NVLink 5 error are laid out.
    """

    node: str | None
    now: float
    boot_time: float | None = None
    tz: tzinfo | None = None
    boot_id: str | None = None
    accept_any_facility: bool = False
    driver: str | None = None


ContextSource = LogContext | Callable[[], LogContext]
"""A fixed context (a captured file), or a function asked once per line (an agent: time goes on, and the
boot ID may be read anew)."""


def resolve(source: ContextSource) -> LogContext:
    """The context as it is now."""
    return source if isinstance(source, LogContext) else source()
