"""What an evaluation carries to the next one, and what it answers. Plain, serialisable, no NumPy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from fleet.errors import InvalidInputError
from fleet.findings import Finding
from rules.metrics.intake import Target

SOURCE = "metrics"
"""``Finding.source`` of everything found here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One open finding. ``calm_seconds`` of ``clear_on`` have been observed, the last at ``calm_at``."""

    finding_id: str
    rule: str
    node: str
    uuid: str | None
    part: str
    boot_id: str | None
    since: float
    calm_seconds: float = 0.0
    calm_at: float | None = None

    @property
    def target(self) -> Target:
        return Target(self.node, self.uuid, self.part)

    def at_calm(self, now: float, *, gap_seconds: float) -> Episode:
        """Calm was observed at ``now``; time counts only from one observation to the next."""
        step = 0.0 if self.calm_at is None else now - self.calm_at
        counted = step if 0 <= step <= gap_seconds else 0.0
        return replace(self, calm_seconds=self.calm_seconds + counted, calm_at=now)

    def unobserved(self) -> Episode:
        """Nothing is known now: what was counted stays, the time until the next look does not count."""
        return replace(self, calm_at=None)

    def disturbed(self) -> Episode:
        """Not calm: the count starts again."""
        return replace(self, calm_seconds=0.0, calm_at=None)


@dataclass(frozen=True, slots=True)
class MetricState:
    """The open episodes. Pending timers are not in here: they are read from the windows."""

    episodes: tuple[Episode, ...] = ()

    def reconciled(self, open_findings: Iterable[Finding]) -> MetricState:
        """The ledger's word: findings that it has closed are gone, those it holds open are episodes.

        Used after a start (the state is empty: every open finding goes on, its calm is counted anew) and
        before each evaluation (a person or a repair has ended some).
        """
        known = {episode.finding_id: episode for episode in self.episodes}
        kept = (
            known.get(finding.id) or _adopted(finding)
            for finding in open_findings
            if finding.source == SOURCE
        )
        return MetricState(tuple(sorted(kept, key=by_target)))

    def to_dict(self) -> dict[str, object]:
        """JSON-ready."""
        return {"episodes": [{name: getattr(e, name) for name in Episode.__slots__} for e in self.episodes]}

    @staticmethod
    def from_dict(data: Mapping[str, object]) -> MetricState:
        """The inverse of ``to_dict``. Raises InvalidInputError on any other shape."""
        listed = data.get("episodes")
        try:
            return MetricState(tuple(Episode(**item) for item in cast("list[dict[str, Any]]", listed)))
        except TypeError as error:
            raise InvalidInputError(f"stored metric state cannot be read ({error}); drop it") from error


def by_target(episode: Episode) -> tuple[str, str, str, str, str]:
    """The order of episodes: it does not depend on when they began."""
    return episode.rule, episode.node, episode.uuid or "", episode.part, episode.finding_id


def _adopted(finding: Finding) -> Episode:
    part = finding.evidence.get("part")
    return Episode(
        finding_id=finding.id,
        rule=finding.rule,
        node=finding.node,
        uuid=finding.uuid,
        part=part if isinstance(part, str) else "",
        boot_id=finding.boot_id,
        since=finding.since,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A condition that holds, not yet long enough: ``held`` of ``needed`` seconds."""

    rule: str
    node: str
    uuid: str | None
    since: float
    held: float
    needed: float
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """What cannot be judged now, and why: a finding that is held (``finding_id``), or a node."""

    node: str | None
    sentence: str
    rule: str | None = None
    uuid: str | None = None
    finding_id: str | None = None


@dataclass(frozen=True, slots=True)
class Coverage:
    """A rule could judge ``judged`` of ``targets``: 0 of many means that nobody reports its signal."""

    rule: str
    judged: int
    targets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricEvaluation:
    """One evaluation.

    ``findings``: those that begin now, once each. ``standing``: ids of open findings whose condition is
    observed to hold now (the new ones too). ``reported``: ids of those whose signal was reported now (of an
    absence: whose node gave a whole answer). ``quiet``: those of them whose condition was observed not to
    hold, nor to begin. An open finding that is in neither ``standing`` nor ``quiet`` is unknown. ``cleared``:
    (id, sentence). ``pending`` and ``unknown`` are bounded lists, for people. ``state`` goes into the next
    evaluation.
    """

    findings: tuple[Finding, ...]
    cleared: tuple[tuple[str, str], ...]
    standing: tuple[str, ...]
    unknown: tuple[Unknown, ...]
    pending: tuple[Pending, ...]
    coverage: tuple[Coverage, ...]
    state: MetricState
    reported: tuple[str, ...] = ()
    quiet: tuple[str, ...] = ()
