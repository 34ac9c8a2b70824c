"""What is remembered of one host's log from line to line."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from collector.kernel_log.firmware import FirmwareReports
from collector.kernel_log.groups import Occurrence, Source
from collector.kernel_log.record import LogRecord, Shape

_TURNED_BACK_SECONDS = 5.0


@dataclass(slots=True)
class Start:
    """The first line of a loss message, waiting for the lines that say what happened."""

    pci: str
    message: str
    record: LogRecord
    arrived: float
    lines: int = 0


@dataclass(slots=True)
class _Progress:
    """Where the clock of one shape stands; ``passes`` counts how often it was turned back."""

    tick: float
    passes: int = 0
    forward: bool = True


@dataclass(slots=True)
class Host:
    """One host. ``boots`` counts the starts by shape: two captures of one log show each start twice."""

    boots: Counter[str] = field(default_factory=Counter)
    starts: deque[Start] = field(default_factory=deque)
    last: tuple[Occurrence, ...] = ()
    last_sequence: int | None = None
    last_device_fault: LogRecord | None = None
    last_aer: tuple[LogRecord, bool | None] | None = None
    last_sxid: tuple[LogRecord, str | None, int | None] | None = None
    uuids: dict[tuple[str, str], str] = field(default_factory=dict)
    foreign: set[str] = field(default_factory=set)
    progress: dict[str, _Progress] = field(default_factory=dict)
    firmware: FirmwareReports = field(default_factory=FirmwareReports)

    @property
    def busy(self) -> bool:
        """True while the next line, whatever it says, matters."""
        return bool(self.starts or self.last)

    def forget_boot(self, shape: str | None = None) -> None:
        """A new boot: of that shape's log, or of all that were seen."""
        for one in [shape] if shape is not None else list(Shape):
            self.boots[one] += 1
        self.uuids.clear()

    def source_of(self, record: LogRecord) -> Source:
        """Which capture the record stands in: one whose clock jumps back is a second one of the same shape.

        A log that is printed backwards (``journalctl -r``) is one capture: it never went forward.
        """
        name = f"{record.shape}:{record.style}"
        known = self.progress.setdefault(name, _Progress(record.tick))
        if record.ticks == "received":
            return record.shape, name, known.passes
        step = record.tick - known.tick
        if step < -_TURNED_BACK_SECONDS and known.forward:
            known.passes += 1
            known.forward = True
        elif step != 0:
            known.forward = step > 0
        known.tick = record.tick
        return record.shape, name, known.passes
