"""Problems of one body, counted: one record per kind and GPU, the first one's words as the example."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fleet.observations import Problem, ProblemReason

SOURCE = "dcgm"
_MAX_PROBLEMS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRef:
    """The GPU a problem is about, as far as it is known."""

    uuid: str | None = None
    index: int | None = None
    pci: str | None = None


_NO_GPU = GpuRef()


class Tally:
    """Collects problems in the order they first occurred."""

    def __init__(self, node: str | None) -> None:
        self._node = node
        self._problems: dict[tuple[ProblemReason, GpuRef], Problem] = {}

    def add(self, reason: ProblemReason, message: str, *, count: int, gpu: GpuRef = _NO_GPU) -> None:
        """``count``: the records skipped. Beyond some hundreds, problems are no longer told by GPU."""
        if count <= 0:
            return
        if (reason, gpu) not in self._problems and len(self._problems) >= _MAX_PROBLEMS:
            gpu = _NO_GPU
        known = self._problems.get((reason, gpu))
        if known is not None:
            self._problems[reason, gpu] = replace(known, count=known.count + count)
            return
        self._problems[reason, gpu] = Problem(
            source=SOURCE,
            reason=reason,
            message=message,
            node=self._node,
            gpu=gpu.uuid,
            index=gpu.index,
            pci=gpu.pci,
            count=count,
        )

    def problems(self, node: str | None) -> tuple[Problem, ...]:
        """``node``: whose they are, where the body said it only later."""
        return tuple(replace(p, node=p.node if p.node is not None else node) for p in self._problems.values())
