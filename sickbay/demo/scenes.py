"""The scenes: what happens to which node when, and what a good service must (and must not) do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

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


MIN_NODES = 12
MAX_NODES = 512
#: Nodes that are sure to hold one whole-node job: the queue fills nodes in order of their names. It is a
#: batch job that may be requeued and outlives the script, so that each scene's truth holds for any seed.
TRAINING_NODES = 6
_TRAINING = JobSpec(name="pretrain", user="dora", nodes=1, gpus_per_node=8, seconds=86_400.0)


def default_script(nodes: Sequence[str]) -> Script:
    """The scenes over a fleet of at least ``MIN_NODES`` nodes; times leave room between unlike stories."""
    if len(nodes) < MIN_NODES:
        raise ValueError(f"the demo needs at least {MIN_NODES} nodes")
    lost, job, unknown, drained, pressed = (nodes[i] for i in (2, 5, 8, 10, 1))
    silent = tuple(n for n in nodes if n not in (lost, job, unknown, drained, pressed))[:6]
    return Script(
        scenes=(
            _scene(
                "xid-79",
                "a GPU falls off the bus under a running job",
                Expect.RETURNED,
                Fault(at_seconds=40, node=lost, scene="xid-79", kind=FaultKind.GPU_LOST, gpu_index=3),
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
            Scene(
                "silent-agents",
                "the agents of six nodes fall silent",
                silent,
                300.0,
                Expect.SILENCE,
                tuple(
                    Fault(
                        at_seconds=300,
                        node=node,
                        scene="silent-agents",
                        kind=FaultKind.AGENT_SILENT,
                        seconds=180,
                    )
                    for node in silent
                ),
            ),
            _scene(
                "red-button",
                "everything is paused when the next GPU goes",
                Expect.PAUSED,
                Fault(at_seconds=560, node=pressed, scene="red-button", kind=FaultKind.GPU_LOST, gpu_index=5),
            ),
        ),
        buttons=(Button(540.0, press=True), Button(620.0, press=False)),
        ends_at=1000.0,
        jobs=(_TRAINING,) * TRAINING_NODES,
    )


def _scene(name: str, title: str, expect: Expect, *faults: Fault) -> Scene:
    return Scene(name, title, (faults[-1].node,), faults[-1].at_seconds, expect, faults)
