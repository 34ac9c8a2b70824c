"""What ``sickbay collect slurm`` prints for an input, as objects, whole or shortened to what they say."""

from __future__ import annotations

import json
from typing import Any

from collector.encode import to_json_line
from collector.slurm.reader import read_captured

NOW = 1_796_096_300.0
_SAYS_NOTHING: tuple[Any, ...] = (None, [], {}, "unknown")


def lines(data: bytes | str, *, now: float = NOW) -> list[dict[str, Any]]:
    """Every printed object, all keys. Times in the text are UTC."""
    raw = data.encode() if isinstance(data, str) else data
    return [json.loads(to_json_line(r)) for r in read_captured(raw, now=now, utc=True).records]


def said(data: bytes | str, kind: str, *, now: float = NOW) -> list[dict[str, Any]]:
    """The objects of one type without the keys that say nothing (null, empty, unknown)."""
    return [
        {key: value for key, value in line.items() if value not in _SAYS_NOTHING and key != "type"}
        for line in lines(data, now=now)
        if line["type"] == kind
    ]


def problems(data: bytes | str) -> list[tuple[str, int]]:
    """(reason, count) of each problem."""
    return [(line["reason"], line["count"]) for line in lines(data) if line["type"] == "problem"]
