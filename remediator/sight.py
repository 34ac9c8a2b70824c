"""What the metric path sees now, and how its evaluations reach the deciding thread: one at a time."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from rules.metrics.state import MetricEvaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSight:
    """The last evaluation of the metric rules, made at ``at`` (epoch seconds).

    ``watched``: nodes that have a target of ours. ``answered``: when a node's exporter last gave a sample.
    ``standing``: ids of findings whose condition was seen to hold. ``reported``: when what an open finding is
    about was last reported, by its id. ``quiet``: since when the condition of an open finding has been seen
    not to hold, without a look in between that says otherwise or nothing. One that is in neither is unknown.
    ``pending`` and ``unknown``: sentences by node, for people.
    """

    at: float
    watched: frozenset[str] = frozenset()
    answered: Mapping[str, float] = field(default_factory=dict)
    standing: frozenset[str] = frozenset()
    reported: Mapping[str, float] = field(default_factory=dict)
    quiet: Mapping[str, float] = field(default_factory=dict)
    pending: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unknown: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def seen_at(self, node: str) -> float | None:
        """When the node was last judged on an answer of its own."""
        answered = self.answered.get(node)
        return None if answered is None else min(self.at, answered)


@dataclass(frozen=True, slots=True)
class Evaluated:
    """An evaluation, and what was seen with it. The planner gets to see it only once the ledger holds what
    was found and ended: sight that is newer than the findings would show none of them to stand.
    """

    evaluation: MetricEvaluation
    sight: MetricSight


class MetricInbox:
    """Holds one evaluation until it is stored. While one waits no other is made: it would find again, under
    another id, what the ledger does not know yet.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: Evaluated | None = None

    @property
    def is_free(self) -> bool:
        with self._lock:
            return self._waiting is None

    def put(self, evaluation: MetricEvaluation, sight: MetricSight) -> None:
        with self._lock:
            self._waiting = Evaluated(evaluation, sight)

    def peek(self) -> Evaluated | None:
        """What waits; it stays until ``done``, so that a store that fails loses nothing."""
        with self._lock:
            return self._waiting

    def done(self) -> None:
        with self._lock:
            self._waiting = None
