"""One fault, its repeats, and who told of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fleet.identity import MigInstance, pci_join_key
from fleet.observations import Event, EventKind, RecoveryAction, TimeSource

SAME_SECONDS = 2.0
"""How far two loggers' dates of one event may lie apart: classic syslog cuts the fraction off."""
SAME_UPTIME_SECONDS = 0.001

Key = tuple[
    EventKind,
    str | None,
    MigInstance | None,
    int | None,
    int | None,
    bool | None,
    RecoveryAction | None,
    bool,
    str,
]
Source = tuple[str, str, int]
"""Shape and style of a record, and how often the clock of such records was turned back: a second capture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """One event as its line says it. ``tick``/``ticks``, ``uptime``: see LogRecord. ``epoch``: the boot, as
    far as known; ``#n`` where only counted. ``boots``: how many starts its source had shown by then.

    ``repeat``: a logger's "repeated N times" about an earlier line, however long ago that was. ``echo``:
    another line about something that has its own line.
    """

    event: Event
    tick: float
    ticks: str
    epoch: str
    source: Source
    boots: int = 0
    uptime: float | None = None
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
class _Voice:
    """What one source says of a fault: how often, and whether more than echoes of it."""

    count: int
    counted: bool


@dataclass(slots=True)
class Group:
    """One fault and its repeats so far.

    ``known`` is its event without the count; ``event`` has it. ``pending`` counts the repeats nobody has been
    told of yet. ``superseded``: another group tells the same, and better (a torn report that was repeated
    whole).
    """

    known: Event
    last: Event
    first: Occurrence
    epoch: str
    tick: float
    first_tick: float
    ticks: str
    uptime: float | None
    first_uptime: float | None
    voices: dict[Source, _Voice] = field(default_factory=dict)
    pending: int = 0
    pending_since: float = 0.0
    superseded: bool = False

    @property
    def event(self) -> Event:
        return replace(self.known, count=self.total)

    @property
    def total(self) -> int:
        if len(self.voices) == 1:
            return next(iter(self.voices.values())).count
        return max((voice.count for voice in self.voices.values()), default=0)

    def near(self, occurrence: Occurrence, window: float) -> bool:
        return self.ticks == occurrence.ticks and abs(occurrence.tick - self.tick) <= window

    def same_log(self, occurrence: Occurrence) -> bool:
        return self.known.node == occurrence.event.node and self.epoch == occurrence.epoch

    def is_told_again_by(self, occurrence: Occurrence) -> bool:
        """True where it is of this very moment. One of the two may not know the node or the boot."""
        event, other = self.known, occurrence.event
        if occurrence.ticks == "received" or (
            None not in (event.node, other.node) and event.node != other.node
        ):
            return False
        if self.epoch != occurrence.epoch and not self._may_be_one_boot(occurrence):
            return False
        if self.ticks == occurrence.ticks == "date":
            return self.first_tick - SAME_SECONDS <= occurrence.tick <= self.tick + SAME_SECONDS
        if self.uptime is None or self.first_uptime is None or occurrence.uptime is None:
            return False
        if event.kind is EventKind.BOOT:
            return False  # every boot begins at 0
        earliest, latest = self.first_uptime - SAME_UPTIME_SECONDS, self.uptime + SAME_UPTIME_SECONDS
        return earliest <= occurrence.uptime <= latest

    def _may_be_one_boot(self, occurrence: Occurrence) -> bool:
        """Boots that are only counted may be one, except where one source's own uptime tells them apart."""
        if not (self.epoch.startswith("#") or occurrence.epoch.startswith("#")):
            return False
        known_shape = any(shape == occurrence.source[0] for shape, _, _ in self.voices)
        return not known_shape or occurrence.event.time_source is TimeSource.LINE

    def covers(self, other: Group) -> bool:
        """True where the other, undated one is of the same moments by the kernel's own clock."""
        return self.ticks == "date" and not self.superseded and self.is_told_again_by(other.first)

    def absorb(self, other: Group) -> None:
        for source, voice in other.voices.items():
            self.voices.setdefault(source, voice)
        self.known = _better(self.known, other.known)
        other.superseded = True

    def add(self, occurrence: Occurrence) -> int:
        """Count it in; the answer is how many more there are now than before."""
        before = self.total
        source, count = self._speaker(occurrence), occurrence.event.count
        voice = self.voices.get(source)
        if voice is None:
            self.voices[source] = _Voice(count, counted=not occurrence.echo)
        elif not occurrence.echo:
            voice.count += count if voice.counted else count - 1
            voice.counted = True
        self._stretch(occurrence)
        self.known = _better(self.known, occurrence.event)
        return self.total - before

    def _speaker(self, occurrence: Occurrence) -> Source:
        """Whose count it adds to. A "repeated" notice speaks for the lines before it, in another style."""
        if occurrence.repeat and occurrence.source not in self.voices:
            shape = occurrence.source[0]
            return next((one for one in self.voices if one[0] == shape), occurrence.source)
        return occurrence.source

    def become(self, occurrence: Occurrence) -> int:
        """The loss gets its number: one event, known by its XID from here on."""
        self.known, self.first = occurrence.event, occurrence
        self.voices = {occurrence.source: _Voice(occurrence.event.count, counted=True)}
        self._stretch(occurrence)
        return occurrence.event.count

    def _stretch(self, occurrence: Occurrence) -> None:
        if occurrence.ticks == self.ticks:
            self.tick = max(self.tick, occurrence.tick) if len(self.voices) > 1 else occurrence.tick
            self.first_tick = min(self.first_tick, occurrence.tick)
        if occurrence.uptime is not None:
            self.uptime = occurrence.uptime if self.uptime is None else max(self.uptime, occurrence.uptime)
            first = self.first_uptime
            self.first_uptime = occurrence.uptime if first is None else min(first, occurrence.uptime)


def _better(known: Event, other: Event) -> Event:
    """The event, with what only the other source knows."""
    if known.node is None and other.node is not None:
        known = replace(known, node=other.node)
    if known.boot_id is None and other.boot_id is not None:
        known = replace(known, boot_id=other.boot_id)
    if known.gpu is None and other.gpu is not None:
        known = replace(known, gpu=other.gpu)
    if known.time_source is TimeSource.RECEIVED and other.time_source is not TimeSource.RECEIVED:
        known = replace(known, time=other.time, time_source=other.time_source)
    return known
