"""A small cluster that has one of everything, and its metrics as text."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from collector.exporters.classes import QueueState, SizeClass, WaitReason
from collector.exporters.families import ExporterCollector
from collector.exporters.model import QueueItem, SchedulerReading
from collector.exporters.poller import Poller
from collector.exporters.summary import Names
from fleet.clock import ManualClock
from fleet.errors import UnavailableError
from fleet.scheduler import NodeRecord, NodeState, Owner


def gpu_node(name: str, state: NodeState, held: int = 0, **parts: object) -> NodeRecord:
    """Eight H100s; ``held`` of them in use."""
    fields: dict[str, object] = {
        "gpus_total": 8,
        "gpus_allocated": held,
        "gpu_types": {"h100": 8},
        "gpu_types_allocated": {"h100": held},
        "schedulable": state in (NodeState.IDLE, NodeState.MIXED, NodeState.ALLOCATED),
        "partitions": ("gpu",),
        **parts,
    }
    return NodeRecord(name=name, state=state, **fields)  # type: ignore[arg-type]


def pending(run: str, **parts: object) -> QueueItem:
    """Eight GPUs, waiting for resources since 100 s before the clock's start."""
    fields: dict[str, object] = {
        "partitions": ("gpu",),
        "state": QueueState.PENDING,
        "size": SizeClass.UP_TO_8,
        "gpus": 8,
        "reason": WaitReason.RESOURCES,
        "eligible_at": ManualClock().now() - 100.0,
        **parts,
    }
    return QueueItem(run=(run,), **fields)  # type: ignore[arg-type]


def running(run: str, wait: float, **parts: object) -> QueueItem:
    fields: dict[str, object] = {
        "state": QueueState.RUNNING,
        "reason": None,
        "started": True,
        "wait_seconds": wait,
        **parts,
    }
    return pending(run, **fields)


NODES = (
    gpu_node("n1", NodeState.MIXED, 6, partitions=("gpu", "debug")),
    gpu_node("n2", NodeState.IDLE, partitions=("gpu", "debug")),
    gpu_node("n3", NodeState.DRAINING, 2, owner=Owner.SICKBAY),
    gpu_node("n4", NodeState.DRAINED, owner=Owner.FOREIGN),
    gpu_node("n5", NodeState.DOWN),
    NodeRecord(name="n6", state=NodeState.IDLE, partitions=("gpu",)),
    NodeRecord(name="n7", state=NodeState.MAINTENANCE, gpus_total=0),
)
FIRST = SchedulerReading(
    nodes=NODES,
    items=(
        pending("1"),
        pending("2", partitions=("debug", "gpu"), eligible_at=ManualClock().now() - 500.0),
        pending("3", reason=WaitReason.HELD, size=SizeClass.UP_TO_64, gpus=16, count=3),
        pending("4", size=SizeClass.UNKNOWN, gpus=None),
        pending("5", size=SizeClass.CPU, gpus=0, partitions=()),
        running("6", 10.0),
    ),
    problems=2,
)
SECOND = SchedulerReading(nodes=NODES, items=(running("1", 130.0), *FIRST.items[1:]))


class ScriptedSource:
    """Gives the readings in turn; an error is raised."""

    kind = "slurm"

    def __init__(self, *answers: SchedulerReading | Exception) -> None:
        self._answers = list(answers)

    def read(self) -> SchedulerReading:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        """Nothing is held."""


class Exporter:
    """The exporter without its HTTP server."""

    def __init__(self, *answers: SchedulerReading | Exception, kind: str = "slurm") -> None:
        self.clock = ManualClock()
        self.poller = Poller(
            ScriptedSource(*answers),
            Names.fresh(lambda node: "small" if node.name in ("n1", "n2") else "rest"),
            clock=self.clock,
            interval_seconds=30.0,
            slowest_read_seconds=20.0,
        )
        self.registry = CollectorRegistry()
        self.registry.register(
            ExporterCollector(self.poller.state, scheduler=kind, version="1.2.3", interval_seconds=30.0)
        )

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def total(self, name: str, **labels: str) -> float:
        """The sum over the series of ``name`` that carry ``labels``."""
        return sum(
            sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def families(self) -> set[str]:
        return {family.name for family in self.registry.collect() if family.samples}


@pytest.fixture
def exporter() -> Exporter:
    """After two good reads, before one that fails."""
    made = Exporter(FIRST, SECOND, UnavailableError("slurmctld does not answer"))
    made.poller.poll()
    made.clock.advance(30.0)
    made.poller.poll()
    return made
