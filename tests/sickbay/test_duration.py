"""Durations as people write and read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.errors import InvalidInputError
from sickbay.duration import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10m", 600),
        ("90s", 90),
        ("1h30m", 5400),
        ("2d", 172_800),
        ("1w", 604_800),
        ("45", 45),
        (" 1.5H ", 5400),
    ],
)
def test_what_people_write(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "m", "10 m", "10x", "-5m", "0s", "1e9", "inf", "nan", "400d", "1" * 99, "٣m"]
)
def test_what_is_none(text):
    with pytest.raises(InvalidInputError):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "250 ms"), (45, "45 s"), (60, "1 min"), (725, "12 min 5 s"), (10_800, "3 h"),
     (187_200, "2 d 4 h"), (86_405, "1 d"), (-60, "-1 min"), (0.9999, "1 s"), (59.7, "1 min")],
)  # fmt: skip
def test_what_people_read(seconds, text):
    assert format_duration(seconds) == text


@given(st.text(max_size=40))
def test_any_text_is_seconds_or_an_error(text):
    try:
        assert parse_duration(text) > 0
    except InvalidInputError as error:
        assert "\n" not in str(error)  # noqa: PT017 - both ends are right
