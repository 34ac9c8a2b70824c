"""Drives the simulated cluster and the real service under one manual clock, second by second."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collector.encode import to_dict
from collector.kernel_log import KernelLogParser, LogContext
from fleet.clock import ManualClock
from fleet.findings import Mode, Verdict
from fleet.observations import Event, Problem
from remediator.executor import InlineRunner
from remediator.ledger import open_ledger
from remediator.policy import Policy, Pool
from remediator.records import Word, WordKind
from rules.catalogue import load_catalogue
from rules.model import Catalogue
from sickbay.assembly import Application, assemble
from sickbay.demo.clusters import World, build_world
from sickbay.demo.clusters_kind import SchedulerKind
from sickbay.demo.exporters import simulated_exporters
from sickbay.demo.meter import Meter
from sickbay.demo.scenes import PRESSED_BY, Script, default_script, heat_expected
from simulator.faults import Fault

HEARTBEAT_SECONDS = 15.0
READ_SECONDS = 15.0
BUSY_READ_SECONDS = 2.0
TICK_SECONDS = 1.0


def demo_policy(nodes: int, world: World) -> Policy:
    """What a bold operator would configure; the demo has to show action.

    Four nodes may be out of service, in a fleet of any size: so many the script's scenes fill.
    """
    return Policy(
        cluster="demo",
        mode=Mode.AUTO,
        pools=(
            Pool(
                name="gpu",
                partition=world.pool_partition,
                label=world.pool_label,
                mode=Mode.AUTO,
                max_in_flight=2,
                max_unavailable_percent=min(100.0, 450.0 / nodes),
                max_cordons=3,
            ),
        ),
        settle_seconds=2.0,
        interval_seconds=15.0,
        probation_seconds=120.0,
        verify_timeout_seconds=900.0,
        repair_commands=world.repair_commands,
    )


def node_names(count: int) -> tuple[str, ...]:
    """The names that a simulated fleet of ``count`` nodes has."""
    return tuple(f"n{i:0{max(2, len(str(count)))}d}" for i in range(1, count + 1))


@dataclass(slots=True)
class _NodeAgent:
    """A node's agent in miniature: the real parser, its own sequence, the boot it last saw."""

    parser: KernelLogParser
    boot_id: str
    sequence: itertools.count[int] = field(default_factory=lambda: itertools.count(1))


class Clockwork:
    """One demo run. ``tick`` moves simulated time by a second; everything that happens, happens in it."""

    def __init__(
        self,
        *,
        nodes: int,
        seed: int,
        database: Path | None,
        script: Script | None = None,
        clock: ManualClock | None = None,
        scheduler: SchedulerKind = SchedulerKind.SLURM,
        catalogue: Catalogue | None = None,
    ) -> None:
        """``database``: the ledger's file; None keeps it in memory, which is for one thread only.

        ``catalogue``: the rules, the shipped ones by default.
        """
        catalogue = catalogue or load_catalogue()
        self.clock = clock or ManualClock()
        self.script = script or default_script(node_names(nodes), heat=heat_expected(catalogue))
        self.scheduler = scheduler
        self.world = build_world(scheduler, self.script, clock=self.clock, nodes=nodes, seed=seed)
        self.cluster = self.world.cluster
        self.started_at = self.clock.now()
        self.happened: list[tuple[float, Fault]] = []
        self.unknown_while_silent: set[str] = set()
        self.unknown_while_unscraped: set[str] = set()
        url = "sqlite://" if database is None else f"sqlite:///{database}"
        self.store = open_ledger(url, self.clock)
        incident_numbers = itertools.count(1)
        self.nodes, self.seed = nodes, seed
        self.meter = Meter(self.cluster, catalogue)
        self.app: Application = assemble(
            policy=demo_policy(nodes, self.world),
            store=self.store,
            backend=self.world.backend,
            catalogue=catalogue,
            clock=self.clock,
            runner=InlineRunner(),
            incident_id=lambda: f"demo-{next(incident_numbers)}",
            holder="demo",
            exporters=simulated_exporters(self.cluster),
            commands=self.world.commands,
        )
        self._agents: dict[str, _NodeAgent] = {}
        self._buttons = list(self.script.buttons)
        self._last_read = float("-inf")
        self._last_scrape = float("-inf")
        self._holding = False
        self._beat = itertools.cycle(range(int(HEARTBEAT_SECONDS)))

    @property
    def elapsed(self) -> float:
        """Simulated seconds since the start."""
        return self.clock.now() - self.started_at

    @property
    def finished(self) -> bool:
        return self.elapsed >= self.script.ends_at

    def run(self, until: Callable[[], bool]) -> None:
        while not until():
            self.tick()

    def tick(self) -> None:
        """One simulated second: users and faults, agents' pushes, people's buttons, the service's pass."""
        self.clock.advance(TICK_SECONDS)
        self.happened += [(self.clock.now(), fault) for fault in self.cluster.tick()]
        if not self.finished:
            self.meter.look(TICK_SECONDS)
        self._observe_if_due()
        self._agents_speak(beat=next(self._beat))
        self._press_buttons()
        self._scrape_if_due()
        done = self.app.controller.step()
        self._holding = done.holding > 0
        self.app.service.notify_changed()

    def _observe_if_due(self) -> None:
        due = BUSY_READ_SECONDS if self._holding else READ_SECONDS
        if self.clock.now() - self._last_read >= due:
            self._last_read = self.clock.now()
            self.app.controller.observe()

    def _scrape_if_due(self) -> None:
        path = self.app.metric_path
        if path is None or self.clock.now() - self._last_scrape < path.interval_seconds:
            return
        self._last_scrape = self.clock.now()
        path.run()
        away = {name for name in self.cluster.fleet.names if self.cluster.telemetry.is_away(name)}
        if away:
            self.unknown_while_unscraped |= away & self._unknown_nodes()

    def _agents_speak(self, *, beat: int) -> None:
        silent: set[str] = set()
        for number, name in enumerate(self.cluster.agents.nodes):
            contact = self.cluster.agents.contact(name)
            if contact is None:
                silent.add(name)
                continue
            agent = self._agent(name, contact["boot_id"])
            events: list[dict[str, object]] = []
            for line in self.cluster.agents.kernel_lines(name):
                events += self._events(agent, name, agent.parser.feed(line))
            events += self._events(agent, name, agent.parser.flush(self.clock.now()))
            if events or number % int(HEARTBEAT_SECONDS) == beat:
                self.app.service.ingest_events(name, dict(contact), events)
        if silent and beat == 0:
            self.unknown_while_silent |= silent & self._unknown_nodes()

    def _unknown_nodes(self) -> set[str]:
        nodes = self.app.service.nodes(limit=len(self.cluster.agents.nodes), after=None)["items"]
        return {node["name"] for node in nodes if node["verdict"] == Verdict.UNKNOWN}

    def _agent(self, name: str, boot_id: str) -> _NodeAgent:
        agent = self._agents.get(name)
        if agent is None or agent.boot_id != boot_id:
            fresh = _NodeAgent(KernelLogParser(self._context(name, boot_id)), boot_id)
            if agent is not None:
                fresh.sequence = agent.sequence
            self._agents[name] = agent = fresh
        return agent

    def _context(self, name: str, boot_id: str) -> Callable[[], LogContext]:
        boot_time = self.cluster.agents.boot_time(name)
        return lambda: LogContext(node=name, now=self.clock.now(), boot_time=boot_time, boot_id=boot_id)

    @staticmethod
    def _events(agent: _NodeAgent, name: str, records: Sequence[Event | Problem]) -> list[dict[str, object]]:
        return [
            {**to_dict(event), "node": name, "boot_id": agent.boot_id, "sequence": next(agent.sequence)}
            for event in records
            if isinstance(event, Event)
        ]

    def _press_buttons(self) -> None:
        while self._buttons and self._buttons[0].at <= self.elapsed:
            button = self._buttons.pop(0)
            if button.press:
                self.app.service.pause(
                    pool=None, author=PRESSED_BY, reason="the red button, for show", expires_in_seconds=None
                )
            elif not self._somebody_else_paused():
                self.app.service.resume(pool=None, author=PRESSED_BY, reason="shown enough")

    def _somebody_else_paused(self) -> bool:
        """A resume ends every pause of the fleet: one that a person pressed is for that person to lift."""
        return any(word.author != PRESSED_BY for word in self.pauses())

    def pauses(self) -> tuple[Word, ...]:
        """The pauses that bind the whole fleet now."""
        now = self.clock.now()
        with self.store.transaction(read_only=True) as tx:
            words = tx.words(now)
        return tuple(word for word in words if word.kind is WordKind.PAUSE and word.target is None)

    def close(self) -> None:
        self.world.close()
        self.store.close()
