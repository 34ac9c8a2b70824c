"""The words of a story: series in, alerts and values out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """At ``at`` seconds ``alert`` fires for exactly these series (their labels, without the rule's own)."""

    alert: str
    at: float
    firing: tuple[Labels, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """At ``at`` seconds the expression has exactly these samples (series as text -> value)."""

    expr: str
    at: float
    samples: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """``series``: series as text -> promtool's notation of its samples, one per ``step_seconds``."""

    name: str
    series: Mapping[str, str]
    expects: tuple[Expect, ...] = ()
    values: tuple[Value, ...] = ()
    step_seconds: float = 15.0
