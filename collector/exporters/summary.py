"""From one read to counts. Pure, but for the names it has seen: a label never grows without end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from collector.exporters.classes import GpuStatus, OutReason, QueueState, SizeClass, WaitReason
from collector.exporters.gpus import GpuPlace, gpu_places
from collector.exporters.model import QueueItem, SchedulerReading
from fleet.scheduler import NodeRecord, NodeState, Owner

NO_PARTITION = "(none)"
OVERFLOW = "(other)"
MAX_PARTITIONS = 200
MAX_GPU_TYPES = 50

PoolOf = Callable[[NodeRecord], str]


class LabelBudget:
    """The first ``limit`` names keep their own; every later one becomes ``(other)``, for good."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: dict[str, None] = {}

    def __call__(self, name: str) -> str:
        if name in self._known:
            return name
        if len(self._known) >= self._limit:
            return OVERFLOW
        self._known[name] = None
        return name


@dataclass(frozen=True, slots=True)
class Names:
    """What turns names from the scheduler into labels. One for the life of the exporter."""

    pool_of: PoolOf
    partition: LabelBudget
    gpu_type: LabelBudget

    @classmethod
    def fresh(cls, pool_of: PoolOf) -> Names:
        return cls(pool_of, LabelBudget(MAX_PARTITIONS), LabelBudget(MAX_GPU_TYPES))

    def partitions(self, names: Iterable[str]) -> tuple[str, ...]:
        """Labels of the partitions a thing is in, each once."""
        return tuple(dict.fromkeys(self.partition(name) for name in names))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSummary:
    """``nodes`` and ``gpus`` hold every node once; the ``partition_`` tables once per partition it is in."""

    nodes: Mapping[tuple[str, NodeState, Owner], int]
    gpus: Mapping[tuple[str, GpuPlace], int]
    without_gpu_count: Mapping[str, int]
    partition_nodes: Mapping[tuple[str, NodeState], int]
    partition_gpus: Mapping[tuple[str, GpuStatus, OutReason], int]
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTable:
    """Jobs of one group. ``oldest``: since when the longest waiting job is eligible (epoch seconds)."""

    states: Mapping[QueueState, int]
    reasons: Mapping[WaitReason, int]
    gpus: Mapping[SizeClass, int]
    unknown_size: int
    oldest: Mapping[SizeClass, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSummary:
    """``whole`` counts every job once; a job that waits in several partitions is in each one's table."""

    whole: QueueTable
    partitions: Mapping[str, QueueTable]


@dataclass(frozen=True, slots=True)
class Summary:
    nodes: NodeSummary
    queue: QueueSummary
    problems: int


def summarise(reading: SchedulerReading, names: Names, *, now: float) -> Summary:
    """Counts of one read at ``now`` (epoch seconds)."""
    nodes = _summarise_nodes(reading, names)
    return Summary(
        nodes=nodes,
        queue=_summarise_queue(reading.items, names, known=nodes.partitions, now=now),
        problems=reading.problems,
    )


def _summarise_nodes(reading: SchedulerReading, names: Names) -> NodeSummary:
    nodes: Counter[tuple[str, NodeState, Owner]] = Counter()
    gpus: Counter[tuple[str, GpuPlace]] = Counter()
    uncounted: Counter[str] = Counter()
    in_partition: Counter[tuple[str, NodeState]] = Counter()
    partition_gpus: Counter[tuple[str, GpuStatus, OutReason]] = Counter()
    partitions: dict[str, None] = {}
    for node in sorted(reading.nodes, key=lambda one: one.name):
        pool = names.pool_of(node)
        member_of = names.partitions(node.partitions)
        partitions.update(dict.fromkeys(member_of))
        nodes[(pool, node.state, node.owner)] += 1
        uncounted[pool] += node.gpus_total is None
        for partition in member_of:
            in_partition[(partition, node.state)] += 1
        places = gpu_places(node, withdrawn=reading.withdrawn.get(node.name, 0))
        for (kind, status, reason), amount in places.items():
            gpus[(pool, (names.gpu_type(kind), status, reason))] += amount
            for partition in member_of:
                partition_gpus[(partition, status, reason)] += amount
    return NodeSummary(
        nodes=nodes,
        gpus=gpus,
        without_gpu_count=uncounted,
        partition_nodes=in_partition,
        partition_gpus=partition_gpus,
        partitions=tuple(partitions),
    )


def _summarise_queue(
    items: Iterable[QueueItem], names: Names, *, known: Iterable[str], now: float
) -> QueueSummary:
    whole = _Tally(now)
    tables = {partition: _Tally(now) for partition in known}
    for item in items:
        if item.state is QueueState.ENDED:
            continue
        whole.add(item)
        for partition in names.partitions(item.partitions or (NO_PARTITION,)):
            tables.setdefault(partition, _Tally(now)).add(item)
    return QueueSummary(
        whole=whole.table(), partitions={name: tables[name].table() for name in sorted(tables)}
    )


class _Tally:
    def __init__(self, now: float) -> None:
        self._now = now
        self._states: Counter[QueueState] = Counter()
        self._reasons: Counter[WaitReason] = Counter()
        self._gpus: Counter[SizeClass] = Counter()
        self._unknown_size = 0
        self._oldest: dict[SizeClass, float] = {}

    def add(self, item: QueueItem) -> None:
        self._states[item.state] += item.count
        if item.state is not QueueState.PENDING or item.reason is None:
            return
        self._reasons[item.reason] += item.count
        if item.size is SizeClass.UNKNOWN:
            self._unknown_size += item.count
        if item.size.is_counted:
            self._gpus[item.size] += item.count * (item.gpus or 0)
        since = item.eligible_at
        if since is not None and since <= self._now and not item.reason.by_choice:
            self._oldest[item.size] = min(since, self._oldest.get(item.size, since))

    def table(self) -> QueueTable:
        return QueueTable(
            states=self._states,
            reasons=self._reasons,
            gpus=self._gpus,
            unknown_size=self._unknown_size,
            oldest=self._oldest,
        )
