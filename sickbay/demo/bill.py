"""What the same faults cost with sickbay and without: GPU-hours that earned nothing, and their price.

Both worlds have the same seed, faults and jobs. The one with sickbay is metered while it runs; the other runs
anew with nobody watching. What is still broken when the script ends is mended by people, in both worlds at
the pace of ``Assumptions``; where sickbay has told them, they begin sooner.

Not counted, since it is the same in both: the exchange of a card once the node is out of service, what an
admin drained before, and work lost since the last checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from fleet.clock import ManualClock
from fleet.findings import Repair, Response
from fleet.scheduler import NodeState, Owner
from rules.model import Catalogue
from sickbay.demo.clusters import build_cluster
from sickbay.demo.clusters_kind import SchedulerKind
from sickbay.demo.scenes import Script
from simulator.cluster import AnyCluster
from simulator.faults import Fault, FaultKind

HOUR = 3600.0
#: The simulated hot GPU runs at 1080 of 1965 MHz, and the other ranks of its job wait for it.
SLOWED_SHARE = 1.0 - 1080.0 / 1965.0
STEP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What is assumed of people and prices; the price is the default of ``prices.gpu_hour``."""

    found_after_hours: float = 4.0
    page_answered_hours: float = 0.25
    by_hand_hours: float = 0.5
    price_per_gpu_hour: float = 2.5
    currency: str = "USD"

    @property
    def sentence(self) -> str:
        return (
            f"Assumed: nobody watching finds a sick node after {self.found_after_hours:g} h, a page is "
            f"answered after {self.page_answered_hours * 60:.0f} min, mending by hand takes "
            f"{self.by_hand_hours * 60:.0f} min, a GPU-hour costs {self.price_per_gpu_hour:g} "
            f"{self.currency}. Not counted, the same in both: exchange of cards, work lost since the last "
            "checkpoint."
        )


@dataclass(frozen=True, slots=True)
class World:
    """One side of the bill: GPU-hours lost, by scene, and all of them."""

    by_scene: Mapping[str, float]

    @property
    def gpu_hours(self) -> float:
        return sum(self.by_scene.values())


@dataclass(frozen=True, slots=True)
class Bill:
    with_sickbay: World
    without: World
    assumptions: Assumptions

    def cost(self, world: World) -> float:
        return world.gpu_hours * self.assumptions.price_per_gpu_hour

    def json(self) -> dict[str, object]:
        """Rounded to what the assumptions are worth."""
        sides = {"with_sickbay": self.with_sickbay, "without_sickbay": self.without}
        return {
            **{
                name: {
                    "lost_gpu_hours": round(world.gpu_hours, 1),
                    "cost": round(self.cost(world), 2),
                    "by_scene": {scene: round(hours, 1) for scene, hours in world.by_scene.items()},
                }
                for name, world in sides.items()
            },
            "currency": self.assumptions.currency,
            "assumptions": self.assumptions.sentence,
        }


@dataclass(frozen=True, slots=True)
class Trouble:
    """A fault that costs GPU time, from ``since`` until its node is mended, or in somebody's hands."""

    fault: Fault
    since: float
    boot_id: str
    needs_hands: bool

    @property
    def slows_only(self) -> bool:
        return self.fault.kind is FaultKind.HEAT

    def mended_after_hours(self, assumed: Assumptions, *, told: bool) -> float:
        """The exchange of a card is not counted: a node that needs one is found, and no more."""
        found = assumed.page_answered_hours if told else assumed.found_after_hours
        return found + (0.0 if self.needs_hands else assumed.by_hand_hours)


@dataclass(slots=True)
class Meter:
    """Adds up what one simulated cluster loses. ``look`` after each step; it changes nothing."""

    cluster: AnyCluster
    catalogue: Catalogue
    lost_gpu_seconds: dict[str, float] = field(default_factory=dict)
    _troubles: dict[str, Trouble] = field(default_factory=dict)
    _heard: int = 0

    def look(self, seconds: float) -> None:
        """``seconds`` have passed since the last look."""
        self._hear_faults()
        for node, trouble in self._troubles.items():
            scene, lost = trouble.fault.scene, self._gpus_lost(node, trouble) * seconds
            self.lost_gpu_seconds[scene] = self.lost_gpu_seconds.get(scene, 0.0) + lost

    def world(self, assumed: Assumptions, *, told: Collection[str]) -> World:
        """What was lost so far, and will be until people have mended the rest, those ``told`` first."""
        now = self.cluster.clock.now()
        lost = dict(self.lost_gpu_seconds)
        for node, trouble in self._troubles.items():
            until = trouble.since + trouble.mended_after_hours(assumed, told=node in told) * HOUR
            scene = trouble.fault.scene
            left = self._gpus_lost(node, trouble) * max(0.0, until - now)
            lost[scene] = lost.get(scene, 0.0) + left
        return World({scene: seconds / HOUR for scene, seconds in lost.items()})

    def _hear_faults(self) -> None:
        for at, fault in self.cluster.script.applied[self._heard :]:
            self._heard += 1
            costs, hands = self._judge(fault)
            if not costs or self.cluster.scheduler.observe_node(fault.node).owner is Owner.FOREIGN:
                continue
            known = self._troubles.get(fault.node)
            boot = self.cluster.fleet.node(fault.node).boot_id
            if known is None:
                self._troubles[fault.node] = Trouble(fault, at, boot, needs_hands=hands)
            elif hands and not known.needs_hands:
                self._troubles[fault.node] = replace(known, needs_hands=True)

    def _judge(self, fault: Fault) -> tuple[bool, bool]:
        """(it makes the node useless or slow, no reboot mends it)."""
        match fault.kind:
            case FaultKind.GPU_LOST:
                return True, not fault.back_after_reboot
            case FaultKind.ROW_REMAP_FAILED | FaultKind.HEAT:
                return True, True
            case FaultKind.XID:
                policy = self.catalogue.xid_policy(fault.code)
                return policy.response is Response.DRAIN, policy.repair is Repair.HAND_OVER
            case _:
                return False, False

    def _gpus_lost(self, node: str, trouble: Trouble) -> float:
        """How many GPUs earn nothing now because of it; a slowed GPU slows every rank of its job."""
        machine = self.cluster.fleet.node(node)
        record = self.cluster.scheduler.observe_node(node)
        busy = bool(self.cluster.scheduler.jobs_on(node))
        out = record.is_cordoned or record.state in (NodeState.DOWN, NodeState.REBOOTING)
        if trouble.needs_hands and out and not busy:
            return 0.0
        if trouble.slows_only:
            return SLOWED_SHARE * len(machine.gpus) if busy else 0.0
        return 0.0 if machine.boot_id != trouble.boot_id and not out else float(len(machine.gpus))


def bill_of(
    meter: Meter,
    script: Script,
    *,
    scheduler: SchedulerKind,
    nodes: int,
    seed: int,
    told: Collection[str],
    assumed: Assumptions,
) -> Bill:
    """``meter`` has watched the run with sickbay to its end; ``told``: nodes that people were told of."""
    alone = run_alone(script, meter.catalogue, scheduler=scheduler, nodes=nodes, seed=seed)
    return Bill(meter.world(assumed, told=told), alone.world(assumed, told=()), assumed)


def run_alone(
    script: Script, catalogue: Catalogue, *, scheduler: SchedulerKind, nodes: int, seed: int
) -> Meter:
    """The same script on the same fleet with nobody watching, to its end."""
    clock = ManualClock()
    cluster = build_cluster(scheduler, script, clock=clock, nodes=nodes, seed=seed)
    meter = Meter(cluster, catalogue)
    for _ in range(int(script.ends_at / STEP_SECONDS)):
        clock.advance(STEP_SECONDS)
        cluster.tick()
        meter.look(STEP_SECONDS)
    return meter
