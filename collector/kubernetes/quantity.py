"""Kubernetes quantities: ``191500m``, ``1Ti``, ``1e3``. Grammar: apimachinery ``resource.Quantity``."""

from __future__ import annotations

import re
from decimal import Decimal

from fleet.errors import InvalidInputError

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))"
    r"(?:(?P<binary>[KMGTPE]i)|(?P<decimal>[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]{1,3}))?"
)
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_LONGEST = 64


def parse_quantity(value: object) -> Decimal:
    """The exact number in base units. JSON numbers are accepted too; anything else: InvalidInputError."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) and len(value) <= _LONGEST else None
    if match is None:
        raise InvalidInputError(f"{str(value)[:40]!r} is no Kubernetes quantity (such as 8, 500m or 16Gi)")
    number = Decimal(match["number"])
    if match["binary"]:
        return number * Decimal(1024) ** _BINARY[match["binary"]]
    exponent = _DECIMAL[match["decimal"]] if match["decimal"] else int(match["exponent"] or 0)
    return number.scaleb(exponent)


def parse_count(value: object) -> int:
    """A whole number of devices, 0 or more; else InvalidInputError."""
    number = parse_quantity(value)
    if number < 0 or number != number.to_integral_value():
        raise InvalidInputError(f"{str(value)[:40]!r} is no count of devices (a whole number, 0 or more)")
    return int(number)
