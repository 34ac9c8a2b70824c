"""What each answer of the eviction API means."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collector.kubernetes.answers import Answer, read_answer
from collector.kubernetes.eviction import Eviction, read_eviction

CASES = Path(__file__).parents[2] / "data" / "kubernetes" / "F-11" / "input.json"


def answer(
    code: int, message: str = "", *, causes: list[dict[str, str]] | None = None, after: str | None = None
) -> Answer:
    body = {"kind": "Status", "message": message, "code": code, "details": {"causes": causes or []}}
    return read_answer(code, json.dumps(body).encode(), after)


def test_the_answers_in_the_order_of_the_case() -> None:
    kinds = [
        read_eviction(
            read_answer(
                one["code"], json.dumps(one["body"]).encode(), one.get("headers", {}).get("Retry-After")
            )
        ).kind
        for one in json.loads(CASES.read_text())
    ]

    assert kinds == [
        Eviction.ACCEPTED,
        Eviction.BUDGET,
        Eviction.THROTTLED,
        Eviction.GONE,
        Eviction.MOVED_ON,
        Eviction.PERMANENT,
        Eviction.LEAVING,
        Eviction.RETRY,
    ]


NEEDS = {
    "reason": "DisruptionBudget",
    "message": "The disruption budget llm needs 2 healthy pods and has 2 currently",
}
LAGS = {
    "reason": "DisruptionBudget",
    "message": "The disruption budget llm is still being processed by the server.",
}
RBAC = 'pods "p" is forbidden: User "u" cannot create resource "pods/eviction" in API group ""'


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (answer(429, "Cannot evict", causes=[NEEDS]), Eviction.BUDGET),
        (answer(429, "Cannot evict", causes=[LAGS], after="10"), Eviction.BUDGET_LAGS),
        (read_answer(429, b"too many requests", "1"), Eviction.THROTTLED),
        (answer(403, RBAC), Eviction.DENIED),
        (answer(403, "ValidatingAdmissionPolicy 'x' denied request: no"), Eviction.PERMANENT),
        (answer(403, "x", causes=[{"reason": "NamespaceTerminating", "message": ""}]), Eviction.LEAVING),
        (answer(403, "pdb disruptions allowed is negative"), Eviction.BUDGET),
        (answer(403, "DisruptedPods map too big - too many evictions not confirmed"), Eviction.BUDGET),
        (answer(400, "name in URL does not match"), Eviction.PERMANENT),
        (answer(504, "Timeout"), Eviction.RETRY),
        (read_answer(502, b"<html>", None), Eviction.RETRY),
    ],
)
def test_each_answer(given: Answer, kind: Eviction) -> None:
    assert read_eviction(given).kind is kind


def test_a_budget_is_named_with_its_arithmetic() -> None:
    read = read_eviction(answer(429, "Cannot evict pod", causes=[NEEDS]))

    assert read.budget == "llm"
    assert "needs 2 healthy pods" in read.text
