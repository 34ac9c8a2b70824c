"""The metric path: scrape the exporters, keep windows of samples, evaluate the metric rules, hand over.

One thread runs ``run`` in a rhythm. It never writes to the ledger: what it finds waits in the MetricInbox
until the deciding thread has stored it, and the next evaluation begins from what the ledger then holds. So a
finding is never found twice, and a controller that is killed between the two has lost a sample, not a fault.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from collector.scrape import TargetReading
from fleet.clock import Clock
from fleet.findings import Finding, Mode
from remediator.policy import Policy
from remediator.records import LedgerStore
from remediator.sight import MetricInbox, MetricSight
from remediator.world import World
from rules.metrics.evaluate import evaluate
from rules.metrics.state import MetricEvaluation, MetricState
from rules.metrics.windows import SampleWindows
from rules.model import Catalogue, Rule
from sickbay.metrics import ControllerMetrics

log = logging.getLogger(__name__)

#: Sentences kept per node for ``why``.
TOLD_PER_NODE = 5
#: Slurm's boot time drifts by a second within one boot (it is made of two clocks); a new boot moves it more.
BOOT_DRIFT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class TargetHealth:
    """How one target answered in the last pass. ``last_success``: epoch seconds; None: never yet."""

    node: str
    ok: bool
    duration_seconds: float
    samples: int
    last_success: float | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Exporters:
    """Where samples come from: ``read`` makes one pass and never raises.

    ``nodes`` that have a target, whether they answer or not; None: those that ever answered (a Prometheus
    knows its targets, we do not).
    """

    read: Callable[[], Sequence[TargetReading]]
    nodes: frozenset[str] | None
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class _Machine:
    """What the scheduler tells of the machine behind a name; None: it does not."""

    id: str | None
    boot_time: float | None

    def differs_from(self, before: _Machine) -> bool:
        if None not in (self.id, before.id) and self.id != before.id:
            return True
        if self.boot_time is None or before.boot_time is None:
            return False
        return self.boot_time - before.boot_time > BOOT_DRIFT_SECONDS

    def or_else(self, before: _Machine) -> _Machine:
        boot_time = before.boot_time if self.boot_time is None else self.boot_time
        return _Machine(self.id or before.id, boot_time)


class MetricPath:
    """One pass after the other; ``run`` is called by one thread."""

    def __init__(
        self,
        exporters: Exporters,
        *,
        catalogue: Catalogue,
        policy: Policy,
        world: World,
        store: LedgerStore,
        inbox: MetricInbox,
        metrics: ControllerMetrics,
        clock: Clock,
    ) -> None:
        self.interval_seconds = policy.metrics_interval_seconds
        self._read = exporters.read
        self._watched = exporters.nodes
        self._rules: tuple[Rule, ...] = catalogue.metric_rules
        self._modes: Mapping[str, Mode] = policy.rule_modes
        self._disabled = policy.disabled_rules
        self._world = world
        self._store = store
        self._inbox = inbox
        self._metrics = metrics
        self._clock = clock
        self._windows = SampleWindows.for_rules(self._rules, step_seconds=self.interval_seconds)
        self._state = MetricState()
        self._reported: dict[str, float] = {}
        self._quiet: dict[str, float] = {}
        self._machines: dict[str, _Machine] = {}
        self._health: dict[str, TargetHealth] = {}
        self._unlisted: frozenset[str] = frozenset()
        world.expect_metrics()
        metrics.watch_targets(lambda: tuple(self._health.values()))

    def run(self) -> bool:
        """One pass. True when an evaluation now waits to be stored. Raises LedgerError if the ledger cannot
        be read: the samples are kept, and the next pass evaluates them.
        """
        started = time.perf_counter()
        readings = self._read()
        now = self._clock.now()
        self._note_health(readings, now)
        self._metrics.scrape_seconds.observe(time.perf_counter() - started)
        inventory = self._world.inventory
        if inventory is None:
            # Whose samples these are cannot be checked yet.
            return False
        self._tell_unlisted(frozenset(r.target.node for r in readings) - inventory)
        known = [r for r in readings if r.target.node in inventory and not self._is_contested(r.target.node)]
        for reading in known:
            if self._is_other_machine(reading.target.node):
                self._windows.forget(reading.target.node)
        self._windows.append([reading.reading for reading in known], now, boots=self._boots(known))
        if not self._inbox.is_free:
            self._metrics.evaluations_postponed.inc()
            return False
        evaluation = self._evaluate(now)
        self._metrics.evaluated(((c.rule, c.judged, c.targets) for c in evaluation.coverage), now)
        self._inbox.put(evaluation, self._sight(evaluation, now))
        return True

    def _evaluate(self, now: float) -> MetricEvaluation:
        with self._store.transaction(read_only=True) as tx:
            open_findings = [stored.finding for stored in tx.findings()]
        evaluation = evaluate(
            self._windows,
            self._rules,
            now,
            self._state.reconciled(open_findings),
            modes=self._modes,
            disabled=self._disabled,
        )
        self._state = evaluation.state
        evaluation = replace(
            evaluation, findings=tuple(f for f in evaluation.findings if not self._is_whole(f))
        )
        self._remember(evaluation, now, {finding.id for finding in open_findings})
        return evaluation

    def _is_whole(self, finding: Finding) -> bool:
        """A GPU that "vanished" while as many report as the scheduler counts on the node was never one of its
        own: an exporter that spoke of more for a while (another node's, a proxy's) is no lost card.
        """
        siblings = finding.evidence.get("siblings")
        record, _ = self._world.node(finding.node)
        if not isinstance(siblings, int) or record is None or not record.gpus_total:
            return False
        return siblings >= record.gpus_total

    def _remember(self, evaluation: MetricEvaluation, now: float, open_ids: set[str]) -> None:
        """When each open finding's signal was last reported, and since when its condition was seen to be
        gone. A clock that went back starts both anew.
        """
        known = {**self._reported, **dict.fromkeys(evaluation.reported, now)}
        kept = open_ids.union(finding.id for finding in evaluation.findings)
        self._reported = {name: at for name, at in known.items() if name in kept and at <= now}
        before = self._quiet
        self._quiet = {name: min(before.get(name, now), now) for name in evaluation.quiet}

    def _is_contested(self, node: str) -> bool:
        """Two machines have the name: whose samples these are is unknown."""
        contact = self._world.contact(node)
        return contact is not None and contact.contested

    def _is_other_machine(self, node: str) -> bool:
        """The scheduler knows of another machine, or of a boot, since the pass before: where no agent tells,
        cards of the former would be missed on the present one.
        """
        record, _ = self._world.node(node)
        if record is None:
            return False
        now, before = _Machine(record.uid or record.machine_id, record.boot_time), self._machines.get(node)
        self._machines[node] = now if before is None else now.or_else(before)
        return before is not None and now.differs_from(before)

    def _boots(self, readings: Sequence[TargetReading]) -> dict[str, str]:
        """The boot each node is in, by its agent; else by the scheduler, where that knows (Kubernetes)."""
        boots: dict[str, str] = {}
        for reading in readings:
            node = reading.target.node
            contact = self._world.contact(node)
            record, _ = self._world.node(node)
            if contact is not None:
                if not contact.contested:
                    boots[node] = contact.boot_id
            elif record is not None and record.boot_id is not None:
                boots[node] = record.boot_id
        return boots

    def _sight(self, evaluation: MetricEvaluation, now: float) -> MetricSight:
        answered = {h.node: h.last_success for h in self._health.values() if h.last_success is not None}
        pending: dict[str, list[str]] = {}
        for item in evaluation.pending:
            pending.setdefault(item.node, []).append(item.sentence)
        unknown: dict[str, list[str]] = {}
        for what in evaluation.unknown:
            if what.node is not None:
                unknown.setdefault(what.node, []).append(what.sentence)
        return MetricSight(
            at=now,
            watched=frozenset(self._health) if self._watched is None else self._watched,
            answered=answered,
            standing=frozenset(evaluation.standing),
            reported=dict(self._reported),
            quiet=dict(self._quiet),
            pending={node: tuple(told[:TOLD_PER_NODE]) for node, told in pending.items()},
            unknown={node: tuple(told[:TOLD_PER_NODE]) for node, told in unknown.items()},
        )

    def _note_health(self, readings: Sequence[TargetReading], now: float) -> None:
        for reading in readings:
            node = reading.target.node
            before = self._health.get(node)
            if reading.ok:
                last: float | None = now
            else:
                last = before.last_success if before is not None else None
            if not reading.ok and (before is None or before.ok):
                log.warning("the exporter of %s does not answer: %s", node, reading.error)
            elif reading.ok and before is not None and not before.ok:
                log.info("the exporter of %s answers again", node)
            self._health[node] = TargetHealth(
                node=node,
                ok=reading.ok,
                duration_seconds=reading.duration_seconds,
                samples=len(reading.reading.samples),
                last_success=last,
                error=reading.error,
            )

    def _tell_unlisted(self, nodes: frozenset[str]) -> None:
        """Targets whose node the scheduler does not list: said once, nothing is made of what they say."""
        new = sorted(nodes - self._unlisted)
        self._unlisted = nodes
        if new:
            log.warning(
                "exporters speak of nodes that the scheduler does not list; they are not used: %s",
                ", ".join(new[:20]) + (f" and {len(new) - 20} more" if len(new) > 20 else ""),  # noqa: PLR2004
            )
