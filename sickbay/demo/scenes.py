"""The scenes: what happens to which node when, and what a good service must (and must not) do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from fleet.findings import Response
from rules.model import Catalogue
from simulator.faults import Fault, FaultKind
from simulator.jobs import JobSpec

PRESSED_BY = "the demo's operator"


class Expect(StrEnum):
    """The truth of a scene, by name; the truth table compares it with what was seen."""

    RETURNED = "drained, requeued, rebooted, returned"
    NOTHING = "nothing: the job is to blame"
    OBSERVED = "observed, nothing done"
    UNTOUCHED = "left to its admin, noted beside"
    SILENCE = "nothing: silence is no evidence"
    PAUSED = "paused first, then returned"
    AFTER_JOB = "job finished, drained, handed over"
    HANDED_OVER = "drained, requeued, handed over"
    UNSEEN = "nothing: a silent exporter is no evidence"
    BUDGET = "refused while the budget is full, then returned"
    FROZEN = "frozen, one page, no cordon"


@dataclass(frozen=True, slots=True)
class Scene:
    """One scene. ``at`` is when its (last) fault happens, in simulated seconds from the start."""

    name: str
    title: str
    nodes: tuple[str, ...]
    at: float
    expect: Expect
    faults: tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class Button:
    """A person's act in the script: the red button pressed or let go."""

    at: float
    press: bool


@dataclass(frozen=True, slots=True)
class Script:
    """What happens. ``jobs`` are submitted before everybody else's, in this order; times as in ``Scene``."""

    scenes: tuple[Scene, ...]
    buttons: tuple[Button, ...]
    ends_at: float
    jobs: tuple[JobSpec, ...] = ()

    @property
    def faults(self) -> tuple[Fault, ...]:
        return tuple(fault for scene in self.scenes for fault in scene.faults)


MIN_NODES = 16
MAX_NODES = 512
#: Nodes that are sure to hold one whole-node job: the queue fills nodes in order of their names. It is a
#: batch job that may be requeued and outlives the script, so that each scene's truth holds for any seed.
TRAINING_NODES = 8
_TRAINING = JobSpec(name="pretrain", user="dora", nodes=1, gpus_per_node=8, seconds=86_400.0)
#: The first node's job ends by itself: the one that a hot GPU is allowed to finish.
_SHORT = JobSpec(name="finetune", user="emil", nodes=1, gpus_per_node=8, seconds=640.0)
#: Five nodes at once are many in a fleet of up to 250 (2 %); in a larger one it takes more.
BURST_NODES, BURST_PERCENT = 5, 2


#: The rule that the hot GPU meets. Shipped, it lets the job end; a site's own may drain at once.
HEAT_RULE = "gpu-thermal-hw-slowdown"


def heat_expected(catalogue: Catalogue) -> Expect:
    """What must come of the hot GPU, by the rules in force."""
    rule = catalogue.by_id.get(HEAT_RULE)
    at_once = rule is not None and rule.response is Response.DRAIN
    return Expect.HANDED_OVER if at_once else Expect.AFTER_JOB


def default_script(nodes: Sequence[str], *, heat: Expect = Expect.AFTER_JOB) -> Script:
    """The scenes over a fleet of at least ``MIN_NODES`` nodes; times leave room between unlike stories.

    Every node has one part to play, but for those that only fall silent: they do in two scenes.
    """
    if len(nodes) < MIN_NODES:
        raise ValueError(f"the demo needs at least {MIN_NODES} nodes")
    hot, pressed, lost, worn, first, job, _, second, unknown, _, drained = nodes[:11]
    quiet = (nodes[6], nodes[9], *nodes[11:])
    together = quiet[-max(BURST_NODES, len(nodes) * BURST_PERCENT // 100 + 1) :]
    return Script(
        scenes=(
            _scene(
                "xid-79",
                "a GPU falls off the bus under a running job",
                Expect.RETURNED,
                Fault(at_seconds=40, node=lost, scene="xid-79", kind=FaultKind.GPU_LOST, gpu_index=3),
            ),
            _scene(
                "thermal",
                "a fan dies and heat slows a GPU",
                heat,
                Fault(
                    at_seconds=60,
                    node=hot,
                    scene="thermal",
                    kind=FaultKind.HEAT,
                    gpu_index=2,
                    seconds=86_400,
                ),
            ),
            _scene(
                "xid-31",
                "one bad job faults on every GPU it holds",
                Expect.NOTHING,
                Fault(at_seconds=90, node=job, scene="xid-31", kind=FaultKind.APP_XID, code=31),
            ),
            _scene(
                "unknown-xid",
                "a new driver prints a code nobody knows",
                Expect.OBSERVED,
                Fault(at_seconds=130, node=unknown, scene="unknown-xid", kind=FaultKind.XID, code=999),
            ),
            _scene(
                "foreign-drain",
                "a node an admin drained loses a GPU",
                Expect.UNTOUCHED,
                Fault(
                    at_seconds=20,
                    node=drained,
                    scene="foreign-drain",
                    kind=FaultKind.ADMIN_DRAIN,
                    reason="ADMIN: chassis swap, ticket 4711",
                ),
                Fault(at_seconds=180, node=drained, scene="foreign-drain", kind=FaultKind.GPU_LOST),
            ),
            _scenes(
                "silent-agents",
                "the agents of six nodes fall silent",
                Expect.SILENCE,
                quiet[:6],
                300.0,
                kind=FaultKind.AGENT_SILENT,
                seconds=180,
            ),
            _scene(
                "red-button",
                "everything is paused when the next GPU goes",
                Expect.PAUSED,
                Fault(at_seconds=560, node=pressed, scene="red-button", kind=FaultKind.GPU_LOST, gpu_index=5),
            ),
            _scenes(
                "silent-exporters",
                "the exporters of six nodes go away",
                Expect.UNSEEN,
                quiet[:6],
                780.0,
                kind=FaultKind.EXPORTER_AWAY,
                seconds=240,
            ),
            _scene(
                "memory",
                "memory errors, and no spare row is left",
                Expect.HANDED_OVER,
                *_worn_memory(worn, 1060.0),
            ),
            _scene(
                "budget-first",
                "the last node the budget allows loses a GPU",
                Expect.RETURNED,
                Fault(at_seconds=1230, node=first, scene="budget-first", kind=FaultKind.GPU_LOST),
            ),
            _scene(
                "budget-full",
                "one more, while the budget is full",
                Expect.BUDGET,
                Fault(at_seconds=1240, node=second, scene="budget-full", kind=FaultKind.GPU_LOST),
            ),
            _scenes(
                "burst",
                f"one cause hits {_number(len(together))} nodes at once",
                Expect.FROZEN,
                together,
                1560.0,
                kind=FaultKind.XID,
                code=119,
            ),
        ),
        buttons=(Button(540.0, press=True), Button(620.0, press=False)),
        ends_at=1740.0,
        jobs=(_SHORT, *(_TRAINING,) * (TRAINING_NODES - 1)),
    )


def _worn_memory(node: str, at: float) -> tuple[Fault, ...]:
    """What the driver prints and what its counters show, as they come together on a real card."""
    plan = (
        (at - 1, FaultKind.ECC_UNCORRECTED, 0),
        (at - 1, FaultKind.XID, 48),
        (at, FaultKind.ROW_REMAP_FAILED, 0),
        (at, FaultKind.XID, 64),
    )
    return tuple(
        Fault(at_seconds=when, node=node, scene="memory", kind=kind, gpu_index=6, code=code)
        for when, kind, code in plan
    )


def _number(count: int) -> str:
    return "five" if count == BURST_NODES else str(count)


def _scene(name: str, title: str, expect: Expect, *faults: Fault) -> Scene:
    return Scene(name, title, (faults[-1].node,), faults[-1].at_seconds, expect, faults)


def _scenes(
    name: str,
    title: str,
    expect: Expect,
    nodes: Sequence[str],
    at: float,
    *,
    kind: FaultKind,
    seconds: float = 0.0,
    code: int = 79,
) -> Scene:
    """The same to many nodes at one time."""
    faults = tuple(
        Fault(at_seconds=at, node=node, scene=name, kind=kind, seconds=seconds, code=code) for node in nodes
    )
    return Scene(name, title, tuple(nodes), at, expect, faults)
