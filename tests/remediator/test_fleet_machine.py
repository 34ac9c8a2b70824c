"""Anything may happen to a simulated fleet, in any order; what must never happen, and what must not get lost.

A short form runs in the suite. ``SICKBAY_FLEET_EXAMPLES=200 pytest tests/remediator/test_fleet_machine.py``
searches for longer. Examples that once failed are kept as tests of their own below.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fleet.findings import Mode, Repair, Step
from fleet.scheduler import Owner
from remediator.policy import Pool
from remediator.records import IncidentRecord, Outcome, StoredFinding
from remediator.records import Phase as LinePhase
from sickbay.service import ControllerService
from simulator.fleet import SimulatedGpu
from tests.support.rig import Killed, Rig, bolder

NODES = ("n01", "n02", "n03", "n04", "n05", "n06")
EXAMPLES = int(os.environ.get("SICKBAY_FLEET_EXAMPLES", "0"))
MAX_IN_FLIGHT = 2
GPUS = 3
MEMORY = Path("/dev/shm")
POLICY = bolder(
    mode=Mode.AUTO,
    pools=(
        Pool(
            name="gpu",
            partition="gpu",
            max_in_flight=MAX_IN_FLIGHT,
            max_unavailable_percent=50.0,
            max_cordons=4,
            rate_window_seconds=300.0,
        ),
    ),
    probation_seconds=60.0,
    verify_timeout_seconds=400.0,
    cooldown_seconds=120.0,
    repair_commands={Repair.RESET_GPU: ("/bin/true",)},
)
KILLS = (
    "append",
    "commit",
    *(
        f"{when}:{verb}"
        for when in ("before", "after")
        for verb in ("cordon", "uncordon", "reboot", "requeue")
    ),
)
#: Rules whose condition is a level of the simulation: what they say can be compared with the truth.
FLAGS = ("gpu-row-remap-failed-flag", "gpu-row-remap-pending-flag")

nodes = st.sampled_from(NODES)
gpus = st.integers(0, GPUS - 1)
waits = st.sampled_from([1, 3, 8, 15, 20, 45])


class FleetMachine(RuleBasedStateMachine):
    """Rules are what hardware, networks, people and processes do; ``invariant`` is design.md's."""

    def __init__(self) -> None:
        super().__init__()
        # In memory where there is such a place: thousands of commits wait for no disk.
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.rig = Rig(
            Path(self.folder.name),
            policy=POLICY,
            nodes=len(NODES),
            gpus=GPUS,
            reboot_seconds=30.0,
            exporters=True,
        )
        self.rig.tick(1)
        #: Nodes whose present machine has had any fault: only those may ever be touched.
        self.faulty: set[str] = set()
        self.foreign: dict[str, str] = {}
        self.seen_actions = 0
        self.jumped = False
        self.tickets = itertools.count(1)
        self.approved: set[str] = set()

    # -- hardware

    @rule(node=nodes, gpu=gpus)
    def remap_fails(self, node: str, gpu: int) -> None:
        self.faulty.add(node)
        self.rig.cluster.telemetry.fail_row_remap(node, gpu)

    @rule(node=nodes, gpu=gpus)
    def memory_errors(self, node: str, gpu: int) -> None:
        self.faulty.add(node)
        self.rig.cluster.telemetry.add_uncorrected_errors(node, gpu)

    @rule(node=nodes, gpu=gpus, seconds=st.sampled_from([300.0, 1500.0]))
    def heat(self, node: str, gpu: int, seconds: float) -> None:
        self.faulty.add(node)
        self.rig.cluster.telemetry.slow_by_heat(node, gpu, seconds)

    @rule(node=nodes, gpu=gpus, back=st.booleans())
    def falls_off_the_bus(self, node: str, gpu: int, back: bool) -> None:
        if not self.rig.cluster.fleet.node(node).up:
            return
        self.faulty.add(node)
        self.rig.cluster.fleet.lose_gpu(node, gpu, back_after_reboot=back)

    @rule(node=nodes, code=st.sampled_from([79, 48, 64, 31]))
    def xid(self, node: str, code: int) -> None:
        if self.rig.cluster.agents.contact(node) is None:
            return
        self.faulty.add(node)
        self.rig.xid(node, code)

    @rule(node=nodes, seconds=st.sampled_from([20.0, 90.0]))
    def reboots_by_itself(self, node: str, seconds: float) -> None:
        self.rig.cluster.fleet.reboot(node, seconds)

    @rule(node=nodes)
    def is_replaced_by_another_machine(self, node: str) -> None:
        machine = self.rig.cluster.fleet.node(node)
        tag = f"{next(self.tickets):04x}"
        machine.gpus = tuple(SimulatedGpu(g.index, g.uuid[:-4] + tag, g.pci) for g in machine.gpus)
        machine.machine_id = machine.machine_id[:-4] + tag
        machine.lost, machine.broken = set(), set()
        self.rig.cluster.telemetry._trouble = {
            key: trouble for key, trouble in self.rig.cluster.telemetry._trouble.items() if key[0] != node
        }
        self.rig._pending = [item for item in self.rig._pending if item[0] != node]
        self.faulty.discard(node)
        self.rig.cluster.fleet.reboot(node, 45.0)

    # -- eyes

    @rule(node=nodes, seconds=st.sampled_from([20.0, 200.0]))
    def exporter_is_away(self, node: str, seconds: float) -> None:
        self.rig.cluster.telemetry.exporter_away(node, seconds)

    @rule(node=nodes, seconds=st.sampled_from([30.0, 200.0]))
    def agent_is_silent(self, node: str, seconds: float) -> None:
        self.rig.cluster.fleet.silence_agent(node, seconds)

    @rule(seconds=st.sampled_from([5.0, 60.0]))
    def scheduler_is_away(self, seconds: float) -> None:
        self.rig.cluster.scheduler.be_unavailable(seconds)

    # -- processes and time

    @rule(seconds=waits)
    def time_passes(self, seconds: int) -> None:
        self.rig.tick(seconds)

    @rule(minutes=st.sampled_from([2, 6, 12]))
    def much_time_passes(self, minutes: int) -> None:
        self.rig.skip(60 * minutes)

    @rule(seconds=st.sampled_from([-600.0, -20.0, 20.0, 600.0]))
    def the_wall_clock_jumps(self, seconds: float) -> None:
        self.jumped = True
        self.rig.clock.step_wall_clock(seconds)

    @rule()
    def the_controller_is_killed(self) -> None:
        self.rig.restart()

    @rule(point=st.sampled_from(KILLS), at=st.integers(1, 4))
    def it_will_be_killed(self, point: str, at: int) -> None:
        switch = self.rig.switch
        switch.point, switch.fired = point, False
        switch.at = switch.passed.get(point, 0) + at

    @precondition(lambda self: self.rig.standby is None)
    @rule()
    def a_standby_starts(self) -> None:
        self.rig.standby = self.rig.another()

    @precondition(lambda self: self.rig.standby is not None)
    @rule()
    def the_standby_takes_over(self) -> None:
        self.rig.fail_over()

    # -- people

    @property
    def service(self) -> ControllerService:
        if self.rig.app.world.snapshot is None:
            # A controller that has started reads the scheduler before its door opens.
            self.rig.app.controller.observe()
        return self.rig.app.service

    def _say(self, word: str, *given: Any, **more: Any) -> None:
        """A person's word through the door. Killed meanwhile, it was not answered: they may say it again."""
        try:
            getattr(self.service, word)(*given, **more)
        except Killed:
            self.rig.restart()

    def _knows(self) -> bool:
        """The scheduler has answered once since the start."""
        return self.service.world.snapshot is not None

    @precondition(lambda self: self._knows())
    @rule(node=nodes, expires=st.sampled_from([None, 60.0]))
    def hold(self, node: str, expires: float | None) -> None:
        self._say("hold", node, author="alice", reason="look", expires_in_seconds=expires)

    @precondition(lambda self: self._knows())
    @rule(node=nodes)
    def release(self, node: str) -> None:
        self._say("release", node, author="alice", reason="go")

    @rule(on=st.booleans())
    def red_button(self, on: bool) -> None:
        if on:
            self._say("pause", pool=None, author="alice", reason="stop", expires_in_seconds=120.0)
        else:
            self._say("resume", pool=None, author="alice", reason="go")

    @rule(which=st.integers(0, 3))
    def cancel(self, which: int) -> None:
        found = self._open()
        if found:
            chosen = found[which % len(found)]
            self._say("cancel", chosen.id, author="alice", reason="known")

    @rule(which=st.integers(0, 3))
    def approve(self, which: int) -> None:
        found = self._open()
        if found:
            chosen = found[which % len(found)]
            self.approved.add(chosen.id)
            self._say("approve", chosen.id, author="alice", reason="yes")

    @rule(node=nodes)
    def undrains_by_hand(self, node: str) -> None:
        self.foreign.pop(node, None)
        self.rig.cluster.scheduler.admin_undrain(node)

    @rule(node=nodes)
    def drains_by_hand(self, node: str) -> None:
        reason = f"ticket {next(self.tickets)}"
        self.foreign[node] = reason
        self.rig.cluster.scheduler.admin_drain(node, reason)

    @rule(node=nodes)
    def mends_by_hand(self, node: str) -> None:
        """A card is replaced, the node boots, and whoever did it puts it back."""
        self._mend(node)
        self.rig.tick(20)
        self.foreign.pop(node, None)
        self.rig.cluster.scheduler.admin_undrain(node)

    @rule(node=nodes, seconds=st.sampled_from([60.0, 900.0]))
    def a_job_is_submitted(self, node: str, seconds: float) -> None:
        self.rig.submit(node, seconds=seconds)

    def _mend(self, node: str) -> None:
        machine = self.rig.cluster.fleet.node(node)
        machine.broken = set()
        self.rig.cluster.telemetry._trouble = {
            key: trouble for key, trouble in self.rig.cluster.telemetry._trouble.items() if key[0] != node
        }
        self.rig.cluster.fleet.reboot(node, 10.0)

    # -- what must never happen

    def _open(self) -> list[IncidentRecord]:
        with self.rig.store.transaction(read_only=True) as tx:
            return list(tx.open_incidents())

    def _findings(self) -> list[StoredFinding]:
        with self.rig.store.transaction(read_only=True) as tx:
            return list(tx.findings())

    def only_what_was_ever_sick_is_touched(self) -> None:
        """1, 7: nothing is done on absence, nor to a machine for what its predecessor had."""
        actions = self.rig.cluster.scheduler.our_actions
        for action in actions[self.seen_actions :]:
            if action.verb in ("cordon", "reboot"):
                assert action.node in self.faulty, action
        self.seen_actions = len(actions)

    def nobody_elses_drain_is_lifted(self) -> None:
        """2."""
        for node, reason in self.foreign.items():
            record = self.rig.cluster.scheduler._state.record(node)
            assert record.owner is Owner.FOREIGN, record
            assert record.reason is not None
            assert record.reason.text.startswith(reason)

    def budget_and_one_incident_a_node(self) -> None:
        """3."""
        open_ = self._open()
        holding = [i for i in open_ if i.state.holds_node]
        assert len(holding) <= MAX_IN_FLIGHT, holding
        assert max(Counter(i.node for i in open_).values(), default=0) <= 1, open_

    def a_burst_is_frozen(self) -> None:
        """4: of what was found together at most those that came before it was a burst were taken."""
        if self.jumped:
            return
        with self.rig.store.transaction(read_only=True) as tx:
            found = list(tx.incidents(limit=500))
            taken = [
                i
                for i in found
                if i.id not in self.approved
                and any(
                    s.step is Step.CORDON and s.outcome is Outcome.DONE and s.phase is LinePhase.EFFECT
                    for s in tx.steps(incident=i.id)
                )
            ]
        for first in taken:
            near = [
                i
                for i in taken
                if i.rule == first.rule and 0 <= i.opened_at - first.opened_at < POLICY.burst.window_seconds
            ]
            assert len({i.node for i in near}) < 3, near

    def nothing_is_found_or_done_twice(self) -> None:
        """6."""
        keys = Counter(
            (f.rule, f.node, f.uuid, f.boot_id, str(f.evidence.get("part")))
            for f in (stored.finding for stored in self._findings())
            if f.source == "metrics"
        )
        assert max(keys.values(), default=0) <= 1, keys.most_common(2)
        with self.rig.store.transaction(read_only=True) as tx:
            for incident in tx.incidents(limit=500):
                steps = tx.steps(incident=incident.id)
                for step, verb in ((Step.CORDON, "cordon"), (Step.REBOOT, "reboot")):
                    intents = sum(s.phase is LinePhase.INTENT and s.step is step for s in steps)
                    mark = f"sickbay:{incident.id}:"
                    done = [
                        a
                        for a in self.rig.cluster.scheduler.our_actions
                        if a.verb == verb and a.detail.startswith(mark)
                    ]
                    assert len(done) <= intents, (incident, done)

    def every_refusal_has_its_reason(self) -> None:
        """10."""
        for incident in self._open():
            assert len(incident.blocked_by) == len(incident.blocked_reasons)
            assert all(incident.blocked_reasons)

    # -- what must not be lost, and must end

    def teardown(self) -> None:
        try:
            self._settles()
        finally:
            self.rig.close()
            self.folder.cleanup()

    def _settles(self) -> None:
        """Everything works again and nobody interferes: what was found is dealt with, what is over ends."""
        rig, now = self.rig, self.rig.clock.now()
        rig.switch.fired = True
        rig.cluster.scheduler.be_unavailable(0.0)
        for node in NODES:
            rig.cluster.telemetry.exporter_away(node, 0.0)
            rig.cluster.fleet.node(node).silent_until = now
            self.service.release(node, author="alice", reason="go")
            for job in rig.cluster.scheduler.jobs_on(node):
                rig.cluster.scheduler.finish_job(job.id)
        self.service.resume(pool=None, author="alice", reason="go")
        for _ in range(2):
            rig.tick(20)
            rig.skip(1800)
            rig.tick(5)
            self.check_all()
        open_ = {incident.node: incident for incident in self._open()}
        for incident in open_.values():
            stuck = incident.state.holds_node and incident.node not in self.foreign
            contested = getattr(rig.app.world.contact(incident.node), "contested", False)
            assert not stuck or contested, incident
        self._nothing_is_lost(open_)
        self._nothing_lasts_for_ever(open_)
        held = [j for j in rig.cluster.scheduler.observe().jobs if j.held]
        assert not held, held

    def _nothing_is_lost(self, open_: dict[str, IncidentRecord]) -> None:
        found = {(s.finding.node, s.finding.uuid) for s in self._findings() if s.finding.rule == FLAGS[0]}
        for (node, index), trouble in self.rig.cluster.telemetry._trouble.items():
            machine = self.rig.cluster.fleet.node(node)
            if trouble.remap_failed and machine.up and index not in machine.lost:
                assert (node, machine.gpus[index].uuid) in found, (node, index, open_.get(node))

    def _nothing_lasts_for_ever(self, open_: dict[str, IncidentRecord]) -> None:
        for stored in self._findings():
            found = stored.finding
            record = self.rig.cluster.scheduler._state.record(found.node)
            if found.source != "metrics" or found.node in open_ or record.is_cordoned:
                continue
            machine = self.rig.cluster.fleet.node(found.node)
            index = next((g.index for g in machine.gpus if g.uuid == found.uuid), None)
            if found.rule.startswith(("gpu-thermal", "gpu-power")) or index is None or index in machine.lost:
                continue  # a share is judged while the card works; what is not there reports no end
            trouble: Any = self.rig.cluster.telemetry._trouble.get((found.node, index))
            truth = trouble is not None and (trouble.remap_failed, trouble.remap_pending)
            seen = {FLAGS[0]: truth and truth[0], FLAGS[1]: truth and truth[1]}.get(found.rule, False)
            assert seen, (stored, machine.boot_id)

    @invariant()
    def check_all(self) -> None:
        self.only_what_was_ever_sick_is_touched()
        self.nobody_elses_drain_is_lifted()
        self.budget_and_one_incident_a_node()
        self.a_burst_is_frozen()
        self.nothing_is_found_or_done_twice()
        self.every_refusal_has_its_reason()


def walk(seed: int, steps: int = 40) -> None:
    """A random walk over the same rules, the same for the same seed: quick to search with, and to keep."""
    random = Random(seed)  # noqa: S311 - a test's dice
    machine = FleetMachine()
    try:
        for _ in range(steps):
            name, makers = random.choice(MOVES)
            given = {key: random.choice(values) for key, values in makers.items()}
            if name in ("hold", "release", "red_button", "cancel", "approve") and not machine._knows():
                continue
            if name == "the_standby_takes_over" and machine.rig.standby is None:
                machine.a_standby_starts()
                machine.rig.tick(20)
            if name == "a_standby_starts" and machine.rig.standby is not None:
                continue
            getattr(machine, name)(**given)
            machine.check_all()
    except BaseException:
        machine.rig.close()
        machine.folder.cleanup()
        raise
    machine.teardown()


_NODE: dict[str, Sequence[Any]] = {"node": NODES}
_CARD = _NODE | {"gpu": range(GPUS)}
MOVES: Sequence[tuple[str, Mapping[str, Sequence[Any]]]] = (
    ("remap_fails", _CARD),
    ("memory_errors", _CARD),
    ("memory_errors", _CARD),
    ("heat", _CARD | {"seconds": (300.0, 1500.0)}),
    ("falls_off_the_bus", _CARD | {"back": (True, True, False)}),
    ("xid", _NODE | {"code": (79, 48, 64, 31)}),
    ("reboots_by_itself", _NODE | {"seconds": (20.0, 90.0)}),
    ("is_replaced_by_another_machine", _NODE),
    ("exporter_is_away", _NODE | {"seconds": (20.0, 200.0)}),
    ("agent_is_silent", _NODE | {"seconds": (30.0, 200.0)}),
    ("scheduler_is_away", {"seconds": (5.0, 60.0)}),
    *(("time_passes", {"seconds": (3, 15, 20, 45)}) for _ in range(4)),
    *(("much_time_passes", {"minutes": (2, 6, 12)}) for _ in range(2)),
    ("the_wall_clock_jumps", {"seconds": (-600.0, -20.0, 20.0, 600.0)}),
    ("the_controller_is_killed", {}),
    ("it_will_be_killed", {"point": KILLS, "at": (1, 2, 3, 4)}),
    ("a_standby_starts", {}),
    ("the_standby_takes_over", {}),
    ("hold", _NODE | {"expires": (None, 60.0)}),
    ("release", _NODE),
    ("red_button", {"on": (True, False)}),
    ("cancel", {"which": (0, 1, 2)}),
    ("approve", {"which": (0, 1, 2)}),
    ("undrains_by_hand", _NODE),
    ("drains_by_hand", _NODE),
    ("mends_by_hand", _NODE),
    ("a_job_is_submitted", _NODE | {"seconds": (60.0, 900.0)}),
)


@pytest.mark.timeout(0 if EXAMPLES else 300)
def test_whatever_happens_to_a_fleet() -> None:
    short = settings(
        max_examples=EXAMPLES or 2,
        stateful_step_count=40 if EXAMPLES else 20,
        derandomize=not EXAMPLES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
        database=None,
        print_blob=False,
    )
    run_state_machine_as_test(FleetMachine, settings=short)


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(11, id="killed while a person's word is stored"),
        pytest.param(202, id="the scheduler drains a node that a person has put back"),
    ],
)
def test_walks_that_once_failed(seed: int) -> None:
    walk(seed)
