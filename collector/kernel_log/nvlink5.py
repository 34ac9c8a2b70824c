"""NVLink 5 register dumps (XID 144-150), decoded where the line does not say the unit in words.

Source: the NVLink 5 table of NVIDIA's XID catalogue, in ``collector/data/nvlink5.csv``: which bits of the
first register name the unit, before driver branch R575 and from it on, and what the second one (the error
status) means there. The same bits name different units on the two sides of R575.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib import resources
from types import MappingProxyType

NVLINK5_CODES = frozenset(range(144, 151))
_FIRST_OF_NEW_LAYOUT = 575
_BRANCH = re.compile(r"\s*[rR]?(\d{3})(?:\.|$|\s)", re.A)
_MAX_REGISTER = 2**32


class Layout(Enum):
    """How the first register is laid out."""

    BEFORE_575 = "before_575"
    FROM_575 = "from_575"


@dataclass(frozen=True, slots=True)
class Decoded:
    """What the registers say. None: the table does not know, or its layouts disagree."""

    unit: str | None = None
    fatal: bool | None = None


@dataclass(frozen=True, slots=True)
class _Row:
    unit: str
    mask: int
    bits: int
    status: frozenset[int]
    fatal: bool


def layout_of(driver: str | None) -> Layout | None:
    """Of a driver version such as ``570.86.15`` or ``R580``; None where it is not known."""
    branch = _BRANCH.match(driver) if driver is not None else None
    if branch is None:
        return None
    return Layout.FROM_575 if int(branch[1]) >= _FIRST_OF_NEW_LAYOUT else Layout.BEFORE_575


def decode(code: int, registers: tuple[str, ...], driver: str | None) -> Decoded:
    """The unit, and whether the error is fatal, by the registers of one dump.

    ``fatal`` needs the driver's branch: on a guess nobody drains a node. Without it the unit is named only
    where both layouts name the same.
    """
    words = [_number(text) for text in registers[:2]]
    if not words or words[0] is None:
        return Decoded()
    status = words[1] if len(words) > 1 else None
    layout = layout_of(driver)
    if layout is not None:
        return _by_layout(code, words[0], status, layout)
    units = {_by_layout(code, words[0], status, one).unit for one in Layout}
    return Decoded(unit=units.pop() if len(units) == 1 else None)


def _by_layout(code: int, first: int, status: int | None, layout: Layout) -> Decoded:
    named = [row for row in _table()[layout].get(code, ()) if first & row.mask == row.bits]
    exact = [row for row in named if not row.status or status in row.status]
    units = {row.unit for row in named}
    fatal = {row.fatal for row in exact}
    return Decoded(
        unit=units.pop() if len(units) == 1 else None,
        fatal=any(fatal) if exact and len({row.unit for row in exact}) == 1 else None,
    )


def _number(text: str) -> int | None:
    try:
        value = int(text, 16)
    except ValueError:
        return None
    return value if 0 <= value < _MAX_REGISTER else None


@cache
def _table() -> Mapping[Layout, Mapping[int, tuple[_Row, ...]]]:
    tables: dict[Layout, dict[int, tuple[_Row, ...]]] = {layout: {} for layout in Layout}
    text = resources.files("collector.data").joinpath("nvlink5.csv").read_text("utf-8")
    for line in csv.DictReader(text.splitlines()):
        for layout, unit in zip(Layout, _names(line["unit"]), strict=True):
            pattern = line[layout.value]
            row = _Row(
                unit=unit,
                mask=int("".join("0" if bit == "-" else "1" for bit in pattern), 2),
                bits=int(pattern.replace("-", "0"), 2),
                status=frozenset(_statuses(line["status"])),
                fatal=line["fatal"] == "1",
            )
            known = tables[layout].setdefault(int(line["code"]), ())
            tables[layout][int(line["code"])] = (*known, row)
    return MappingProxyType(tables)


def _names(unit: str) -> tuple[str, str]:
    """The unit's name before R575 and from it on."""
    old, _, new = unit.partition("/")
    return old, new or old


def _statuses(text: str) -> Iterator[int]:
    return (int(word, 16) for word in text.split("/") if word)
