"""Tables with a header line (sinfo, squeue, sacct; ``-o``, ``-O``, ``-P``, default widths) to named cells.

Nothing is quoted in them: names, comments and reasons may hold the delimiter, blanks and line breaks. Which
cell belongs to which column is therefore decided by what the other columns may hold (a job id, a state, a
time ...): one way to lay a row out is read, several that disagree are not. A cell that fills its fixed width
may be cut and is then unknown (``-O`` cuts at 20 characters without a word).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise

# A header is one of these words and what separates them; squeue -l cuts TIME_LIMIT to nine characters.
_NAME = re.compile(r"S:C:T|[A-Za-z][A-Za-z0-9_]*(?:\([A-Za-z/]+\))?")
_NOT_ALNUM = re.compile(r"[^A-Z0-9]")
_MAX_JOINED = 100
# Joining lines is for a text with line breaks here and there; a file that needs more of it is damage.
_MAX_JOINED_CHARS = 16 * 1024 * 1024
_WORD = re.compile(r"\S+")
# sinfo -O and squeue -O give every column 20 characters and no space between.
_O_WIDTH = 20
_MAX_STEPS = 4000
_MAX_WAYS = 8

FREE_TEXT = frozenset(
    {
        "NAME", "JOBNAME", "COMMENT", "ADMINCOMMENT", "SYSTEMCOMMENT", "REASON", "EXTRA", "COMMAND",
        "WORKDIR", "SUBMITLINE", "STDOUT", "STDERR", "STDIN", "DEPENDENCY", "CONSTRAINTS", "NODELISTREASON",
        "WCKEY", "CONTAINER", "NETWORK",
    }
)  # fmt: skip
# These hold commas by nature, so a table delimited by commas needs them to be wide.
_WITH_COMMAS = frozenset(
    {
        "PARTITION", "NODELIST", "ALLOCTRES", "REQTRES", "TRESALLOC", "GRES", "GRESUSED", "TRESPERNODE",
        "TRESPERJOB", "TRESPERTASK", "FEATURES", "AVAILFEATURES", "ACTIVEFEATURES", "LICENSES", "REQNODES",
        "EXCNODES", "SCHEDNODES", "FAILEDNODE", "JOBID", "FLAGS",
    }
)  # fmt: skip
Check = Callable[[str], bool]
Cells = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Header:
    """``columns`` are normalised (``NODELIST(REASON)`` -> ``NODELISTREASON``; a repeated one gets ``#2``).

    ``delimiter`` None: blanks; ``starts`` are then the columns' offsets in the header line.
    """

    columns: tuple[str, ...]
    delimiter: str | None
    starts: tuple[int, ...] = ()

    def has(self, *names: str) -> bool:
        return any(name in self.columns for name in names)

    def has_all(self, *names: str) -> bool:
        return all(name in self.columns for name in names)


@dataclass(slots=True)
class Table:
    """``rows`` that were laid out; ``skipped`` lines that fit nothing; how many rows held the delimiter in a
    text, or a cell that may be cut.
    """

    rows: list[Cells] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    delimiter_in_text: int = 0
    cut: int = 0


def normalise(name: str) -> str:
    return _NOT_ALNUM.sub("", name.upper())


def parse_header(line: str) -> Header | None:
    """The header that ``line`` is, or None. At least two names, one kind of separator."""
    matches = list(_NAME.finditer(line))
    if len(matches) < 2 or line[: matches[0].start()].strip():  # noqa: PLR2004 - one column says nothing
        return None
    gaps = [line[a.end() : b.start()] for a, b in pairwise(matches)]
    tail = line[matches[-1].end() :].rstrip("\r")
    names = _unique([normalise(match[0]) for match in matches])
    if all(gap == "\t" for gap in gaps):
        return Header((*names, *_trailing(tail, "\t")), "\t")
    if all(gap and not gap.strip() for gap in gaps):
        return None if tail.strip() else Header(names, None, tuple(m.start() for m in matches))
    bare = {gap.strip() for gap in gaps}
    if len(bare) != 1 or not (delimiter := bare.pop()):
        return None
    if tail.strip() not in ("", delimiter):
        return None
    return Header((*names, *_trailing(tail.strip(), delimiter)), delimiter)


def _trailing(tail: str, delimiter: str) -> tuple[str, ...]:
    """``sacct -p`` and ``-O "field:|"`` end each line with the delimiter: an empty last column."""
    return ("",) if tail == delimiter else ()


def _unique(names: Sequence[str]) -> tuple[str, ...]:
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return tuple(unique)


def read_rows(
    header: Header,
    lines: Sequence[str],
    checks: Mapping[str, Check],
    strict: Mapping[str, Check] | None = None,
) -> Table:
    """Lay out the lines under ``header``. ``checks`` say what a column may hold, by its name.

    ``strict`` (more checks) decide where a row has more cells than columns and must be laid out by guesswork.
    """
    table = Table()
    if header.delimiter is None and lines and set(lines[0]) <= {"-", " "} and "-" in lines[0]:
        spans = [(match.start(), match.end()) for match in re.finditer(r"-+", lines[0])]
        if len(spans) == len(header.columns):
            _read_ruled(header, spans, lines[1:], checks, table)
            return table
    strict = {**checks, **(strict or {})}
    layout: _Delimited | _Blank = _Blank(header, checks, strict)
    if header.delimiter is not None:
        layout = _Delimited(header, checks, strict)
    _read_joined(layout, lines, table)
    return table


def _read_ruled(
    header: Header,
    spans: Sequence[tuple[int, int]],
    lines: Sequence[str],
    checks: Mapping[str, Check],
    table: Table,
) -> None:
    """sacct's default form: a rule under the header gives exact columns; a cut cell ends with ``+``."""
    for line in lines:
        cells = {name: line[a:b].strip() for name, (a, b) in zip(header.columns, spans, strict=True)}
        if all(check(cells[name]) for name, check in checks.items() if name in cells):
            cut = {name for name in cells if name not in checks and cells[name].endswith("+")}
            table.cut += 1 if cut else 0
            table.rows.append({name: cell for name, cell in cells.items() if name not in cut})
        elif line.strip():
            table.skipped.append(line)


class _Layout:
    """What both kinds of tables know of their columns, and the search for the one way to lay a row out."""

    def __init__(self, header: Header, checks: Mapping[str, Check], strict: Mapping[str, Check]) -> None:
        self.header = header
        names = [name.partition("#")[0] for name in header.columns]
        self.checks = [checks.get(name) for name in names]
        self.strict = [strict.get(name) for name in names]
        self.free = [name in FREE_TEXT for name in names]
        if header.has("JOBID", "JOBIDRAW") and header.delimiter is not None:
            # Slurm's own words for why a job waits: they may hold blanks and commas, nothing else.
            wordy = {"REASON", "NODELISTREASON"}
            self.free = [free and name not in wordy for free, name in zip(self.free, names, strict=True)]
        if header.delimiter == ",":
            self.free = [free or name in _WITH_COMMAS for free, name in zip(self.free, names, strict=True)]

    def valid(self, cells: Sequence[str]) -> bool:
        return all(
            check is None or check(cell.strip()) for check, cell in zip(self.checks, cells, strict=True)
        )

    def agreed(self, count: int, join: Callable[[int, int], str]) -> list[str] | None:
        """``count`` pieces to columns. Of several ways what they agree on, unless a column with a check is in
        doubt. ``join`` gives the text of the pieces from one to before another.
        """
        ways = list(self._ways(count, join))
        if not ways:
            return None
        first = ways[0]
        doubtful = {i for i in range(len(first)) if any(way[i] != first[i] for way in ways)}
        if any(self.strict[i] is not None for i in doubtful):
            return None
        return ["" if i in doubtful else cell for i, cell in enumerate(first)]

    def _ways(self, count: int, join: Callable[[int, int], str]) -> Iterator[list[str]]:
        """Every way to give the pieces that are too many to free texts that leaves the others valid."""
        columns = len(self.header.columns)
        steps = found = 0
        stack: list[tuple[list[str], int, int]] = [([], 0, count - columns)]
        while stack and found < _MAX_WAYS:
            done, at, left = stack.pop()
            steps += 1
            if steps > _MAX_STEPS:
                return
            column = len(done)
            if column == columns:
                if left == 0:
                    found += 1
                    yield done
                continue
            check = self.strict[column]
            for more in range(left + 1 if self.free[column] else 1):
                cell = join(at, at + 1 + more)
                if check is None or check(cell.strip()):
                    stack.append(([*done, cell], at + 1 + more, left - more))


class _Delimited(_Layout):
    def lay_out(self, row: str, table: Table) -> Cells | None:
        delimiter = self.header.delimiter or "|"
        pieces = row.split(delimiter)
        extra = len(pieces) - len(self.header.columns)
        if extra < 0 or (extra == 0 and not self.valid(pieces)):
            return None
        cells = pieces if extra == 0 else self.agreed(len(pieces), lambda a, b: delimiter.join(pieces[a:b]))
        if cells is None:
            return None
        table.delimiter_in_text += 1 if extra else 0
        return {
            name: cell if free else cell.strip()
            for name, cell, free in zip(self.header.columns, cells, self.free, strict=True)
        }


class _Blank(_Layout):
    """Columns by their place in the header, else by blanks, texts taking the words that are too many."""

    def lay_out(self, row: str, table: Table) -> Cells | None:
        return self._by_place(row, table) or self._by_blanks(row)

    def _by_place(self, row: str, table: Table) -> Cells | None:
        if "\n" in row:
            return None
        row = row.ljust(self.header.starts[-1] + 1)
        starts = (0, *self.header.starts[1:], len(row) + 1)
        widths = [b - a for a, b in pairwise(starts)]
        widths[-1] = _O_WIDTH if set(widths[:-1]) == {_O_WIDTH} else len(row) + 2
        cells = [row[a:b] for a, b in pairwise(starts)]
        touching = [i for i, cell in enumerate(cells[:-1]) if not cell.endswith(" ")]
        if touching and set(widths[:-1]) != {_O_WIDTH}:
            return None  # only -O lets columns touch
        # A cell that fills its column may be cut: unknown if it is no identity, else no row.
        full = {i for i, free in enumerate(self.free) if free and len(cells[i].rstrip()) >= widths[i] - 1}
        if len(cells[-1].rstrip()) >= widths[-1]:
            full.add(len(cells) - 1)
        full.update(touching)
        if any(self.checks[i] is not None for i in full) or not self.valid(cells):
            return None
        table.cut += 1 if full else 0
        return self._named([*cells], without=full)

    def _by_blanks(self, row: str) -> Cells | None:
        spans = [match.span() for match in _WORD.finditer(row)]
        columns = len(self.header.columns)
        if len(spans) < columns:
            return None
        if len(spans) == columns:
            words = [row[a:b] for a, b in spans]
            return self._named(words) if self.valid(words) else None
        cells = self.agreed(len(spans), lambda a, b: row[spans[a][0] : spans[b - 1][1]])
        return None if cells is None else self._named(cells)

    def _named(self, cells: Sequence[str], without: Set[int] = frozenset()) -> Cells:
        named = zip(self.header.columns, cells, strict=True)
        return {name: cell.strip() for i, (name, cell) in enumerate(named) if i not in without}


def _read_joined(layout: _Delimited | _Blank, lines: Sequence[str], table: Table) -> None:
    """Rows, each of one line or of several: a text may hold line breaks.

    A line that is a row on its own begins one, so that a fragment cannot swallow the row after it.
    """
    last_is_free = layout.free[-1]
    position, budget = 0, _MAX_JOINED_CHARS
    while position < len(lines):
        line = lines[position]
        position += 1
        if not line.strip():
            continue
        cells = layout.lay_out(line, table)
        row = line
        taken = position
        while cells is None and taken < min(len(lines), position + _MAX_JOINED) and budget > 0:
            if layout.lay_out(lines[taken], Table()) is not None:
                break
            row = f"{row}\n{lines[taken]}"
            budget -= len(row)
            taken += 1
            cells = layout.lay_out(row, table)
        if cells is not None:
            position = taken
            table.rows.append(cells)
        elif last_is_free and table.rows and isinstance(layout, _Delimited):
            last = layout.header.columns[-1]
            table.rows[-1] = {**table.rows[-1], last: f"{table.rows[-1][last]}\n{line}"}
        else:
            table.skipped.append(line)
