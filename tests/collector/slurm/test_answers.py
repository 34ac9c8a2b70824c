"""What the commands' answers mean: failures, refusals, and successes that look like the other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collector.slurm.answers import AnswerKind, classify

CASES = Path(__file__).parents[2] / "data" / "slurm" / "cases"
UNREACHABLE = CASES / "controller-unreachable"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a", AnswerKind.UNAVAILABLE),
        ("b", AnswerKind.OK),
        ("c", AnswerKind.UNAVAILABLE),
        ("d", AnswerKind.UNAVAILABLE),
        ("e", AnswerKind.UNAVAILABLE),
        ("f", AnswerKind.UNAVAILABLE),
    ],
)
def test_failed_is_not_empty(name: str, kind: AnswerKind) -> None:
    rc = int((UNREACHABLE / f"input.{name}.rc").read_text())
    stdout, stderr = (
        (UNREACHABLE / f"input.{name}.{stream}").read_bytes() for stream in ("stdout", "stderr")
    )

    answer = classify(rc, stdout, stderr)

    assert answer.kind is kind
    assert answer.stdout == b""  # partial output of a failed command is dropped


EXPECTED = [
    AnswerKind.NOT_FOUND,
    AnswerKind.REFUSED,
    AnswerKind.FORBIDDEN,
    AnswerKind.REFUSED,
    AnswerKind.VERIFY,
    AnswerKind.REFUSED,
    AnswerKind.NOT_FOUND,
    AnswerKind.NOT_FOUND,
    AnswerKind.OK,
    AnswerKind.UNAVAILABLE,
    AnswerKind.VERIFY,
]


def test_answers_to_writes() -> None:
    answers = json.loads((CASES / "scontrol-update-failures" / "input.json").read_text())

    kinds = [classify(a["rc"], a["stdout"].encode(), a["stderr"].encode()).kind for a in answers]

    assert kinds == EXPECTED


@pytest.mark.parametrize(
    ("stderr", "kind"),
    [
        ("Job is no longer pending execution for job 1", AnswerKind.VERIFY),
        ("Only batch jobs are accepted or processed for job 5", AnswerKind.REFUSED),
        ("Job not heterogeneous job leader for job 3", AnswerKind.REFUSED),
        ("slurm_update error: Access/permission denied", AnswerKind.FORBIDDEN),
        ("scontrol_reboot_nodes error: Invalid node name specified", AnswerKind.NOT_FOUND),
        ("something nobody has seen before", AnswerKind.UNAVAILABLE),
        ("", AnswerKind.UNAVAILABLE),
    ],
)
def test_texts_of_real_clusters(stderr: str, kind: AnswerKind) -> None:
    answer = classify(1, b"", stderr.encode())

    assert answer.kind is kind
    assert answer.text


def test_words_inside_data_are_not_errors() -> None:
    data = b'{"nodes":[{"name":"n1","reason":"slurm_load_node error: Unable to contact slurm controller"}]}'

    assert classify(0, data, b"").stdout == data


def test_an_unreachable_controller_with_exit_status_0_and_no_output() -> None:
    answer = classify(0, b"", b"squeue: error: Unable to contact slurm controller (connect failure)")

    assert answer.kind is AnswerKind.UNAVAILABLE
