"""What the same faults cost with sickbay and without: GPU-hours that earned nothing, and their price.

Both worlds have the same seed, faults and jobs, and are metered alike. The one with sickbay is metered while
it runs. The other runs anew with nobody watching, past the script's end, until a simulated engineer has found
and mended every node at the pace of ``Assumptions``. What sickbay has left to people when the script ends is
mended at their pace too, counted from the page.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fleet.clock import ManualClock
from rules.model import Catalogue
from sickbay.demo.clusters import build_cluster
from sickbay.demo.clusters_kind import SchedulerKind
from sickbay.demo.meter import Assumptions, Meter, World
from sickbay.demo.scenes import Script
from simulator.engineer import Engineer

STEP_SECONDS = 5.0
#: Once the script has ended nothing happens but an engineer's work, hours later.
LATE_STEP_SECONDS = 60.0


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
    alone = run_alone(script, meter.catalogue, scheduler=scheduler, nodes=nodes, seed=seed, assumed=assumed)
    return Bill(meter.world_when_mended(assumed, told=told), alone.world, assumed)


def run_alone(
    script: Script,
    catalogue: Catalogue,
    *,
    scheduler: SchedulerKind,
    nodes: int,
    seed: int,
    assumed: Assumptions,
) -> Meter:
    """The same script on the same fleet with nobody watching, until people have mended what broke."""
    clock = ManualClock()
    cluster = build_cluster(scheduler, script, clock=clock, nodes=nodes, seed=seed)
    meter, engineer = Meter(cluster, catalogue), Engineer(cluster.scheduler)
    ends_at = clock.now() + script.ends_at
    while clock.now() < ends_at or not engineer.done:
        step = STEP_SECONDS if clock.now() < ends_at else LATE_STEP_SECONDS
        clock.advance(step)
        cluster.tick()
        engineer.step()
        meter.look(step)
        for node, trouble in meter.troubles.items():
            engineer.plan(
                node,
                found_at=trouble.found_at(assumed, told=False),
                back_at=trouble.back_at(assumed, told=False),
            )
    return meter
