"""The words of a Prometheus rule file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fleet.findings import Severity

RUNBOOK_PAGE = "docs/alerts.md"
# A failed scrape ends a series at once: an alert outlives a gap of this length, so that nothing is resolved
# because data is missing.
HOLD_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One recording rule."""

    record: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)

    def document(self, docs_url: str) -> dict[str, Any]:
        found: dict[str, Any] = {"record": self.record, "expr": self.expr}
        if self.labels:
            found["labels"] = dict(self.labels)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alerting rule.

    ``summary``: a static sentence. ``description``: a sentence that may name ``{{ $labels.x }}``, never a
    value (values stand on the boards, and a description that changes is a new notification text each time).
    ``runbook``: a path in this repository, anchor included.
    """

    name: str
    expr: str
    severity: Severity
    summary: str
    description: str
    runbook: str
    for_seconds: float = 0.0
    keep_firing_seconds: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def all_labels(self) -> dict[str, str]:
        return {"severity": self.severity.value, **self.labels}

    def annotations(self, docs_url: str) -> dict[str, str]:
        """What people read. ``docs_url`` goes before the runbook's path."""
        return {
            "summary": self.summary,
            "description": self.description,
            "runbook_url": f"{docs_url}{self.runbook}",
        }

    def document(self, docs_url: str) -> dict[str, Any]:
        found: dict[str, Any] = {"alert": self.name, "expr": self.expr}
        if self.for_seconds:
            found["for"] = duration(self.for_seconds)
        if self.keep_firing_seconds:
            found["keep_firing_for"] = duration(self.keep_firing_seconds)
        return found | {"labels": self.all_labels, "annotations": self.annotations(docs_url)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Rules that are evaluated one after another, every ``interval_seconds``."""

    name: str
    interval_seconds: float
    rules: tuple[Recording | Alert, ...]

    @property
    def alerts(self) -> tuple[Alert, ...]:
        return tuple(rule for rule in self.rules if isinstance(rule, Alert))

    def document(self, docs_url: str) -> dict[str, Any]:
        return {
            "name": self.name,
            "interval": duration(self.interval_seconds),
            "rules": [rule.document(docs_url) for rule in self.rules],
        }


def duration(seconds: float) -> str:
    """``seconds`` as Prometheus writes it, in the largest unit that is whole: 90s, 5m, 6h, 3d."""
    whole = round(seconds)
    if whole != seconds or whole < 0:
        raise ValueError(f"{seconds} s: Prometheus durations are whole seconds >= 0 here")
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if whole and whole % size == 0:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def runbook(alert: str) -> str:
    """The section of an alert that has no runbook file of its own."""
    return f"{RUNBOOK_PAGE}#{alert.lower()}"
