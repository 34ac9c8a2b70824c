"""The simulated cluster as it runs in real time: one thread moves it, others ask it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fleet.clock import Clock
from simulator.cluster import SimulatedCluster
from simulator.faults import Fault, FaultKind
from simulator.fleet import SimulatedFleet
from simulator.kernel_log import LogShape
from simulator.wire import SchedulerDoor

log = logging.getLogger(__name__)

TICK_SECONDS = 0.25
# Without a tick for this long (s) time stands still in the cluster: the process is not healthy.
STUCK_SECONDS = 30.0
_LASTING = frozenset(
    {
        FaultKind.AGENT_SILENT,
        FaultKind.SCHEDULER_AWAY,
        FaultKind.HEAT,
        FaultKind.POWER_BRAKE,
        FaultKind.EXPORTER_AWAY,
    }
)


class Plant:
    """``start`` moves the cluster until ``stop``. Every method may be called from any thread."""

    def __init__(
        self,
        clock: Clock,
        *,
        nodes: int,
        gpus_per_node: int = 8,
        seed: int = 1,
        reboot_seconds: float = 60.0,
        script: Callable[[SimulatedFleet], Sequence[Fault]] = lambda _: (),
    ) -> None:
        """``script``: the faults that play by themselves, checked against the fleet they are for."""
        unbuilt = SimulatedFleet(clock=clock, nodes=nodes, gpus_per_node=gpus_per_node, seed=seed)
        self.cluster = SimulatedCluster(
            clock=clock,
            nodes=nodes,
            gpus_per_node=gpus_per_node,
            seed=seed,
            faults=script(unbuilt),
            reboot_seconds=reboot_seconds,
            log_shape=LogShape.RSYSLOG,
        )
        self.door = SchedulerDoor(self.cluster.scheduler)
        self._clock = clock
        self._lock = threading.Lock()
        self._ticked_at = clock.monotonic()
        self._watchers: list[Callable[[], None]] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="plant", daemon=True)

    @property
    def fleet(self) -> SimulatedFleet:
        return self.cluster.fleet

    def after_each_tick(self, watcher: Callable[[], None]) -> None:
        """Have ``watcher`` called after every tick, in the thread that moves the cluster."""
        self._watchers.append(watcher)

    def tick(self) -> None:
        """Bring the cluster to the clock's present."""
        with self._lock:
            happened = self.cluster.tick()
            self._ticked_at = self._clock.monotonic()
        for fault in happened:
            log.info("fault by script: %s", told(fault))
        for watcher in self._watchers:
            watcher()

    def inject(self, fault: Fault) -> None:
        """Make ``fault`` happen now."""
        with self._lock:
            fault.apply(self.cluster.fleet, self.cluster.scheduler, self.cluster.telemetry)
            self.cluster.script.applied.append((self._clock.now(), fault))
        log.info("fault on request: %s", told(fault))

    def happened(self) -> list[Mapping[str, Any]]:
        """Every fault so far, oldest first, with its time (epoch s)."""
        with self._lock:
            applied = list(self.cluster.script.applied)
        return [
            {"at": at, "kind": str(fault.kind), "node": fault.node, "what": told(fault)}
            for at, fault in applied
        ]

    def healthy(self) -> tuple[bool, str]:
        still = self._clock.monotonic() - self._ticked_at
        if still > STUCK_SECONDS:
            return False, f"time has stood still for {still:.0f} s; the log says why"
        return True, "ok"

    def start(self) -> None:
        self.tick()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(5.0)

    def _run(self) -> None:
        """Named boundary of the moving thread: a defect is logged, and ``healthy`` tells when it lasts."""
        while not self._stopping.wait(TICK_SECONDS):
            try:
                self.tick()
            except Exception:
                log.exception("a tick of the simulated cluster failed; going on")
                self._stopping.wait(1.0)


def told(fault: Fault) -> str:
    """A fault in one line."""
    words = [str(fault.kind), fault.node, f"gpu {fault.gpu_index}"]
    if fault.kind.value.endswith("xid"):
        words.append(f"code {fault.code}")
    if fault.kind in _LASTING:
        words.append(f"for {fault.seconds:g} s")
    return " ".join(words)
