"""What one pass over the sources says of each target: values, who was named, whose answer was whole."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fleet.observations import Allocation, GpuProcess, Problem, ProblemReason, Reading, Record, Sample

MIN_AGE_SECONDS = 60.0
"""A sample's own time may differ this much from ours: clocks of nodes are not ours."""

# A part of the answer is lost, so a GPU that is not in it may still be there. PARTIAL is not among them: a
# source says it when GPUs are missing, which is what is looked for. Problems of one GPU lose nobody else.
_LOSSES = frozenset(
    {
        ProblemReason.TRUNCATED,
        ProblemReason.TOO_LARGE,
        ProblemReason.UNREADABLE,
        ProblemReason.TIMEOUT,
        ProblemReason.QUERY_ERROR,
        ProblemReason.PERMISSION_DENIED,
        ProblemReason.CONFLICT,
    }
)


class Target(NamedTuple):
    """A GPU by UUID, or a node (``gpu`` None), or a part of it (``part``: labels such as ``port=1``)."""

    node: str
    gpu: str | None = None
    part: str = ""


@dataclass(slots=True)
class Seen:
    """Where a GPU was named: its index and PCI address, if known."""

    index: int | None = None
    pci: str | None = None


@dataclass(slots=True)
class Tick:
    """``values`` by signal and target; ``answered``: node -> its answer was whole; ``unplaced`` samples."""

    values: dict[str, dict[Target, float]] = field(default_factory=dict)
    seen: dict[Target, Seen] = field(default_factory=dict)
    answered: dict[str, bool] = field(default_factory=dict)
    unplaced: int = 0


def read_tick(readings: Sequence[Reading], at: float, signals: frozenset[str], *, max_age: float) -> Tick:
    """The records of ``readings`` by target. What names no node or no UUID is nobody's and counted.

    A value of a MIG instance names its GPU and says nothing of the board. NaN and infinity are no value.
    """
    tick = Tick()
    age = max(max_age, MIN_AGE_SECONDS)
    for reading in readings:
        nodes: set[str] = set()
        for record in reading.records:
            if isinstance(record, Sample):
                _take(tick, record, signals, fresh=abs(at - record.time) <= age)
                if record.node is not None:
                    nodes.add(record.node)
            elif isinstance(record, Allocation | GpuProcess) and record.node is not None:
                nodes.add(record.node)
                if record.gpu is not None:
                    tick.seen.setdefault(Target(record.node, record.gpu), Seen())
        damaged = _damaged(reading.records, nodes)
        for node in nodes:
            tick.answered[node] = tick.answered.get(node, True) and reading.ok and node not in damaged
    return tick


def _take(tick: Tick, sample: Sample, signals: frozenset[str], *, fresh: bool) -> None:
    node, gpu = sample.node, sample.gpu
    if node is None or not fresh:
        tick.unplaced += 1
        return
    if gpu is not None:
        target = Target(node, gpu)
        seen = tick.seen.get(target)
        if seen is None:
            tick.seen[target] = Seen(sample.index, sample.pci)
        else:
            seen.index = sample.index if seen.index is None else seen.index
            seen.pci = sample.pci if seen.pci is None else seen.pci
        if sample.mig is not None:
            return
    elif sample.index is not None or sample.pci is not None:
        tick.unplaced += 1
        return
    else:
        target = Target(
            node, None, ",".join(f"{name}={sample.labels[name]}" for name in sorted(sample.labels))
        )
        tick.seen.setdefault(target, Seen())
    if sample.signal in signals and math.isfinite(sample.value):
        tick.values.setdefault(sample.signal, {})[target] = sample.value


def _damaged(records: Sequence[Record], nodes: set[str]) -> set[str]:
    return {node for problem in _losses(records) for node in ([problem.node] if problem.node else nodes)}


def _losses(records: Sequence[Record]) -> Iterator[Problem]:
    for record in records:
        if (
            isinstance(record, Problem)
            and record.reason in _LOSSES
            and record.gpu is None
            and record.index is None
            and record.pci is None
        ):
            yield record
