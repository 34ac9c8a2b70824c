"""The calls that give a whole, consistent picture, chosen by Slurm version.

Nodes must come with state, reason, user and time from one single call (two reads are no snapshot):
22.05 has JSON only in ``sinfo``; from 23.02 ``sinfo --json`` groups nodes and ``scontrol show nodes
--json`` lists them. Measured on 22.05.8: ``sinfo --json`` and ``squeue --json`` ignore every filter and
hide nothing from root (hidden partitions, nodes in no partition), so the wanted record is picked out here.
From 24.05 filters came and went; picking out is right for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from collector.slurm.client import SlurmClient
from collector.slurm.reader import read_captured
from fleet.errors import NotFoundError, UnavailableError
from fleet.observations import ProblemReason, Reading
from fleet.scheduler import JobRecord, NodeRecord

_FIRST_WITH_SCONTROL_JSON = (23, 2)
_FIRST_WITH_ANY_JSON = (21, 8)
# These say that the answer as a whole cannot be trusted, not that one record in it is odd.
_INCOMPLETE = frozenset(
    {
        ProblemReason.CONTROLLER_UNREACHABLE,
        ProblemReason.QUERY_ERROR,
        ProblemReason.PARTIAL,
        ProblemReason.TRUNCATED,
        ProblemReason.PERMISSION_DENIED,
        ProblemReason.TOO_LARGE,
    }
)
JOBS_ARGV = ("squeue", "--all", "--states=all", "--json")
Read = Callable[[Sequence[str]], bytes]


def nodes_argv(version: tuple[int, int]) -> tuple[str, ...]:
    if version < _FIRST_WITH_ANY_JSON:
        raise UnavailableError(
            f"Slurm {version[0]}.{version[1]:02d} prints no JSON; this service needs 22.05 or later"
        )
    if version < _FIRST_WITH_SCONTROL_JSON:
        return ("sinfo", "--all", "--json")
    return ("scontrol", "--all", "show", "nodes", "--json")


def node_argv(version: tuple[int, int], node: str) -> tuple[str, ...]:
    """One node: from 23.02 the scheduler is asked for it alone; before, there is no such JSON call."""
    if version < _FIRST_WITH_SCONTROL_JSON:
        return nodes_argv(version)
    return ("scontrol", "--all", "show", "node", node, "--json")


def load_nodes(client: SlurmClient, *, now: float) -> Reading:
    """All nodes. Raises UnavailableError for an answer that is broken, partial or without any node."""
    reading = _checked(client.read(nodes_argv(client.version())), now)
    if not reading.nodes:
        raise UnavailableError("Slurm answered with no nodes at all; no cluster is empty")
    return reading


def load_jobs(client: SlurmClient, *, now: float) -> Reading:
    """All jobs the controller still knows, ended ones too (MinJobAge)."""
    return _checked(client.read(JOBS_ARGV), now)


def load_node(client: SlurmClient, node: str, *, now: float) -> NodeRecord:
    """One node, fresh, in the lane of actions. NotFoundError if Slurm does not know it."""
    data = client.read_back(node_argv(client.version(), node))
    reading = _checked(data, now, not_found=f"Slurm does not know a node {node}")
    if not reading.nodes:
        raise UnavailableError("Slurm answered with no nodes at all; no cluster is empty")
    for record in reading.nodes:
        if record.name == node:
            return record
    raise NotFoundError(f"Slurm does not know a node {node}")


def load_job(client: SlurmClient, job: str, *, now: float) -> JobRecord | None:
    """One job by the id actions use, fresh, in the lane of actions. None if Slurm does not know it."""
    reading = _checked(client.read_back(JOBS_ARGV), now)
    return next((record for record in reading.jobs if record.id == job), None)


def _checked(data: bytes, now: float, *, not_found: str | None = None) -> Reading:
    reading = read_captured(data, now=now, utc=True)
    for problem in reading.problems:
        if not reading.ok or problem.reason in _INCOMPLETE:
            text = problem.message.lower()
            if not_found and ("invalid node name" in text or "failure to query node" in text):
                raise NotFoundError(not_found)
            raise UnavailableError(problem.message)
    return reading
