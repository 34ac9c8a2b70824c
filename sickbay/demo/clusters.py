"""The demo's two worlds behind one seam: who schedules the simulated fleet, and how the service gets at it.

With Slurm's semantics the simulated scheduler is the backend itself. With Kubernetes the product's own
backend and client talk HTTP to an API server in this process, as they would to any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fleet.clock import Clock
from fleet.findings import Repair
from fleet.scheduler import SchedulerBackend
from remediator.commands import CommandRunner
from sickbay.demo.clusters_kind import SchedulerKind
from sickbay.demo.scenes import Script
from simulator.cluster import AnyCluster, SimulatedCluster
from simulator.kernel_log import LogShape


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A simulated cluster and the service's ways to it.

    ``pool_label`` or ``pool_partition`` selects its GPU nodes. ``repair_commands`` and ``commands`` are what
    the operator of such a cluster has to configure beside the scheduler.
    """

    cluster: AnyCluster
    backend: SchedulerBackend
    pool_partition: str | None = None
    pool_label: str | None = None
    repair_commands: Mapping[Repair, tuple[str, ...]] = field(default_factory=dict)
    commands: CommandRunner | None = None
    close: Callable[[], None] = lambda: None


def build_world(kind: SchedulerKind, script: Script, *, clock: Clock, nodes: int, seed: int) -> World:
    """The world of ``kind``, with the script's jobs submitted. Its ``close`` ends what it started."""
    if kind is SchedulerKind.SLURM:
        cluster = _slurm_cluster(script, clock=clock, nodes=nodes, seed=seed)
        return World(cluster=cluster, backend=cluster.scheduler, pool_partition="gpu")
    # Imported here: the other world needs no HTTP.
    from sickbay.demo.clusters_kubernetes import kubernetes_world  # noqa: PLC0415

    return kubernetes_world(script, clock=clock, nodes=nodes, seed=seed)


def build_cluster(kind: SchedulerKind, script: Script, *, clock: Clock, nodes: int, seed: int) -> AnyCluster:
    """The same cluster with nobody watching: nothing is opened that would have to be closed."""
    if kind is SchedulerKind.SLURM:
        return _slurm_cluster(script, clock=clock, nodes=nodes, seed=seed)
    from sickbay.demo.clusters_kubernetes import kubernetes_cluster  # noqa: PLC0415

    return kubernetes_cluster(script, clock=clock, nodes=nodes, seed=seed)


def _slurm_cluster(script: Script, *, clock: Clock, nodes: int, seed: int) -> SimulatedCluster:
    cluster = SimulatedCluster(
        clock=clock, nodes=nodes, seed=seed, faults=script.faults, log_shape=LogShape.KMSG
    )
    for job in script.jobs:
        cluster.scheduler.submit(job)
    return cluster
