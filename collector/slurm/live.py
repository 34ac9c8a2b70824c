"""One live look at Slurm for the command line: nodes and jobs, or the problem that kept us from them."""

from __future__ import annotations

import os

from collector.process import TimedOutError, ToolMissingError
from collector.slurm.client import SlurmClient
from collector.slurm.queries import load_jobs, load_nodes
from collector.slurm.records import SOURCE
from fleet.clock import Clock, SystemClock
from fleet.errors import BackendError, ForbiddenError
from fleet.observations import Problem, ProblemReason, Reading

# Where the cluster is, and who we are there; everything else in the environment is dropped.
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")


def read_live(timeout_seconds: float, *, clock: Clock | None = None) -> Reading:
    """Nodes and jobs as Slurm reports them now. Never raises for what Slurm does: a problem says it."""
    clock = clock or SystemClock()
    env = {name: os.environ[name] for name in _KEPT if name in os.environ}
    client = SlurmClient(env=env, clock=clock, timeout_seconds=timeout_seconds)
    try:
        nodes = load_nodes(client, now=clock.now())
        jobs = load_jobs(client, now=clock.now())
    except BackendError as error:
        return Reading((Problem(source=SOURCE, reason=_reason(error), message=str(error)),), ok=False)
    return Reading((*nodes.records, *jobs.records))


def _reason(error: BackendError) -> ProblemReason:
    if isinstance(error, ToolMissingError):
        return ProblemReason.TOOL_MISSING
    if isinstance(error, TimedOutError):
        return ProblemReason.TIMEOUT
    if isinstance(error, ForbiddenError):
        return ProblemReason.PERMISSION_DENIED
    return ProblemReason.CONTROLLER_UNREACHABLE
