"""What the body of a kernel record can say, before anybody asks where and when.

Every parser gets one body (no envelope, no control characters except newlines) and answers with one of
the statements below, or None: not mine. Texts follow NVIDIA/open-gpu-kernel-modules and the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleet.observations import Event, EventKind

MAX_MESSAGE_CHARS = 1024


@dataclass(frozen=True, slots=True)
class Sighting:
    """An event without node and time yet.

    ``echo``: another line about something that has its own line; counts only when that one is missing.
    """

    event: Event
    echo: bool = False


@dataclass(frozen=True, slots=True)
class Malformed:
    """It wants to be an XID or SXID and cannot be read: counted, never guessed."""

    message: str


@dataclass(frozen=True, slots=True)
class Nothing:
    """Understood, and it reports no fault (XID 0; a header whose result line follows)."""


@dataclass(frozen=True, slots=True)
class GpuMapping:
    """``GPU at PCI:...: GPU-uuid``: printed once per boot, before the GPU's first error."""

    pci: str
    uuid: str


@dataclass(frozen=True, slots=True)
class LostStart:
    """First line of the three-line loss message (or of "not supported": the next lines tell)."""

    pci: str
    message: str


@dataclass(frozen=True, slots=True)
class LostPart:
    """A later line of that message: ``lost`` True or False where it decides, None where it goes on."""

    lost: bool | None
    message: str


@dataclass(frozen=True, slots=True)
class ProbeSummary:
    """ "probe routine failed for N device(s)": belongs to the devices named just before, if any were."""

    event: Event


@dataclass(frozen=True, slots=True)
class AerVictim:
    """A driver says that it cannot recover its device from the PCIe error reported just before."""

    pci: str
    message: str


@dataclass(frozen=True, slots=True)
class ForeignDevice:
    """A PCIe error line of a device that is bound to another driver: no GPU of ours."""

    pci: str


@dataclass(frozen=True, slots=True)
class NewBoot:
    """The banner of a starting kernel."""

    event: Event


Statement = (
    Sighting
    | Malformed
    | Nothing
    | GpuMapping
    | LostStart
    | LostPart
    | ProbeSummary
    | AerVictim
    | ForeignDevice
    | NewBoot
)


def one_line(text: str) -> str:
    """The text as ``message`` carries it: one line, bounded."""
    return " ".join(text.split())[:MAX_MESSAGE_CHARS]


def blank_event(kind: EventKind, text: str) -> Event:
    """An event of that kind that knows nothing but its words; the interpreter adds node and time."""
    return Event(kind=kind, node=None, time=0.0, message=one_line(text))
