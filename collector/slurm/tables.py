"""sinfo and squeue as text: delimited by ``|``, by blanks, or in default columns.

Delimited rows hold free text (a reason, a job name) that may hold the delimiter: fixed fields are counted
from both ends and the free text is what remains. A row that fits nothing is counted and skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from collector.slurm import table_jobs, table_nodes, values
from collector.slurm.columns import parse_header
from collector.slurm.gres import parse_gres
from collector.slurm.jobs import WAITING, JobIdentity, identity, kind_of
from collector.slurm.records import Findings, build_node, gpu_use
from collector.slurm.states import from_text, is_node_word, job_state_from_text
from collector.slurm.table_jobs import is_job_table
from collector.slurm.table_nodes import is_node_table
from fleet.identity import is_node_name
from fleet.observations import ProblemReason
from fleet.scheduler import GpuUse, JobRecord, Reason

_NO_REASON = frozenset({"", "none", "(null)", "unknown"})
_CPUS = re.compile(r"^\d+/\d+/\d+/\d+$")
_JOB_ID = re.compile(r"^(?P<job>\d+)(?:_(?:(?P<task>\d+)|\[(?P<tasks>[^\]]*)\]?)|\+(?P<offset>\d+))?$")
_SINFO_HEADER = re.compile(r"^PARTITION\s+AVAIL\s+TIMELIMIT\s+NODES\s+STATE\s+NODELIST\s*$")
_SINFO_LONG_HEADER = re.compile(r"^NODELIST\s+NODES\s+PARTITION\s+STATE\s+CPUS\s.*REASON\s*$")
_DATE_LINE = re.compile(r"^\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\s*$")
_SQUEUE_HEADER = re.compile(r"^\s*JOBID PARTITION\s+NAME\s+USER ST\s+TIME\s+NODES NODELIST\(REASON\)\s*$")
# squeue's default format: "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"; fields are cut to their width.
_SQUEUE_COLUMNS = ((0, 18), (19, 28), (29, 37), (38, 46), (47, 49), (50, 60), (61, 67))
_SQUEUE_REST = 68
_SINFO_FIELDS, _CPU_ROW_FIELDS, _LONG_FIELDS = 6, 5, 10
_JOB_FIELDS, _FULL_FIELDS, _REASON_FIELDS, _PARTITION_FIELDS = 9, 7, 4, 3
_CUT_NAME_WIDTH = 8

Row = tuple[str, ...]
RowReader = Callable[[Row, Findings], bool]


def read_table(lines: Sequence[str], found: Findings, *, now: float) -> bool:
    """True when the lines are one of the known tables. Rows that fit no column are one problem."""
    rows = [line for line in lines if line.strip() and not line.startswith("CLUSTER:")]
    if rows and _DATE_LINE.match(rows[0]):
        rows = rows[1:]  # sinfo -l begins with the date
    if not rows:
        return True
    for header, reader in (
        (_SINFO_HEADER, _sinfo_default),
        (_SQUEUE_HEADER, _squeue_default),
        (_SINFO_LONG_HEADER, _sinfo_long),
    ):
        if header.match(rows[0]):
            return _read_rows(rows[1:], reader, found)
    named = parse_header(rows[0])
    if named is not None and is_job_table(named):
        table_jobs.read_jobs(named, rows[1:], found, now=now)
        return True
    if named is not None and is_node_table(named):
        table_nodes.read_nodes(named, rows[1:], found)
        return True
    return _read_headless(rows, found)


def _read_headless(rows: Sequence[str], found: Findings) -> bool:
    """Printed with ``-h``: the layouts that people use, by what the cells hold."""
    if any("|" in row for row in rows):
        return _read_delimited(rows, found)
    if any(_is_cpu_row(row) for row in rows) and not rows[0].startswith("PARTITION "):
        return _read_rows(rows, _cpu_row, found)
    return False


def _read_rows(rows: Sequence[str], reader: Callable[[str, Findings], bool], found: Findings) -> bool:
    skipped = [row for row in rows if not reader(row, found)]
    found.skip_rows(skipped, "rows that do not have the expected columns")
    return True


def _read_delimited(rows: Sequence[str], found: Findings) -> bool:
    """The layout that fits most rows wins, then every row is read by it."""
    cells = [tuple(row.split("|")) for row in rows]
    best, score = None, 0
    for fits, reader in _LAYOUTS:
        fitting = sum(1 for row in cells if fits(row))
        if fitting > score:
            best, score = reader, fitting
    if best is None:
        return False
    skipped = [row for row, cell in zip(rows, cells, strict=True) if not best(cell, found)]
    found.skip_rows(skipped, "rows that do not have the expected fields")
    return True


# -- nodes --------------------------------------------------------------------------------------------


def _sinfo_default(row: str, found: Findings) -> bool:
    """``gpu*  up  infinite  2  drain n[1,6]``: one row per partition and state."""
    fields = row.split()
    if fields[3:4] == ["0"]:
        return True  # a partition without nodes
    if len(fields) != _SINFO_FIELDS or not fields[3].isdigit():
        return False
    names = found.hosts(fields[5], "sinfo NODELIST")
    for name in names:
        found.add_node(
            build_node(found, name=name, states=from_text(fields[4]), partitions=(_partition(fields[0]),))
        )
    return bool(names)


def _sinfo_long(row: str, found: Findings) -> bool:
    """``sinfo -N -l``: ten fields without blanks, then the reason, which may be cut to 20 characters.

    A cut reason is no proof of whose drain it is, so it is left out.
    """
    fields = row.split(None, _LONG_FIELDS)
    if len(fields) <= _LONG_FIELDS - 1 or not is_node_name(fields[0]) or not fields[1].isdigit():
        return False
    found.add_node(
        build_node(found, name=fields[0], states=from_text(fields[3]), partitions=(_partition(fields[2]),))
    )
    return True


def _is_cpu_row(row: str) -> bool:
    return any(_CPUS.match(field) for field in row.split())


def _cpu_row(row: str, found: Findings) -> bool:
    """``sinfo -N -O NodeList,AllocMem,Memory,CPUsState,StateLong``.

    Columns are 20 wide unless asked for with a colon: a longer name is cut and runs into the next field,
    so such a row has too few fields and names nobody.
    """
    fields = row.split()
    if len(fields) != _CPU_ROW_FIELDS or not _CPUS.match(fields[3]) or not is_node_name(fields[0]):
        return False
    found.add_node(build_node(found, name=fields[0], states=from_text(fields[4])))
    return True


def _partition(word: str) -> str:
    """The default partition carries a ``*``."""
    return word.strip().rstrip("*")


def _when(name: str, word: str, found: Findings) -> float | None:
    try:
        return values.text_time(word, utc=found.utc)
    except values.UnreadableTimeError as error:
        found.problem(ProblemReason.UNRECOGNISED_VALUE, f"{name}: {error.sentence}", node=name)
        return None


def _reason(text: str, user: str | None, when: str, name: str, found: Findings) -> Reason | None:
    """sinfo prints ``none`` and time ``Unknown`` for "no reason"; "Not responding" is a real one."""
    if text.strip().lower() in _NO_REASON or when.strip() == "Unknown":
        return None
    known_user = user if user and not values.is_absent(user) else None
    return Reason(text, known_user, _when(name, when, found))


def _node_reason_time_state(row: Row, found: Findings) -> bool:
    """``%N|%E|%H|%T``: split once from the left and twice from the right."""
    if len(row) < _REASON_FIELDS or not is_node_name(row[0].strip()):
        return False
    name, when, state = row[0].strip(), row[-2], row[-1].strip()
    if not state or (not is_node_word(state) and not _looks_like_time(when)):
        return False
    reason = _reason("|".join(row[1:-2]), None, when, name, found)
    found.add_node(build_node(found, name=name, states=from_text(state), reason=reason))
    return True


def _node_state_partition(row: Row, found: Findings) -> bool:
    """``%N|%T|%P``."""
    if len(row) != _PARTITION_FIELDS or not is_node_name(row[0].strip()) or not row[1].strip():
        return False
    found.add_node(
        build_node(
            found,
            name=row[0].strip(),
            states=from_text(row[1]),
            partitions=(_partition(row[2]),) if row[2].strip() else (),
        )
    )
    return True


def _node_full(row: Row, found: Findings) -> bool:
    """``%N|%T|%t|%E|%u|%H|%G``: three fields before the reason, three behind it."""
    if len(row) < _FULL_FIELDS or not is_node_name(row[0].strip()) or not row[1].strip():
        return False
    name = row[0].strip()
    reason = _reason("|".join(row[3:-3]), row[-3].strip(), row[-2], name, found)
    found.add_node(
        build_node(found, name=name, states=from_text(row[1]), gres=parse_gres(row[-1]), reason=reason)
    )
    return True


def _looks_like_time(word: str) -> bool:
    if values.is_absent(word):
        return True
    try:
        return values.text_time(word, utc=True) is not None
    except values.UnreadableTimeError:
        return False


# -- jobs ---------------------------------------------------------------------------------------------


def _job_id(word: str) -> JobIdentity | None:
    match = _JOB_ID.match(word.strip())
    if match is None:
        return None
    array_job = match["job"] if match["task"] or match["tasks"] else None
    return identity(
        match["job"],
        array_job=array_job,
        task=int(match["task"]) if match["task"] else None,
        tasks=match["tasks"],
        het=(match["job"], int(match["offset"])) if match["offset"] else None,
    )


def _squeue_default(row: str, found: Findings) -> bool:
    """Columns of fixed width; a name or user that fills its column may be cut and is then no identity."""
    cells = [row[first:last].strip() for first, last in _SQUEUE_COLUMNS]
    rest = row[_SQUEUE_REST:].strip()
    job, partition, name, user, state, _time, _nodes = cells
    return _add_job(
        found,
        job=job,
        state=state,
        place=rest,
        partitions=values.words(partition),
        name=name or None,
        user=user if user and len(user) < _CUT_NAME_WIDTH else None,
    )


def _job_delimited(row: Row, found: Findings) -> bool:
    """``%i|%T|%r|%N|%b|%D|%u|%P|%j``: the name is last and may hold the delimiter."""
    if len(row) < _JOB_FIELDS:
        return False
    job, state, why, nodes, gres, node_count, user, partition = row[:8]
    return _add_job(
        found,
        job=job,
        state=state,
        place=nodes,
        partitions=values.words(partition),
        name="|".join(row[8:]) or None,
        user=user or None,
        why=why or None,
        gres=gres,
        node_count=int(node_count) if node_count.isdigit() else None,
    )


def _add_job(
    found: Findings,
    *,
    job: str,
    state: str,
    place: str,
    partitions: tuple[str, ...],
    name: str | None,
    user: str | None,
    why: str | None = None,
    gres: str = "N/A",
    node_count: int | None = None,
) -> bool:
    who = _job_id(job)
    word = job_state_from_text(state)
    if who is None or word is None:
        return False
    if place.startswith("("):
        why, place = place.strip("()") or None, ""
    total, use = _text_gpus(gres, node_count)
    found.jobs.append(
        JobRecord(
            id=who.id,
            raw_id=who.raw_id if who.array is None else None,
            array=who.array,
            state=word,
            name=name,
            user=user,
            nodes=() if word in WAITING else found.hosts(place, f"job {who.id} nodes"),
            partitions=partitions,
            gpus=total,
            gpu_use=use,
            kind=kind_of(who, None),
            state_reason=None if why in (None, "None") else why,
        )
    )
    return True


def _text_gpus(gres: str, node_count: int | None) -> tuple[int | None, GpuUse]:
    """``%b`` is what one node gives; ``N/A`` also stands for jobs that asked with --gpus: unknown."""
    if gres.strip().upper() == "N/A" or node_count is None:
        return None, GpuUse.UNKNOWN
    one, use = gpu_use(parse_gres(gres, request=True))
    return (None if one is None else one * node_count), use


def _fits_job(row: Row) -> bool:
    return (
        len(row) >= _JOB_FIELDS
        and _JOB_ID.match(row[0].strip()) is not None
        and job_state_from_text(row[1]) is not None
    )


def _fits_full(row: Row) -> bool:
    return (
        len(row) >= _FULL_FIELDS
        and is_node_word(row[1])
        and is_node_word(row[2])
        and is_node_name(row[0].strip())
    )


def _fits_reason(row: Row) -> bool:
    return len(row) >= _REASON_FIELDS and is_node_word(row[-1]) and is_node_name(row[0].strip())


def _fits_partition(row: Row) -> bool:
    return len(row) == _PARTITION_FIELDS and is_node_word(row[1]) and is_node_name(row[0].strip())


_LAYOUTS: tuple[tuple[Callable[[Row], bool], RowReader], ...] = (
    (_fits_job, _job_delimited),
    (_fits_full, _node_full),
    (_fits_reason, _node_reason_time_state),
    (_fits_partition, _node_state_partition),
)
