"""Repeats are counted, not passed on.

Occurrences of one fault (same kind, node, boot, pci, mig, code, link) coalesce while each follows the last
within 5 s. A fault that says something worse or other than before (fatal, recovery action, torn or whole)
is not a repeat. One node has produced 800,000 lines of 29 distinct errors: memory stays bounded.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from fleet.identity import MigInstance, pci_join_key
from fleet.observations import Event, EventKind, RecoveryAction

WINDOW_SECONDS = 5.0
INIT_WINDOW_SECONDS = 600.0
"""A driver that cannot start tries again at each poll of the device; every attempt prints the same."""
LOST_WINDOW_SECONDS = 300.0
"""A loss without an XID and an XID 79 of one device this close together are one loss."""
MAX_GROUPS = 4096
XID_FALLEN_OFF_BUS = 79

Key = tuple[
    EventKind,
    str | None,
    str,
    str | None,
    MigInstance | None,
    int | None,
    int | None,
    bool | None,
    RecoveryAction | None,
    bool,
    str,
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """One event as its line says it. ``tick``/``ticks``: see LogRecord. ``epoch``: the boot, as far as known.

    ``repeat``: a logger's "repeated N times" about an earlier line, however long ago that was.
    """

    event: Event
    tick: float
    ticks: str
    epoch: str
    echo: bool = False
    repeat: bool = False

    def key(self) -> Key:
        event = self.event
        pci = pci_join_key(event.pci) if event.pci is not None else None
        # What names no device is told apart by its words: two hung tasks are two.
        words = event.message[:64] if event.kind is EventKind.OTHER else ""
        if event.kind is EventKind.DRIVER_FAULT and pci is None:
            words = event.message[:64]
        return (
            event.kind,
            event.node,
            self.epoch,
            pci,
            event.mig,
            event.code,
            event.link,
            event.fatal,
            event.recovery_action,
            event.uncertain,
            words,
        )


@dataclass(slots=True)
class Group:
    """One fault and its repeats so far.

    ``pending`` counts the repeats nobody has been told of yet. ``superseded``: it was uncertain, and the
    same fault has been reported properly since.
    """

    event: Event
    last: Event
    tick: float
    ticks: str
    counted: bool
    pending: int = 0
    pending_since: float = 0.0
    superseded: bool = False

    def near(self, occurrence: Occurrence, window: float) -> bool:
        return self.ticks == occurrence.ticks and abs(occurrence.tick - self.tick) <= window


class Coalescer:
    """Finds the group an occurrence belongs to, or opens one. ``now``: epoch seconds of arrival."""

    def __init__(self) -> None:
        self._groups: OrderedDict[Key, Group] = OrderedDict()
        self._untold: list[Group] = []

    def add(self, occurrence: Occurrence, now: float) -> tuple[Group | None, bool]:
        """(group, True) when it is new, (group, False) when counted, (None, False) when swallowed."""
        key = occurrence.key()
        if self._is_lost_again(occurrence, key):
            return None, False
        found = self._groups.get(key)
        joined = False
        if found is None and (taken := self._take_lost(occurrence, key)) is not None:
            found, joined = taken, True
        window = INIT_WINDOW_SECONDS if occurrence.event.kind is EventKind.DRIVER_FAULT else WINDOW_SECONDS
        if found is not None and (joined or occurrence.repeat or found.near(occurrence, window)):
            self._count(found, occurrence, now, joined=joined)
            self._groups.move_to_end(key)
            return found, False
        group = Group(
            event=occurrence.event,
            last=occurrence.event,
            tick=occurrence.tick,
            ticks=occurrence.ticks,
            counted=not occurrence.echo,
        )
        self._groups[key] = group
        self._groups.move_to_end(key)
        if len(self._groups) > MAX_GROUPS:
            self._groups.popitem(last=False)
        return group, True

    def take_pending(self, now: float, *, everything: bool = False) -> list[Event]:
        """Untold repeats, one Event per fault, once their window is over or they have waited for one."""
        told, waiting = [], []
        for group in self._untold:
            if everything or now - group.pending_since >= WINDOW_SECONDS or now < group.pending_since:
                told.append(replace(group.last, count=group.pending))
                group.pending = 0
            else:
                waiting.append(group)
        self._untold = waiting
        return told

    def _count(self, group: Group, occurrence: Occurrence, now: float, *, joined: bool) -> None:
        group.tick, group.ticks = occurrence.tick, occurrence.ticks
        if joined:
            # The loss gets its number: one event, known by its XID from here on.
            group.event, added = occurrence.event, occurrence.event.count
            group.counted = True
        elif occurrence.echo:
            return
        else:
            added = occurrence.event.count if group.counted else occurrence.event.count - 1
            group.event = replace(group.event, count=group.event.count + added)
            group.counted = True
        if added > 0:
            if group.pending == 0:
                group.pending_since = now
                self._untold.append(group)
            group.pending += added
            group.last = occurrence.event

    def _is_lost_again(self, occurrence: Occurrence, key: Key) -> bool:
        """A loss without an XID of a device whose XID 79 is known: not a second event."""
        if occurrence.event.kind is not EventKind.GPU_LOST or occurrence.event.pci is None:
            return False
        twin = self._groups.get(_as_kind(key, EventKind.XID, XID_FALLEN_OFF_BUS))
        return twin is not None and twin.near(occurrence, LOST_WINDOW_SECONDS)

    def _take_lost(self, occurrence: Occurrence, key: Key) -> Group | None:
        """The group of the loss that this XID 79 gives a number to, moved to the XID's key.

        A torn report of the loss gives way instead: what is certain is told at once.
        """
        event = occurrence.event
        numbered = event.kind is EventKind.XID and event.code == XID_FALLEN_OFF_BUS
        if event.uncertain or not (numbered or event.kind is EventKind.GPU_LOST):
            return None
        torn = self._groups.get(_as_kind(key, EventKind.GPU_LOST, None, uncertain=True))
        if torn is not None and torn.near(occurrence, LOST_WINDOW_SECONDS):
            torn.superseded = True
        if not numbered:
            return None
        lost_key = _as_kind(key, EventKind.GPU_LOST, None)
        lost = self._groups.get(lost_key)
        if lost is None or not lost.near(occurrence, LOST_WINDOW_SECONDS):
            return None
        del self._groups[lost_key]
        self._groups[key] = lost
        return lost


def _as_kind(key: Key, kind: EventKind, code: int | None, *, uncertain: bool = False) -> Key:
    """The same device's key for another kind and code; MIG, link and severity do not apply to a loss."""
    return (kind, key[1], key[2], key[3], None, code, None, None, None, uncertain, "")
