"""docs/collect.md names every record's keys and every reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from collector.encode import to_dict
from fleet.observations import (
    Allocation,
    Event,
    EventKind,
    GpuProcess,
    Problem,
    ProblemReason,
    RecoveryAction,
    Sample,
    TimeSource,
)
from fleet.scheduler import JobRecord, NodeRecord, NodeState

PAGE = (Path(__file__).parents[2] / "docs" / "collect.md").read_text(encoding="utf-8")
RECORDS = [
    Sample(node=None, signal="s", value=0.0, time=0.0),
    Event(kind=EventKind.XID, node=None, time=0.0),
    GpuProcess(node=None, gpu=None, pid=1, time=0.0),
    Allocation(node=None, gpu=None),
    Problem(source="slurm", reason=ProblemReason.PARTIAL, message=""),
    NodeRecord(name="n01", state=NodeState.IDLE),
    JobRecord(id="1", state="running"),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_every_key_of_a_record_is_told(record: object) -> None:
    keys = list(to_dict(record))
    row = re.search(rf"^\| `{to_dict(record)['type']}` \|.*\| `([a-z_, ]+)` \|$", PAGE, re.M)
    assert row is not None
    assert row[1].split(", ") == keys[1:]


@pytest.mark.parametrize("words", [ProblemReason, EventKind, TimeSource, RecoveryAction, NodeState])
def test_closed_lists_are_whole(words: type[ProblemReason]) -> None:
    known = set(re.findall(r"[a-z0-9_]+", PAGE))
    assert {word.value for word in words} <= known
