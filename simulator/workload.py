"""Jobs as a training cluster has them: most short and small, most GPU time in few long gangs."""

from __future__ import annotations

import random

from fleet.clock import Clock
from fleet.scheduler import JobKind
from simulator.jobs import JobSpec
from simulator.ports import FleetScheduler

# Shares of sizes (nodes, GPUs per node). The heavy tail follows the two clusters of InternLM/AcmeTrace
# (median job: one GPU, two minutes; most GPU time in jobs of many nodes).
_SIZES: tuple[tuple[tuple[int, int], float], ...] = (
    ((1, 1), 0.25),
    ((1, 2), 0.10),
    ((1, 4), 0.10),
    ((1, 8), 0.35),
    ((2, 8), 0.15),
    ((4, 8), 0.05),
)
_USERS = ("alice", "bob", "chen", "dora", "eli")
_NO_REQUEUE_SHARE = 0.1
_INTERACTIVE_SHARE = 0.05
# Log-normal run time: median 20 minutes for work on part of a node, 3 hours for whole nodes.
_MEDIAN_SECONDS = {False: 1200.0, True: 10_800.0}
_SIGMA = 1.1
_MIN_SECONDS = 60.0
_MAX_SECONDS = 14 * 86400.0


class Workload:
    """Users who keep ``busy_share`` of the fleet's GPUs in use. Equal seeds, equal jobs."""

    def __init__(
        self, scheduler: FleetScheduler, *, clock: Clock, seed: int = 1, busy_share: float = 0.75
    ) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._random = random.Random(seed)  # noqa: S311 - a simulation, not a secret
        self._busy_share = busy_share
        self._submitted = 0

    def tick(self) -> None:
        """Submit jobs while the fleet has less work than wanted, running and waiting together."""
        fleet = self._scheduler.fleet
        wanted = self._busy_share * len(fleet.names) * fleet.gpus_per_node
        present = self._scheduler.gpus_wanted()
        while present < wanted:
            job = self.next_job()
            self._scheduler.submit(job)
            present += job.nodes * job.gpus_per_node

    def next_job(self) -> JobSpec:
        nodes, gpus = self._random.choices([size for size, _ in _SIZES], [share for _, share in _SIZES])[0]
        nodes = min(nodes, max(1, len(self._scheduler.fleet.names) // 4))
        gpus = min(gpus, self._scheduler.fleet.gpus_per_node)
        whole = gpus == self._scheduler.fleet.gpus_per_node
        seconds = _MEDIAN_SECONDS[whole] * self._random.lognormvariate(0.0, _SIGMA)
        interactive = nodes == 1 and self._random.random() < _INTERACTIVE_SHARE
        self._submitted += 1
        return JobSpec(
            name=f"train-{self._submitted}",
            user=self._random.choice(_USERS),
            nodes=nodes,
            gpus_per_node=gpus,
            seconds=min(max(seconds, _MIN_SECONDS), _MAX_SECONDS),
            requeue=not interactive and self._random.random() >= _NO_REQUEUE_SHARE,
            kind=JobKind.INTERACTIVE if interactive else JobKind.BATCH,
        )
