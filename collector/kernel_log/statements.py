"""One body, whoever can read it: XID, SXID, or a fault without either."""

from __future__ import annotations

from dataclasses import replace

from collector.kernel_log import bodies
from collector.kernel_log.bodies import Statement
from collector.kernel_log.faults import parse_fault
from collector.kernel_log.nvlink5 import NVLINK5_CODES, decode
from collector.kernel_log.xid import looks_like_fault, parse_sxid, parse_xid
from fleet.observations import Event, EventKind


def parse_body(text: str) -> Statement | None:
    """The statement of a body: its first line decides, except for the loss message, which spans three."""
    first, _, rest = text.partition("\n")
    statement = parse_xid(first) or parse_sxid(first)
    if statement is None:
        statement = parse_fault(text if first.startswith("NVRM: ") else first)
    return None if isinstance(statement, bodies.Nothing) and looks_like_fault(rest) else statement


def complete_nvlink5(event: Event, driver: str | None) -> Event:
    """Unit and severity of an NVLink 5 error: the line's words count, its registers where there are none."""
    if event.code is None or event.code not in NVLINK5_CODES or event.kind is not EventKind.XID:
        return event
    if not event.registers or None not in (event.unit, event.fatal):
        return event
    decoded = decode(event.code, event.registers, driver)
    return replace(
        event,
        unit=decoded.unit if event.unit is None else event.unit,
        fatal=decoded.fatal if event.fatal is None else event.fatal,
    )
