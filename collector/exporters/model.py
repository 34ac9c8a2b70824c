"""What an exporter reads of a scheduler, whichever it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from collector.exporters.classes import QueueState, SizeClass, WaitReason
from fleet.scheduler import NodeRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueItem:
    """A job (or pod), or the pending rest of an array, which stands for ``count`` of them.

    ``run`` names one run of one job: a requeued job is another run. ``partitions``: those it waits in or runs
    in. ``gpus`` (of one job of the ``count``) is None unless ``size`` is a counted class or ``cpu``.
    ``reason`` is set while it is pending. ``eligible_at`` (epoch seconds): since when nothing but resources
    and priority kept it waiting; None if it does not wait, or nobody says. ``started``: it has, or had,
    nodes. ``wait_seconds``: what it had waited when it started, None if that cannot be known.
    """

    run: tuple[str, ...]
    partitions: tuple[str, ...]
    state: QueueState
    size: SizeClass
    gpus: int | None = None
    count: int = 1
    reason: WaitReason | None = None
    eligible_at: float | None = None
    started: bool = False
    wait_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerReading:
    """One full read. ``withdrawn``: GPUs per node that Kubernetes' device plugin has taken back.

    ``problems`` counts the records that could not be understood in full.
    """

    nodes: tuple[NodeRecord, ...]
    items: tuple[QueueItem, ...]
    withdrawn: Mapping[str, int] = field(default_factory=dict)
    problems: int = 0


class Source(Protocol):
    """A scheduler. ``read`` is one full look: in time, or a BackendError; half a look is none."""

    kind: str

    def read(self) -> SchedulerReading: ...

    def close(self) -> None: ...
