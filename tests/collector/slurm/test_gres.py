"""GPUs in GRES and TRES strings of every form seen in reports."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.slurm.gres import node_total, parse_gres
from collector.slurm.records import gpu_use
from fleet.scheduler import GpuUse


@pytest.mark.parametrize(
    ("text", "total", "types"),
    [
        ("gpu:NVlink_A100_40GB:2(IDX:0,3)", 2, {"NVlink_A100_40GB": 2}),
        ("gpu:8(S:0-3)", 8, {"gpu": 8}),
        ("gpu:k80:4(IDX:0-3)", 4, {"k80": 4}),
        ("gpu:h100:8(S:0-1)", 8, {"h100": 8}),
        ("gpu:h100:4(S:0),gpu:l40s:2(S:1),nvme:1", 6, {"h100": 4, "l40s": 2}),
        ("gpu:h100:0(IDX:N/A),gpu:l40s:1(IDX:5)", 1, {"h100": 0, "l40s": 1}),
        ("gpu:(null):3(IDX:0-2)", 3, {"gpu": 3}),
        ("gpu:4,shard:20", 4, {"gpu": 4}),
        ("gpu:1(IDX:0),shard:8(-/5,5/5,3/5,0/5)", 1, {"gpu": 1}),
        ("cpu=16,mem=128G,node=2,billing=16,gres/gpu=8,gres/gpu:h100=8", 8, {"h100": 8}),
        ("gres/gpu:h100=8,gres/gpu=8", 8, {"h100": 8}),
        ("gres/gpu=8,gres/gpu:h100=6", 8, {"h100": 6, "gpu": 2}),
        ("gres/gpu:rtx_2080_ti=1", 1, {"rtx_2080_ti": 1}),
        ("gpu:titan:0", 0, {"titan": 0}),
        ("(null)", 0, {}),
        ("", 0, {}),
        ("nvlink:1", 0, {}),
        ("cpu=4,mem=8G", 0, {}),
        ("gpu:tesla-v100-sxm2:2", 2, {"tesla-v100-sxm2": 2}),
        ("gres:gpu:2", 2, {"gpu": 2}),
        ("gres/gpu:2", 2, {"gpu": 2}),
        ("gres/gpu=2", 2, {"gpu": 2}),
        ("gpu:h100:5(IDX:0-3,5)", 5, {"h100": 5}),
        ("N/A", None, {}),
        ("gpu:h100", None, {}),
        ("cpu=2,shard:h10", None, {}),
        ("gpu:h100:x", None, {}),
    ],
)
def test_total_and_types(text: str, total: int | None, types: dict[str, int]) -> None:
    gpus = parse_gres(text)

    assert (gpus.total, dict(gpus.types)) == (total, types)
    assert (gpus.problem is not None) == (total is None and text != "N/A")


def test_slices_hide_how_many_boards_there_are() -> None:
    gpus = parse_gres("gpu:a100_3g.20gb:2,gpu:a100:1")

    assert dict(gpus.types) == {"a100_3g.20gb": 2, "a100": 1}
    assert gpus.slices == 2
    assert node_total(gpus) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gres/gpu:nvidia_a100_1g.10gb=3", (3, GpuUse.SLICE)),
        ("gres/gpu=2", (2, GpuUse.EXCLUSIVE)),
        ("gres/shard=2", (None, GpuUse.SHARED)),
        ("cpu=1", (0, GpuUse.NONE)),
        ("N/A", (None, GpuUse.UNKNOWN)),
    ],
)
def test_how_a_job_holds_its_gpus(text: str, expected: tuple[int | None, GpuUse]) -> None:
    assert gpu_use(parse_gres(text)) == expected


def test_the_count_wins_over_a_list_that_does_not_match_and_is_reported() -> None:
    gpus = parse_gres("gres/gpu:h100=8(IDX:0-3,5)")

    assert gpus.total == 8
    assert gpus.indices == (0, 1, 2, 3, 5)
    assert gpus.problem is not None


@pytest.mark.parametrize(("text", "total"), [("gres:gpu", 1), ("gres:gpu:h100", 1), ("gres/gpu:h100:4", 4)])
def test_a_request_without_a_count_is_one(text: str, total: int) -> None:
    assert parse_gres(text, request=True).total == total


@given(st.text(alphabet="gpu:h10=0,()SIDX-/N.A ", max_size=40))
def test_nothing_breaks_the_parser(text: str) -> None:
    gpus = parse_gres(text)

    assert gpus.total is None or gpus.total >= 0
