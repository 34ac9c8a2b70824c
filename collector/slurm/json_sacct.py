"""Jobs from ``sacct --json`` and slurmrestd's slurmdb: one item per run of a job, its steps inside.

Read from real output of 22.05.8 (dbv0.0.38); ``state.current`` as a list and numbers as objects (23.11 and
later) follow the documented shapes.
"""

from __future__ import annotations

from typing import Any

from collector.slurm import values
from collector.slurm.gres import NO_GPUS, Gpus, parse_gres
from collector.slurm.jobs import WAITING, JobIdentity, has_ended, identity, kind_of, time_left
from collector.slurm.json_items import Json
from collector.slurm.json_jobs import exit_of_json
from collector.slurm.records import Findings, gpu_use
from collector.slurm.runs import Run, merge_runs
from collector.slurm.states import job_state_from_list, unknown_job_words
from fleet.observations import ProblemReason
from fleet.scheduler import JobRecord


def is_accounting(item: Any) -> bool:
    """Accounting nests the state; squeue and scontrol have ``job_state``."""
    return isinstance(item, dict) and item.get("job_state") is None and isinstance(item.get("state"), dict)


def read_jobs(items: list[Json], found: Findings, *, now: float) -> None:
    """One record per job; an item without a job id is counted and costs no other."""
    accounted = any(_gpu_entries(_part(item, "tres").get("allocated")) for item in items)
    steps: dict[tuple[str, str], str] = {}
    runs = []
    unusable = 0
    for item in items:
        if not values.count(item.get("job_id")):
            unusable += 1
            continue
        run = _read_run(item, found, now, gpus_accounted=accounted)
        runs.append(run)
        for step in _step_names(item):
            steps[(run.cluster, run.job.id)] = step
    found.jobs.extend(merge_runs(runs, steps))
    if unusable:
        found.unusable("accounting entries without a job_id", unusable)


def _read_run(item: Json, found: Findings, now: float, *, gpus_accounted: bool) -> Run:
    who = _identity(item)
    state = _state(item, who, found)
    times, ended = _part(item, "time"), has_ended(state)
    started = values.moment(times.get("start"))
    limit = values.number(times.get("limit"))
    gpus = _gpus(item, gpus_accounted=gpus_accounted)
    if gpus.problem:
        found.problem(ProblemReason.INCONSISTENT, f"job {who.id}: {gpus.problem}")
    total, use = gpu_use(gpus)
    exit_code, signal = _exit(item.get("exit_code"), state) if ended else (None, None)
    end = values.moment(times.get("end"))
    seconds = None if limit is None else limit * 60
    until = started + seconds if end is None and started is not None and seconds is not None else end
    restarts = values.count(item.get("restart_cnt"))
    eligible = values.moment(times.get("eligible"))
    job = JobRecord(
        id=who.id,
        raw_id=who.raw_id,
        array=who.array,
        state=state,
        name=values.text(item.get("name")),
        user=values.text(item.get("user")) or values.text(_part(item, "association").get("user")),
        nodes=() if state in WAITING else found.hosts(item.get("nodes"), f"job {who.id} nodes"),
        partitions=values.words(item.get("partition")),
        gpus=total,
        gpu_use=use,
        kind=kind_of(who, _batch(item)),
        time_left_seconds=(
            None if state == "requeued" else time_left(state=state, limit=seconds, end=until, now=now)
        ),
        memory_bytes=_memory(item),
        exit_code=exit_code,
        signal=signal,
        failed_nodes=found.hosts(item.get("failed_node"), f"job {who.id} failed_node"),
        ended_at=end if ended else None,
        restarts=restarts or 0,
        submitted_at=values.moment(times.get("submission")),
        begins_at=eligible if state in WAITING else started,
        eligible_at=eligible,
        state_reason=values.text(_part(item, "state").get("reason")),
        comment=values.text(_part(item, "comment").get("job")),
    )
    return Run(job, started, values.text(item.get("cluster")) or "", restarts is not None)


def _exit(value: object, state: str) -> tuple[int | None, int | None]:
    """22.05 prints SUCCESS and 0 for every job, also for a FAILED one that exited with 7: that is unknown."""
    exit_code, signal = exit_of_json(value)
    old = isinstance(value, dict) and isinstance(value.get("status"), str)
    return (None, None) if old and state == "failed" and exit_code == 0 else (exit_code, signal)


def _part(item: Json, key: str) -> Json:
    part = item.get(key)
    return part if isinstance(part, dict) else {}


def _identity(item: Json) -> JobIdentity:
    array, het = _part(item, "array"), _part(item, "het")
    array_job, het_job = values.count(array.get("job_id")), values.count(het.get("job_id"))
    task = values.count(array.get("task_id"))
    return identity(
        str(values.count(item.get("job_id"))),
        array_job=str(array_job) if array_job else None,
        task=task,
        tasks=None if task is not None else values.text(array.get("task")),
        het=(str(het_job), values.count(het.get("job_offset")) or 0) if het_job else None,
    )


def _state(item: Json, who: JobIdentity, found: Findings) -> str:
    current = _part(item, "state").get("current")
    words = values.words(current)
    state = job_state_from_list(words)
    odd = unknown_job_words(words) or (str(current),)
    if state is None or unknown_job_words(words):
        found.problem(ProblemReason.UNRECOGNISED_VALUE, f"job {who.id}: state {odd[0][:40]!r} is not known")
    return state or "unknown"


def _step_names(item: Json) -> list[str]:
    """``batch`` or ``interactive`` where such a step says how the job was started."""
    steps = item.get("steps")
    names = []
    for step in steps if isinstance(steps, list) else []:
        name = _part(step, "step").get("name") if isinstance(step, dict) else None
        if name in ("batch", "interactive"):
            names.append(str(name))
    return names


def _batch(item: Json) -> bool | None:
    command = (values.text(item.get("submit_line")) or "").split(maxsplit=1)
    program = command[0].rpartition("/")[2] if command else ""
    return {"sbatch": True, "srun": False, "salloc": False}.get(program)


def _memory(item: Json) -> int | None:
    """``required.memory``, later ``memory_per_node``; 0 means "not asked for"."""
    required = _part(item, "required")
    amount = values.count(required.get("memory_per_node", required.get("memory")))
    if amount:
        return amount * values.MIB
    per_cpu, cpus = values.count(required.get("memory_per_cpu")), values.count(required.get("CPUs"))
    return per_cpu * cpus * values.MIB if per_cpu and cpus else None


def _gpu_entries(tres: object) -> list[str]:
    """``[{"type": "gres", "name": "gpu:h100", "count": 16}]`` as the TRES string it stands for."""
    found = []
    for entry in tres if isinstance(tres, list) else []:
        if isinstance(entry, dict) and entry.get("type") == "gres" and isinstance(entry.get("name"), str):
            amount = values.count(entry.get("count"))
            if amount is not None:
                found.append(f"gres/{entry['name']}={amount}")
    return found


def _gpus(item: Json, *, gpus_accounted: bool) -> Gpus:
    """What it got, else asked for. TRES name GPUs only where the site accounts them."""
    tres = _part(item, "tres")
    for kind in ("allocated", "requested"):
        if entries := _gpu_entries(tres.get(kind)):
            return parse_gres(",".join(entries))
    return NO_GPUS if gpus_accounted and tres.get("allocated") else Gpus(None)
