"""One adapter per scheduler, so that one contract suite runs against each of them.

The backend under test is judged by what the scheduler itself says: everything here but ``backend`` goes
past it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

import pytest

from fleet.scheduler import NodeRecord, RequeueOutcome, RequeueRequest, RequeueState, SchedulerBackend

SETTLED = (RequeueState.DONE, RequeueState.REFUSED, RequeueState.GONE)


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as the scheduler shows it: ``state`` lower case, ``reason`` why it waits."""

    state: str
    nodes: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as the scheduler shows it. ``drained``: its drain flag is set, whatever else is."""

    drained: bool
    reason: str
    comment: str


class Capability(Enum):
    """What not every scheduler has; a bench that ``cannot`` says why, and the test is skipped with that."""

    PARTITIONS = auto()
    GPU_REGISTRATION = auto()
    REBOOT = auto()
    GANG = auto()
    HOLD_WHILE_RUNNING = auto()
    RESTART_COUNT = auto()


class Bench(Protocol):
    """A scheduler with at least four idle nodes of eight GPUs, and an admin's and a user's hands on it.

    ``unknown_job`` is a well-formed id that no job has.
    """

    kind: str
    backend: SchedulerBackend
    nodes: tuple[str, ...]
    cannot: Mapping[Capability, str]
    unknown_job: str

    def submit(
        self, *, count: int = 1, requeue: bool = True, held: bool = False, exclude: Sequence[str] = ()
    ) -> str:
        """A batch job on ``count`` whole nodes that runs until ``finish``; ``exclude`` is its user's wish."""
        ...

    def submit_array(self, tasks: int) -> list[str]:
        """An array job of whole-node tasks; the ids of its tasks."""
        ...

    def finish(self, job: str) -> None:
        """The job ends by itself, successfully."""
        ...

    def job(self, job: str) -> JobView: ...

    def runs(self, job: str) -> bool:
        """The job is running and its own program has begun."""
        ...

    def node(self, node: str) -> NodeView: ...

    def admin_drain(self, node: str, reason: str) -> None: ...

    def admin_undrain(self, node: str) -> None: ...

    def admin_comment(self, node: str, text: str) -> None: ...

    def register_with_gpus(self, node: str, count: int) -> None:
        """The node's daemon restarts and finds ``count`` of its eight GPUs."""
        ...

    def hold(self, job: str) -> None:
        """The job's user holds it, running or not."""
        ...

    def now(self) -> float:
        """The scheduler's present, epoch seconds."""
        ...

    def boots(self, node: str) -> int:
        """How often the node has booted since the bench was made."""
        ...

    def writes(self) -> list[str]:
        """Every write that the backend under test has sent to the scheduler, oldest first."""
        ...

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Let the scheduler's time pass until ``condition()``; TimeoutError names ``what``."""
        ...

    def without_controller(self) -> SchedulerBackend:
        """The same backend over a scheduler whose controller does not answer."""
        ...


def needs(bench: Bench, capability: Capability) -> None:
    """Skip where the scheduler has no such thing."""
    if capability in bench.cannot:
        pytest.skip(f"{bench.kind}: {bench.cannot[capability]}")


def wait_running(bench: Bench, job: str) -> tuple[str, ...]:
    """Wait until ``job`` runs; its nodes."""
    bench.wait(lambda: bench.runs(job), f"job {job} to run")
    return bench.job(job).nodes


def request_for(bench: Bench, job: str, node: str) -> RequeueRequest:
    """The request an intent would record for ``job`` as it is now."""
    record = next(found for found in bench.backend.observe().jobs if found.id == job)
    return RequeueRequest(job=job, node=node, restarts=record.restarts, submitted_at=record.submitted_at)


def requeue_until_settled(bench: Bench, request: RequeueRequest) -> RequeueOutcome:
    """Call ``requeue`` as the executor does, until it no longer says IN_PROGRESS."""
    outcomes: list[RequeueOutcome] = []

    def settled() -> bool:
        outcomes.append(bench.backend.requeue(request))
        return outcomes[-1].state in SETTLED

    bench.wait(settled, f"the requeue of job {request.job} to settle")
    return outcomes[-1]


def wait_rebooted(bench: Bench, node: str, boots_before: int) -> NodeRecord:
    """Wait until ``node`` is back from a reboot; its record then."""
    bench.wait(lambda: bench.boots(node) > boots_before, f"{node} to boot")
    bench.wait(lambda: not _rebooting(bench.backend.observe_node(node)), f"{node} to register")
    return bench.backend.observe_node(node)


def let_time_pass(bench: Bench, seconds: float) -> None:
    """Slurm keeps times in whole seconds: what must differ in time needs more than one apart."""
    until = bench.now() + seconds
    bench.wait(lambda: bench.now() >= until, f"{seconds:g} s to pass")


def _rebooting(record: NodeRecord) -> bool:
    return any(flag.startswith("REBOOT") for flag in record.flags) or record.base == "down"
