"""The simulated scheduler beyond the contract suite: time, queue, reboots, disturbances, its record."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.clock import ManualClock
from fleet.errors import ConflictError, ForbiddenError, RefusedError, UnavailableError
from fleet.marks import Mark
from fleet.scheduler import JobKind, NodeState, Owner, RequeueRequest, RequeueState, SchedulerBackend
from simulator.fleet import SimulatedFleet
from simulator.jobs import JobSpec
from simulator.scheduler import SimulatedScheduler

MARK = Mark("inc-1", "gpu-xid", "GPU 3 fell off the bus (XID 79).")


class World:
    """A scheduler over a fleet of four nodes, and its clock."""

    def __init__(self, nodes: int = 4) -> None:
        self.clock = ManualClock()
        self.fleet = SimulatedFleet(clock=self.clock, nodes=nodes)
        self.scheduler = SimulatedScheduler(self.fleet)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.scheduler.tick()

    def job(self, job: str) -> tuple[str, tuple[str, ...]]:
        record = next(found for found in self.scheduler.observe().jobs if found.id == job)
        return record.state, record.nodes


@pytest.fixture
def world() -> World:
    return World()


def test_it_is_a_backend(world: World) -> None:
    backend: SchedulerBackend = world.scheduler

    assert backend.kind == "simulated"


def test_a_job_runs_its_time_and_frees_its_node(world: World) -> None:
    job = world.scheduler.submit(JobSpec(seconds=100.0))
    state, nodes = world.job(job)
    assert (state, len(nodes)) == ("running", 1)

    world.pass_time(99.0)
    assert world.job(job)[0] == "running"
    world.pass_time(1.0)
    assert world.job(job)[0] == "completing"
    assert world.scheduler.observe_node(nodes[0]).has("COMPLETING")
    world.pass_time(1.0)

    assert world.job(job)[0] == "completed"
    assert world.scheduler.observe_node(nodes[0]).state is NodeState.IDLE


def test_small_jobs_share_a_node_and_whole_ones_do_not(world: World) -> None:
    small = [world.scheduler.submit(JobSpec(gpus_per_node=2)) for _ in range(4)]
    assert len({world.job(job)[1] for job in small}) == 1
    record = world.scheduler.observe_node(world.job(small[0])[1][0])
    assert (record.state, record.gpus_allocated) == (NodeState.ALLOCATED, 8)

    gang = world.scheduler.submit(JobSpec(nodes=3))
    waiting = world.scheduler.submit(JobSpec())

    assert len(world.job(gang)[1]) == 3
    assert world.job(waiting) == ("pending", ())


def test_no_job_starts_on_a_cordoned_node(world: World) -> None:
    for name in world.fleet.names[:3]:
        world.scheduler.cordon(name, MARK)

    jobs = [world.scheduler.submit(JobSpec()) for _ in range(2)]

    assert world.job(jobs[0]) == ("running", ("n04",))
    assert world.job(jobs[1]) == ("pending", ())
    world.scheduler.uncordon("n01", MARK)
    assert world.job(jobs[1]) == ("running", ("n01",))


def test_a_reboot_takes_its_time_and_comes_back_cordoned(world: World) -> None:
    world.scheduler.cordon("n01", MARK)
    boot_id = world.fleet.node("n01").boot_id

    issued = world.scheduler.reboot("n01", MARK, ordered_at=world.clock.now())

    assert (issued.state, issued.base) == (NodeState.REBOOTING, "down")
    assert issued.flags == ("DRAIN", "REBOOT_ISSUED")
    assert issued.reason is not None
    assert issued.reason.text == MARK.reason() + " : reboot issued"
    assert issued.owner is Owner.SICKBAY
    world.pass_time(179.0)
    assert world.scheduler.observe_node("n01").state is NodeState.REBOOTING
    with pytest.raises(ConflictError):
        world.scheduler.uncordon("n01", MARK)
    world.pass_time(1.0)
    back = world.scheduler.observe_node("n01")
    assert (back.state, back.base, back.flags) == (NodeState.DRAINED, "idle", ("DRAIN",))
    assert world.fleet.node("n01").boot_id != boot_id
    assert back.boot_time == world.clock.now()


def test_a_reboot_of_a_rebooted_node_would_lose_the_mark_unless_it_is_written_again(world: World) -> None:
    world.scheduler.cordon("n01", MARK)
    for _ in range(2):
        world.scheduler.reboot("n01", MARK, ordered_at=world.clock.now())
        world.pass_time(181.0)
        record = world.scheduler.observe_node("n01")
        assert record.reason is not None
        assert record.reason.text == MARK.reason() + " : reboot issued"

    assert world.scheduler.observe_node("n01").owner is Owner.SICKBAY


def test_a_gpu_that_stays_away_makes_the_registration_invalid(world: World) -> None:
    world.scheduler.cordon("n01", MARK)
    world.fleet.lose_gpu("n01", 2, back_after_reboot=False)
    world.scheduler.reboot("n01", MARK, ordered_at=world.clock.now())
    world.pass_time(180.0)

    record = world.scheduler.observe_node("n01")
    assert record.has("INVALID_REG")
    assert record.owner is Owner.SICKBAY  # Slurm keeps the reason of an earlier drain
    with pytest.raises(RefusedError):
        world.scheduler.uncordon("n01", MARK)


def test_an_interactive_job_is_refused(world: World) -> None:
    job = world.scheduler.submit(JobSpec(kind=JobKind.INTERACTIVE))
    request = RequeueRequest(job=job, node=world.job(job)[1][0], restarts=0, submitted_at=None)

    assert world.scheduler.requeue(request).state is RequeueState.REFUSED
    assert world.job(job)[0] == "running"


def test_a_maintenance_window_is_not_ours(world: World) -> None:
    world.scheduler.admin_maintenance("n01", on=True)

    assert world.scheduler.observe_node("n01").state is NodeState.MAINTENANCE
    with pytest.raises(ConflictError):
        world.scheduler.cordon("n01", MARK)


def test_unavailable_for_a_while_and_the_jobs_go_on(world: World) -> None:
    job = world.scheduler.submit(JobSpec(seconds=20.0))
    world.scheduler.disturbances.be_unavailable(30.0)

    with pytest.raises(UnavailableError):
        world.scheduler.observe()
    with pytest.raises(UnavailableError):
        world.scheduler.cordon("n01", MARK)
    world.pass_time(30.0)

    assert world.job(job)[0] == "completed"
    assert not world.scheduler.observe_node("n01").is_cordoned


def test_a_time_out_after_the_effect_leaves_the_effect(world: World) -> None:
    world.scheduler.disturbances.time_out_after_next("cordon")

    with pytest.raises(UnavailableError):
        world.scheduler.cordon("n01", MARK)

    assert world.scheduler.observe_node("n01").owner is Owner.SICKBAY
    world.scheduler.cordon("n01", MARK)
    assert [action.verb for action in world.scheduler.our_actions] == ["cordon"]
    assert world.scheduler.disturbances.hit["cordon"] == 1


def test_planned_errors_come_in_order_and_do_nothing(world: World) -> None:
    world.scheduler.disturbances.fail_next("cordon", ForbiddenError("Access denied"))
    world.scheduler.disturbances.fail_next("cordon", UnavailableError("no answer"))

    for error in (ForbiddenError, UnavailableError):
        with pytest.raises(error):
            world.scheduler.cordon("n01", MARK)

    assert world.scheduler.our_actions == []
    assert world.scheduler.cordon("n01", MARK).owner is Owner.SICKBAY


def test_latency_takes_the_clocks_time(world: World) -> None:
    world.scheduler.disturbances.set_latency(0.5)
    before = world.clock.now()

    world.scheduler.observe()

    assert world.clock.now() == before + 0.5


def test_the_record_tells_our_writes_from_other_peoples(world: World) -> None:
    world.scheduler.admin_drain("n02", "bad dimm", "carol")
    job = world.scheduler.submit(JobSpec(user="dora"))
    world.scheduler.cordon("n01", MARK)
    world.scheduler.cancel_job(job)

    assert [(action.actor, action.verb, action.node) for action in world.scheduler.actions] == [
        ("carol", "drain", "n02"),
        ("dora", "submit", None),
        ("sickbay", "cordon", "n01"),
        ("dora", "cancel", None),
    ]
    assert [action.node for action in world.scheduler.our_actions] == ["n01"]


def test_a_users_hold_of_a_pending_job_binds(world: World) -> None:
    for _ in range(4):
        world.scheduler.submit(JobSpec())
    waiting = world.scheduler.submit(JobSpec(seconds=50.0))
    world.scheduler.admin_hold_job(waiting)
    world.scheduler.finish_job("1")
    world.pass_time(5.0)
    assert world.job(waiting) == ("pending", ())

    world.scheduler.admin_release_job(waiting)

    assert world.job(waiting)[0] == "running"


_NODES = st.sampled_from(["n01", "n02", "n03", "n04"])
_STEPS = st.one_of(
    st.tuples(st.just("submit"), st.integers(1, 3), st.sampled_from([1, 2, 4, 8])),
    st.tuples(st.just("cordon"), _NODES, st.none()),
    st.tuples(st.just("uncordon"), _NODES, st.none()),
    st.tuples(st.just("reboot"), _NODES, st.none()),
    st.tuples(st.just("admin_drain"), _NODES, st.none()),
    st.tuples(st.just("requeue"), _NODES, st.none()),
    st.tuples(st.just("pass"), st.floats(0.0, 300.0), st.none()),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_STEPS, max_size=30))
def test_whatever_happens_the_books_stay_sound(steps: list[tuple[str, object, object]]) -> None:
    world = World()
    foreign: set[str] = set()
    for verb, first, second in steps:
        _do(world, verb, first, second, foreign)
        snapshot = world.scheduler.observe()
        for name, node in snapshot.nodes.items():
            used = sum((job.gpus or 0) // len(job.nodes) for job in snapshot.jobs_on(name))
            assert used == node.gpus_allocated
            assert used <= 8
            if name in foreign:
                assert node.owner is Owner.FOREIGN
            if node.state is NodeState.REBOOTING:
                assert snapshot.jobs_on(name) == ()
        for job in snapshot.jobs:
            assert len(set(job.nodes)) == len(job.nodes)
            assert not set(job.nodes) & set(job.excluded_nodes) or job.state != "running"


def _do(world: World, verb: str, first: object, second: object, foreign: set[str]) -> None:
    scheduler = world.scheduler
    try:
        match verb, first, second:
            case "submit", int(nodes), int(gpus):
                scheduler.submit(JobSpec(nodes=nodes, gpus_per_node=gpus, seconds=200.0))
            case "pass", float(seconds), _:
                world.pass_time(seconds)
            case "admin_drain", str(node), _:
                scheduler.admin_drain(node, "mine")
                foreign.add(node)
            case "requeue", str(node), _:
                for job in scheduler.observe().jobs_on(node):
                    request = RequeueRequest(job=job.id, node=node, restarts=job.restarts, submitted_at=None)
                    scheduler.requeue(request)
            case "cordon", str(node), _:
                scheduler.cordon(node, MARK)
            case "uncordon", str(node), _:
                scheduler.uncordon(node, MARK)
            case "reboot", str(node), _:
                scheduler.reboot(node, MARK, ordered_at=world.clock.now())
    except (ConflictError, RefusedError):
        assert verb in ("cordon", "uncordon", "reboot")
