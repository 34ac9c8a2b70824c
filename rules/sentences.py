"""Plain sentences, one per decision: what happened, where, and what follows. Read at 3 am."""

from __future__ import annotations

from collections.abc import Iterable

from fleet.findings import Repair, Response
from fleet.observations import Event, EventKind

MAX_SENTENCE_CHARS = 220
MAX_TEXT_CHARS = 300
_MAX_NAME_CHARS = 64
_MAX_CODE = 2**64

_KIND_NAMES = {
    EventKind.GPU_LOST: "GPU lost",
    EventKind.PCIE_AER: "PCIe error",
    EventKind.MACHINE_CHECK: "Machine check",
    EventKind.DRIVER_FAULT: "Driver fault",
    EventKind.BOOT: "Boot",
    EventKind.NIC: "Network event",
    EventKind.OTHER: "Event",
}
_CONSEQUENCES = {
    (Response.DRAIN, Repair.REBOOT): "the node must be drained and rebooted",
    (Response.DRAIN, Repair.RESET_GPU): "the node must be drained and the GPU reset",
    (Response.DRAIN, Repair.POWER_CYCLE): "the node must be drained and power-cycled",
    (Response.DRAIN, Repair.HAND_OVER): "the node must be drained and handed over for repair",
    (Response.DRAIN, Repair.NONE): "the node must be drained",
    (Response.CORDON_AFTER_JOB, Repair.REBOOT): "no new jobs; once the running ones have ended, a reboot",
    (
        Response.CORDON_AFTER_JOB,
        Repair.RESET_GPU,
    ): "no new jobs; once the running ones have ended, a GPU reset",
    (Response.CORDON_AFTER_JOB, Repair.HAND_OVER): (
        "no new jobs; once the running ones have ended, the node is handed over for repair"
    ),
    (
        Response.RESET_WHEN_IDLE,
        Repair.RESET_GPU,
    ): "the GPU is reset at the next idle moment, no job is disturbed",
}
_GENERAL = {
    Response.DRAIN: "the node must be drained",
    Response.CORDON_AFTER_JOB: "no new jobs on this node; the running ones may end",
    Response.RESET_WHEN_IDLE: "repaired at the next idle moment, no job is disturbed",
    Response.NOTIFY: "a person should look, nothing is done by itself",
    Response.OBSERVE: "noted, nothing is done",
}


def clean(text: str, limit: int = MAX_TEXT_CHARS) -> str:
    """One line of printable text of at most ``limit`` characters; safe to encode as UTF-8."""
    printable = "".join(char if char.isprintable() else " " for char in text[: 4 * limit])
    line = " ".join(printable.encode("utf-8", "replace").decode("utf-8").split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def code_text(code: int | None) -> str:
    """The code as people write it; absurdly large numbers are not printed."""
    if code is None:
        return "without a code"
    return str(code) if -_MAX_CODE < code < _MAX_CODE else "of absurd size"


def label(event: Event, node: str) -> str:
    """``XID 79 on 0000:3b:00.0``; the node's name where no device is known."""
    if event.kind in (EventKind.XID, EventKind.SXID):
        what = f"{event.kind.value.upper()} {code_text(event.code)}"
    else:
        what = _KIND_NAMES[event.kind]
    place = event.pci or event.gpu
    return f"{what} on {clean(place or node, _MAX_NAME_CHARS)}"


def first_clause(summary: str) -> str:
    """The start of a catalogue text up to its first ``;`` or ``:``, without a full stop."""
    for mark in (";", ":"):
        summary = summary.split(mark, 1)[0]
    return summary.strip().rstrip(".")


def consequence(response: Response, repair: Repair) -> str:
    """What follows from a response and a repair, as a clause."""
    return _CONSEQUENCES.get((response, repair), _GENERAL[response])


def names(items: Iterable[str], limit: int = 3) -> str:
    """``job 4711``, ``jobs 1, 2, 3 and 4 more``."""
    listed = [clean(item, _MAX_NAME_CHARS) for item in items]
    shown = ", ".join(listed[:limit])
    more = f" and {len(listed) - limit} more" if len(listed) > limit else ""
    return f"{'job' if len(listed) == 1 else 'jobs'} {shown}{more}"


def sentence(*clauses: str) -> str:
    """``head: clause; clause``, bounded to one short line."""
    head, *rest = clauses
    text = f"{head}: {'; '.join(rest)}" if rest else head
    return text if len(text) <= MAX_SENTENCE_CHARS else text[: MAX_SENTENCE_CHARS - 3] + "..."
