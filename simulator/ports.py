"""What users, admins, faults and exporters meet of a simulated scheduler, whoever's semantics it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fleet.scheduler import NodeRecord
from simulator.fleet import SimulatedFleet
from simulator.jobs import JobSpec


@dataclass(frozen=True, slots=True)
class Action:
    """One write to the scheduler: when, by whom (a user name; ours is ``sickbay``), what, on what."""

    at: float
    actor: str
    verb: str
    node: str | None = None
    job: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that runs now."""

    id: str
    user: str
    nodes: tuple[str, ...]
    gpus_per_node: int


class FleetScheduler(Protocol):
    """The scheduler of a simulated fleet, as everybody but its client knows it.

    ``our_actions`` are the writes that the service made, by the scheduler's own record. Methods with a
    node's name raise NotFoundError for one that is not there.
    """

    @property
    def fleet(self) -> SimulatedFleet: ...

    @property
    def our_actions(self) -> Sequence[Action]: ...

    def tick(self) -> None:
        """Bring everything to the clock's present."""
        ...

    def observe_node(self, node: str) -> NodeRecord:
        """The node as it is, not as a client reads it."""
        ...

    def jobs_on(self, node: str) -> Sequence[RunningJob]:
        """What runs on ``node`` now, oldest first."""
        ...

    def gpus_wanted(self) -> int:
        """GPUs of everything that runs or waits, held work aside."""
        ...

    def submit(self, spec: JobSpec) -> str:
        """A user submits a job; its id."""
        ...

    def fail_job(self, job: str, exit_code: int = 1) -> None:
        """The job's own program fails. ``job`` is a ``RunningJob.id``."""
        ...

    def admin_drain(self, node: str, reason: str, user: str = "root") -> None:
        """A person takes a node out of service, with words why."""
        ...

    def admin_undrain(self, node: str, user: str = "root") -> None:
        """A person gives a node back to the jobs."""
        ...

    def be_unavailable(self, seconds: float) -> None:
        """The scheduler answers nobody for so long."""
        ...
