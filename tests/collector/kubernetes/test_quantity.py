"""Quantities: exact, and nothing guessed."""

from __future__ import annotations

import contextlib
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.kubernetes.quantity import parse_count, parse_quantity
from fleet.errors import InvalidInputError


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("8", "8"),
        ("0", "0"),
        ("191500m", "191.5"),
        ("1056270524Ki", "1081621016576"),
        ("1Ti", "1099511627776"),
        ("512M", "512000000"),
        ("1e3", "1000"),
        ("1E", "1000000000000000000"),
        ("1.5Gi", "1610612736"),
        ("100k", "100000"),
        ("+8", "8"),
        ("-1", "-1"),
        ("8.0", "8"),
        (".5", "0.5"),
        ("1500000m", "1500"),
        ("64G", "64000000000"),
        ("2n", "0.000000002"),
        ("3u", "0.000003"),
        (8, "8"),
        (8.5, "8.5"),
    ],
)
def test_a_quantity_is_read_exactly(text: object, number: str) -> None:
    assert parse_quantity(text) == Decimal(number)


@pytest.mark.parametrize("text", ["", "8 ", "eight", "1Kib", "0x8", "1ee3", "1K", None, True, [], "٣"])
def test_anything_else_is_refused(text: object) -> None:
    with pytest.raises(InvalidInputError):
        parse_quantity(text)


@pytest.mark.parametrize(("text", "count"), [("8", 8), ("8.0", 8), ("1e1", 10), ("2000m", 2), (0, 0)])
def test_a_count_of_devices_is_whole(text: object, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["191.5", "-1", "500m", "NaN", float("nan"), float("inf")])
def test_no_count_of_devices(text: object) -> None:
    with pytest.raises(InvalidInputError):
        parse_count(text)


@given(st.text(max_size=30) | st.floats() | st.integers())
def test_any_input_is_a_number_or_refused(value: object) -> None:
    with contextlib.suppress(InvalidInputError):
        assert parse_quantity(value).is_finite()
