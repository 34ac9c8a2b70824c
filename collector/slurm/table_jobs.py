"""Jobs from any table of squeue or sacct that has a header with JOBID and STATE.

sacct lists the steps of a job and, with ``-D``, each run of it: they become one record per job, the last run,
with the nodes that failed under the earlier ones. Column names: squeue(1), sacct(1).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from collector.slurm import values
from collector.slurm.columns import Cells, Check, Header, read_rows
from collector.slurm.gres import Gpus, parse_gres
from collector.slurm.hostlist import is_host_list
from collector.slurm.jobs import (
    WAITING,
    JobIdentity,
    effective_gpus,
    exit_of_text,
    has_ended,
    identity,
    kind_of,
    time_left,
)
from collector.slurm.records import Findings, gpu_use
from collector.slurm.runs import OF_THE_NODES, Run, merge_runs
from collector.slurm.states import job_state_from_text
from fleet.observations import ProblemReason
from fleet.scheduler import JobRecord

_JOB_ID = re.compile(
    r"^(?P<job>\d+)(?:_(?:(?P<task>\d+)|\[(?P<tasks>[^\]]*)\]))?(?:\+(?P<offset>\d+))?(?:\.(?P<step>\S+))?$"
)
_STATE = re.compile(r"^[A-Za-z_]+\+?(?: by \d+)?$")
_TIME = re.compile(r"^(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[+-]\d\d:?\d\d|Z)?|\d{9,11})$")
_EXIT = re.compile(r"^\d+(?::\d+)?$")
_PRIORITY = re.compile(r"^\d{1,12}(?:\.\d{1,20})?$")
_USER = re.compile(r"^[^\s|,:=]*$")
_TRES = re.compile(r"^[A-Za-z][\w/.+-]*[:=][^\s|]*$")
_MAX_DIGITS = 12
_STATES = ("STATE", "ST", "JOBSTATE")
_FINISHED_WITH = ("EXITCODE", "DERIVEDEXITCODE")
_WHEN = ("START", "STARTTIME", "END", "ENDTIME", "SUBMIT", "SUBMITTIME", "ELIGIBLE", "ELIGIBLETIME")
_ASKED = ("TRESPERJOB", "TRESPERNODE", "TRESPERTASK", "TRESPERSOCKET")


def is_job_table(header: Header) -> bool:
    return header.has("JOBID", "JOBIDRAW") and header.has(*_STATES)


def read_jobs(header: Header, lines: Sequence[str], found: Findings, *, now: float) -> None:
    """One record per job. Rows that fit no column are one problem."""
    table = read_rows(header, lines, _CHECKS, _STRICT)
    accounted = any("gres/" in row.get(name, "") for row in table.rows for name in ("ALLOCTRES", "TRESALLOC"))
    reader = _Rows(header, found, now, gpus_accounted=accounted)
    runs = [run for row in table.rows if (run := reader.read(row)) is not None]
    found.jobs.extend(merge_runs(runs, reader.steps))
    found.skip_rows(table.skipped, "rows of jobs that do not fit the header")
    if table.delimiter_in_text:
        found.problem(
            ProblemReason.INCONSISTENT,
            "rows of jobs whose text holds the delimiter; read by their other columns",
            count=table.delimiter_in_text,
        )
    if table.cut:
        found.problem(
            ProblemReason.TRUNCATED,
            "rows of jobs with a cell that may be cut (use FIELD: with a colon); such cells are left out",
            count=table.cut,
        )


def _is_job_id(cell: str) -> bool:
    return _JOB_ID.match(cell) is not None


def _is_word(cell: str) -> bool:
    return _STATE.match(cell) is not None


def _is_known_state(cell: str) -> bool:
    return job_state_from_text(cell) is not None


def _is_place(cell: str) -> bool:
    return is_host_list(cell) or cell.startswith("(")


def _is_time(cell: str) -> bool:
    return values.is_absent(cell) or _TIME.match(cell) is not None


def _is_exit(cell: str) -> bool:
    return not cell or _EXIT.match(cell) is not None


def _is_amount(cell: str) -> bool:
    return values.is_absent(cell) or cell.isdecimal()


def _is_duration(cell: str) -> bool:
    return values.is_absent(cell) or values.text_duration(cell) is not None


def _is_tres(cell: str) -> bool:
    return values.is_absent(cell) or _TRES.match(cell) is not None


def _is_memory(cell: str) -> bool:
    return values.is_absent(cell) or values.text_memory(cell) is not None


_CHECKS: Mapping[str, Check] = {
    "JOBID": _is_job_id,
    "JOBIDRAW": _is_job_id,
    **dict.fromkeys(_STATES, _is_word),
    "NODELIST": is_host_list,
    "NODELISTREASON": _is_place,
}
# Where a text holds the delimiter, every other column must look like itself.
_STRICT: Mapping[str, Check] = {
    **dict.fromkeys(_STATES, _is_known_state),
    **dict.fromkeys(_FINISHED_WITH, _is_exit),
    **dict.fromkeys(_WHEN, _is_time),
    **dict.fromkeys(("NNODES", "NODES", "NUMNODES", "ALLOCNODES", "ALLOCCPUS", "NCPUS", "CPUS"), _is_amount),
    **dict.fromkeys(("UID", "USERID", "ARRAYJOBID", "TASKS", "RESTARTS", "RESTARTCOUNT"), _is_amount),
    **dict.fromkeys(
        ("REQNODES", "EXCNODES", "SCHEDNODES", "FAILEDNODE", "EXECHOST", "BATCHHOST"), is_host_list
    ),
    **dict.fromkeys(("TIME", "TIMELEFT", "TIMELIMIT", "TIMELIMI", "ELAPSED"), _is_duration),
    **dict.fromkeys(("ALLOCTRES", "REQTRES", "TRESALLOC", *_ASKED), _is_tres),
    **dict.fromkeys(("MINMEMORY", "REQMEM"), _is_memory),
    "PRIORITY": lambda cell: not cell or _PRIORITY.match(cell) is not None,
    "USER": lambda cell: _USER.match(cell) is not None,
    "OVERSUBSCRIBE": lambda cell: cell in ("OK", "NO", "YES", "USER", "MCS", "TOPO", "N/A"),
}


class _Rows:
    """Reads the rows of one table; keeps what its step rows say about the jobs they belong to."""

    def __init__(self, header: Header, found: Findings, now: float, *, gpus_accounted: bool) -> None:
        self._header = header
        self._found = found
        self._now = now
        self._gpus_accounted = gpus_accounted
        self.steps: dict[tuple[str, str], str] = {}

    def read(self, row: Cells) -> Run | None:
        """The job of ``row``; None for a step."""
        cluster = _word(row, "CLUSTER") or ""
        who, step = _identity(row)
        if step is not None:
            if step in ("batch", "interactive"):
                self.steps[(cluster, who.id)] = step
            return None
        state = self._state(row, who)
        started = self._time(row, who, "START", "STARTTIME")
        restarts = _number(row, "RESTARTS", "RESTARTCOUNT", "RESTARTCNT")
        job = self._job(row, who, state, started, restarts or 0)
        return Run(job, started, cluster, restarts is not None)

    def _state(self, row: Cells, who: JobIdentity) -> str:
        word = _word(row, *_STATES) or ""
        state = job_state_from_text(word)
        if state is None:
            self._found.problem(
                ProblemReason.UNRECOGNISED_VALUE, f"job {who.id}: state {word[:40]!r} is not known"
            )
        return state or "unknown"

    def _job(
        self, row: Cells, who: JobIdentity, state: str, started: float | None, restarts: int
    ) -> JobRecord:
        found, ended, waiting = self._found, has_ended(state), state in WAITING
        end = self._time(row, who, "END", "ENDTIME")
        eligible = self._time(row, who, "ELIGIBLE", "ELIGIBLETIME")
        gpus = self._gpus(row)
        if gpus.problem:
            found.problem(ProblemReason.INCONSISTENT, f"job {who.id}: {gpus.problem}")
        total, use = gpu_use(gpus)
        place, why = _place(row)
        exit_code, signal = exit_of_text(row.get("EXITCODE")) if ended else (None, None)
        nodes = () if waiting else found.hosts(place, f"job {who.id} nodes")
        failed = found.hosts(row.get("FAILEDNODE", ""), f"job {who.id} failed node")
        if state in OF_THE_NODES and "FAILEDNODE" not in self._header.columns:
            failed = nodes
        return JobRecord(
            id=who.id,
            raw_id=_own_number(who, row),
            array=who.array,
            state=state,
            name=_text(row, "JOBNAME", "NAME"),
            user=_user(row),
            nodes=nodes,
            partitions=values.words(_word(row, "PARTITION")),
            gpus=total,
            gpu_use=use,
            requeue=_yes_or_no(row.get("REQUEUE")),
            kind=kind_of(who, _batch(row)),
            time_left_seconds=self._left(row, state, started, end),
            memory_bytes=_memory(row),
            exit_code=exit_code,
            signal=signal,
            failed_nodes=failed,
            ended_at=end if ended else None,
            restarts=restarts,
            submitted_at=self._time(row, who, "SUBMIT", "SUBMITTIME"),
            begins_at=eligible if waiting and eligible is not None else started,
            eligible_at=eligible,
            state_reason=why,
            excluded_nodes=found.hosts(row.get("EXCNODES", ""), f"job {who.id} excluded nodes"),
            required_nodes=found.hosts(row.get("REQNODES", ""), f"job {who.id} required nodes"),
            comment=_text(row, "COMMENT"),
            held=_held(row),
        )

    def _time(self, row: Cells, who: JobIdentity, *columns: str) -> float | None:
        word = _word(row, *columns)
        try:
            return None if word is None else values.text_time(word, utc=self._found.utc)
        except values.UnreadableTimeError as error:
            self._found.problem(ProblemReason.UNRECOGNISED_VALUE, f"job {who.id}: {error.sentence}")
            return None

    def _left(self, row: Cells, state: str, started: float | None, end: float | None) -> float | None:
        """squeue's own word for it, else what limit and start make it."""
        if has_ended(state) or state in ("completing", "requeued"):
            return None
        left = _word(row, "TIMELEFT")
        if left is not None:
            return values.text_duration(left)
        limit = values.text_duration(_word(row, "TIMELIMIT", "TIMELIMI") or "")
        if end is None and started is not None and limit is not None:
            end = started + limit
        return time_left(state=state, limit=limit, end=end, now=self._now)

    def _gpus(self, row: Cells) -> Gpus:
        """Of TRES without GPUs nobody knows whether the site accounts them, unless another row shows some."""
        allocated, asked = _word(row, "ALLOCTRES", "TRESALLOC"), _word(row, "REQTRES")
        for tres in (allocated, asked):
            if tres and ("gres/" in tres or (gpus := parse_gres(tres)).problem):
                return parse_gres(tres) if "gres/" in tres else gpus
        per = {column: _word(row, column) for column in _ASKED}
        if any(per.values()):
            return effective_gpus(
                allocated=None,
                detail=(),
                per_job=per["TRESPERJOB"],
                per_node=per["TRESPERNODE"],
                per_task=per["TRESPERTASK"],
                requested=None,
                nodes=_number(row, "NNODES", "NODES", "NUMNODES", "ALLOCNODES"),
                tasks=_number(row, "TASKS", "NTASKS"),
                other_request="gpu" in (per["TRESPERSOCKET"] or ""),
            )
        said = (allocated or asked) and self._gpus_accounted
        return Gpus(0) if said or self._header.has_all(*_ASKED) or _explicit_none(row) else Gpus(None)


def _explicit_none(row: Cells) -> bool:
    """``(null)`` where squeue %b would name GRES (before 21.08 it prints N/A for what it does not show)."""
    return row.get("TRESPERNODE", row.get("GRES")) in ("(null)", "")


def _word(row: Cells, *columns: str) -> str | None:
    """The first of the columns that says something."""
    for column in columns:
        word = row.get(column, "").strip()
        if word and word not in ("N/A", "n/a", "(null)", "NONE", "Unknown", "None"):
            return word
    return None


def _text(row: Cells, *columns: str) -> str | None:
    text = next((row[column] for column in columns if column in row), "")
    return None if text.strip() in ("", "(null)", "N/A") else text.strip(" ")


def _number(row: Cells, *columns: str) -> int | None:
    word = _word(row, *columns)
    return int(word) if word is not None and word.isdecimal() and len(word) <= _MAX_DIGITS else None


def _identity(row: Cells) -> tuple[JobIdentity, str | None]:
    """Who, and the step if the row is one. ``%i`` says more than ``%A``; array and het columns say it too."""
    words = [row[name] for name in ("JOBID", "JOBID#2", "JOBIDRAW") if name in row]
    word = next((word for word in words if "_" in word or "+" in word), words[0])
    match = _JOB_ID.match(word)
    if match is None:  # the check of the column has let it pass, so it is one
        return identity(word, array_job=None, task=None, tasks=None, het=None), None
    job, task, tasks = match["job"], match["task"], match["tasks"]
    array_job = job if task or tasks else None
    element = _word(row, "ARRAYTASKID")
    if array_job is None and element is not None:
        array_job = _word(row, "ARRAYJOBID") or job
        task, tasks = (element, None) if element.isdecimal() else (None, element)
    het = (job, int(match["offset"])) if match["offset"] else None
    het_job, offset = _word(row, "HETJOBID"), _number(row, "HETJOBOFFSET")
    if het is None and het_job is not None and het_job != "0" and offset is not None:
        het = (het_job, offset)
    own = next((other for other in words if other.isdecimal()), None)
    who = identity(own or job, array_job=array_job, task=int(task) if task else None, tasks=tasks, het=het)
    return who, match["step"]


def _own_number(who: JobIdentity, row: Cells) -> str | None:
    """A task's or component's own number is another than the one in its id."""
    shown = any(row.get(name, "").isdecimal() for name in ("JOBID", "JOBID#2", "JOBIDRAW"))
    return who.raw_id if shown or (who.array is None and not who.het) else None


def _user(row: Cells) -> str | None:
    return _text(row, "USER", "USERNAME") or _text(row, "UID", "USERID")


def _place(row: Cells) -> tuple[str, str | None]:
    """Nodes, and why it waits. ``%R`` holds either: the reason in brackets."""
    why = _word(row, "REASON")
    if "NODELIST" in row:
        return row["NODELIST"], why
    place = row.get("NODELISTREASON", "").strip()
    if place.startswith("("):
        return "", why or place.strip("()") or None
    return place, why


def _yes_or_no(word: str | None) -> bool | None:
    return {"1": True, "0": False, "yes": True, "no": False}.get((word or "").strip().lower())


def _batch(row: Cells) -> bool | None:
    """squeue's flag, or the command that sacct remembers."""
    if (flag := _yes_or_no(row.get("BATCHFLAG"))) is not None:
        return flag
    command = row.get("SUBMITLINE", "").split(maxsplit=1)
    program = command[0].rpartition("/")[2] if command else ""
    return {"sbatch": True, "srun": False, "salloc": False}.get(program)


def _memory(row: Cells) -> int | None:
    """As asked for. ``4Gc`` (sacct before 21.08) is per CPU, so the CPUs must be known."""
    word = _word(row, "MINMEMORY", "REQMEM")
    amount = values.text_memory(word) if word else None
    if not amount or word is None:
        return None
    if not word.lower().endswith("c"):
        return amount
    cpus = _number(row, "ALLOCCPUS", "NCPUS", "REQCPUS", "CPUS")
    return amount * cpus if cpus else None


def _held(row: Cells) -> bool | None:
    """``%Q`` is a whole number, ``%p`` its share of one; either is 0 for a held job."""
    word = _word(row, "PRIORITY", "PRIORITY#2")
    if word is None or not _PRIORITY.match(word):
        return None
    return float(word) == 0
