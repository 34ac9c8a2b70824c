"""Which GPUs this node has, as far as its sources can tell right now. Never in the push's way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fleet.clock import Clock
from fleet.observations import ProblemReason, Reading

#: Sources that list the node's GPUs as the driver has them now, the better one first. dcgm-exporter does not:
#: its list is that of its own start.
INVENTORY_SOURCES = ("nvml", "nvidia-smi")
_COUNT = "node_gpu_count"
# With one of these the list may lack a GPU: "fewer" is not what it says.
_INCOMPLETE = frozenset(
    {
        ProblemReason.GPU_LOST,
        ProblemReason.PARTIAL,
        ProblemReason.TRUNCATED,
        ProblemReason.TIMEOUT,
        ProblemReason.TOO_LARGE,
    }
)


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """One GPU. The index moves after a loss; the UUID does not."""

    uuid: str
    index: int
    pci: str


class GpuInventory(Protocol):
    """What the pusher asks; must answer at once.

    The GPUs of boot ``boot_id``; an empty tuple: there are none; None: cannot tell.
    """

    def current(self, boot_id: str) -> tuple[GpuIdentity, ...] | None: ...


class UnknownInventory:
    """A node that cannot tell (neither ``nvml`` nor ``nvidia-smi`` is among its sources)."""

    def current(self, boot_id: str) -> tuple[GpuIdentity, ...] | None:
        return None


def gpus_of(reading: Reading) -> tuple[GpuIdentity, ...] | None:
    """The GPUs that ``reading`` lists, by index; None when it is not sure to list all of them.

    All or nothing: a list that lacks the GPU with the damaged record would look like a node that lost one.
    """
    reasons = {problem.reason for problem in reading.problems}
    names = {
        (s.gpu, s.index, s.pci) for s in reading.samples if (s.gpu, s.index, s.pci) != (None, None, None)
    }
    counts = {sample.value for sample in reading.samples if sample.signal == _COUNT}
    if reasons == {ProblemReason.NO_DEVICES} and not names:
        return ()
    if not reading.ok or reasons & _INCOMPLETE:
        return None
    gpus = [
        GpuIdentity(uuid, index, pci)
        for uuid, index, pci in names
        if uuid is not None and index is not None and pci is not None
    ]
    if counts != {float(len(names))} or len(gpus) != len(names):
        return None
    if len({gpu.uuid for gpu in gpus}) != len(gpus):
        return None
    return tuple(sorted(gpus, key=lambda gpu: gpu.index))


@dataclass(frozen=True, slots=True)
class _Answer:
    boot_id: str
    gpus: tuple[GpuIdentity, ...]
    at: float


class ReadInventory:
    """Keeps what the last reading of each source says; thread-safe.

    An answer belongs to the boot it was read in, and is none after ``shown_seconds``. ``changed`` is called
    (in the source's thread) when what is known has changed.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        boot_id: Callable[[], str | None],
        changed: Callable[[], None],
        shown_seconds: float,
    ) -> None:
        self._clock = clock
        self._boot_id = boot_id
        self._changed = changed
        self._shown_seconds = shown_seconds
        self._mutex = threading.Lock()
        self._answers: dict[str, _Answer] = {}

    def current(self, boot_id: str) -> tuple[GpuIdentity, ...] | None:
        oldest = self._clock.monotonic() - self._shown_seconds
        with self._mutex:
            answers = [self._answers.get(source) for source in INVENTORY_SOURCES]
        for answer in answers:
            if answer is not None and answer.at >= oldest and answer.boot_id == boot_id:
                return answer.gpus
        return None

    def watching(self, source: str, read: Callable[[], Reading]) -> Callable[[], Reading]:
        """``read``, with what it says about the node's GPUs kept here."""

        def both() -> Reading:
            boot_id, at = self._boot_id(), self._clock.monotonic()
            reading = read()
            gpus = gpus_of(reading) if boot_id is not None and self._boot_id() == boot_id else None
            self._keep(source, None if gpus is None or boot_id is None else _Answer(boot_id, gpus, at))
            return reading

        return both

    def _keep(self, source: str, answer: _Answer | None) -> None:
        with self._mutex:
            before = self._answers.get(source)
            if answer is None:
                self._answers.pop(source, None)
            else:
                self._answers[source] = answer
        if _known(before) != _known(answer):
            self._changed()


def _known(answer: _Answer | None) -> tuple[str, tuple[GpuIdentity, ...]] | None:
    return None if answer is None else (answer.boot_id, answer.gpus)
