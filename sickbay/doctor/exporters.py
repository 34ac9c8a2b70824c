"""Where signals come from: does each source answer, is what it says fresh, is what the rules read there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from collector.scrape import TargetReading
from fleet.clock import Clock
from fleet.errors import SickbayError
from fleet.scheduler import SchedulerSnapshot
from rules.metrics.conditions import PRESENCE_SIGNALS, Absence
from rules.model import Catalogue
from sickbay.config import Config
from sickbay.doctor.model import Check, Result, Shared, fail, ok, plural, some, unknown, warn

#: Node name to the age of its newest sample, in seconds.
Ages = Callable[[], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class ExporterChecks:
    """``readings``: one pass as the service makes it, None without sources. ``ages`` for Prometheus only."""

    config: Config
    catalogue: Catalogue
    readings: Shared[Sequence[TargetReading] | None]
    snapshot: Shared[SchedulerSnapshot]
    ages: Ages | None
    deadline_seconds: float

    def checks(self) -> tuple[Check, ...]:
        checks = [
            Check("metrics.answers", self.answers, self.deadline_seconds),
            Check("metrics.signals", self.signals, self.deadline_seconds),
            Check("metrics.nodes", self.nodes, self.deadline_seconds),
        ]
        if self.ages is not None:
            checks.append(Check("metrics.fresh", self.fresh, self.deadline_seconds))
        return tuple(checks)

    def answers(self) -> Iterator[Result]:
        name = "metrics.answers"
        readings = self.readings.get()
        if readings is None:
            yield warn(
                name,
                "metrics.scrape.targets is empty: rules on metrics hear of nothing but alerts",
                "list the exporters in metrics.scrape.targets, or set metrics.source: prometheus",
            )
            return
        good = [reading for reading in readings if reading.ok]
        bad = [reading for reading in readings if not reading.ok]
        if not good:
            yield self._nothing(name, bad)
        elif bad:
            yield warn(
                name,
                f"{len(bad)} of {plural(len(readings), 'exporter')} give nothing: {_failures(bad)}",
                "check dcgm-exporter on these nodes, and the firewall; their metrics are unknown meanwhile",
            )
        else:
            yield ok(name, f"all {plural(len(readings), 'node')} answer with samples")

    def _nothing(self, name: str, bad: Sequence[TargetReading]) -> Result:
        metrics = self.config.metrics
        if metrics.source == "prometheus":
            said = f": {bad[0].error}" if bad else ""
            return fail(
                name,
                f"Prometheus at {metrics.prometheus.url} has no series that the rules read{said}",
                "check the address, and load alerts/prometheus/normalise-dcgm.yml into Prometheus",
            )
        return fail(
            name,
            f"none of {plural(len(bad), 'exporter')} answers: {_failures(bad)}",
            "check the ports in metrics.scrape.targets and whether dcgm-exporter runs",
        )

    def signals(self) -> Iterator[Result]:
        """A rule whose signal nobody sends never fires, and nobody would notice."""
        name = "metrics.signals"
        readings = self.readings.get()
        if readings is None:
            yield unknown(name, "no metrics are read", "see metrics.answers")
            return
        seen = {sample.signal for reading in readings for sample in reading.reading.samples}
        if not seen:
            yield unknown(name, "no sample was read", "see metrics.answers")
            return
        blind = blind_rules(self.catalogue, seen, frozenset(self.config.rules.disabled))
        if blind:
            listed = [f"{rule} ({', '.join(sorted(lacks))})" for rule, lacks in sorted(blind.items())]
            yield warn(
                name,
                f"{plural(len(blind), 'rule')} can never fire, for nobody sends what they read: "
                f"{some(listed, 4)}",
                "add these fields to dcgm-exporter's list of counters (docs/metrics-path.md), or disable the "
                "rules",
            )
        else:
            yield ok(name, "every signal that the rules read is there")

    def nodes(self) -> Iterator[Result]:
        """The two names of a node must be one: a finding about a stranger is never acted on."""
        name = "metrics.nodes"
        readings = self.readings.get()
        if readings is None:
            yield unknown(name, "no metrics are read", "see metrics.answers")
            return
        known = self.snapshot.get().nodes
        named = {reading.target.node for reading in readings}
        strangers = sorted(named - known.keys())
        unwatched = [n.name for n in known.values() if n.gpus_total and n.name not in named]
        if strangers:
            yield warn(
                "metrics.strangers",
                f"{plural(len(strangers), 'exporter')} with a name that the scheduler does not know: "
                f"{some(strangers)} (it knows {some(sorted(known), 3)})",
                'write {node: NAME, url: "http://host:port/metrics"} with the scheduler\'s name'
                if self.config.metrics.source == "scrape"
                else "relabel `node` in Prometheus to the scheduler's name",
            )
        if unwatched:
            yield warn(
                "metrics.unwatched",
                f"{plural(len(unwatched), 'GPU node')} without metrics: {some(unwatched)}",
                "add their exporters; until then heat, memory and lost GPUs there go unseen",
            )
        if not strangers and not unwatched:
            yield ok(name, "exporters and GPU nodes match by name")

    def fresh(self) -> Iterator[Result]:
        """By PromQL's ``timestamp()``: an instant query itself shows samples of up to five minutes ago."""
        name = "metrics.fresh"
        if self.ages is None:
            return
        ages = self.ages()
        limit = max(60.0, 4 * self.config.metrics.scrape.interval_seconds)
        stale = sorted(node for node, age in ages.items() if age > limit)
        if not ages:
            yield unknown(name, "Prometheus has no sample of a GPU's temperature", "see metrics.answers")
        elif stale:
            yield warn(
                name,
                f"the newest sample of {plural(len(stale), 'node')} is older than {limit:g} s: {some(stale)}",
                "look at the targets' page of Prometheus; a rule judges fresh samples only",
            )
        else:
            yield ok(name, f"the newest sample of every node is at most {max(ages.values()):.0f} s old")


def blind_rules(
    catalogue: Catalogue, seen: Iterable[str], disabled: frozenset[str]
) -> dict[str, frozenset[str]]:
    """Rule id to the signals without which it cannot be judged. A guard needs any one of its signals."""
    there = frozenset(seen)
    blind: dict[str, frozenset[str]] = {}
    for rule in catalogue.metric_rules:
        if rule.when is None or rule.id in disabled:
            continue
        test = rule.when.test
        lacks: set[str] = set()
        if isinstance(test, Absence):
            if not there.intersection(PRESENCE_SIGNALS):
                lacks.update(PRESENCE_SIGNALS)
        elif test.signal not in there:
            lacks.add(test.signal)
        for guard in rule.when.guards:
            if not there.intersection(guard.signals):
                lacks.update(guard.signals)
        if lacks:
            blind[rule.id] = frozenset(lacks)
    return blind


def prometheus_ages(config: Config, clock: Clock) -> Ages | None:
    """How old the newest sample of each node is, by Prometheus; None where we scrape ourselves."""
    if config.metrics.source != "prometheus":
        return None

    def ages() -> Mapping[str, float]:
        # Imported here: a fleet that is scraped directly needs no client of Prometheus.
        try:
            from collector.prometheus.client import PrometheusClient  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise SickbayError(f"{error.name} is not installed; pip install 'sickbay[prometheus]'") from error
        settings = config.metrics.prometheus
        client = PrometheusClient(settings.url, timeout_seconds=settings.timeout_seconds)
        try:
            now = clock.now()
            series = client.query(f"max by (node) (timestamp(sickbay_{PRESENCE_SIGNALS[0]}))", at=now)
        finally:
            client.close()
        return {one.labels["node"]: now - one.value for one in series if one.labels.get("node")}

    return ages


def _failures(bad: Sequence[TargetReading]) -> str:
    return some((f"{reading.target.node}: {(reading.error or 'no sample')[:80]}" for reading in bad), 3)
