"""A person who mends nodes by hand: finds one sick, takes it out of service, reboots it, gives it back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from simulator.ports import FleetScheduler

USER = "root"
#: How long a boot of a GPU server takes; the rest of the work by hand is looking and deciding.
BOOT_SECONDS = 180.0


class _Stage(IntEnum):
    SICK = 1
    OUT = 2
    BOOTING = 3
    BACK = 4


@dataclass(slots=True)
class _Job:
    """``back_at`` is None where the node needs a card: it is out of service then, and no more is done here.

    Times are epoch seconds, as the fleet's clock has them.
    """

    node: str
    found_at: float
    back_at: float | None
    stage: _Stage = _Stage.SICK

    @property
    def done(self) -> bool:
        return self.stage is _Stage.BACK or (self.stage is _Stage.OUT and self.back_at is None)


class Engineer:
    """Does what was planned when its time has come; ``step`` after the cluster's own."""

    def __init__(self, scheduler: FleetScheduler) -> None:
        self._scheduler = scheduler
        self._fleet = scheduler.fleet
        self._jobs: dict[str, _Job] = {}

    def plan(self, node: str, *, found_at: float, back_at: float | None) -> None:
        """``node`` will be found then. Planned anew, what has been done stays done."""
        known = self._jobs.setdefault(node, _Job(node, found_at, back_at))
        if known.stage is _Stage.SICK:
            known.found_at, known.back_at = found_at, back_at

    @property
    def done(self) -> bool:
        """Nothing planned is left to do."""
        return all(job.done for job in self._jobs.values())

    def step(self) -> None:
        now = self._fleet.clock.now()
        for job in self._jobs.values():
            if job.stage is _Stage.SICK and now >= job.found_at:
                self._take_out(job.node)
                job.stage = _Stage.OUT
            if job.back_at is None:
                continue
            if job.stage is _Stage.OUT and now >= job.back_at - BOOT_SECONDS:
                self._fleet.reboot(job.node, BOOT_SECONDS)
                job.stage = _Stage.BOOTING
            elif job.stage is _Stage.BOOTING and now >= job.back_at and self._fleet.node(job.node).up:
                self._scheduler.admin_undrain(job.node, USER)
                job.stage = _Stage.BACK

    def _take_out(self, node: str) -> None:
        """Nothing more starts there, and what hangs there is ended."""
        self._scheduler.admin_drain(node, "ADMIN: sick, found by hand", USER)
        for running in self._scheduler.jobs_on(node):
            self._scheduler.fail_job(running.id)
