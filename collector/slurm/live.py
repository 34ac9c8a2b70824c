"""One live look at Slurm for the command line: nodes and jobs, or the problem that kept us from them."""

from __future__ import annotations

import os

from collector.process import TimedOutError, ToolMissingError
from collector.slurm.client import SlurmClient
from collector.slurm.queries import JOBS_ARGV, nodes_argv
from collector.slurm.reader import read_captured
from collector.slurm.records import SOURCE
from fleet.clock import Clock, SystemClock
from fleet.errors import BackendError, ForbiddenError, UnavailableError
from fleet.observations import Problem, ProblemReason, Reading

# Where the cluster is, and who we are there; everything else in the environment is dropped.
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")


def read_live(timeout_seconds: float, *, clock: Clock | None = None) -> Reading:
    """Nodes and jobs as Slurm reports them now. Never raises for what Slurm does: a problem says it.

    What a user may not see of one of the two hides nothing of the other.
    """
    clock = clock or SystemClock()
    env = {name: os.environ[name] for name in _KEPT if name in os.environ}
    client = SlurmClient(env=env, clock=clock, timeout_seconds=timeout_seconds)
    readings: list[Reading] = []
    for what in ("nodes", "jobs"):
        try:
            readings.append(_read(client, clock, what))
        except BackendError as error:
            problem = Problem(source=SOURCE, reason=_reason(error), message=str(error))
            readings.append(Reading((problem,), ok=False))
            if not isinstance(error, ForbiddenError):
                break  # the second call would fail the same way, and as late
    records = tuple(record for reading in readings for record in reading.records)
    return Reading(records, ok=any(reading.ok for reading in readings))


def _read(client: SlurmClient, clock: Clock, what: str) -> Reading:
    argv = nodes_argv(client.version()) if what == "nodes" else JOBS_ARGV
    reading = read_captured(client.read(argv), now=clock.now(), utc=True)
    if what == "nodes" and reading.ok and not reading.nodes:
        raise UnavailableError("Slurm answered with no nodes at all; no cluster is empty")
    return reading


def _reason(error: BackendError) -> ProblemReason:
    if isinstance(error, ToolMissingError):
        return ProblemReason.TOOL_MISSING
    if isinstance(error, TimedOutError):
        return ProblemReason.TIMEOUT
    if isinstance(error, ForbiddenError):
        return ProblemReason.PERMISSION_DENIED
    return ProblemReason.CONTROLLER_UNREACHABLE
