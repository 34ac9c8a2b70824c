"""What a printed number means: blank codes, conversion to base units, plausibility."""

from __future__ import annotations

import math
from enum import StrEnum

from collector.dcgm.fields import Field, Zero


class Blank(StrEnum):
    """Why DCGM has no value (``dcgm_structs.h``). UNKNOWN: a blank whose kind was lost in a float."""

    BLANK = "blank"
    NOT_FOUND = "not found"
    NOT_SUPPORTED = "not supported"
    NOT_PERMISSIONED = "not permissioned"
    UNKNOWN = "unknown"


_KINDS = (Blank.BLANK, Blank.NOT_FOUND, Blank.NOT_SUPPORTED, Blank.NOT_PERMISSIONED)
_INT32_BLANK = 2147483632.0  # 0x7ffffff0
_FP64_BLANK = 140737488355328.0  # 2^47
_INT64_BLANK = 9223372036854775792  # 0x7ffffffffffffff0: no float holds it
_INT64_FLOOR = 9.2233720368547e18
# What exporters made of the fp64 codes by turning shares into percent.
_PERCENT = 100.0


class Verdict(StrEnum):
    """Why a number is no sample."""

    ABSENT = "absent"
    OUT_OF_RANGE = "out of range"
    IMPLAUSIBLE = "implausible"


def blank_kind(value: float, text: str) -> Blank | None:
    """Which of DCGM's blank codes this is, in any width, rounded or scaled; None for a number."""
    if value < _INT32_BLANK:
        return None
    if value >= _INT64_FLOOR:
        return _int64_kind(text) if value < math.inf else None
    for base in (_INT32_BLANK, _FP64_BLANK):
        offset = value - base
        if 0 <= offset < len(_KINDS) and offset == int(offset):
            return _KINDS[int(offset)]
    # At 1.4e16 a float still tells the four apart.
    offset = value / _PERCENT - _FP64_BLANK
    return _KINDS[round(offset)] if -0.5 < offset < len(_KINDS) - 0.5 else None  # noqa: PLR2004 - rounding


def _int64_kind(text: str) -> Blank:
    try:
        offset = int(text) - _INT64_BLANK
    except ValueError:
        return Blank.UNKNOWN
    return _KINDS[offset] if 0 <= offset < len(_KINDS) else Blank.UNKNOWN


def convert(field: Field, value: float, *, of_instance: bool) -> float | Verdict:
    """A printed, finite number that is no blank code, in base units; or why it is no sample."""
    if value == 0 and field.zero is not Zero.VALUE:
        return Verdict.ABSENT if field.zero is Zero.ABSENT else Verdict.IMPLAUSIBLE
    scaled = value * field.scale
    high = field.instance_high if of_instance else field.high
    if not field.low <= scaled <= high or (field.whole and value != int(value)):
        return Verdict.OUT_OF_RANGE
    if field.boolean:
        return 1.0 if scaled > 0 else 0.0
    return scaled
