"""Jobs from JSON: ``squeue --json`` (22.05 and later) and ``scontrol show jobs --json`` (23.02 and later).

The 22.05 form was read from real clusters of 22.05.8, the later one from stored output of 24.11.5.
22.05 prints every job the controller still knows, whatever filter was given.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from collector.slurm import values
from collector.slurm.gres import Gpus
from collector.slurm.jobs import (
    WAITING,
    JobIdentity,
    effective_gpus,
    has_ended,
    identity,
    kind_of,
    time_left,
    wait_status,
)
from collector.slurm.json_items import Json
from collector.slurm.records import Findings, gpu_use
from collector.slurm.states import job_state_from_list, unknown_job_words
from fleet.observations import ProblemReason
from fleet.scheduler import JobRecord


def read_jobs(items: Iterable[Any], found: Findings, *, now: float) -> None:
    """One record per item; an item that cannot be used is counted and costs no other."""
    unusable = 0
    for item in items:
        if not isinstance(item, dict) or not values.count(item.get("job_id")):
            unusable += 1
            continue
        _read_job(item, found, now)
    if unusable:
        found.unusable("job entries without a job_id", unusable)


def _read_job(item: Json, found: Findings, now: float) -> None:
    who = _identity(item)
    state = job_state_from_list(values.words(item.get("job_state")))
    if state is None:
        found.problem(
            ProblemReason.UNRECOGNISED_VALUE,
            f"job {who.id}: state {str(item.get('job_state'))[:40]!r} is not known",
        )
        state = "unknown"
    elif odd := unknown_job_words(values.words(item.get("job_state"))):
        found.problem(ProblemReason.UNRECOGNISED_VALUE, f"job {who.id}: state {odd[0][:40]!r} is not known")
    gpus = _gpus(item)
    if gpus.problem:
        found.problem(ProblemReason.INCONSISTENT, f"job {who.id}: {gpus.problem}")
    total, use = gpu_use(gpus)
    ended = has_ended(state)
    exit_code, signal = exit_of_json(item.get("exit_code")) if ended else (None, None)
    end = values.moment(item.get("end_time"))
    limit = values.number(item.get("time_limit"))
    begins = item.get("eligible_time") if state in WAITING else item.get("start_time")
    found.jobs.append(
        JobRecord(
            id=who.id,
            raw_id=who.raw_id,
            array=who.array,
            state=state,
            name=values.text(item.get("name")),
            user=_user(item),
            nodes=() if state in WAITING else found.hosts(_nodes(item), f"job {who.id} nodes"),
            partitions=values.words(item.get("partition")),
            gpus=total,
            gpu_use=use,
            requeue=_flag(item.get("requeue")),
            kind=kind_of(who, _flag(item.get("batch_flag"))),
            time_left_seconds=time_left(
                state=state, limit=None if limit is None else limit * 60, end=end, now=now
            ),
            memory_bytes=_memory(item),
            exit_code=exit_code,
            signal=signal,
            failed_nodes=found.hosts(item.get("failed_node"), f"job {who.id} failed_node"),
            ended_at=end if ended else None,
            restarts=values.count(item.get("restart_cnt")) or 0,
            submitted_at=values.moment(item.get("submit_time")),
            begins_at=values.moment(begins),
            eligible_at=values.moment(item.get("eligible_time")),
            state_reason=values.text(item.get("state_reason")),
            state_text=values.text(item.get("state_description")),
            excluded_nodes=found.hosts(item.get("excluded_nodes"), f"job {who.id} excluded_nodes"),
            required_nodes=found.hosts(item.get("required_nodes"), f"job {who.id} required_nodes"),
            comment=values.text(item.get("comment")),
            held=_held(item),
        )
    )


def _identity(item: Json) -> JobIdentity:
    array_job = values.count(item.get("array_job_id"))
    het_job = values.count(item.get("het_job_id"))
    offset = values.count(item.get("het_job_offset"))
    return identity(
        str(values.count(item.get("job_id"))),
        array_job=str(array_job) if array_job else None,
        task=values.count(item.get("array_task_id")),
        tasks=values.text(item.get("array_task_string")),
        het=(str(het_job), offset or 0) if het_job else None,
    )


def _flag(value: object) -> bool | None:
    return bool(value) if isinstance(value, (bool, int)) else None


def _user(item: Json) -> str | None:
    uid = values.count(item.get("user_id"))
    return values.text(item.get("user_name")) or (None if uid is None else str(uid))


def _held(item: Json) -> bool | None:
    priority = values.number(item.get("priority"))
    return None if priority is None else priority == 0


def _gpus(item: Json) -> Gpus:
    detail = item.get("gres_detail")
    return effective_gpus(
        allocated=values.text(item.get("tres_alloc_str")),
        detail=tuple(part for part in detail if isinstance(part, str)) if isinstance(detail, list) else (),
        per_job=values.text(item.get("tres_per_job")),
        per_node=values.text(item.get("tres_per_node")),
        per_task=values.text(item.get("tres_per_task")),
        requested=values.text(item.get("tres_req_str")),
        nodes=values.count(item.get("node_count")),
        tasks=values.count(item.get("tasks")),
        other_request="gpu" in (values.text(item.get("tres_per_socket")) or ""),
    )


def _nodes(item: Json) -> object:
    """``nodes``, else what the allocation says (``job_resources.nodes``: a string, from 24.05 an object)."""
    if (named := item.get("nodes")) is not None:
        return named
    resources = item.get("job_resources")
    nodes = resources.get("nodes") if isinstance(resources, dict) else None
    return nodes.get("list", nodes.get("nodes")) if isinstance(nodes, dict) else nodes


def _memory(item: Json) -> int | None:
    """What was asked for: per node, else per CPU times the job's CPUs. 0 means "not asked for"."""
    per_node = values.count(item.get("memory_per_node"))
    if per_node:
        return per_node * values.MIB
    per_cpu, cpus = values.count(item.get("memory_per_cpu")), values.count(item.get("cpus"))
    return per_cpu * cpus * values.MIB if per_cpu and cpus else None


def exit_of_json(value: object) -> tuple[int | None, int | None]:
    """A raw wait status (22.05), or ``{"return_code", "signal"}`` with set/unset numbers."""
    if not isinstance(value, dict):
        raw = values.count(value)
        return (None, None) if raw is None else wait_status(raw)
    signal = value.get("signal")
    number = signal.get("id", signal.get("signal_id")) if isinstance(signal, dict) else None
    caught = values.count(number)
    return (None, caught) if caught else (values.count(value.get("return_code")), None)
