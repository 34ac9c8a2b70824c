"""Whatever NVML answers, and whatever a snapshot holds: records, no exception, no neighbour harmed."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import pynvml
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.encode import to_json_line
from collector.nvml.reader import read_nvml
from collector.nvml.snapshot import Snapshot
from collector.signals import load_signals
from fleet.observations import ProblemReason, Reading
from tests.support.fake_nvml import Fails, FakeNvml, gpu

NOW = 1_770_000_000.0
_ERRORS = sorted(name.removeprefix("NVML_ERROR_") for name in vars(pynvml) if name.startswith("NVML_ERROR_"))
_CALLS = sorted({key if isinstance(key, str) else key[0] for key in gpu().calls})
_FIELDS = sorted({key if isinstance(key, str) else key[0] for key in gpu().fields})


def printed(library: Any) -> bytes:
    lines: list[str] = []
    Snapshot(library, lambda line: lines.append(json.dumps(line))).take()
    return "\n".join([*lines, ""]).encode()


WHOLE = printed(FakeNvml([gpu(), gpu(1), gpu(2)]))


def check(data: bytes) -> Reading:
    reading = read_nvml(data, node="n01", now=NOW)
    signals = load_signals()
    for record in reading.records:
        json.loads(to_json_line(record))
    for sample in reading.samples:
        assert sample.signal in signals
        assert math.isfinite(sample.value)
        assert sample.signal == "gpu_temperature_margin_celsius" or sample.value >= 0
    assert reading.ok or reading.problems
    return reading


def by_index(reading: Reading) -> dict[int | None, set[tuple[str, float]]]:
    found: dict[int | None, set[tuple[str, float]]] = {}
    for sample in reading.samples:
        found.setdefault(sample.index, set()).add((sample.signal, sample.value))
    return found


GOOD = by_index(check(WHOLE))


@given(st.binary(max_size=400))
def test_any_bytes(data: bytes) -> None:
    check(data)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["gpu", "uuid", "pci", "columns", "mig", "gi", "ci", "name", "processes", "pid", "bytes", "lost",
             "code", "call", "failed", "nvml", "count", "bound", "driver", "timeout", "end", "error",
             "temperature.gpu", "power.draw", "fabric.state", "clocks_event_reasons.active"]
        ),
        inner,
        max_size=6,
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.lists(_JSON, max_size=6))
def test_any_lines(lines: list[Any]) -> None:
    check("\n".join(json.dumps(line) for line in lines).encode())


@given(st.integers(0, len(WHOLE) - 2))
def test_any_cut_is_told_and_keeps_the_gpus_before_it(end: int) -> None:
    reading = check(WHOLE[:end])
    assert {p.reason for p in reading.problems} <= {ProblemReason.TRUNCATED, ProblemReason.UNREADABLE}
    assert reading.problems
    for index, found in by_index(reading).items():
        assert found == GOOD[index]


_NUMBERS = st.integers(-(2**70), 2**70)
_ODD = st.one_of(
    st.sampled_from(_ERRORS).map(Fails),
    _NUMBERS,
    st.builds(SimpleNamespace, total=_NUMBERS, used=_NUMBERS, free=_NUMBERS, gpu=_NUMBERS, memory=_NUMBERS,
              busId=st.text(max_size=16) | st.binary(max_size=16), violationTime=_NUMBERS),
    st.lists(_NUMBERS, max_size=5),
)  # fmt: skip


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(_CALLS), st.sampled_from(_ERRORS), max_size=8),
       st.dictionaries(st.sampled_from(_FIELDS), st.sampled_from(_ERRORS), max_size=4))  # fmt: skip
def test_any_failures_of_one_gpu_cost_no_other(calls: dict[str, str], fields: dict[str, str]) -> None:
    device = gpu(1).but(
        fields={name: Fails(error) for name, error in fields.items()},
        **{name: Fails(error) for name, error in calls.items()},
    )
    reading = check(printed(FakeNvml([gpu(), device, gpu(2)])))
    assert reading.ok
    assert {p.index for p in reading.problems} <= {1}
    found = by_index(reading)
    assert (found[0], found[2]) == (GOOD[0], GOOD[2])


@settings(max_examples=200)
@given(st.sampled_from(_CALLS), _ODD)
def test_a_call_that_answers_nonsense(call: str, answer: Any) -> None:
    """Values of the wrong kind are the driver's fault or the binding's: never an exception of ours."""
    reading = check(printed(FakeNvml([gpu(), gpu(1).but(**{call: answer}), gpu(2)])))
    found = by_index(reading)
    assert (found[0], found[2]) == (GOOD[0], GOOD[2])
