"""The store itself: who is a target, what is a tick, what is forgotten."""

from __future__ import annotations

import numpy as np
import pytest

from fleet.identity import MigInstance
from fleet.observations import Allocation, Problem, ProblemReason, Reading, Sample
from rules.metrics.intake import Target
from rules.metrics.windows import Answer, SampleWindows

SIGNAL = "gpu_temperature_celsius"


def windows(**more: float) -> SampleWindows:
    return SampleWindows([SIGNAL], horizon_seconds=100, step_seconds=10, **more)  # type: ignore[arg-type]


def sample(
    value: float, at: float, *, node: str | None = "n1", gpu: str | None = "GPU-a", **more: object
) -> Sample:
    return Sample(node=node, signal=SIGNAL, value=value, time=at, gpu=gpu, **more)  # type: ignore[arg-type]


def column(store: SampleWindows, at: float) -> list[float]:
    return store.matrix(SIGNAL, at, 1000)[1][0].tolist()


def test_a_window_is_left_open() -> None:
    store = windows()
    for tick in range(5):
        store.append([Reading((sample(tick, tick * 10),))], tick * 10)
    times, values = store.matrix(SIGNAL, 40, 20)
    assert times.tolist() == [30, 40]
    assert values.tolist() == [[3, 4]]


def test_passes_of_one_step_join() -> None:
    store = windows()
    store.append([Reading((sample(1, 0),))], 0)
    store.append([Reading((sample(2, 2, gpu="GPU-b"),))], 2)
    times, values = store.matrix(SIGNAL, 10, 100)
    assert times.tolist() == [0]
    assert values.tolist() == [[1], [2]]


def test_a_clock_that_goes_back_starts_again() -> None:
    store = windows()
    store.append([Reading((sample(1, 1000),))], 1000)
    store.append([Reading((sample(2, 500),))], 500)
    assert store.started_at == 500
    assert store.matrix(SIGNAL, 500, 1000)[1].tolist() == [[2]]


def test_memory_is_bounded_and_the_old_is_forgotten() -> None:
    store = windows()
    for tick in range(500):
        gpus = (f"GPU-{tick}", f"GPU-{tick}-b", "GPU-stays")
        store.append(
            [Reading(tuple(sample(1, tick * 10, node=f"n{tick % 3}", gpu=g) for g in gpus))], tick * 10
        )
    assert store.rows <= 64
    assert len(store.ticks(5000, 1e9)) == 14
    fresh = windows()
    for tick in range(500):
        fresh.append([Reading((sample(1, tick * 10, node=f"n{tick}"),))], tick * 10)
    assert len(fresh.nodes) <= 64


def test_a_reused_row_remembers_nothing() -> None:
    store = windows()
    store.append([Reading((sample(7, 0, index=3, pci="0000:01:00.0"),))], 0)
    for tick in range(1, 13):
        store.append([Reading((sample(1, tick * 10, gpu="GPU-b"),))], tick * 10)
    store.append([Reading((sample(9, 130, gpu="GPU-c"),))], 130)
    row = store.row_of(Target("n1", "GPU-c"))
    assert row == 0
    assert store.place(0) == (None, None)
    assert np.isnan(column(store, 130)).sum() == 13


def test_too_many_targets_are_refused_and_counted() -> None:
    store = windows(max_targets=2)
    store.append([Reading(tuple(sample(1, 0, gpu=f"GPU-{n}") for n in range(5)))], 0)
    assert (store.rows, store.refused_targets) == (2, 3)


def test_many_targets_make_room() -> None:
    store = windows()
    targets = [Target(f"n{n // 8}", f"GPU-{n}") for n in range(1000)]
    store.append_columns(0, targets, {SIGNAL: np.arange(1000.0)})
    assert store.matrix(SIGNAL, 0, 10)[1][:, 0].tolist() == list(range(1000))
    assert store.answers(0).tolist() == [Answer.WHOLE] * 125
    assert store.nbytes > 1000 * 8


@pytest.mark.parametrize(
    "bad",
    [
        sample(1, 0, node=None),
        sample(1, 0, gpu=None, index=3),
        sample(1, 0, gpu=None, pci="0000:01:00.0"),
        sample(1, -61),
        sample(1, 61),
    ],
)
def test_what_belongs_to_nobody_is_counted(bad: Sample) -> None:
    store = windows()
    store.append([Reading((bad,))], 0)
    assert (store.rows, store.unplaced_samples) == (0, 1)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_is_no_value(value: float) -> None:
    store = windows()
    store.append([Reading((sample(value, 0),))], 0)
    assert np.isnan(column(store, 0)).all()
    assert store.named(0).tolist() == [True]


def test_a_mig_instance_names_its_gpu_only() -> None:
    store = windows()
    store.append([Reading((sample(50, 0, mig=MigInstance(7)),))], 0)
    assert store.named(0).tolist() == [True]
    assert np.isnan(column(store, 0)).all()


def test_an_allocation_names_its_gpu() -> None:
    store = windows()
    store.append([Reading((Allocation(node="n1", gpu="GPU-a", jobs=("1",)),))], 0)
    assert store.named(0).tolist() == [True]


@pytest.mark.parametrize(
    ("problem", "answer"),
    [
        (Problem(source="dcgm", reason=ProblemReason.TRUNCATED, message="", node="n1"), Answer.DAMAGED),
        (Problem(source="dcgm", reason=ProblemReason.TRUNCATED, message=""), Answer.DAMAGED),
        (Problem(source="dcgm", reason=ProblemReason.UNREADABLE, message="", node="n2"), Answer.WHOLE),
        (Problem(source="dcgm", reason=ProblemReason.PARTIAL, message="", node="n1"), Answer.WHOLE),
        (
            Problem(source="dcgm", reason=ProblemReason.UNREADABLE, message="", node="n1", gpu="GPU-a"),
            Answer.WHOLE,
        ),
        (Problem(source="x", reason=ProblemReason.GPU_LOST, message="", node="n1", index=3), Answer.WHOLE),
    ],
)
def test_whether_an_answer_is_whole(problem: Problem, answer: Answer) -> None:
    store = windows()
    store.append([Reading((sample(1, 0), problem))], 0)
    assert store.answers(0).tolist() == [answer]


def test_the_worse_of_two_answers_counts() -> None:
    store = windows()
    torn = Problem(source="dcgm", reason=ProblemReason.TRUNCATED, message="", node="n1")
    store.append([Reading((sample(1, 0), torn)), Reading((sample(1, 0),))], 0)
    store.append([Reading((sample(1, 1),))], 1)
    assert store.answers(0).tolist() == [Answer.DAMAGED]


def test_a_card_that_moved_is_known_on_both_nodes() -> None:
    store = windows()
    store.append([Reading((sample(1, 0),))], 0)
    store.append([Reading((sample(1, 10, node="n2"),))], 10)
    assert list(store.rows_of_gpu("GPU-a")) == [0, 1]


def test_a_signal_that_is_not_kept_is_unknown() -> None:
    store = windows()
    store.append([Reading((sample(1, 0),))], 0)
    assert np.isnan(store.values("gpu_power_watts", 0)).all()


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="step_seconds"):
        SampleWindows([], horizon_seconds=10, step_seconds=0)
    with pytest.raises(ValueError, match="horizon"):
        SampleWindows([], horizon_seconds=1, step_seconds=5)
