"""What one reading collects: records, and problems counted per GPU and reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from collector.nvidia_smi.cells import DEVICE_STATES
from fleet.identity import MigInstance
from fleet.observations import GpuProcess, Problem, ProblemReason, Reading, Sample

SOURCE = "nvidia-smi"
_SHOWN = 3
_MAX_TEXT = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """How a GPU is known here: UUID, index (moves after a loss) and PCI address, each None if unknown."""

    gpu: str | None = None
    index: int | None = None
    pci: str | None = None

    @property
    def known(self) -> bool:
        return not (self.gpu is None and self.index is None and self.pci is None)

    @property
    def label(self) -> str:
        if self.pci is not None:
            return f"GPU {self.pci}"
        if self.index is not None:
            return f"GPU {self.index}"
        return self.gpu or "a GPU of unknown identity"


NOBODY = Identity()


@dataclass(slots=True)
class Complaints:
    """What could not be used about one GPU, one problem per reason in the end.

    ``count`` is the number of values skipped; a state of the device (lost, requires reset) counts once.
    """

    _notes: dict[ProblemReason, list[str]] = field(default_factory=dict)

    def add(self, reason: ProblemReason, note: str) -> None:
        notes = self._notes.setdefault(reason, [])
        if note not in notes:
            notes.append(note)

    def has(self, reason: ProblemReason) -> bool:
        return reason in self._notes

    def problems(self, found: Findings, identity: Identity) -> tuple[Problem, ...]:
        return tuple(
            Problem(
                source=found.source,
                reason=reason,
                message=f"{identity.label}: {_joined(notes)}",
                node=found.node,
                gpu=identity.gpu,
                index=identity.index,
                pci=identity.pci,
                count=1 if reason in DEVICE_STATES else len(notes),
            )
            for reason, notes in self._notes.items()
        )


def _joined(notes: list[str]) -> str:
    shown = "; ".join(notes[:_SHOWN])
    return shown if len(notes) <= _SHOWN else f"{shown}; and {len(notes) - _SHOWN} more"


def quoted(text: str) -> str:
    """Somebody else's text for a message: one line, short, quoted."""
    line = " ".join(text.split())
    return repr(line if len(line) <= _MAX_TEXT else line[: _MAX_TEXT - 3] + "...")


@dataclass(slots=True)
class Findings:
    """Records of one reading as they are found, on ``node`` at ``time`` unless said otherwise.

    ``understood``: the input, or part of it, is an answer (possibly an empty one). ``source``: the name
    that problems are reported under.
    """

    node: str | None
    time: float
    samples: list[Sample] = field(default_factory=list)
    processes: list[GpuProcess] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    understood: bool = False
    source: str = SOURCE

    def sample(
        self,
        signal: str,
        value: float,
        *,
        identity: Identity = NOBODY,
        time: float | None = None,
        mig: MigInstance | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self.samples.append(
            Sample(
                node=self.node,
                signal=signal,
                value=value,
                time=self.time if time is None else time,
                gpu=identity.gpu,
                index=identity.index,
                pci=identity.pci,
                mig=mig,
                labels=labels or {},
            )
        )

    def problem(
        self, reason: ProblemReason, message: str, *, identity: Identity = NOBODY, count: int = 1
    ) -> None:
        self.problems.append(
            Problem(
                source=self.source,
                reason=reason,
                message=message,
                node=self.node,
                gpu=identity.gpu,
                index=identity.index,
                pci=identity.pci,
                count=count,
            )
        )

    def reading(self) -> Reading:
        ok = self.understood or bool(self.samples or self.processes)
        return Reading((*self.samples, *self.processes, *self.problems), ok=ok)
