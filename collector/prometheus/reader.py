"""Current samples from a Prometheus, by node: what direct scrape gives, for fleets that have a store.

Asked are the normalised names (``sickbay_<signal>``; alerts/prometheus/normalise-dcgm.yml records them from
dcgm-exporter's, our own exporters use them): one instant query per signal. A series that ended (its target is
down, its GPU gone) is not in the answer: Prometheus marks it stale with the next scrape.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from collector.prometheus.client import PrometheusClient, PrometheusError, Series
from collector.scrape import ScrapeTarget, TargetReading
from collector.signals import SignalTarget, load_signals
from fleet.clock import Clock
from fleet.identity import MigInstance, is_node_name
from fleet.observations import Problem, ProblemReason, Reading, Record, Sample

SOURCE = "prometheus"
#: A node that was heard within this time and is in no answer now is told as silent; later it is forgotten.
REMEMBERED_SECONDS = 3600.0
#: Labels of a scrape and of our exporters' identity: no part of what distinguishes samples of one target.
_IDENTITY = frozenset(
    {"__name__", "cluster", "node", "gpu", "uuid", "pci", "mig", "job", "instance", "gi", "profile"}
)


@dataclass(slots=True)
class _Answer:
    """One pass under construction."""

    samples: dict[str, list[Record]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    nameless: int = 0
    foreign: set[str] = field(default_factory=set)
    foreign_count: int = 0


class PrometheusReader:
    """``read`` makes one pass: a reading per node. ``cluster``: series of another one are not ours.

    After ``pass_seconds`` no further query is begun: what was not asked until then has failed.
    """

    def __init__(
        self,
        client: PrometheusClient,
        signals: Iterable[str],
        *,
        cluster: str,
        clock: Clock,
        pass_seconds: float,
    ) -> None:
        known = load_signals()
        self._signals = {name: known[name] for name in dict.fromkeys(signals)}
        self._client = client
        self._cluster = cluster
        self._clock = clock
        self._pass_seconds = pass_seconds
        self._heard: dict[str, float] = {}

    def read(self) -> tuple[TargetReading, ...]:
        """Never raises. A failed query leaves its signal unknown, and makes every node's answer a partial
        one: a GPU that is missing from it says nothing.
        """
        now = self._clock.now()
        started = self._clock.monotonic()
        answer = _Answer()
        for name, signal in self._signals.items():
            if self._clock.monotonic() - started > self._pass_seconds:
                answer.failures.append(f"{signal.metric_name}: no time was left in this pass")
                continue
            try:
                series = self._client.query(signal.metric_name, at=now)
            except PrometheusError as error:
                answer.failures.append(f"{signal.metric_name}: {error}")
                continue
            self._take(answer, name, series, of_gpu=signal.target is SignalTarget.GPU)
        took = self._clock.monotonic() - started
        return tuple(self._readings(answer, now, took))

    def _take(self, answer: _Answer, signal: str, series: Iterable[Series], *, of_gpu: bool) -> None:
        for one in series:
            cluster = one.labels.get("cluster", "")
            if cluster not in ("", self._cluster):
                answer.foreign.add(cluster[:60])
                answer.foreign_count += 1
                continue
            node, uuid = one.labels.get("node", ""), one.labels.get("uuid", "")
            if not is_node_name(node) or (of_gpu and not uuid):
                answer.nameless += 1
                continue
            if math.isfinite(one.value):
                answer.samples.setdefault(node, []).append(_sample(signal, node, uuid, one))

    def _readings(self, answer: _Answer, now: float, took: float) -> Iterator[TargetReading]:
        trouble = self._trouble(answer)
        for node in sorted(answer.samples):
            self._heard[node] = now
            problems = [_problem(ProblemReason.QUERY_ERROR, text, node) for text in trouble]
            reading = Reading((*answer.samples[node], *problems), ok=True)
            yield TargetReading(self._target(node), reading, ok=True, duration_seconds=took, error=None)
        self._heard = {n: at for n, at in self._heard.items() if 0 <= now - at <= REMEMBERED_SECONDS}
        for node in sorted(self._heard.keys() - answer.samples.keys()):
            text = trouble[0] if trouble else "Prometheus has no current series of this node"
            reading = Reading((_problem(ProblemReason.QUERY_ERROR, text, node),), ok=False)
            yield TargetReading(self._target(node), reading, ok=False, duration_seconds=took, error=text)

    def _trouble(self, answer: _Answer) -> list[str]:
        """What makes this pass a partial one."""
        trouble = list(answer.failures)
        if answer.foreign_count and not answer.samples:
            names = ", ".join(sorted(answer.foreign)[:3])
            trouble.append(
                f"all {answer.foreign_count} series belong to other clusters ({names}); this one is "
                f"{self._cluster!r} (cluster in the configuration)"
            )
        if answer.nameless and not answer.samples:
            trouble.append(
                f"{answer.nameless} series carry no label node (or no uuid): are the recording rules of "
                "alerts/prometheus/normalise-dcgm.yml loaded?"
            )
        return trouble

    def _target(self, node: str) -> ScrapeTarget:
        return ScrapeTarget(node, self._client.url)


def _sample(signal: str, node: str, uuid: str, one: Series) -> Sample:
    labels: Mapping[str, str] = {k: v for k, v in one.labels.items() if k not in _IDENTITY and v}
    index, slice_ = one.labels.get("gpu", ""), one.labels.get("gi", "")
    return Sample(
        node=node,
        signal=signal,
        value=one.value,
        time=one.time,
        gpu=uuid or None,
        index=int(index) if uuid and index.isascii() and index.isdigit() else None,
        pci=one.labels.get("pci") or None,
        mig=MigInstance(gi=int(slice_)) if slice_.isascii() and slice_.isdigit() else None,
        labels=labels,
    )


def _problem(reason: ProblemReason, message: str, node: str) -> Problem:
    return Problem(source=SOURCE, reason=reason, message=message, node=node)
