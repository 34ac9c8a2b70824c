"""Which line of the policy table an event's own words select.

Some codes mean little by their number: 154 is its value (the driver's recovery action), 144-150 are the
word Fatal or Nonfatal, 74 is that word and the bits of its first register.

Sources: NVIDIA XID catalogue 610 (NVLink workflow for 74, NVLink 5 table for 144-150) and
open-gpu-kernel-modules ``gpu.c`` (recovery actions).
"""

from __future__ import annotations

from fleet.observations import Event, EventKind, RecoveryAction

NVLINK_CODES = frozenset({74, *range(144, 151), 155})
RECOVERY_ACTION_CODE = 154
VARIANTS = frozenset(
    {
        "fatal",
        "nonfatal",
        "fatal_peer_first",
        "fatal_by_intent",
        "harmless",
        "sympathetic",
        *(action.value for action in RecoveryAction if action is not RecoveryAction.UNKNOWN),
    }
)

_NVLINK5 = range(144, 151)
_NETIR = 149
_LINK_DOWN_UNITS = frozenset({"NETIR_LINK_EVT", "NETIR_LINK_DOWN"})
# Down reason, bits 25:20 of the first register: the peer went down first; software, operator or host.
_PEER_FIRST = frozenset({0b010101, *range(0b100000, 0b100110)})
_BY_INTENT = frozenset({0b100110, 0b101000})
# Bits of the first register of XID 74.
_HARMLESS_BITS = 1 << 0 | 1 << 23 | 1 << 30
_SYMPATHETIC_BITS = 1 << 1 | 1 << 20
_MAX_REGISTER_CHARS = 18


def variant(event: Event) -> str:
    """The ``when`` of the policy table for this event; "" where only its number counts."""
    if event.kind is not EventKind.XID or event.code is None:
        return ""
    if event.code == RECOVERY_ACTION_CODE:
        action = event.recovery_action
        return "" if action is None or action is RecoveryAction.UNKNOWN else action.value
    if event.code in _NVLINK5:
        return _nvlink5(event)
    if event.code == 74:  # noqa: PLR2004 - the code is its own name
        return _nvlink(event)
    return ""


def _nvlink5(event: Event) -> str:
    if event.fatal is None:
        return ""
    if not event.fatal:
        return "nonfatal"
    word = _first_register(event)
    if event.code == _NETIR and word is not None and event.unit in _LINK_DOWN_UNITS:
        reason = word >> 20 & 0x3F
        if reason in _PEER_FIRST:
            return "fatal_peer_first"
        if reason in _BY_INTENT:
            return "fatal_by_intent"
    return "fatal"


def _nvlink(event: Event) -> str:
    if event.fatal is False:
        return "nonfatal"
    word = _first_register(event)
    if not word or word & ~(_HARMLESS_BITS | _SYMPATHETIC_BITS):
        return ""
    return "sympathetic" if word & _SYMPATHETIC_BITS else "harmless"


def _first_register(event: Event) -> int | None:
    text = event.registers[0] if event.registers else ""
    if len(text) > _MAX_REGISTER_CHARS:
        return None
    try:
        return int(text, 16)
    except ValueError:
        return None
