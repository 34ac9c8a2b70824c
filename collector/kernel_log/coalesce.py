"""Repeats are counted, not passed on; one event that several readers of one log wrote down is one.

Occurrences of one fault (same kind, node, boot, pci, mig, code, link) coalesce while each follows the last
within 5 s. A fault that says something worse or other than before (fatal, recovery action, torn or whole)
is not a repeat. One node has produced 800,000 lines of 29 distinct errors: memory stays bounded.

dmesg, journald and syslog are often captured together. What one of them repeats is counted; what another
one tells of the same moment is the same, and the count is the largest of theirs.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import replace

from collector.kernel_log.groups import Group, Key, Occurrence, Source
from fleet.observations import Event, EventKind

WINDOW_SECONDS = 5.0
INIT_WINDOW_SECONDS = 600.0
"""A driver that cannot start tries again at each poll of the device; every attempt prints the same."""
LOST_WINDOW_SECONDS = 300.0
"""A loss without an XID and an XID 79 of one device this close together are one loss."""
MAX_GROUPS = 4096
XID_FALLEN_OFF_BUS = 79


class Coalescer:
    """Finds the group an occurrence belongs to, or opens one. ``now``: epoch seconds of arrival."""

    def __init__(self, *, max_groups: int = MAX_GROUPS) -> None:
        self._groups: OrderedDict[Key, deque[Group]] = OrderedDict()
        self._max_groups = max_groups
        self._size = 0
        self._untold: list[Group] = []
        self._sources: set[Source] = set()

    def add(self, occurrence: Occurrence, now: float) -> tuple[Group | None, bool]:
        """(group, True) when it is new, (group, False) when counted, (None, False) when swallowed."""
        key = occurrence.key()
        self._sources.add(occurrence.source)
        if self._is_lost_again(occurrence, key):
            return None, False
        found = self._find(occurrence, key)
        if found is not None:
            self._tell_later(found, occurrence, found.add(occurrence), now)
            self._groups.move_to_end(key)
            return found, False
        lost = self._take_lost(occurrence, key)
        if lost is not None:
            self._keep(key, lost)
            self._tell_later(lost, occurrence, lost.become(occurrence), now)
            return lost, False
        group = Group(
            known=occurrence.event,
            last=occurrence.event,
            first=occurrence,
            epoch=occurrence.epoch,
            tick=occurrence.tick,
            first_tick=occurrence.tick,
            ticks=occurrence.ticks,
            uptime=occurrence.uptime,
            first_uptime=occurrence.uptime,
        )
        group.add(occurrence)
        self._keep(key, group)
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

    def reconcile(self) -> None:
        """At the end of a capture: an uptime nobody could date may be that of a record found only later."""
        for groups in self._groups.values():
            for group in [group for group in groups if group.ticks == "uptime"]:
                twin = next((one for one in groups if one is not group and one.covers(group)), None)
                if twin is not None:
                    twin.absorb(group)

    def _find(self, occurrence: Occurrence, key: Key) -> Group | None:
        window = INIT_WINDOW_SECONDS if occurrence.event.kind is EventKind.DRIVER_FAULT else WINDOW_SECONDS
        groups = self._groups.get(key, ())
        latest = next((group for group in reversed(groups) if group.same_log(occurrence)), None)
        if latest is not None and (occurrence.repeat or latest.near(occurrence, window)):
            return latest
        if len(self._sources) == 1:
            return None
        return next((group for group in reversed(groups) if group.is_told_again_by(occurrence)), None)

    def _keep(self, key: Key, group: Group) -> None:
        self._groups.setdefault(key, deque()).append(group)
        self._groups.move_to_end(key)
        self._size += 1
        while self._size > self._max_groups:
            oldest = next(iter(self._groups))
            self._groups[oldest].popleft()
            self._size -= 1
            if not self._groups[oldest]:
                del self._groups[oldest]

    def _tell_later(self, group: Group, occurrence: Occurrence, added: int, now: float) -> None:
        if added <= 0:
            return
        if group.pending == 0:
            group.pending_since = now
            self._untold.append(group)
        group.pending += added
        group.last = occurrence.event

    def _near(self, key: Key, occurrence: Occurrence, window: float) -> Group | None:
        """The latest group under that key that this occurrence, of another kind, is about."""
        for group in reversed(self._groups.get(key, ())):
            if group.same_log(occurrence) and group.near(occurrence, window):
                return group
            if len(self._sources) > 1 and group.is_told_again_by(occurrence):
                return group
        return None

    def _is_lost_again(self, occurrence: Occurrence, key: Key) -> bool:
        """A loss without an XID of a device whose XID 79 is known: not a second event."""
        if occurrence.event.kind is not EventKind.GPU_LOST or occurrence.event.pci is None:
            return False
        numbered = _as_kind(key, EventKind.XID, XID_FALLEN_OFF_BUS)
        return self._near(numbered, occurrence, LOST_WINDOW_SECONDS) is not None

    def _take_lost(self, occurrence: Occurrence, key: Key) -> Group | None:
        """The group of the loss that this XID 79 gives a number to, taken from its own key.

        A torn report of the loss gives way instead: what is certain is told at once.
        """
        event = occurrence.event
        numbered = event.kind is EventKind.XID and event.code == XID_FALLEN_OFF_BUS
        if event.uncertain or not (numbered or event.kind is EventKind.GPU_LOST):
            return None
        torn_key = _as_kind(key, EventKind.GPU_LOST, None, uncertain=True)
        torn = self._near(torn_key, occurrence, LOST_WINDOW_SECONDS)
        if torn is not None:
            torn.superseded = True
        if not numbered:
            return None
        lost_key = _as_kind(key, EventKind.GPU_LOST, None)
        lost = self._near(lost_key, occurrence, LOST_WINDOW_SECONDS)
        if lost is not None:
            self._groups[lost_key].remove(lost)
            self._size -= 1
            if not self._groups[lost_key]:
                del self._groups[lost_key]
        return lost


def _as_kind(key: Key, kind: EventKind, code: int | None, *, uncertain: bool = False) -> Key:
    """The same device's key for another kind and code; MIG, link and severity do not apply to a loss."""
    return (kind, key[1], None, code, None, None, None, uncertain, "")
