"""Records as JSON: the exact keys, and pushed events there and back."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.encode import event_from_dict, event_to_push, sequence_from_dict, to_dict, to_json_line
from collector.prometheus_text import to_prometheus
from fleet.errors import InvalidInputError
from fleet.identity import MigInstance
from fleet.observations import (
    AlertRecord,
    Allocation,
    Event,
    EventKind,
    GpuProcess,
    Problem,
    ProblemReason,
    Reading,
    RecoveryAction,
    Sample,
    TimeSource,
)
from fleet.scheduler import ArrayRef, JobRecord, NodeRecord, NodeState, Owner, Reason

T = 1767225600.0
SHAPES: list[tuple[object, str]] = [
    (
        Sample(
            node="n01",
            gpu="GPU-1",
            index=0,
            pci="0000:3b:00.0",
            signal="gpu_temperature_celsius",
            value=64.0,
            time=T,
        ),
        '{"type":"sample","node":"n01","gpu":"GPU-1","index":0,"pci":"0000:3b:00.0","mig":null,'
        '"signal":"gpu_temperature_celsius","value":64.0,"time":1767225600.0,"labels":{}}',
    ),
    (
        Event(
            kind=EventKind.XID,
            code=79,
            node="n01",
            pci="0000:3b:00.0",
            time=T,
            pid=1234,
            process="python",
            message="m",
        ),
        '{"type":"event","kind":"xid","code":79,"node":"n01","gpu":null,"pci":"0000:3b:00.0","mig":null,'
        '"time":1767225600.0,"time_source":"line","pid":1234,"process":"python","cause":null,"link":null,'
        '"unit":null,"registers":[],"fatal":null,"recovery_action":null,"uncertain":false,"count":1,"message":"m"}',
    ),
    (
        GpuProcess(node="n01", gpu="GPU-1", pid=4711, name="python", memory_bytes=1073741824, time=T),
        '{"type":"process","node":"n01","gpu":"GPU-1","pid":4711,"name":"python","memory_bytes":1073741824,'
        '"time":1767225600.0}',
    ),
    (
        Allocation(node="n01", gpu="GPU-1", index=0, jobs=("4711",), pods=("team-a/train-0",)),
        '{"type":"allocation","node":"n01","gpu":"GPU-1","index":0,"mig":null,"jobs":["4711"],'
        '"pods":["team-a/train-0"]}',
    ),
    (
        Problem(source="nvidia-smi", node="n01", reason=ProblemReason.DRIVER_LIBRARY_MISMATCH, message="m"),
        '{"type":"problem","source":"nvidia-smi","node":"n01","gpu":null,"index":null,"pci":null,'
        '"reason":"driver_library_mismatch","count":1,"message":"m"}',
    ),
    (
        NodeRecord(
            name="n01",
            state=NodeState.DRAINING,
            base="mixed",
            flags=("DRAIN",),
            partitions=("gpu",),
            gpus_total=8,
            gpus_allocated=6,
            gpu_types={"h100": 8},
            owner=Owner.FOREIGN,
            reason=Reason("bad dimm", "root"),
        ),
        '{"type":"node","name":"n01","uid":null,"boot_id":null,"machine_id":null,"state":"draining","base":"mixed",'
        '"flags":["DRAIN"],"partitions":["gpu"],"gpus_total":8,"gpus_allocated":6,"gpu_types":{"h100":8},'
        '"gpu_resources":{},"memory_free_bytes":null,"os":null,"owner":"foreign",'
        '"reason":{"text":"bad dimm","user":"root","time":null},"comment":null,"extra":null,"ready":null,'
        '"schedulable":false}',
    ),
    (
        JobRecord(id="70_7", state="running", array=ArrayRef("70", 7), nodes=("n01",), gpus=8),
        '{"type":"job","id":"70_7","array":{"job":"70","task":7},"name":null,"user":null,"state":"running",'
        '"nodes":["n01"],"partitions":[],"gpus":8,"gpu_use":"unknown","requeue":null,"kind":"unknown",'
        '"time_left_seconds":null,"memory_bytes":null,"exit_code":null,"signal":null,"failed_nodes":[],'
        '"ended_at":null,"restarts":0}',
    ),
    (
        AlertRecord(name="GpuFellOffBus", status="firing", node="n01", index=3, severity="critical"),
        '{"type":"alert","name":"GpuFellOffBus","status":"firing","node":"n01","unresolved":null,"gpu":null,'
        '"index":3,"severity":"critical","starts_at":null,"ends_at":null,"fingerprint":null}',
    ),
]


@pytest.mark.parametrize(("record", "line"), SHAPES, ids=lambda value: type(value).__name__)
def test_every_record_has_exactly_its_keys(record: object, line: str) -> None:
    assert to_json_line(record) == line


def test_a_pending_rest_of_an_array_and_a_mig_slice() -> None:
    job = JobRecord(id="70_[7-8%1]", state="pending", array=ArrayRef("70", tasks="7-8", limit=1))
    assert to_dict(job)["array"] == {"job": "70", "tasks": "7-8", "limit": 1}
    allocation = Allocation(node=None, gpu=None, mig=MigInstance(7, None, "1g.10gb"))
    assert to_dict(allocation)["mig"] == {"gi": 7, "ci": None, "profile": "1g.10gb"}


def test_only_records_are_encoded() -> None:
    with pytest.raises(TypeError):
        to_dict({"type": "event"})


WORDS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), max_size=40)
WHOLE = st.integers(0, 2**63 - 1)
EVENTS = st.builds(
    Event,
    kind=st.sampled_from(EventKind),
    node=st.from_regex(r"\A[a-z][a-z0-9-]{0,20}[a-z0-9]\Z"),
    time=st.floats(0, 1e12),
    time_source=st.sampled_from(TimeSource),
    code=WHOLE,
    gpu=st.none() | WORDS,
    pci=st.none() | st.from_regex(r"\A[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z"),
    mig=st.none() | st.builds(MigInstance, gi=WHOLE, ci=st.none() | WHOLE, profile=st.none() | WORDS),
    pid=st.none() | WHOLE,
    process=st.none() | WORDS,
    cause=st.none() | WHOLE,
    link=st.none() | WHOLE,
    unit=st.none() | WORDS,
    registers=st.lists(WORDS.filter(bool), max_size=8).map(tuple),
    fatal=st.none() | st.booleans(),
    recovery_action=st.none() | st.sampled_from(RecoveryAction),
    uncertain=st.booleans(),
    count=st.integers(1, 2**63 - 1),
    message=WORDS,
    boot_id=WORDS.filter(bool),
)


@given(EVENTS, WHOLE)
def test_a_pushed_event_comes_back_as_it_was(event: Event, sequence: int) -> None:
    pushed = json.loads(json.dumps(event_to_push(event, sequence=sequence)))
    assert event_from_dict(pushed) == event
    assert sequence_from_dict(pushed) == sequence


LEAST: dict[str, Any] = {"kind": "xid", "code": 79, "node": "n01", "time": T, "boot_id": "b", "sequence": 1}


def test_the_least_an_event_needs() -> None:
    event = event_from_dict({**LEAST, "from_the_future": [1]})
    assert event == Event(kind=EventKind.XID, code=79, node="n01", time=T, boot_id="b")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", None),
        ("kind", "xidd"),
        ("kind", 7),
        ("kind", ["xid"]),
        ("node", None),
        ("node", "n[1-4]"),
        ("node", "n1,n2"),
        ("node", ""),
        ("node", 5),
        ("time", None),
        ("time", True),
        ("time", "now"),
        ("time", -1),
        ("time", float("nan")),
        ("time", float("inf")),
        ("time_source", "guess"),
        ("boot_id", None),
        ("boot_id", ""),
        ("code", None),
        ("code", -1),
        ("code", 79.0),
        ("code", "79"),
        ("code", 2**63),
        ("pid", True),
        ("count", 0),
        ("count", -3),
        ("pci", "3b"),
        ("gpu", 3),
        ("process", "a\x00b"),
        ("message", "\ud800"),
        ("message", "x" * 10_000),
        ("registers", "0x1"),
        ("registers", [1]),
        ("registers", ["0x1"] * 100),
        ("fatal", 1),
        ("uncertain", "yes"),
        ("recovery_action", "reboot"),
        ("mig", 3),
        ("mig", {"ci": 1}),
        ("mig", {"gi": "1"}),
        ("type", "sample"),
    ],
)
def test_what_is_wrong_is_named(field: str, value: object) -> None:
    with pytest.raises(InvalidInputError, match=rf"^{field}\b"):
        event_from_dict({**LEAST, field: value})


def test_a_sequence_is_needed_for_a_push() -> None:
    with pytest.raises(InvalidInputError, match=r"^sequence\b"):
        sequence_from_dict({**LEAST, "sequence": None})


@given(st.dictionaries(st.sampled_from([*LEAST, "mig", "registers", "pci", "count"]), st.from_type(object)))
def test_any_object_is_an_event_or_invalid(data: dict[str, object]) -> None:
    with suppress(InvalidInputError):
        assert event_from_dict(data).count >= 1


def test_samples_and_events_as_prometheus_text() -> None:
    xid = Event(kind=EventKind.XID, code=79, node="n01", pci="0000:3b:00.0", time=T, count=41)
    text = to_prometheus(
        Reading(
            records=(
                Sample(node="n01", index=0, signal="gpu_temperature_celsius", value=64.0, time=T),
                Sample(node="n01", index=1, signal="gpu_temperature_celsius", value=65.0, time=T),
                Sample(
                    node="n01", index=0, signal="gpu_ecc_total", value=3.0, time=T, labels={"kind": "dbe"}
                ),
                xid,
                xid,
            )
        )
    )
    lines = [line for line in text.splitlines() if not line.startswith("# HELP")]
    assert lines == [
        "# TYPE sickbay_gpu_temperature_celsius gauge",
        'sickbay_gpu_temperature_celsius{gpu="0",node="n01",pci="",uuid=""} 64.0',
        'sickbay_gpu_temperature_celsius{gpu="1",node="n01",pci="",uuid=""} 65.0',
        "# TYPE sickbay_gpu_ecc_total counter",
        'sickbay_gpu_ecc_total{gpu="0",kind="dbe",node="n01",pci="",uuid=""} 3.0',
        "# TYPE sickbay_kernel_events_total counter",
        'sickbay_kernel_events_total{code="79",kind="xid",node="n01",pci="0000:3b:00.0"} 82.0',
    ]
    assert to_prometheus(Reading()) == ""


def test_one_family_however_its_samples_are_labelled() -> None:
    """A MIG slice has labels a board lacks; HELP and TYPE of a name may stand once only."""
    board = Sample(node="n1", signal="gpu_temperature_celsius", value=60.0, time=1.0, gpu="GPU-a", index=0)
    slice_ = replace(board, gpu="GPU-b", mig=MigInstance(gi=7), labels={"x": "y"})
    text = to_prometheus(Reading((board, slice_)))
    assert text.count("# TYPE sickbay_gpu_temperature_celsius gauge") == 1
    assert text.count("# HELP") == 1
    assert [line for line in text.splitlines() if 'gi="7"' in line and line.endswith(" 60.0")]
