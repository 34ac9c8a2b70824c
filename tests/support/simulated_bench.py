"""The bench over the simulated scheduler: time passes only when a test waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import httpx

from fleet.clock import ManualClock
from fleet.scheduler import SchedulerBackend
from simulator.fleet import SimulatedFleet
from simulator.jobs import JobSpec
from simulator.scheduler import SimulatedScheduler
from simulator.wire import PATH, RemoteScheduler, SchedulerDoor
from tests.support.bench import Capability, JobView, NodeView

_PATIENCE_SECONDS = 600.0
_STEP_SECONDS = 0.5


class SimulatedBench:
    """Four simulated nodes (see ``tests.support.bench.Bench``)."""

    kind = "simulated"
    cannot: Mapping[Capability, str] = MappingProxyType({})
    unknown_job = "999999"

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.fleet = SimulatedFleet(clock=self.clock, nodes=4)
        self.scheduler = SimulatedScheduler(self.fleet, reboot_seconds=60.0)
        self.backend: SchedulerBackend = self.scheduler
        self.nodes = self.fleet.names

    def submit(
        self, *, count: int = 1, requeue: bool = True, held: bool = False, exclude: Sequence[str] = ()
    ) -> str:
        return self.scheduler.submit(
            JobSpec(nodes=count, requeue=requeue, held=held, excluded_nodes=tuple(exclude), seconds=1e6)
        )

    def submit_array(self, tasks: int) -> list[str]:
        return self.scheduler.submit_array(JobSpec(seconds=1e6), tasks)

    def finish(self, job: str) -> None:
        self.scheduler.finish_job(job)

    def job(self, job: str) -> JobView:
        self.scheduler.tick()
        record = next(found for found in self.scheduler.observe().jobs if found.id == job)
        return JobView(record.state, record.nodes, record.state_reason or "")

    def runs(self, job: str) -> bool:
        return self.job(job).state == "running"

    def node(self, node: str) -> NodeView:
        record = self.scheduler.observe_node(node)
        reason = record.reason.text if record.reason else ""
        return NodeView(record.has("DRAIN"), reason, record.comment or "")

    def admin_drain(self, node: str, reason: str) -> None:
        self.scheduler.admin_drain(node, reason)

    def admin_undrain(self, node: str) -> None:
        self.scheduler.admin_undrain(node)

    def admin_comment(self, node: str, text: str) -> None:
        self.scheduler.admin_comment(node, text)

    def register_with_gpus(self, node: str, count: int) -> None:
        for gpu in self.fleet.node(node).gpus:
            if gpu.index < count:
                self.fleet.replace_gpu(node, gpu.index)
            else:
                self.fleet.lose_gpu(node, gpu.index)
        self.scheduler.admin_restart_daemon(node)

    def hold(self, job: str) -> None:
        self.scheduler.admin_hold_job(job)

    def now(self) -> float:
        return self.clock.now()

    def boots(self, node: str) -> int:
        return self.fleet.node(node).boots

    def writes(self) -> list[str]:
        return [
            f"{action.verb} {action.node or ''} {action.job or ''}" for action in self.scheduler.our_actions
        ]

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        waited = 0.0
        while not condition():
            if waited > _PATIENCE_SECONDS:
                raise TimeoutError(f"waited {waited:g} simulated seconds for {what}")
            self.clock.advance(_STEP_SECONDS)
            waited += _STEP_SECONDS
            self.scheduler.tick()

    def without_controller(self) -> SchedulerBackend:
        gone = SimulatedScheduler(self.fleet)
        gone.disturbances.be_unavailable(1e9)
        return gone


class RemoteBench(SimulatedBench):
    """The same, asked over its HTTP form: every call and answer goes through JSON."""

    def __init__(self) -> None:
        super().__init__()
        self.backend = _remote(self.scheduler)

    def without_controller(self) -> SchedulerBackend:
        gone = SimulatedScheduler(self.fleet)
        gone.disturbances.be_unavailable(1e9)
        return _remote(gone)


def _remote(scheduler: SimulatedScheduler) -> RemoteScheduler:
    door = SchedulerDoor(scheduler)

    def answer(request: httpx.Request) -> httpx.Response:
        status, body = door.answer(request.url.path.removeprefix(PATH), request.content)
        return httpx.Response(status, content=body)

    return RemoteScheduler("http://cluster:9400", client=httpx.Client(transport=httpx.MockTransport(answer)))
