"""Records as JSON: ``journalctl -o json`` (systemd's Journal JSON Format), ``dmesg --json`` (util-linux)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from collector.kernel_log import text as texts
from collector.kernel_log.context import LogContext
from collector.kernel_log.dmesg import split_uptime
from collector.kernel_log.record import (
    Opened,
    Shape,
    Unreadable,
    canonical_boot_id,
    dated,
    host_name,
    since_boot,
)
from collector.kernel_log.xid import looks_like_fault

_MAX_UPTIME_SECONDS = 1e11
_MAX_MICROSECOND_DIGITS = 18


def open_json(line: str, context: LogContext) -> list[Opened]:
    """The records of one line that starts with a brace or a bracket: one, or a whole array."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return [Unreadable("a line starts like JSON and is not: cut off, or no journald record")]
    if isinstance(document, dict) and isinstance(document.get("dmesg"), list):
        document = document["dmesg"]
    records = document if isinstance(document, list) else [document]
    return [_open(record, context) for record in records]


def _open(fields: object, context: LogContext) -> Opened:
    if isinstance(fields, dict) and ("MESSAGE" in fields or "_TRANSPORT" in fields):
        return _open_journald(fields, context)
    if isinstance(fields, dict) and isinstance(fields.get("msg"), str) and "pri" in fields:
        return _open_dmesg(fields, context)
    # Somebody else's wrapping (a container runtime's, a log shipper's): nobody vouches for what is inside.
    inside = next((t for t in _texts(fields) if looks_like_fault(t)), None)
    if inside is not None:
        return dated(texts.clean(inside), None, context, trusted=False, shape=Shape.JOURNAL)
    return Unreadable("a JSON line without MESSAGE is no journald record")


def _texts(fields: object) -> list[str]:
    return [v for v in fields.values() if isinstance(v, str)] if isinstance(fields, dict) else []


def _open_dmesg(fields: Mapping[str, Any], context: LogContext) -> Opened:
    """``pri`` is a number that holds the facility, or with ``-x`` a word beside ``fac``."""
    pri, facility = fields["pri"], fields.get("fac")
    if isinstance(pri, int) and not isinstance(pri, bool):
        by_kernel = pri >> 3 == 0 and facility in (None, "kern")
    else:
        by_kernel = facility == "kern"
    trusted = by_kernel or context.accept_any_facility
    body = texts.clean(fields["msg"])
    uptime = fields.get("time")
    if isinstance(uptime, bool) or not isinstance(uptime, int | float) or not _is_uptime(uptime):
        return dated(body, None, context, trusted=trusted, shape=Shape.DMESG_JSON)
    return since_boot(body, float(uptime), context, trusted=trusted, shape=Shape.DMESG_JSON)


def _is_uptime(seconds: float) -> bool:
    return math.isfinite(seconds) and 0 <= seconds < _MAX_UPTIME_SECONDS


def _open_journald(fields: Mapping[str, Any], context: LogContext) -> Opened:
    host = host_name(_text_field(fields, "_HOSTNAME"))
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
    uptime = _microseconds(fields, "_SOURCE_MONOTONIC_TIMESTAMP")
    stamp, body = split_uptime(message)
    stamp = uptime if uptime is not None else stamp
    since = stamp if stamp is not None else _microseconds(fields, "__MONOTONIC_TIMESTAMP")
    if moment is None and since is not None:
        return since_boot(
            body, since, context, trusted=trusted, shape=Shape.JOURNAL, host=host, boot_id=boot_id
        )
    return dated(
        body,
        moment,
        context,
        trusted=trusted,
        shape=Shape.JOURNAL,
        host=host,
        boot_id=boot_id,
        uptime=stamp,
    )


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
    """The first of the fields that holds microseconds (journald writes text, jq numbers), in seconds."""
    for name in names:
        value = fields.get(name)
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if (
            isinstance(text, str)
            and text.isascii()
            and text.isdigit()
            and len(text) <= _MAX_MICROSECOND_DIGITS
        ):
            return int(text) / 1e6
    return None
