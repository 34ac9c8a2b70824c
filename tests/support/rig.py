"""A controller over a simulated cluster, with a store and a scheduler that can be killed at any write."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from fleet.clock import ManualClock
from fleet.findings import IncidentState, Mode
from fleet.scheduler import SchedulerBackend
from remediator.executor import InlineRunner
from remediator.ledger import Ledger, open_ledger
from remediator.policy import Policy, Pool
from remediator.records import IncidentRecord, Lease, LedgerTransaction, StepRecord
from rules.catalogue import load_catalogue
from sickbay.assembly import Application, assemble
from sickbay.demo.exporters import simulated_exporters
from simulator.cluster import SimulatedCluster
from simulator.jobs import JobSpec

CATALOGUE = load_catalogue()
POLICY = Policy(
    cluster="test",
    mode=Mode.AUTO,
    pools=(Pool(name="gpu", partition="gpu", max_in_flight=2, max_unavailable_percent=50.0),),
    settle_seconds=2.0,
    interval_seconds=15.0,
    probation_seconds=10.0,
)
BACKEND_WRITES = ("cordon", "uncordon", "requeue", "reboot", "annotate")


class Killed(BaseException):
    """The process is gone: no handler of ours may catch this."""


@dataclass
class KillSwitch:
    """Kills at the ``at``-th passage of ``point``: ``append``, ``commit``, ``before:X``, ``after:X``."""

    point: str = ""
    at: int = 0
    passed: dict[str, int] = field(default_factory=dict)
    fired: bool = False

    def pass_by(self, point: str) -> None:
        self.passed[point] = self.passed.get(point, 0) + 1
        if not self.fired and point == self.point and self.passed[point] == self.at:
            self.fired = True
            raise Killed(f"{point} #{self.at}")


class _Transaction:
    def __init__(self, real: LedgerTransaction, switch: KillSwitch) -> None:
        self._real = real
        self._switch = switch
        self.wrote = False

    def append(self, step: StepRecord) -> int:
        self.wrote = True
        line = self._real.append(step)
        self._switch.pass_by("append")
        return line

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class KillableStore:
    """The real ledger; dies inside a transaction (rolled back) or right after its commit."""

    def __init__(self, real: Ledger, switch: KillSwitch) -> None:
        self._real = real
        self._switch = switch

    @contextmanager
    def _transaction(self, *, read_only: bool, fence: Lease | None) -> Iterator[LedgerTransaction]:
        with self._real.transaction(read_only=read_only, fence=fence) as real:
            tx = _Transaction(real, self._switch)
            yield cast(LedgerTransaction, tx)
        if tx.wrote:
            self._switch.pass_by("commit")

    def transaction(
        self, *, read_only: bool = False, fence: Lease | None = None
    ) -> AbstractContextManager[LedgerTransaction]:
        return self._transaction(read_only=read_only, fence=fence)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class KillableBackend:
    """The simulated scheduler; the caller dies before a write reaches it, or after its effect."""

    def __init__(self, real: SchedulerBackend, switch: KillSwitch) -> None:
        self._real = real
        self._switch = switch

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._real, name)
        if name not in BACKEND_WRITES:
            return call

        def guarded(*args: Any, **kwargs: Any) -> Any:
            self._switch.pass_by(f"before:{name}")
            answer = call(*args, **kwargs)
            self._switch.pass_by(f"after:{name}")
            return answer

        return guarded


class Rig:
    """``start`` makes a controller process over what is durable; ``tick`` is one simulated second."""

    def __init__(
        self,
        folder: Path,
        *,
        policy: Policy = POLICY,
        nodes: int = 4,
        gpus: int = 8,
        reboot_seconds: float = 20.0,
        exporters: bool = False,
    ) -> None:
        self.clock = ManualClock()
        self.policy = policy
        self.cluster = SimulatedCluster(
            clock=self.clock,
            nodes=nodes,
            gpus_per_node=gpus,
            seed=1,
            busy_share=0.0,
            reboot_seconds=reboot_seconds,
        )
        self.switch = KillSwitch()
        self.standby: Application | None = None
        self._exporters = simulated_exporters(self.cluster) if exporters else None
        self._seconds = 0
        self._url = f"sqlite:///{folder / 'ledger.db'}"
        self._sequence = itertools.count(1)
        self._incidents = itertools.count(1)
        self._starts = itertools.count(1)
        self._pending: list[tuple[str, dict[str, Any]]] = []
        self.start()

    def start(self) -> None:
        self.store = open_ledger(self._url, self.clock)
        self.app: Application = self.another()

    def another(self) -> Application:
        """One more controller process over the same ledger and scheduler: a standby."""
        return assemble(
            policy=self.policy,
            store=cast(Ledger, KillableStore(self.store, self.switch)),
            backend=cast(SchedulerBackend, KillableBackend(self.cluster.scheduler, self.switch)),
            catalogue=CATALOGUE,
            clock=self.clock,
            runner=InlineRunner(),
            incident_id=lambda: f"i-{next(self._incidents)}",
            holder=f"process-{next(self._starts)}",
            exporters=self._exporters,
        )

    def restart(self) -> None:
        """What kill -9 and a start leave: the ledger, the scheduler, and nothing of ours in memory."""
        self.store.close()
        self.standby = None
        self.start()

    def fail_over(self) -> None:
        """The leader is gone without a word; the standby leads once the lease has run out."""
        assert self.standby is not None
        self.app, self.standby = self.standby, None

    def submit(self, node: str, **spec: Any) -> str:
        values = {
            "name": "train",
            "user": "u1",
            "nodes": 1,
            "gpus_per_node": self.cluster.fleet.gpus_per_node,
            "seconds": 36_000.0,
        } | spec
        job = self.cluster.scheduler.submit(JobSpec(**values))
        self.cluster.tick()
        return job

    def xid(self, node: str, code: int = 79, **changes: Any) -> None:
        """An agent's event, kept by the agent until the door has answered."""
        contact = self.cluster.agents.contact(node)
        assert contact is not None
        event = {
            "type": "event",
            "kind": "xid",
            "code": code,
            "node": node,
            "pci": "0000:3b:00.0",
            "time": self.clock.now(),
            "time_source": "line",
            "message": f"NVRM: Xid (PCI:0000:3b:00): {code}, GPU has fallen off the bus.",
            "boot_id": contact["boot_id"],
            "sequence": next(self._sequence),
        }
        self._pending.append((node, event | changes))

    def tick(self, seconds: int = 1) -> None:
        for _ in range(seconds):
            self.clock.advance(1.0)
            self.cluster.tick()
            try:
                self._one_second()
            except Killed:
                self.restart()

    def skip(self, seconds: int) -> None:
        """As ``tick``, in strides of a scrape interval: for long waits in which nothing is in our hands."""
        stride = int(self.policy.metrics_interval_seconds)
        for _ in range(seconds // stride):
            self.clock.advance(float(stride))
            self._seconds += -self._seconds % stride or stride
            self.cluster.tick()
            self._seconds -= 1
            try:
                self._one_second()
            except Killed:
                self.restart()

    def _one_second(self) -> None:
        for name in self.cluster.agents.nodes:
            contact = self.cluster.agents.contact(name)
            if contact is None:
                continue
            mine = [event for node, event in self._pending if node == name]
            self.app.service.ingest_events(name, dict(contact), mine)
            self._pending = [item for item in self._pending if item[0] != name]
        self.app.controller.observe()
        path = self.app.metric_path
        self._seconds += 1
        due = path is not None and self._seconds % int(path.interval_seconds) == 0
        if path is not None and due:
            path.run()
        self.app.controller.step()
        if self.standby is not None:
            self._second_of(self.standby, due=due)

    def _second_of(self, app: Application, *, due: bool) -> None:
        """As the control loop of a standby: it hears of agents by the store."""
        app.controller.observe()
        with self.store.transaction(read_only=True) as tx:
            app.world.load_contacts(tx.agents())
        if due and app.metric_path is not None:
            app.metric_path.run()
        app.controller.step()

    # -- what is there to see

    def incidents(self) -> Sequence[IncidentRecord]:
        with self.store.transaction(read_only=True) as tx:
            return tx.incidents()

    def incident(self) -> IncidentRecord:
        found = self.incidents()
        assert len(found) == 1, found
        return found[0]

    def state(self) -> IncidentState | None:
        """The one incident's state; None while there is none."""
        return self.incident().state if self.incidents() else None

    def steps(self, incident: str) -> Sequence[StepRecord]:
        with self.store.transaction(read_only=True) as tx:
            return tx.steps(incident=incident)

    def our_verbs(self, node: str | None = None) -> list[str]:
        return [a.verb for a in self.cluster.scheduler.our_actions if node is None or a.node == node]

    def run_until(self, condition: Callable[[], bool], *, limit: int = 400) -> None:
        for _ in range(limit):
            if condition():
                return
            self.tick()
        raise AssertionError(f"not reached in {limit} simulated seconds: {list(self.incidents())}")

    def close(self) -> None:
        self.store.close()


def bolder(policy: Policy = POLICY, **changes: Any) -> Policy:
    return replace(policy, **changes)


def counts(verbs: Sequence[str]) -> Mapping[str, int]:
    return {verb: verbs.count(verb) for verb in sorted(set(verbs))}
