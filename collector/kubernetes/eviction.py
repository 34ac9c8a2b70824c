"""What an answer to an eviction means. Pure.

Sources: kubernetes 1.36 pkg/registry/core/pod/storage/eviction.go; Kubernetes documentation, "API-initiated
Eviction"; what a real kube-apiserver 1.36 was seen to answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from collector.kubernetes.answers import CONFLICT, FORBIDDEN, NOT_FOUND, SERVER_ERROR, TOO_MANY, Answer

_BUDGET = "DisruptionBudget"
_BUDGET_NAME = re.compile(r"[Tt]he disruption budget (?P<name>\S+)")
_TWO_BUDGETS = "more than one PodDisruptionBudget"
_BROKEN_BUDGET = re.compile(r"pdb disruptions allowed is negative|DisruptedPods map too big", re.IGNORECASE)
_LEAVING = re.compile(r"because it is being terminated")


class Eviction(StrEnum):
    """ACCEPTED: the pod is terminating, it may run on for its grace. RETRY: the outcome may be unknown.

    BUDGET and BUDGET_LAGS: a PodDisruptionBudget says not now. THROTTLED: the server is busy, no budget is
    involved. MOVED_ON: the pod we meant is no longer the one of that name. LEAVING: its namespace ends.
    PERMANENT: will not succeed before somebody changes something. DENIED: we lack the right.
    """

    ACCEPTED = "accepted"
    BUDGET = "budget"
    BUDGET_LAGS = "budget_lags"
    THROTTLED = "throttled"
    GONE = "gone"
    MOVED_ON = "moved_on"
    LEAVING = "leaving"
    PERMANENT = "permanent"
    DENIED = "denied"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class EvictionAnswer:
    """``budget``: the PodDisruptionBudget's name, where the answer has it. ``text``: the server's words."""

    kind: Eviction
    text: str
    budget: str | None = None
    retry_after_seconds: float | None = None


def read_eviction(answer: Answer) -> EvictionAnswer:
    """The table of the eviction API, one answer at a time."""
    kind = _kind(answer)
    return EvictionAnswer(kind, _words(answer), _budget_name(answer), answer.retry_after_seconds)


def _kind(answer: Answer) -> Eviction:
    if answer.ok:
        return Eviction.ACCEPTED
    if answer.code == NOT_FOUND:
        return Eviction.GONE
    if answer.code == CONFLICT:
        return Eviction.MOVED_ON
    if answer.code == TOO_MANY:
        return _too_many(answer)
    if answer.code == FORBIDDEN:
        return _forbidden(answer)
    if answer.code == SERVER_ERROR and _TWO_BUDGETS in answer.message:
        return Eviction.PERMANENT
    if answer.code >= SERVER_ERROR:
        return Eviction.RETRY
    return Eviction.DENIED if answer.is_missing_right else Eviction.PERMANENT


def _too_many(answer: Answer) -> Eviction:
    """A budget names itself as the cause; with a Retry-After its controller lags, it is no veto."""
    if not answer.has_cause(_BUDGET):
        return Eviction.THROTTLED
    # The older "needs 2 healthy pods and has 2 currently" may come with a Retry-After and is a veto.
    lags = answer.retry_after_seconds is not None and _needed(answer) is None
    return Eviction.BUDGET_LAGS if lags else Eviction.BUDGET


def _forbidden(answer: Answer) -> Eviction:
    if answer.has_cause("NamespaceTerminating") or _LEAVING.search(answer.message):
        return Eviction.LEAVING
    if _BROKEN_BUDGET.search(answer.message):
        return Eviction.BUDGET
    return Eviction.DENIED if answer.is_missing_right else Eviction.PERMANENT


def _causes(answer: Answer) -> list[str]:
    details = answer.status.details if answer.status else None
    return [cause.message for cause in (details.causes if details else None) or () if cause.reason == _BUDGET]


def _needed(answer: Answer) -> str | None:
    return next((text for text in _causes(answer) if " healthy pods and has " in text), None)


def _words(answer: Answer) -> str:
    causes = "; ".join(_causes(answer))
    return f"{answer.text}: {causes}"[:500] if causes else answer.text


def _budget_name(answer: Answer) -> str | None:
    for text in _causes(answer):
        match = _BUDGET_NAME.search(text)
        if match is not None:
            return match["name"]
    return None
