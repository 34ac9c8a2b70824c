"""The demo on Kubernetes: an API server in this process, the product's client and backend over real HTTP.

What is made up: the machines, and the machine room that the operator's reboot command would reach. The
command itself goes the configured way (``repair.commands.reboot``), environment, deadline and exit code
included; only the process is not started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

from collector.kubernetes.auth import Credentials
from collector.kubernetes.client import KubernetesClient
from collector.process import Completed, ToolMissingError
from fleet.clock import Clock
from fleet.errors import NotFoundError
from fleet.findings import Repair
from remediator.backends.kubernetes import KubernetesBackend
from remediator.commands import ConfiguredCommands
from sickbay.demo.clusters import World
from sickbay.demo.scenes import Script
from simulator.cluster import ClusterOf
from simulator.fleet import SimulatedFleet
from simulator.kernel_log import LogShape
from simulator.kubernetes_api.machines import GPU_NODE_LABEL
from simulator.kubernetes_api.scheduler import KubernetesScheduler

#: A simulated second has no width: what the client asks in one tick, it asks at once.
MAX_QPS = 1000.0
REBOOT_COMMAND = ("redfish-reset",)

KubernetesCluster = ClusterOf[KubernetesScheduler]


def kubernetes_cluster(script: Script, *, clock: Clock, nodes: int, seed: int) -> KubernetesCluster:
    """A simulated fleet behind an API server whose port is not opened yet."""
    fleet = SimulatedFleet(clock=clock, nodes=nodes, seed=seed, log_shape=LogShape.KMSG)
    scheduler = KubernetesScheduler(fleet, seed=seed)
    cluster = ClusterOf(fleet, scheduler, seed=seed, faults=script.faults)
    for job in script.jobs:
        scheduler.submit(job)
    return cluster


def kubernetes_world(script: Script, *, clock: Clock, nodes: int, seed: int) -> World:
    cluster = kubernetes_cluster(script, clock=clock, nodes=nodes, seed=seed)
    scheduler = cluster.scheduler
    scheduler.start()
    client = KubernetesClient(_credentials(scheduler), clock=clock, max_qps=MAX_QPS)

    def close() -> None:
        client.close()
        scheduler.close()

    return World(
        cluster=cluster,
        backend=KubernetesBackend(client, clock),
        pool_label=f"{GPU_NODE_LABEL}=true",
        repair_commands={Repair.REBOOT: REBOOT_COMMAND},
        commands=ConfiguredCommands(MachineRoom(scheduler)),
        close=close,
    )


def _credentials(scheduler: KubernetesScheduler) -> Credentials:
    """What a kubeconfig with this address and token would load, without a file in between."""
    loaded = SimpleNamespace(host=scheduler.api.url, api_key={"BearerToken": f"Bearer {scheduler.api.token}"})
    return Credentials(lambda: loaded)


@dataclass(frozen=True, slots=True)
class MachineRoom:
    """Stands in for the process of a configured command: ``redfish-reset`` restarts SICKBAY_NODE."""

    scheduler: KubernetesScheduler

    def __call__(self, argv: Sequence[str], *, env: Mapping[str, str], timeout_seconds: float) -> Completed:
        del timeout_seconds  # the machine's controller takes the order at once
        if tuple(argv) != REBOOT_COMMAND:
            raise ToolMissingError(f"{argv[0]} is not installed (not found on PATH)")
        try:
            self.scheduler.power_cycle(env["SICKBAY_NODE"])
        except NotFoundError as error:
            return Completed(tuple(argv), 1, b"", str(error).encode(), 0.0)
        return Completed(tuple(argv), 0, b"", b"", 0.0)
