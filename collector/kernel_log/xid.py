"""XID and SXID bodies.

Layouts: NVIDIA/open-gpu-kernel-modules ``kernel_rc.c`` (device, pid and name), ``gpu.c`` (recovery action),
``common_nvswitch.h`` (SXID, ``%05d``); the NVLink 5 dump of XID 144-150 as in NVIDIA's XID catalogue.
"""

from __future__ import annotations

import re
from dataclasses import replace

from collector.kernel_log.bodies import Malformed, Nothing, Sighting, Statement, blank_event, one_line
from collector.kernel_log.nvlink5 import NVLINK5_CODES
from fleet.identity import MigInstance, normalise_pci
from fleet.observations import Event, EventKind, RecoveryAction

_XID = re.compile(
    r"NVRM: Xid \((?P<device>[0-9A-Fa-f:.PCI]{5,24})"
    r"(?: GPU-I:(?P<gi>\d{1,4}))?(?: GPU-CI:(?P<ci>\d{1,4}))?\): (?P<code>[^\s,(]{1,40})(?P<tail>.*)",
    re.S | re.A,
)
_SXID = re.compile(
    r"nvidia-nvswitch\d{0,4}: SXid \((?P<device>[0-9A-Fa-f:.PCI]{5,24})\): "
    r"(?P<code>[^\s,(]{1,40})(?P<tail>.*)",
    re.S | re.A,
)
_STARTS_LIKE_XID = re.compile(r"NVRM: Xid\b")
_STARTS_LIKE_SXID = re.compile(r"nvidia-nvswitch\d{0,4}: SXid\b")
_LOOKS_LIKE = re.compile(r"NVRM:\s*Xid\b|\bSXid \(|NVRM: .{0,64}fallen off the bus", re.S)
_BEGINS = re.compile(r"NVRM: Xid \(|nvidia-nvswitch\d{0,4}: SXid \(", re.A)
MAX_CODE = 99_999
"""Codes have up to three digits (XID) or five (SXID); a longer number is no code."""

_PID = re.compile(r"pid=(?P<pid>'?<unknown>'?|'?\d{1,10}'?)(?:, |,?$)", re.A)
_NAME = re.compile(r"name=", re.A)
_CAUSE = re.compile(r"caused by previous Xid (\d{1,5})\b", re.A)
# How the driver's texts begin. A process name may hold ", " itself, so the first of these ends it.
_TEXT_START = re.compile(
    r"Ch(?:annel|id)? [0-9a-fA-F]|Channel\b|Timeout\b|MMU\b|Graphics\b|Contained\b|Uncontained\b|"
    r"Row Remapper\b|Dynamic Page\b|GPU\b|An uncorrectable\b|NVLink\b|DBE\b|SRAM\b|ECC\b|High single|"
    r"Failed\b|Unable\b|Resetting\b|Reset\b|Illegal\b|CTX\b|errorString\b|Class\b|PMU\b|GSP\b|Fault\b|"
    r"[A-Z][A-Z0-9_]* +(?:Fatal|Nonfatal|Non-fatal)\b"
)
_OTHER_TEXT_START = re.compile(r"[A-Z0-9]")
_MAX_NAME_CHARS = 256
_NVLINK = re.compile(
    r"NVLink: (?P<severity>(?i:Non-?fatal|Fatal))?.{0,80}?\blink (?P<link>-?\d{1,3}) ?"
    r"(?:\((?P<words>[^)]{0,256}))?"
)
_NVLINK5 = re.compile(
    r"(?P<unit>[A-Z][A-Z0-9_]{1,40}) +(?P<severity>(?i:Fatal|Non-?fatal))(?: +XC\d)?(?: +i\d)? +"
    r"Link +(?P<link>-?\d{1,3})"
    r"(?: +\((?P<words>[^)]{0,256}))?"
)
# A dump without the words for unit and severity: its registers have to say them.
_NVLINK5_DUMP = re.compile(
    r"(?:\b(?P<severity>(?i:Non-?fatal|Fatal))\b.{0,40}?)?(?:\b[Ll]ink +(?P<link>-?\d{1,3})\b.{0,20}?)?"
    r"\((?P<words>0[xX][0-9a-fA-F][^)]{0,256})"
)
_WORD = re.compile(r"0x[0-9a-f]{1,16}", re.A)
_NVLINK_CODE = 74
_RECOVERY_CODE = 154
# The new value counts only with its name behind it: a cut number may be the start of another.
_RECOVERY = re.compile(
    r"recovery action changed from 0x[0-9a-fA-F]+ .{0,64}?\bto 0x(?P<value>[0-9a-fA-F]{1,8}) \(", re.A
)
_RECOVERY_ACTIONS = {
    0: RecoveryAction.NONE,
    1: RecoveryAction.GPU_RESET,
    2: RecoveryAction.NODE_REBOOT,
    3: RecoveryAction.DRAIN_P2P,
    4: RecoveryAction.DRAIN_AND_RESET,
    5: RecoveryAction.RECOVER_IMEX_DOMAIN,
}
_SXID_TAIL = re.compile(r", (?P<severity>(?i:Non-?fatal|Fatal))\b(?:, Link (?P<link>-?\d{1,3})\b)?", re.A)
_SXID_MORE = re.compile(r", (?:Severity \d|Data \{)")


def looks_like_fault(text: str, *, partial: bool = False) -> bool:
    """True for text that a person would read as a GPU fault, wherever it stands in the line.

    ``partial``: only for the beginning of an XID or SXID, which no other fault text quotes.
    """
    return (_BEGINS if partial else _LOOKS_LIKE).search(text) is not None


def parse_xid(text: str) -> Statement | None:
    """One XID body; None when the text does not start like one."""
    if _STARTS_LIKE_XID.match(text) is None:
        return None
    match = _XID.match(text)
    pci = normalise_pci(match["device"]) if match is not None else None
    if match is None or pci is None:
        return Malformed("an XID line without a device or a code")
    code = _code(match["code"])
    if code is None:
        return Malformed(f"an XID line whose code is no code: {match['code'][:40]!r}")
    if code == 0:
        return Nothing()
    event = replace(blank_event(EventKind.XID, text), code=code, pci=pci)
    if match["gi"] is not None:
        ci = int(match["ci"]) if match["ci"] is not None else None
        event = replace(event, mig=MigInstance(gi=int(match["gi"]), ci=ci))
    tail = match["tail"]
    torn = not tail.startswith(",")
    return Sighting(_with_details(event, "" if torn else tail[1:].lstrip(), torn=torn))


def _code(text: str) -> int | None:
    """Decimal, however many zeros lead it."""
    if not (text.isascii() and text.isdigit()):
        return None
    code = int(text)
    return code if code <= MAX_CODE else None


def _with_details(event: Event, tail: str, *, torn: bool) -> Event:
    pid, process, said = _split_process(tail)
    cause = _CAUSE.search(said)
    event = replace(
        event, pid=pid, process=process, cause=int(cause[1]) if cause is not None else None, uncertain=torn
    )
    if event.code == _RECOVERY_CODE:
        return replace(event, recovery_action=_recovery_action(said))
    if event.code == _NVLINK_CODE:
        return _with_link(event, _NVLINK.search(said))
    if event.code in NVLINK5_CODES:
        return _with_link(event, _NVLINK5.search(said) or _NVLINK5_DUMP.search(said))
    return event


def _recovery_action(said: str) -> RecoveryAction:
    match = _RECOVERY.search(said)
    if match is None:
        return RecoveryAction.UNKNOWN
    return _RECOVERY_ACTIONS.get(int(match["value"], 16), RecoveryAction.UNKNOWN)


def _with_link(event: Event, match: re.Match[str] | None) -> Event:
    if match is None:
        return event
    link = -1 if match["link"] is None else int(match["link"])
    severity = match["severity"]
    groups = match.groupdict()
    return replace(
        event,
        link=link if link >= 0 else None,
        unit=groups.get("unit"),
        fatal=None if severity is None else severity.lower() == "fatal",
        registers=tuple(_WORD.findall((match["words"] or "").lower())),
    )


def _split_process(tail: str) -> tuple[int | None, str | None, str]:
    """``pid=.., name=.., text`` -> (pid, name, text); each of the first two may be missing or unknown."""
    pid: int | None = None
    match = _PID.match(tail)
    if match is not None:
        digits = match["pid"].strip("'")
        pid = int(digits) if digits.isdigit() else None
        tail = tail[match.end() :]
    if _NAME.match(tail) is None:
        return pid, None, tail
    rest = tail[len("name=") :]
    end = _end_of_name(rest)
    name = one_line(rest[:end].rstrip(","))[:_MAX_NAME_CHARS]
    known = name.strip("'") not in ("", "<unknown>")
    return pid, name if known else None, rest[end:].lstrip(", ")


def _end_of_name(rest: str) -> int:
    """Where the process name ends: names hold commas and blanks, so the driver's words decide."""
    separators = [match.start() for match in re.finditer(", ", rest[: _MAX_NAME_CHARS + 2])]
    for start in (_TEXT_START, _OTHER_TEXT_START):
        for position in separators:
            if start.match(rest, position + 2) is not None:
                return position
    return separators[0] if separators else len(rest)


def parse_sxid(text: str) -> Statement | None:
    """One NVSwitch body; None when the text does not start like one.

    The firmware's own errors (26006, 26008) print no severity: ``fatal`` stays unknown for them.
    """
    if _STARTS_LIKE_SXID.match(text) is None:
        return None
    match = _SXID.match(text)
    pci = normalise_pci(match["device"]) if match is not None else None
    if match is None or pci is None:
        return Malformed("an SXID line without a device or a code")
    code = _code(match["code"])
    if code is None:
        return Malformed(f"an SXID line whose code is no code: {match['code'][:40]!r}")
    if code == 0:
        return Nothing()
    tail = match["tail"]
    event = replace(blank_event(EventKind.SXID, text), code=code, pci=pci, uncertain=not tail.startswith(","))
    details = _SXID_TAIL.match(tail)
    if details is None:
        return Sighting(event, echo=_SXID_MORE.match(tail) is not None)
    link = int(details["link"]) if details["link"] is not None else -1
    return Sighting(
        replace(event, fatal=details["severity"].lower() == "fatal", link=link if link >= 0 else None)
    )
