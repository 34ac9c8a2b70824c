"""Nodes from any table of sinfo that has a header with NODELIST (or HOSTNAMES) and STATE."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from collector.slurm import values
from collector.slurm.columns import Cells, Check, Header, read_rows
from collector.slurm.gres import Gpus, parse_gres
from collector.slurm.hostlist import is_host_list
from collector.slurm.records import Findings, build_node
from collector.slurm.states import NodeStates, from_text, is_node_word
from fleet.marks import parse_mark
from fleet.observations import ProblemReason
from fleet.scheduler import Owner, Reason

# sinfo prints the names of a field in three widths of detail under one header; the first is taken.
_STATES = ("STATECOMPLETE", "STATE")
_NAMES = ("NODELIST", "NODENAME", "HOSTNAMES")
_NO_REASON = frozenset({"", "none", "(null)", "unknown"})
_STATE = re.compile(r"^[A-Za-z_][A-Za-z_+]*[*~#!%$@^+-]*(?:\+[A-Za-z_]+[*~#!%$@^-]*)*$")
_TIME = re.compile(r"^(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[+-]\d\d:?\d\d|Z)?|\d{9,11})$", re.ASCII)
_USER = re.compile(r"^[^\s|,:=]*$")
_AMOUNT = re.compile(r"^\d+(?:\.\d+)?[KMGT]?[+-]?(?:\d+)?$", re.ASCII)
_GRES = re.compile(r"^[A-Za-z][^\s|]*$")
_STRICT: Mapping[str, Check] = {
    "STATECOMPLETE": is_node_word,
    "STATE": is_node_word,
    "TIMESTAMP": lambda cell: values.is_absent(cell) or _TIME.match(cell) is not None,
    "USER": lambda cell: _USER.match(cell) is not None,
    "AVAIL": lambda cell: cell.lower() in ("up", "down", "drain", "inact"),
    **dict.fromkeys(
        ("MEMORY", "ALLOCMEM", "CPUS", "WEIGHT", "TMPDISK", "FREEMEM"),
        lambda cell: values.is_absent(cell) or _AMOUNT.match(cell) is not None,
    ),
    **dict.fromkeys(
        ("GRES", "GRESUSED"), lambda cell: values.is_absent(cell) or _GRES.match(cell) is not None
    ),
}
_UID = re.compile(r"\(\d+\)$")


def is_node_table(header: Header) -> bool:
    """A listing of nodes: by name, with a state, or (``sinfo -R``) with reasons only."""
    named = header.has(*_NAMES) and not header.has("JOBID", "JOBIDRAW", "STEPID")
    return named and header.has(*_STATES, "REASON")


def read_nodes(header: Header, lines: Sequence[str], found: Findings) -> None:
    """One record per node and row. Rows that fit no column are one problem."""
    name = next(column for column in _NAMES if header.has(column))
    checks = {
        name: lambda cell: is_host_list(cell) and (bool(cell) or header.has("NODES")),
        "STATECOMPLETE": lambda cell: _STATE.match(cell) is not None,
        "STATE": lambda cell: _STATE.match(cell) is not None,
        "NODES": lambda cell: cell.isdecimal(),
    }
    table = read_rows(header, lines, checks, _STRICT)
    for row in table.rows:
        _read_row(row, name, header, found)
    found.skip_rows(table.skipped, "sinfo rows that do not fit the header")
    if table.delimiter_in_text:
        found.problem(
            ProblemReason.INCONSISTENT,
            "sinfo rows whose text holds the delimiter; read by their other columns",
            count=table.delimiter_in_text,
        )
    if table.cut:
        found.problem(
            ProblemReason.TRUNCATED,
            "sinfo rows with a cell that may be cut (use FIELD: with a colon); such cells are left out",
            count=table.cut,
        )
    if not header.has(*_STATES) and table.rows:
        found.problem(ProblemReason.PARTIAL, "a listing of reasons (sinfo -R) does not say whole states")


def _read_row(row: Cells, name_column: str, header: Header, found: Findings) -> None:
    if row.get("NODES") == "0":
        return  # a partition without nodes
    names = found.hosts(row[name_column], "sinfo row")
    states = _states(row, header)
    free = row.get("FREEMEM", "")
    reason = None
    for name in names:
        reason = reason or _reason(row, name, found)
        node = build_node(
            found,
            name=name,
            states=states,
            gres=_gres(row, "GRES"),
            gres_used=_gres(row, "GRESUSED"),
            reason=reason,
            partitions=_partitions(row),
            memory_free_bytes=int(free) * values.MIB if free.isdigit() else None,
            comment=_text(row, "COMMENT"),
            extra=_text(row, "EXTRA"),
            reservation=_text(row, "RESERVATION"),
        )
        if not header.has(*_STATES):
            # Only nodes that are down or drained are listed. A reason that is cut is not provably ours.
            ours = parse_mark(reason.text if reason else None) is not None
            node = replace(node, owner=Owner.SICKBAY if ours else Owner.FOREIGN)
        found.add_node(node)


def _states(row: Cells, header: Header) -> NodeStates:
    column = next((column for column in _STATES if header.has(column)), None)
    return NodeStates("UNKNOWN") if column is None else from_text(row[column])


def _gres(row: Cells, column: str) -> Gpus | None:
    return parse_gres(row[column]) if column in row else None


def _text(row: Cells, column: str) -> str | None:
    word = row.get(column, "").strip()
    return None if word in ("", "(null)", "none", "N/A") else word


def _partitions(row: Cells) -> tuple[str, ...]:
    """The default partition carries a ``*``."""
    return tuple(word for part in values.words(row.get("PARTITION")) if (word := part.rstrip("*")))


def _reason(row: Cells, name: str, found: Findings) -> Reason | None:
    """sinfo prints ``none`` and time ``Unknown`` for "no reason"; "Not responding" is a real one."""
    text, when = row.get("REASON", ""), row.get("TIMESTAMP", "")
    if text.strip().lower() in _NO_REASON or when == "Unknown":
        return None
    user = _UID.sub("", row.get("USER", ""))
    try:
        time = values.text_time(when, utc=found.utc)
    except values.UnreadableTimeError as error:
        found.problem(ProblemReason.UNRECOGNISED_VALUE, f"{name}: {error.sentence}", node=name)
        time = None
    return Reason(text.strip(), None if values.is_absent(user) else user, time)
