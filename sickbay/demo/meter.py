"""Meters what the faults of a simulated cluster cost: GPU time that earns nothing, by scene."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from fleet.findings import Repair, Response
from fleet.scheduler import NodeState, Owner
from rules.model import Catalogue
from simulator.cluster import AnyCluster
from simulator.faults import Fault, FaultKind

HOUR = 3600.0
#: The simulated hot GPU runs at 1080 of 1965 MHz, and the other ranks of its job wait for it.
SLOWED_SHARE = 1.0 - 1080.0 / 1965.0


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What is assumed of people and prices; the price is the default of ``prices.gpu_hour``.

    How fast people are is nobody's measurement: three round numbers, said wherever the bill is shown.
    """

    found_after_hours: float = 4.0
    page_answered_hours: float = 0.25
    by_hand_hours: float = 0.5
    price_per_gpu_hour: float = 2.5
    currency: str = "USD"

    @property
    def sentence(self) -> str:
        answered, by_hand = self.page_answered_hours * 60, self.by_hand_hours * 60
        return (
            f"Assumed: unwatched, a sick node is found after {self.found_after_hours:g} h; a page is "
            f"answered after {answered:.0f} min; mending by hand takes {by_hand:.0f} min; a node with a "
            f"lost, worn or hung GPU earns nothing until then, a hot one {SLOWED_SHARE:.0%} less; a GPU-hour "
            f"costs {self.price_per_gpu_hour:g} {self.currency}. Left out, the same in both: exchange of "
            "cards, work lost since a checkpoint."
        )


@dataclass(frozen=True, slots=True)
class World:
    """One side of the bill: GPU-hours lost, by scene, and all of them."""

    by_scene: Mapping[str, float]

    @property
    def gpu_hours(self) -> float:
        return sum(self.by_scene.values())


@dataclass(frozen=True, slots=True)
class Trouble:
    """A fault that costs GPU time, from ``since`` until its node is mended, or in somebody's hands.

    ``boot_id`` is the boot it happened in: a later one has mended it, unless it ``needs_hands``.
    """

    fault: Fault
    since: float
    boot_id: str
    needs_hands: bool

    @property
    def slows_only(self) -> bool:
        return self.fault.kind is FaultKind.HEAT

    def found_at(self, assumed: Assumptions, *, told: bool) -> float:
        return self.since + (assumed.page_answered_hours if told else assumed.found_after_hours) * HOUR

    def back_at(self, assumed: Assumptions, *, told: bool) -> float | None:
        """None: it needs a card, whose exchange is not counted."""
        if self.needs_hands:
            return None
        return self.found_at(assumed, told=told) + assumed.by_hand_hours * HOUR


@dataclass(slots=True)
class Meter:
    """Adds up what one simulated cluster loses. ``look`` after each step; it changes nothing."""

    cluster: AnyCluster
    catalogue: Catalogue
    lost_gpu_seconds: dict[str, float] = field(default_factory=dict)
    troubles: dict[str, Trouble] = field(default_factory=dict)
    _heard: int = 0

    def look(self, seconds: float) -> None:
        """``seconds`` have passed since the last look."""
        self._hear_faults()
        for node, trouble in self.troubles.items():
            scene, lost = trouble.fault.scene, self._gpus_lost(node, trouble) * seconds
            self.lost_gpu_seconds[scene] = self.lost_gpu_seconds.get(scene, 0.0) + lost

    @property
    def world(self) -> World:
        """What was lost so far."""
        return World({scene: lost / HOUR for scene, lost in self.lost_gpu_seconds.items()})

    def world_when_mended(self, assumed: Assumptions, *, told: Collection[str]) -> World:
        """The same, and what people, who begin now with the nodes they were ``told`` of, will still lose."""
        now = self.cluster.clock.now()
        lost = dict(self.lost_gpu_seconds)
        for node, trouble in self.troubles.items():
            is_told = node in told
            until = trouble.back_at(assumed, told=is_told) or trouble.found_at(assumed, told=is_told)
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
            known = self.troubles.get(fault.node)
            boot = self.cluster.fleet.node(fault.node).boot_id
            if known is None:
                self.troubles[fault.node] = Trouble(fault, at, boot, needs_hands=hands)
            elif hands and not known.needs_hands:
                self.troubles[fault.node] = replace(known, needs_hands=True)

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
