"""What every reader shares: building node records, owners, problems, and joining repeated rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from collector.slurm.gres import Gpus, node_total
from collector.slurm.hostlist import expand
from collector.slurm.states import NodeStates
from fleet.errors import InvalidInputError
from fleet.marks import parse_mark
from fleet.observations import Problem, ProblemReason, Reading, Record, Sample
from fleet.scheduler import GpuUse, JobRecord, NodeRecord, NodeState, Owner, Reason

SOURCE = "slurm"
_OPTIONAL = (
    "gpus_total",
    "gpus_allocated",
    "gpu_types",
    "gpu_types_allocated",
    "memory_free_bytes",
    "os",
    "reason",
    "comment",
    "extra",
    "uid",
    "boot_time",
    "reservation",
)


@dataclass(slots=True)
class Findings:
    """Records and problems as they are found. ``utc``: times in text are UTC, not local."""

    utc: bool = False
    nodes: dict[str, NodeRecord] = field(default_factory=dict)
    jobs: list[JobRecord] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    conflicts: set[str] = field(default_factory=set)
    failed: bool = False

    def problem(
        self, reason: ProblemReason, message: str, *, node: str | None = None, count: int = 1
    ) -> None:
        self.problems.append(Problem(source=SOURCE, reason=reason, message=message, node=node, count=count))

    def fail(self, reason: ProblemReason, message: str) -> None:
        """The whole input says nothing: not an empty cluster."""
        self.problem(reason, message)
        self.failed = True

    def add_node(self, node: NodeRecord) -> None:
        """Keep one record per name: sinfo repeats a node once per partition."""
        known = self.nodes.get(node.name)
        if known is None:
            self.nodes[node.name] = node
            return
        partitions = tuple(dict.fromkeys((*known.partitions, *node.partitions)))
        if known.state is not node.state and node.name not in self.conflicts:
            self.conflicts.add(node.name)
            self.problem(
                ProblemReason.CONFLICT,
                f"{node.name} appears twice with different states ({known.state} and {node.state})",
                node=node.name,
            )
            known = replace(known, state=NodeState.UNKNOWN, schedulable=False)
        self.nodes[node.name] = _completed(replace(known, partitions=partitions), node)

    def hosts(self, value: object, what: str) -> tuple[str, ...]:
        """A host list (text or list of names) to names; an unreadable one is a problem and no name."""
        text = ",".join(item for item in value if isinstance(item, str)) if isinstance(value, list) else value
        if not text or not isinstance(text, str):
            return ()
        try:
            return expand(text)
        except InvalidInputError as error:
            self.problem(ProblemReason.UNREADABLE, f"{what}: {error}")
            return ()

    def unusable(self, what: str, count: int) -> None:
        """Entries that name nothing: skipped. If there is nothing else, nothing could be read."""
        self.problem(ProblemReason.UNREADABLE, what, count=count)
        self.failed = True

    def skip_rows(self, rows: Sequence[str], why: str) -> None:
        if rows:
            self.failed = True  # unless something else could be read
            example = rows[0].strip()[:60]
            self.problem(ProblemReason.UNREADABLE, f"{why}, first one: {example!r}", count=len(rows))

    def reading(self) -> Reading:
        records: Iterable[Record] = (
            *self.nodes.values(),
            *self.jobs,
            *self.samples,
            *self.problems,
        )
        something = bool(self.nodes or self.jobs or self.samples)
        return Reading(tuple(records), ok=something or not self.failed)


def _completed(known: NodeRecord, other: NodeRecord) -> NodeRecord:
    """``known`` with what only ``other`` says: several listings of one moment each show a part."""
    missing = {
        name: getattr(other, name)
        for name in _OPTIONAL
        if getattr(known, name) in (None, {}) and getattr(other, name) not in (None, {})
    }
    # A word of sinfo hides bits that scontrol prints (draining: ALLOCATED or MIXED).
    if known.state is other.state and len(other.flags) > len(known.flags):
        missing |= {"base": other.base, "flags": other.flags, "schedulable": other.schedulable}
    if "reason" in missing:
        missing["owner"] = other.owner
    return replace(known, **missing) if missing else known


def owner_of(states: NodeStates, reason: Reason | None) -> Owner:
    """Who drained it: our mark is ours, any other drain is foreign, no DRAIN and no FAIL is nobody's."""
    if not {"DRAIN", "FAIL"} & set(states.flags):
        return Owner.NONE
    return Owner.SICKBAY if parse_mark(reason.text if reason else None) else Owner.FOREIGN


def build_node(
    found: Findings,
    *,
    name: str,
    states: NodeStates,
    gres: Gpus | None = None,
    gres_used: Gpus | None = None,
    reason: Reason | None = None,
    partitions: tuple[str, ...] = (),
    memory_free_bytes: int | None = None,
    os: str | None = None,
    comment: str | None = None,
    extra: str | None = None,
    boot_time: float | None = None,
    reservation: str | None = None,
    uid: str | None = None,
) -> NodeRecord:
    """The record, with a problem for every word that nobody knows."""
    for word in states.unknown:
        found.problem(
            ProblemReason.UNRECOGNISED_VALUE, f"{name}: node state {word[:40]!r} is not known", node=name
        )
    for part in (gres, gres_used):
        if part is not None and part.problem:
            found.problem(ProblemReason.INCONSISTENT, f"{name}: {part.problem}", node=name)
    total = node_total(gres) if gres else None
    allocated = gres_used.total if gres_used and not gres_used.slices else None
    if total is not None and allocated is not None and allocated > total:
        found.problem(
            ProblemReason.INCONSISTENT, f"{name}: {allocated} of its {total} GPUs are allocated", node=name
        )
    return NodeRecord(
        name=name,
        state=states.word,
        base=states.base.lower(),
        flags=states.flags,
        uid=uid,
        partitions=partitions,
        gpus_total=total,
        gpus_allocated=allocated,
        gpu_types=dict(gres.types) if gres else {},
        gpu_types_allocated=dict(gres_used.types) if gres_used else {},
        memory_free_bytes=memory_free_bytes,
        os=os,
        owner=owner_of(states, reason),
        reason=reason,
        comment=comment,
        extra=extra,
        schedulable=states.schedulable,
        boot_time=boot_time,
        reservation=reservation,
    )


def gpu_use(gpus: Gpus) -> tuple[int | None, GpuUse]:
    """Effective count and how the GPUs are held: whole ones first, then MIG slices, then shares."""
    if gpus.total is None:
        return None, GpuUse.UNKNOWN
    if gpus.total > 0:
        return gpus.total, GpuUse.EXCLUSIVE
    if gpus.slices:
        return gpus.slices, GpuUse.SLICE
    if gpus.shards:
        return None, GpuUse.SHARED
    return 0, GpuUse.NONE
