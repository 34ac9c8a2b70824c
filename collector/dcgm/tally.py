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
        self._counts: dict[tuple[ProblemReason, GpuRef], int] = {}

    def add(self, reason: ProblemReason, message: str, *, count: int, gpu: GpuRef = _NO_GPU) -> None:
        """``count``: the records skipped. Beyond some hundreds, problems are no longer told by GPU."""
        if count <= 0:
            return
        key = (reason, gpu)
        if key not in self._counts and len(self._counts) >= _MAX_PROBLEMS:
            gpu = _NO_GPU
            key = (reason, gpu)
        known = self._counts.get(key)
        self._counts[key] = count + (known or 0)
        if known is not None:
            return
        self._problems[key] = Problem(
            source=SOURCE,
            reason=reason,
            message=message,
            node=self._node,
            gpu=gpu.uuid,
            index=gpu.index,
            pci=gpu.pci,
        )

    def problems(self, node: str | None) -> tuple[Problem, ...]:
        """``node``: whose they are, where the body said it only later."""
        return tuple(
            replace(problem, count=self._counts[key], node=node if problem.node is None else problem.node)
            for key, problem in self._problems.items()
        )
