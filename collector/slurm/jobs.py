"""What the readers of jobs share: ids, kinds, effective GPUs, exit codes, time left."""

from __future__ import annotations

from dataclasses import dataclass

from collector.slurm.gres import NO_GPUS, Gpus, parse_gres
from collector.slurm.states import ENDED
from fleet.scheduler import ArrayRef, JobKind

# States in which a job has no allocation (squeue shows a reason instead of nodes).
WAITING = frozenset(
    {"pending", "special_exit", "requeue_hold", "requeue_fed", "requeued", "resv_del_hold", "revoked"}
)
_MAX_DIGITS = 10


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """``id`` is what actions use: ``700_3`` for a task, ``70_[7-8%1]`` for a pending rest, ``2+1`` het."""

    id: str
    raw_id: str
    array: ArrayRef | None
    het: bool


def identity(
    raw: str, *, array_job: str | None, task: int | None, tasks: str | None, het: tuple[str, int] | None
) -> JobIdentity:
    """One task's own number may equal the array's: only ``ArrayJobId_TaskId`` names one task."""
    if array_job and task is not None:
        return JobIdentity(f"{array_job}_{task}", raw, ArrayRef(array_job, task=task), het=False)
    if array_job and tasks:
        span, _, limit = tasks.partition("%")
        ref = ArrayRef(array_job, tasks=span, limit=int(limit) if limit.isdigit() else None)
        return JobIdentity(f"{array_job}_[{tasks}]", raw, ref, het=False)
    if het is not None:
        return JobIdentity(f"{het[0]}+{het[1]}", raw, None, het=True)
    return JobIdentity(raw, raw, None, het=False)


def kind_of(who: JobIdentity, batch: bool | None) -> JobKind:  # noqa: FBT001 - three-valued fact
    if who.het:
        return JobKind.HET
    if batch is False:
        return JobKind.INTERACTIVE
    if who.array is not None:
        return JobKind.ARRAY_TASK
    return JobKind.UNKNOWN if batch is None else JobKind.BATCH


def effective_gpus(
    *,
    allocated: str | None,
    detail: tuple[str, ...],
    per_job: str | None,
    per_node: str | None,
    per_task: str | None,
    requested: str | None,
    nodes: int | None,
    tasks: int | None,
    other_request: bool = False,
) -> Gpus:
    """The GPUs of the whole job: what it got, else what it asked for.

    ``allocated`` and ``requested`` are TRES strings and name GPUs only where AccountingStorageTRES lists
    ``gres/gpu``; ``detail`` is one GRES string per allocated node. ``other_request``: GPUs were asked for
    in a way that needs facts we do not have (per socket).
    """
    if allocated and "gres/gpu" in allocated:
        return parse_gres(allocated)
    parts = [parse_gres(part) for part in detail]
    if parts:
        return _sum(parts)
    if requested and "gres/gpu" in requested:
        return parse_gres(requested)
    for text, times in ((per_job, 1), (per_node, nodes), (per_task, tasks)):
        if text:
            one = parse_gres(text, request=True)
            if one.total == 0 and not one.slices and not one.shards:
                continue
            return one if times == 1 else _times(one, times)
    return Gpus(None) if other_request else NO_GPUS


def _sum(parts: list[Gpus]) -> Gpus:
    types: dict[str, int] = {}
    for part in parts:
        for name, amount in part.types.items():
            types[name] = types.get(name, 0) + amount
    totals = [part.total for part in parts if part.total is not None]
    return Gpus(
        sum(totals) if len(totals) == len(parts) else None,
        types,
        sum(part.slices for part in parts),
        sum(part.shards for part in parts),
        problem=next((part.problem for part in parts if part.problem), None),
    )


def _times(one: Gpus, times: int | None) -> Gpus:
    if times is None or one.total is None:
        return Gpus(None)
    types = {name: amount * times for name, amount in one.types.items()}
    return Gpus(one.total * times, types, one.slices * times, one.shards * times, problem=one.problem)


def wait_status(raw: int) -> tuple[int | None, int | None]:
    """(exit code, signal) of a raw wait status: 768 is exit 3, 9 is signal 9 (JSON of 22.05)."""
    signal = raw & 0x7F
    return (None, signal) if signal else ((raw >> 8) & 0xFF, None)


def exit_of_text(word: str | None) -> tuple[int | None, int | None]:
    """``N:S``: exit code, or the signal that ended it. squeue -O prints the raw wait status instead."""
    code, colon, signal = (word or "").strip().partition(":")
    if not code.isdecimal() or len(code) > _MAX_DIGITS:
        return None, None
    if not colon:
        return wait_status(int(code))
    if not signal.isdecimal() or len(signal) > _MAX_DIGITS:
        return None, None
    return (None, int(signal)) if int(signal) else (int(code), None)


def has_ended(state: str) -> bool:
    return state in ENDED


def time_left(*, state: str, limit: float | None, end: float | None, now: float) -> float | None:
    """Seconds until the time limit; None without one, and for jobs that have ended."""
    if limit is None or has_ended(state) or state == "completing":
        return None
    if state in WAITING:
        return limit
    return None if end is None else max(0.0, end - now)
