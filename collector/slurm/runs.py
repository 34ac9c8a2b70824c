"""Accounting tells every run of a job, and its steps: here they become one record per job.

A requeued job has one record per run (``sacct -D``, and JSON always); a node failure writes two for the same
run (NODE_FAIL and REQUEUED, same start). RESIZING records are parts of one run. The last run is the job's
state; the nodes that failed under it before are its ``failed_nodes``, each once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fleet.scheduler import JobKind, JobRecord

# The job ended because of its nodes (sacct(1), JOB STATE CODES).
OF_THE_NODES = frozenset({"node_fail", "boot_fail", "launch_failed"})
_STEP_KINDS = {"batch": JobKind.BATCH, "interactive": JobKind.INTERACTIVE}


@dataclass(frozen=True, slots=True)
class Run:
    """One accounting record of a job. ``started`` (epoch seconds) tells the runs of one job apart."""

    job: JobRecord
    started: float | None = None
    cluster: str = ""
    restarts_known: bool = False

    @property
    def key(self) -> tuple[str, str, str | None]:
        """Ids begin anew at MaxJobId, so another user's job of the same number is another job."""
        return self.cluster, self.job.id, self.job.user


def merge_runs(runs: Sequence[Run], steps: Mapping[tuple[str, str], str]) -> list[JobRecord]:
    """One record per job, in the order of first appearance. ``steps``: (cluster, job id) -> a step that says
    how the job was started (``batch``, ``interactive``).
    """
    groups: dict[tuple[str, str, str | None], list[Run]] = {}
    for run in runs:
        groups.setdefault(run.key, []).append(run)
    merged = []
    for (cluster, job_id, _), group in groups.items():
        job = _merge(group)
        step = steps.get((cluster, job_id))
        if job.kind is JobKind.UNKNOWN and step in _STEP_KINDS:
            job = replace(job, kind=_STEP_KINDS[step])
        merged.append(job)
    return merged


def _merge(group: Sequence[Run]) -> JobRecord:
    """The last run wins: by start, and by place among those that started together."""
    ordered = sorted(enumerate(group), key=lambda pair: (_order(pair[1]), pair[0]))
    last = ordered[-1][1]
    if last.job.state == "requeued":
        # Of the same run another record may tell how it ended; only "requeued": it waits again.
        same = [run for run in group if run.started == last.started and run.job.state != "requeued"]
        last = same[-1] if same else last
    failed = [
        node
        for run in group
        if run is not last and run.job.state in OF_THE_NODES
        for node in (run.job.failed_nodes or run.job.nodes)
    ]
    earlier = {run.started for run in group if run.started != last.started and run.job.state != "resizing"}
    # squeue may list a pending job once per partition it waits in.
    partitions = [name for run in group if run.started == last.started for name in run.job.partitions]
    return replace(
        last.job,
        partitions=tuple(dict.fromkeys(partitions)),
        failed_nodes=tuple(dict.fromkeys((*failed, *last.job.failed_nodes))),
        restarts=last.job.restarts if last.restarts_known else len(earlier - {None}),
    )


def _order(run: Run) -> tuple[int, float]:
    """A run that has not started comes after all that have."""
    return (1, 0.0) if run.started is None else (0, run.started)
