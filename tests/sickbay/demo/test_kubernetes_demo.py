"""The demo on Kubernetes: the same truth table, and what went over the wire for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fleet.findings import Repair
from fleet.marks import Mark
from fleet.scheduler import Owner
from sickbay import cli
from sickbay.demo.clockwork import Clockwork, demo_policy, node_names
from sickbay.demo.clusters import build_world
from sickbay.demo.clusters_kind import SchedulerKind
from sickbay.demo.clusters_kubernetes import REBOOT_COMMAND, MachineRoom
from sickbay.demo.scenes import Expect, Scene, Script, default_script
from sickbay.demo.truth import Truth, truth_of
from simulator.faults import Fault, FaultKind
from simulator.kubernetes_api.routes import Request
from simulator.kubernetes_api.scheduler import ADMIN_REASON, GUARDED_APP, MIN_AVAILABLE, KubernetesScheduler

CLAIMS = {
    "sickbay.io/incident",
    "sickbay.io/rule",
    "sickbay.io/cordoned-by-us",
    "sickbay.io/prior-state",
    "sickbay.io/reason",
    "sickbay.io/cordoned-at",
}
REBOOTED = {"n02", "n03", "n05", "n08"}
HANDED_OVER = {"n01", "n04"}
ADMINS = "n11"


def scheduler_of(work: Clockwork) -> KubernetesScheduler:
    assert isinstance(work.cluster.scheduler, KubernetesScheduler)
    return work.cluster.scheduler


@dataclass(frozen=True)
class Run:
    """A whole run of the shipped script; the cluster as it was at its end."""

    truth: Truth
    scheduler: KubernetesScheduler

    @property
    def ours(self) -> list[Request]:
        """Our requests that could have changed something."""
        return [
            request
            for request in self.scheduler.api.requests
            if request.method != "GET" and request.headers["user-agent"] == "sickbay"
        ]

    def patches(self, node: str = "") -> list[Request]:
        return [
            r for r in self.ours if r.method == "PATCH" and r.path.endswith(f"/nodes/{node}" if node else "")
        ]

    @property
    def evictions(self) -> list[Request]:
        return [r for r in self.ours if r.path.endswith("/eviction")]


def cordons(requests: list[Request]) -> list[Request]:
    return [r for r in requests if r.body.get("spec") == {"unschedulable": True}]


def uncordons(requests: list[Request]) -> list[Request]:
    return [r for r in requests if r.body.get("spec") == {"unschedulable": None}]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    work = Clockwork(nodes=16, seed=1, database=None, scheduler=SchedulerKind.KUBERNETES)
    try:
        work.run(lambda: work.finished)
        yield Run(truth_of(work), scheduler_of(work))
    finally:
        work.close()


@pytest.mark.slow
class TestTheWholeScript:
    def test_every_expected_outcome_happens_and_nothing_else_is_touched(self, run: Run) -> None:
        script = default_script(node_names(16))
        assert [row.scene for row in run.truth.rows] == [scene.name for scene in script.scenes]
        assert [row.scene for row in run.truth.rows if not row.ok] == []
        assert run.truth.unexpected == ()
        assert run.truth.ok

    def test_the_command_prints_the_same_table_again(self, run: Run, capsys: Any) -> None:
        code = cli.run(["demo", "--scheduler", "kubernetes", "--headless", "--json"])
        out, err = capsys.readouterr()
        assert (code, err) == (0, "")
        assert json.loads(out) == json.loads(json.dumps(run.truth.json()))

    def test_only_patches_of_nodes_and_evictions_are_sent(self, run: Run) -> None:
        assert len(run.ours) == len(run.patches()) + len(run.evictions)
        assert all(request.path.startswith("/api/v1/nodes/") for request in run.patches())

    def test_a_cordon_and_its_claim_are_one_patch_of_the_version_that_was_read(self, run: Run) -> None:
        sent = cordons(run.patches())
        assert {r.path.rpartition("/")[2] for r in sent} == REBOOTED | HANDED_OVER
        for request in sent:
            assert request.headers["content-type"] == "application/merge-patch+json"
            assert request.query == {"fieldManager": "sickbay"}
            assert set(request.body["metadata"]["annotations"]) == CLAIMS
            assert request.body["metadata"]["annotations"]["sickbay.io/prior-state"] == "schedulable"
            assert request.body["metadata"]["resourceVersion"]

    def test_pods_are_evicted_by_uid_with_their_own_grace(self, run: Run) -> None:
        evicted = {action.job: action for action in run.scheduler.our_actions if action.verb == "requeue"}
        assert {action.node for action in evicted.values()} == REBOOTED | {"n04"}
        for request in run.evictions:
            assert (request.body["apiVersion"], request.body["kind"]) == ("policy/v1", "Eviction")
            assert list(request.body["deleteOptions"]) == ["preconditions"]
            assert set(request.body["deleteOptions"]["preconditions"]) == {"uid"}
            assert f"training/{request.body['metadata']['name']}" in evicted

    def test_an_evicted_pod_comes_back_under_its_job_and_not_on_the_sick_node(self, run: Run) -> None:
        pods = run.scheduler.api.store.all("pods", "training")
        names = {pod["metadata"]["name"] for pod in pods}
        for request in run.evictions:
            gone = request.body["metadata"]["name"]
            assert gone not in names
            assert any(name.startswith(gone.rpartition("-")[0]) for name in names)

    def test_only_what_was_ours_is_uncordoned(self, run: Run) -> None:
        assert {r.path.rpartition("/")[2] for r in uncordons(run.patches())} == REBOOTED
        for node in REBOOTED:
            found = run.scheduler.api.store.get("nodes", node)
            assert "unschedulable" not in found["spec"]
            assert "annotations" not in found["metadata"]
        for node in HANDED_OVER:
            assert run.scheduler.observe_node(node).owner is Owner.SICKBAY

    def test_the_admins_node_keeps_its_cordon_and_words(self, run: Run) -> None:
        found = run.scheduler.api.store.get("nodes", ADMINS)
        assert found["spec"]["unschedulable"] is True
        assert set(found["metadata"]["annotations"]) == {ADMIN_REASON, "sickbay.io/observed"}
        assert run.scheduler.observe_node(ADMINS).owner is Owner.FOREIGN
        assert [set(r.body["metadata"]["annotations"]) for r in run.patches(ADMINS)] == [
            {"sickbay.io/observed"}
        ]

    def test_a_reboot_is_the_operators_command_and_the_api_tells_the_new_boot(self, run: Run) -> None:
        rebooted = {action.node for action in run.scheduler.our_actions if action.verb == "reboot"}
        assert rebooted == REBOOTED
        for name in run.scheduler.fleet.names:
            machine = run.scheduler.fleet.node(name)
            assert machine.boots == (2 if name in REBOOTED else 1)
            info = run.scheduler.api.store.get("nodes", name)["status"]["nodeInfo"]
            assert info["bootID"] == machine.boot_id

    def test_the_budget_was_counted_and_held(self, run: Run) -> None:
        status = run.scheduler.api.store.get("poddisruptionbudgets", GUARDED_APP, "training")["status"]
        assert status["desiredHealthy"] == MIN_AVAILABLE
        assert status["currentHealthy"] >= MIN_AVAILABLE


@pytest.fixture
def play() -> Iterator[Callable[..., Clockwork]]:
    """One scene of the shipped script (or another script) on Kubernetes, to its end."""
    made: list[Clockwork] = []

    def make(script: Script, *, before: Callable[[Clockwork], None] = lambda _: None) -> Clockwork:
        work = Clockwork(nodes=16, seed=1, database=None, script=script, scheduler=SchedulerKind.KUBERNETES)
        made.append(work)
        before(work)
        work.run(lambda: work.finished)
        return work

    yield make
    for work in made:
        work.close()


def test_a_wrong_expectation_fails_here_too(play: Any, only: Any) -> None:
    truth = truth_of(play(only("xid-79", ends_at=55.0, expect=Expect.OBSERVED)))
    assert [(row.ok, row.seen) for row in truth.rows] == [(False, "TOUCHED: cordon, reboot, requeue")]
    assert [one.split()[:2] for one in truth.unexpected] == [
        ["cordon", "n03"],
        ["requeue", "n03"],
        ["reboot", "n03"],
    ]


def test_a_write_that_no_scene_asks_for_is_unexpected(play: Any, only: Any) -> None:
    def rogue(work: Clockwork) -> None:
        work.tick()
        work.world.backend.cordon("n12", Mark("rogue", "rogue-rule", "a rule gone wild"))
        work.world.backend.uncordon("n12", Mark("rogue", "rogue-rule", "a rule gone wild"))

    truth = truth_of(play(only("unknown-xid", ends_at=140.0), before=rogue))
    assert [row.ok for row in truth.rows] == [True]
    assert truth.unexpected[0].startswith("cordon n12 sickbay:rogue:rogue-rule")
    assert truth.unexpected[1:] == ("uncordon n12",)


def test_a_cordon_without_the_admins_words_would_be_told(play: Any, only: Any) -> None:
    def lift(work: Clockwork) -> None:
        work.run(lambda: work.elapsed >= 60)
        scheduler_of(work).admin_undrain("n11")

    script = only("foreign-drain", ends_at=170.0)
    truth = truth_of(play(script, before=lift))
    assert [(row.ok, row.seen) for row in truth.rows] == [(False, "reason LOST, NOT noted")]


def test_nothing_is_done_while_the_api_server_is_away(play: Any) -> None:
    away = Fault(at_seconds=30.0, node="-", scene="away", kind=FaultKind.SCHEDULER_AWAY, seconds=60.0)
    lost = Fault(at_seconds=40.0, node="n03", scene="away", kind=FaultKind.GPU_LOST)
    base = default_script(node_names(16))
    scene = Scene("away", "the API server is away", ("n03",), 40.0, Expect.RETURNED, (away, lost))
    work = play(replace(base, scenes=(scene,), buttons=(), ends_at=130.0))
    (first, *_) = scheduler_of(work).our_actions
    assert first.verb == "cordon"
    assert first.at - work.started_at >= 90.0


class TestTheWorld:
    def test_the_pool_is_selected_as_a_kubernetes_site_would(self) -> None:
        clock_work = default_script(node_names(16))
        from fleet.clock import ManualClock

        world = build_world(SchedulerKind.KUBERNETES, clock_work, clock=ManualClock(), nodes=16, seed=1)
        try:
            policy = demo_policy(16, world)
            assert (policy.pools[0].label, policy.pools[0].partition) == ("nvidia.com/gpu.present=true", None)
            assert policy.repair_commands == {Repair.REBOOT: REBOOT_COMMAND}
            nodes = world.backend.observe().nodes
            assert all(policy.pools[0].matches(node) for node in nodes.values())
            assert len(nodes) == 16
        finally:
            world.close()

    def test_the_machine_room_knows_its_command_and_its_machines(self) -> None:
        from collector.process import ToolMissingError
        from fleet.clock import ManualClock
        from simulator.fleet import SimulatedFleet

        scheduler = KubernetesScheduler(SimulatedFleet(clock=ManualClock(), nodes=2))
        try:
            room = MachineRoom(scheduler)
            unknown = room(REBOOT_COMMAND, env={"SICKBAY_NODE": "n9"}, timeout_seconds=1.0)
            assert (unknown.rc, b"n9" in unknown.stderr) == (1, True)
            assert scheduler.our_actions == []
            with pytest.raises(ToolMissingError, match="ipmitool"):
                room(("ipmitool",), env={"SICKBAY_NODE": "n01"}, timeout_seconds=1.0)
            assert room(REBOOT_COMMAND, env={"SICKBAY_NODE": "n01"}, timeout_seconds=1.0).rc == 0
            assert not scheduler.fleet.node("n01").up
        finally:
            scheduler.close()
