"""May we touch this node? Pure decisions over a node that was just read from Slurm.

The reason is one slot that any update overwrites, even one that is then rejected (slurmctld writes it
before it tests the transition), and there is no compare-and-set. So a reason is sent only to a node that
nobody else has a claim on.
"""

from __future__ import annotations

from dataclasses import replace

from fleet.errors import BackendError, ConflictError, UnavailableError
from fleet.marks import Mark
from fleet.scheduler import NodeRecord, Owner

# slurmctld's own text for a silent slurmd; its own drain overwrites it too (src/slurmctld/node_mgr.c).
_REPLACEABLE_REASON = "Not responding"
_REBOOT_ISSUED = " : reboot issued"
_BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
_NOT_RETURNABLE = ("NOT_RESPONDING", "INVALID_REG", "MAINTENANCE", "FAIL")
COMMENT_PREFIX = "sickbay:"
# slurmctld notes whole seconds, and its clock is not ours.
_CLOCK_TOLERANCE_SECONDS = 1.0


def with_owner(node: NodeRecord, our_user: str | None) -> NodeRecord:
    """The record as we see it: our text under somebody else's name is foreign."""
    if node.owner is Owner.SICKBAY and not _user_is_ours(node, our_user):
        return replace(node, owner=Owner.FOREIGN)
    return node


def _user_is_ours(node: NodeRecord, our_user: str | None) -> bool:
    user = node.reason.user if node.reason else None
    return our_user is None or user is None or user == our_user


def is_ours(node: NodeRecord, mark: Mark, our_user: str | None) -> bool:
    """Drained under this very mark, by us (where user names are known)."""
    text = node.reason.text if node.reason else None
    return node.has("DRAIN") and mark.owns(text) and _user_is_ours(node, our_user)


def is_busy(node: NodeRecord) -> bool:
    return bool(_BUSY & {node.base.upper(), *node.flags})


def is_rebooting(node: NodeRecord) -> bool:
    return node.has("REBOOT_REQUESTED") or node.has("REBOOT_ISSUED")


def claim(node: NodeRecord) -> str:
    """Who holds the node, for a sentence: ``root ('bad dimm')``."""
    if node.reason is None:
        return "somebody who gave no reason"
    return f"{node.reason.user or 'somebody'} ({node.reason.text[:80]!r})"


def why_not_cordon(node: NodeRecord) -> BackendError | None:
    """What forbids a first drain of ``node``, which is not drained under our mark."""
    name = node.name
    if node.is_cordoned:
        return ConflictError(f"{name} is already drained by {claim(node)}; it stays theirs")
    if node.base == "unknown":
        return UnavailableError(f"Slurm does not know the state of {name} yet; nothing written")
    if is_rebooting(node):
        return ConflictError(f"{name} is in a reboot that somebody else ordered; hands off until it is over")
    power = next((flag for flag in node.flags if flag.startswith("POWER")), None)
    if power is not None:
        return ConflictError(f"{name} is power managed now ({power}); a drain would kill its jobs")
    if node.base == "future":
        return ConflictError(f"{name} is not in operation (FUTURE); there is nothing to drain")
    if node.has("MAINTENANCE") or node.has("RESERVED"):
        where = f"reservation {node.reservation}" if node.reservation else "a reservation of somebody else"
        return ConflictError(f"{name} is in {where}; hands off until it ends")
    down_because = node.reason.text if node.base in ("down", "error") and node.reason else None
    if down_because is not None and not down_because.startswith(_REPLACEABLE_REASON):
        return ConflictError(f"{name} was set down by {claim(node)}; their reason is not overwritten")
    return None


def why_not_uncordon(node: NodeRecord, mark: Mark, our_user: str | None) -> BackendError | None:
    """What forbids the return of a drained ``node`` to service."""
    if not is_ours(node, mark, our_user):
        return ConflictError(f"{node.name} is drained by {claim(node)}, not under {mark.incident}")
    if is_rebooting(node):
        return ConflictError(f"{node.name} is rebooting; it is returned when it is back")
    if node.base in ("down", "error", "unknown", "future"):
        return ConflictError(f"{node.name} is {node.base.upper()}; it cannot return to service")
    flag = next((flag for flag in _NOT_RETURNABLE if node.has(flag)), None)
    if flag is not None:
        return ConflictError(f"{node.name} is {flag}; it cannot return to service")
    return None


def why_not_reboot(node: NodeRecord, mark: Mark, our_user: str | None) -> BackendError | None:
    """What forbids a reboot of ``node``, which is not rebooting."""
    if not node.is_cordoned:
        return ConflictError(f"{node.name} is not drained under {mark.incident}: no reboot")
    if not is_ours(node, mark, our_user):
        return ConflictError(f"{node.name} is drained by {claim(node)}, not under {mark.incident}: no reboot")
    if is_busy(node):
        return ConflictError(f"{node.name} still has work on it ({node.state.value}): no reboot")
    power = next((flag for flag in node.flags if flag.startswith("POWER")), None)
    if power is not None or node.base == "future":
        return ConflictError(f"{node.name} is {power or 'FUTURE'}: Slurm would ignore the reboot")
    if node.has("MAINTENANCE"):
        return ConflictError(f"{node.name} is in somebody's maintenance window: no reboot")
    return None


def reboot_was_issued(node: NodeRecord, *, since: float) -> bool:
    """Slurm has issued a reboot of this node at or after ``since``: its suffix, its time."""
    if node.reason is None or not has_reboot_suffix(node):
        return False
    return node.reason.time is None or node.reason.time >= since - _CLOCK_TOLERANCE_SECONDS


def has_reboot_suffix(node: NodeRecord) -> bool:
    return node.reason is not None and _REBOOT_ISSUED in node.reason.text
