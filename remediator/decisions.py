"""What the planner may decide: go to another state, act, wait, or record an effect that is plain to see."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.findings import IncidentState, Repair, Step
from remediator.situation import JobRun


@dataclass(frozen=True, slots=True)
class Move:
    """Go to another state; nothing outside changes. ``give_up``: stay, and be cancelled in our name."""

    state: IncidentState
    reason: str
    cooldown: bool = False
    clear_findings: bool = False
    repair: Repair | None = None
    give_up: bool = False


@dataclass(frozen=True, slots=True)
class Act:
    """Do ``step`` if the gates pass. ``job`` names the run for a requeue.

    ``let_go``: of a requeue only what ends it: a job that we hold is released, one that still runs is left.
    """

    step: Step
    reason: str
    job: JobRun | None = None
    let_go: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do now, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Settle:
    """The effect of the action in flight is plain to see: record it, do not do it again."""

    step: Step
    reason: str


Decision = Move | Act | Wait | Settle
