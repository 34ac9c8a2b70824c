"""What the picture shows, taken from the running service in one look. Plain values; drawing is elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fleet.findings import IncidentState, Mode, Verdict
from fleet.scheduler import NodeState, Owner
from remediator.policy import counts_as_unavailable
from remediator.records import IncidentRecord, Word, WordKind
from sickbay.demo.clockwork import Clockwork
from sickbay.demo.story import Sentence
from sickbay.demo.truth import Truth

CLOSED_SHOWN = 8


class Look(StrEnum):
    """What a node is doing, as its cell on the map shows it."""

    BUSY = "busy"
    IDLE = "idle"
    DRAINING = "draining"
    DRAINED = "drained"
    REBOOTING = "rebooting"
    PROBATION = "probation"
    ADMINS = "an admin's"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Cell:
    name: str
    look: Look
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class IncidentLine:
    id: str
    node: str
    state: IncidentState
    blocked_by: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One frame's content. Times are simulated seconds since the start; ``speed`` is what is wanted.

    ``lagging`` is the speed that is reached where the machine cannot keep up, else None. ``truth`` is None
    until the script has ended.
    """

    elapsed: float
    ends_at: float
    mode: Mode
    speed: float
    lagging: float | None
    paused_by: str | None
    repairs: tuple[int, int]
    out: tuple[int, int]
    racks: Mapping[str, Sequence[Cell]]
    incidents: Sequence[IncidentLine]
    sentences: Sequence[Sentence]
    truth: Truth | None = None
    url: str | None = None
    command: str = "sickbay"
    notice: str | None = None

    @property
    def cells(self) -> list[Cell]:
        return [cell for cells in self.racks.values() for cell in cells]

    @property
    def verdicts(self) -> dict[str, str]:
        return {cell.name: cell.verdict for cell in self.cells}


def take_view(work: Clockwork, *, speed: float = 1.0) -> View:
    """Read everything the picture needs, through the service where it has an answer."""
    service, policy = work.app.service, work.app.policy
    names = work.cluster.agents.nodes
    items = {item["name"]: item for item in service.nodes(limit=len(names), after=None)["items"]}
    now = work.clock.now()
    with work.store.transaction(read_only=True) as tx:
        incidents = list(tx.incidents(limit=200))
        words = tx.words(now)
    probation = {i.node for i in incidents if i.state is IncidentState.PROBATION}
    pool = policy.pools[0]
    records = work.app.world.nodes().values()
    return View(
        elapsed=work.elapsed,
        ends_at=work.script.ends_at,
        mode=policy.mode,
        speed=speed,
        lagging=None,
        paused_by=_paused_by(words),
        repairs=(sum(i.state.holds_node for i in incidents), pool.max_in_flight),
        out=(sum(map(counts_as_unavailable, records)), pool.unavailable_limit(len(names))),
        racks={
            rack: tuple(_cell(name, items.get(name), probation) for name in members)
            for rack, members in work.cluster.fleet.racks.items()
        },
        incidents=_lines(incidents),
        sentences=(),
    )


def _paused_by(words: Sequence[Word]) -> str | None:
    pauses = [word for word in words if word.kind is WordKind.PAUSE]
    return f"{pauses[-1].author}: {pauses[-1].reason}" if pauses else None


def _lines(incidents: Sequence[IncidentRecord]) -> tuple[IncidentLine, ...]:
    """Open ones first, then the last that closed; each newest first."""
    shown = [i for i in incidents if not i.state.is_closed]
    shown += [i for i in incidents if i.state.is_closed][:CLOSED_SHOWN]
    return tuple(IncidentLine(i.id, i.node, i.state, i.blocked_by) for i in shown)


def _cell(name: str, item: Mapping[str, Any] | None, probation: set[str]) -> Cell:
    if item is None:
        return Cell(name, Look.OTHER, Verdict.UNKNOWN)
    return Cell(name, _look(item, on_probation=name in probation), Verdict(item["verdict"]))


def _look(item: Mapping[str, Any], *, on_probation: bool) -> Look:
    state = NodeState(item["state"])
    if state is NodeState.REBOOTING:
        return Look.REBOOTING
    if item["owner"] == Owner.FOREIGN:
        return Look.ADMINS
    if on_probation and state in (NodeState.IDLE, NodeState.ALLOCATED, NodeState.MIXED):
        return Look.PROBATION
    return {
        NodeState.ALLOCATED: Look.BUSY,
        NodeState.MIXED: Look.BUSY,
        NodeState.IDLE: Look.IDLE,
        NodeState.DRAINING: Look.DRAINING,
        NodeState.DRAINED: Look.DRAINED,
    }.get(state, Look.OTHER)
