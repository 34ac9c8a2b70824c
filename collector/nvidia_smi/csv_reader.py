"""The CSV queries: of GPUs (and their remapped rows), of processes, of retired pages.

Columns are found by the header's names, since drivers answer a request under renamed headers; what was
asked for (``args``) is needed only for output without a header. A cell may be empty, an error word, or a
number with its unit; a process name may hold commas.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collector.nvidia_smi.answer_time import parse_time
from collector.nvidia_smi.cells import CellKind, clean_name, count, mebibytes, read_cell
from collector.nvidia_smi.fields import Layout
from collector.nvidia_smi.gpu import GpuReader, read_pci, read_uuid
from collector.nvidia_smi.records import Complaints, Findings, Identity, quoted
from collector.nvidia_smi.sentences import read_sentences
from collector.nvidia_smi.view import RowView
from collector.nvidia_smi.xml_reader import MAX_GPUS, read_version
from fleet.observations import GpuProcess, ProblemReason

MAX_COLUMNS = 1024
_NAME = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9_.]{0,96})(?:\s*\[(?P<unit>[^\[\]]{1,16})\])?")
_ALIASES = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "gpu_serial": "serial",
    "kmd_version": "driver_version",
    "used_memory": "used_gpu_memory",
    "clocks.current.sm": "clocks.sm",
    "clocks.current.memory": "clocks.mem",
    "clocks.current.graphics": "clocks.gr",
    "clocks.max.graphics": "clocks.max.gr",
    "clocks.max.memory": "clocks.max.mem",
    "gpu.power.draw.average": "power.draw.average",
    "gpu.power.draw.instant": "power.draw.instant",
    "gpu.power.requested_limit": "power.limit",
    "gpu.power.current_limit": "enforced.power.limit",
    "retired_pages.sbe": "retired_pages.single_bit_ecc.count",
    "retired_pages.dbe": "retired_pages.double_bit.count",
    "remapped_rows.sbe": "remapped_rows.correctable",
    "remapped_rows.dbe": "remapped_rows.uncorrectable",
}
# A line is a header when it has one of these, or a name with a dot of a family we know.
_WELL_KNOWN = frozenset(
    {"index", "uuid", "pci.bus_id", "pid", "count", "gpu_recovery_action", "driver_version"}
)
_FAMILIES = (
    "temperature.", "power.", "enforced.power.", "module.power.", "clocks.", "clocks_event_reasons.",
    "memory.", "utilization.", "ecc.", "pcie.", "retired_pages.", "remapped_rows.", "fabric.", "fan.",
    "mig.mode.", "compute_", "pstate", "vbios_version",
)  # fmt: skip
_ACCOUNTING = frozenset({"max_memory_usage", "gpu_utilization", "mem_utilization", "gpu_util", "mem_util"})
_MAX_PID = 2**31 - 1
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{1,16}")


@dataclass(frozen=True, slots=True)
class Header:
    """Canonical column names (lower case) with the unit their header states, "" for none."""

    names: tuple[str, ...]
    units: tuple[str, ...]


def canonical(name: str) -> str:
    """The one name of a column: aliases of the manual, and the reasons that 535 renamed."""
    lower = name.lower().replace("clocks_throttle_reasons", "clocks_event_reasons")
    return _ALIASES.get(lower, lower)


def parse_header(line: str) -> Header | None:
    """The header in ``line``, or None when it is none."""
    matches = [_NAME.fullmatch(cell.strip()) for cell in line.split(",", MAX_COLUMNS)]
    names: list[str] = []
    units: list[str] = []
    for match in matches:
        if match is None:
            return None
        names.append(match["name"])
        units.append(match["unit"] or "")
    names = _canonical_names(names)
    known = any(name in _WELL_KNOWN or name.startswith(_FAMILIES) for name in names)
    return Header(tuple(names), tuple(units)) if known else None


def _canonical_names(names: Sequence[str]) -> list[str]:
    """In a list of processes ``name`` is the process; among GPUs it is the model."""
    if "pid" not in names:
        return [canonical(name) for name in names]
    return [
        {"name": "process_name", "gpu_name": "gpu_name"}.get(name.lower()) or canonical(name)
        for name in names
    ]


def requested_header(args: Sequence[str] | None) -> Header | None:
    """What the command line asked for: the columns of an answer without a header."""
    for option, following in zip(args or (), (*(args or ())[1:], ""), strict=False):
        if option.startswith("--query-"):
            _option, given, fields = option.partition("=")
            return parse_header(fields if given else following)
    return None


def read_csv(
    lines: Sequence[str], found: Findings, *, header: Header | None, own_time: bool, ended: bool
) -> None:
    """Rows below ``header``, or below the first line of ``lines`` that is one.

    ``ended``: the last line has its line end; without it a short last row is a torn one.
    """
    groups: dict[Header, list[list[str]]] = {} if header is None else {header: []}
    strangers: list[str] = []
    torn = False
    for number, line in enumerate(lines):
        again = parse_header(line)
        cells = _split(line, header) if header is not None else None
        if not line.strip():
            continue
        if again is not None:
            header = again
            groups.setdefault(header, [])
        elif header is not None and cells is not None:
            groups[header].append(cells)
        elif number == len(lines) - 1 and not ended and header is not None and _may_be_torn(line, header):
            torn = True
        else:
            strangers.append(line)
    _report(strangers, found, torn=torn)
    for of, rows in groups.items():
        found.understood = True
        _read_rows(of, rows, found, own_time=own_time)


def _may_be_torn(line: str, header: Header) -> bool:
    return line.count(",") < len(header.names) - 1


def _report(strangers: Sequence[str], found: Findings, *, torn: bool) -> None:
    rest = read_sentences(strangers, found)
    if rest:
        found.problem(
            ProblemReason.UNREADABLE,
            f"row(s) that don't fit the header, first: {quoted(rest[0])}",
            count=len(rest),
        )
    if torn:
        found.problem(ProblemReason.TRUNCATED, "the last row is cut off; not read")


def _split(line: str, header: Header) -> list[str] | None:
    """The cells of a row, None when it doesn't fit. Surplus commas belong to a process name."""
    cells = [cell.strip() for cell in line.split(",")]
    surplus = len(cells) - len(header.names)
    if surplus > 0 and "process_name" in header.names:
        at = header.names.index("process_name")
        raw = line.split(",")
        name = ",".join(raw[at : at + surplus + 1]).strip()
        cells = [*cells[:at], name, *cells[at + surplus + 1 :]]
        surplus = 0
    return cells if surplus == 0 else None


def _read_rows(header: Header, rows: Sequence[list[str]], found: Findings, *, own_time: bool) -> None:
    named = [_with_units(header, cells) for cells in rows]
    if "retired_pages.address" in header.names:
        _read_retired_pages(named, found, own_time=own_time)
    elif "pid" in header.names:
        if _ACCOUNTING & set(header.names):
            found.understood = False
            found.problem(
                ProblemReason.UNREADABLE,
                "accounted processes have ended or may have; query compute-apps for those that hold a GPU",
            )
            return
        _read_processes(named, found, own_time=own_time)
    else:
        _read_gpus(named, found, own_time=own_time)


def _with_units(header: Header, cells: Sequence[str]) -> dict[str, str]:
    """Cells by name; a bare number (``nounits``) gets the unit that its header states."""
    named: dict[str, str] = {}
    for name, unit, cell in zip(header.names, header.units, cells, strict=True):
        bare = unit and re.fullmatch(r"[+-]?\d+(?:\.\d+)?", cell)
        text = f"{cell} {unit}" if bare else cell
        if name not in named or read_cell(named[name]).kind is not CellKind.VALUE:
            named[name] = text
    return named


def _identity(row: Mapping[str, str]) -> Identity:
    index = count(row.get("index", ""))
    return Identity(
        gpu=read_uuid(row.get("uuid")),
        index=None if index is None else int(index),
        pci=read_pci(row.get("pci.bus_id")),
    )


def _time(row: Mapping[str, str], found: Findings, *, own_time: bool) -> float:
    stamp = parse_time(row.get("timestamp", "")) if own_time else None
    return found.time if stamp is None else stamp


def _read_gpus(rows: Sequence[Mapping[str, str]], found: Findings, *, own_time: bool) -> None:
    """One row per GPU; loop mode repeats them, and the newest row of a GPU counts."""
    newest: dict[Identity, Mapping[str, str]] = {}
    nameless: list[Mapping[str, str]] = []
    for row in rows:
        identity = _identity(row)
        if identity.known:
            newest.pop(identity, None)
            newest[identity] = row
        else:
            nameless.append(row)
    if len(nameless) == 1 and not newest:
        newest[Identity()] = nameless[0]
    elif nameless:
        found.problem(
            ProblemReason.UNREADABLE,
            "row(s) without index, uuid or pci.bus_id: which GPU they are of is unknown",
            count=len(nameless),
        )
    if len(newest) > MAX_GPUS:
        found.problem(
            ProblemReason.TOO_LARGE,
            f"{len(newest)} GPUs on one node; read the first {MAX_GPUS}",
            count=len(newest) - MAX_GPUS,
        )
    _gpu_count(list(newest.values()), found, own_time=own_time)
    for identity, row in list(newest.items())[:MAX_GPUS]:
        time = _time(row, found, own_time=own_time)
        reader = GpuReader(view=RowView(row), identity=identity, found=found, time=time, layout=Layout.QUERY)
        reader.read(driver=read_version(row.get("driver_version")))
        reader.finish()


def _gpu_count(rows: Sequence[Mapping[str, str]], found: Findings, *, own_time: bool) -> None:
    counts = {value for row in rows if (value := count(row.get("count", ""))) is not None}
    if len(counts) > 1:
        found.problem(ProblemReason.INCONSISTENT, f"the rows count {sorted(map(int, counts))} GPUs")
    elif counts:
        time = max(_time(row, found, own_time=own_time) for row in rows)
        found.sample("node_gpu_count", counts.pop(), time=time)


def _read_processes(rows: Sequence[Mapping[str, str]], found: Findings, *, own_time: bool) -> None:
    for row in rows:
        identity = _identity(row)
        complaints = Complaints()
        pid = count(row.get("pid", ""))
        if pid is None or pid > _MAX_PID:
            cell = read_cell(row.get("pid", ""))
            if cell.kind is not CellKind.ABSENT:
                complaints.add(
                    cell.reason or ProblemReason.UNREADABLE, f"a process with the pid {quoted(cell.text)}"
                )
        else:
            name = row.get("process_name")
            found.processes.append(
                GpuProcess(
                    node=found.node,
                    gpu=identity.gpu,
                    pid=int(pid),
                    time=_time(row, found, own_time=own_time),
                    name=None if name is None else clean_name(name),
                    memory_bytes=_memory(row, complaints),
                )
            )
        found.problems.extend(complaints.problems(found, identity))


def _memory(row: Mapping[str, str], complaints: Complaints) -> int | None:
    cell = read_cell(row.get("used_gpu_memory", ""))
    if cell.kind is CellKind.ABSENT:
        return None
    value = mebibytes(cell.text) if cell.kind is CellKind.VALUE else None
    if value is None:
        complaints.add(
            cell.reason or ProblemReason.UNRECOGNISED_VALUE, f"the memory of a process is {quoted(cell.text)}"
        )
        return None
    return int(value)


def _read_retired_pages(rows: Sequence[Mapping[str, str]], found: Findings, *, own_time: bool) -> None:
    """A row counts only with a hex address: cards without page retirement print two placeholder rows."""
    counts: dict[tuple[Identity, str], tuple[int, float]] = {}
    complaints: dict[Identity, Complaints] = {}
    for row in rows:
        identity = _identity(row)
        cell = read_cell(row.get("retired_pages.address", ""))
        signal = _retired_signal(row.get("retired_pages.cause", ""))
        if cell.kind is CellKind.ABSENT:
            continue
        notes = complaints.setdefault(identity, Complaints())
        if cell.kind is CellKind.ERROR and cell.reason is not None:
            notes.add(cell.reason, f"the address says {quoted(cell.text)}")
        elif _ADDRESS.fullmatch(cell.text) is None:
            notes.add(ProblemReason.UNREADABLE, f"a retired page at {quoted(cell.text)}")
        elif signal is None:
            cause = row.get("retired_pages.cause", "")
            notes.add(ProblemReason.UNRECOGNISED_VALUE, f"a page retired because of {quoted(cause)}")
        else:
            number, _ = counts.get((identity, signal), (0, 0.0))
            counts[identity, signal] = (number + 1, _time(row, found, own_time=own_time))
    for (identity, signal), (number, time) in counts.items():
        found.sample(signal, float(number), identity=identity, time=time)
    for identity, notes in complaints.items():
        found.problems.extend(notes.problems(found, identity))


def _retired_signal(cause: str) -> str | None:
    lower = cause.lower()
    if "double bit" in lower:
        return "gpu_retired_pages_uncorrected"
    if "single bit" in lower:
        return "gpu_retired_pages_corrected"
    return None
