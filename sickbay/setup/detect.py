"""What kind of cluster is this machine part of? One look with the collector's own live readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fleet.observations import Reading
from fleet.scheduler import NodeRecord

#: Set by NVIDIA's GPU feature discovery on every node with a GPU.
GPU_LABEL = ("nvidia.com/gpu.present", "true")
KINDS = ("slurm", "kubernetes")


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen. ``kind`` None: neither scheduler answered; ``told`` says why, by scheduler.

    ``gpu_nodes`` have a GPU as far as the scheduler knows; ``partitions`` (Slurm) hold at least one of them,
    the ones with the fewest other nodes first.
    """

    kind: str | None
    nodes: int = 0
    gpu_nodes: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    labelled: bool = False
    told: Mapping[str, str] = field(default_factory=dict)


def look(readers: Mapping[str, Callable[[], Reading]]) -> Look:
    """The first scheduler of ``readers`` (by kind, in their order) that answers with a node."""
    told: dict[str, str] = {}
    for kind, read in readers.items():
        reading = read()
        if reading.ok and reading.nodes:
            return _of(kind, reading.nodes, told)
        problems = reading.problems
        told[kind] = problems[0].message if problems else "answered, and has no node"
    return Look(None, told=told)


def _of(kind: str, nodes: tuple[NodeRecord, ...], told: Mapping[str, str]) -> Look:
    with_gpus = [node for node in nodes if node.gpus_total]
    names = tuple(sorted(node.name for node in with_gpus))
    key, value = GPU_LABEL
    return Look(
        kind=kind,
        nodes=len(nodes),
        gpu_nodes=names,
        partitions=_partitions(nodes, frozenset(names)) if kind == "slurm" else (),
        labelled=bool(with_gpus) and all(node.labels.get(key) == value for node in with_gpus),
        told=dict(told),
    )


def _partitions(nodes: tuple[NodeRecord, ...], gpu_nodes: frozenset[str]) -> tuple[str, ...]:
    """Enough partitions to hold every GPU node, each of them needed; the purest first."""
    members: dict[str, set[str]] = {}
    for node in nodes:
        for partition in filter(str.isprintable, node.partitions):
            members.setdefault(partition, set()).add(node.name)
    order = sorted(members, key=lambda name: (len(members[name] - gpu_nodes), -len(members[name]), name))
    chosen: list[str] = []
    left = set(gpu_nodes)
    for name in order:
        if members[name] & left:
            chosen.append(name)
            left -= members[name]
    return tuple(chosen)
