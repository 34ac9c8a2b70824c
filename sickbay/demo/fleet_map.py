"""The fleet map: a cell per node, racks as rows. A sign says what a node does; colour and mark, how it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.text import Text

from fleet.findings import Verdict
from sickbay.demo.view import Cell, Look, View

#: Above this many nodes a cell is its sign alone, and several racks share a row.
NAMED_CELLS_UP_TO = 64
RACKS_A_ROW = 4
#: Columns of a row of eight named cells behind its rack's label.
MAP_WIDTH = 43
_LABEL_NAMED = 3
_LABEL_DENSE = 6

_SIGNS: Mapping[Look, tuple[str, str]] = {
    Look.BUSY: ("●", "#"),
    Look.IDLE: ("○", "."),
    Look.DRAINING: ("▼", "v"),
    Look.DRAINED: ("▽", "_"),
    Look.REBOOTING: ("↻", "@"),
    Look.PROBATION: ("◐", "%"),
    Look.ADMINS: ("■", "A"),
    Look.OTHER: ("·", "-"),
}
_STYLES = {Verdict.HEALTHY: "green", Verdict.UNHEALTHY: "bold red", Verdict.UNKNOWN: "yellow"}
_MARKS = {Verdict.HEALTHY: " ", Verdict.UNHEALTHY: "!", Verdict.UNKNOWN: "?"}


def fleet_map(view: View, *, ascii_only: bool) -> list[Text]:
    """The map's lines: rows of racks, then the legend with counts."""
    rows = _dense(view, ascii_only) if len(view.cells) > NAMED_CELLS_UP_TO else _named(view, ascii_only)
    return [*rows, Text(), *_legend(view.cells, ascii_only)]


def _sign(look: Look, ascii_only: bool) -> str:  # noqa: FBT001 - private
    return _SIGNS[look][int(ascii_only)]


def _named(view: View, ascii_only: bool) -> list[Text]:  # noqa: FBT001 - private
    rows: list[Text] = []
    for number, cells in enumerate(view.racks.values(), start=1):
        row = Text().append(f"r{number}".ljust(_LABEL_NAMED), "dim")
        for cell in cells:
            text = f"{_sign(cell.look, ascii_only)}{cell.name}{_MARKS[cell.verdict]}"
            row.append(text, _STYLES[cell.verdict])
        rows.append(row)
    return rows


def _dense(view: View, ascii_only: bool) -> list[Text]:  # noqa: FBT001 - private
    racks = list(view.racks.values())
    rows: list[Text] = []
    for first in range(0, len(racks), RACKS_A_ROW):
        row = Text().append(f"r{first + 1}".ljust(_LABEL_DENSE), "dim")
        for cells in racks[first : first + RACKS_A_ROW]:
            for cell in cells:
                row.append(_sign(cell.look, ascii_only), _STYLES[cell.verdict])
            row.append(" ")
        rows.append(row)
    return rows


def _legend(cells: Sequence[Cell], ascii_only: bool) -> list[Text]:  # noqa: FBT001 - private
    looks = Counter(cell.look for cell in cells)
    verdicts = Counter(cell.verdict for cell in cells)
    shown = [look for look in Look if look is not Look.OTHER or looks[look]]
    lines = _packed([f"{_sign(look, ascii_only)} {look} {looks[look]}" for look in shown])
    last = Text()
    for verdict in Verdict:
        mark = _MARKS[verdict].strip()
        last.append(f"{verdict}{mark} {verdicts[verdict]}", _STYLES[verdict])
        last.append("  ")
    return [*lines, last]


def _packed(items: Sequence[str]) -> list[Text]:
    """Items in as few lines of the map's width as they need."""
    lines = [""]
    for item in items:
        longer = f"{lines[-1]}  {item}" if lines[-1] else item
        if len(longer) <= MAP_WIDTH:
            lines[-1] = longer
        else:
            lines.append(item)
    return [Text(line) for line in lines]
