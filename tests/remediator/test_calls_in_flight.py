"""Invariants 5 and 8: calls that are late, overtaken or interrupted, and the jobs that we hold meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from fleet.clock import ManualClock
from fleet.errors import ForbiddenError, UnavailableError
from fleet.findings import IncidentState as State
from fleet.findings import Step
from fleet.scheduler import RequeueRequest, RequeueState
from remediator.executor import Task, attempt
from remediator.lease import RemainingLease
from remediator.ledger import Ledger, LedgerUnavailableError
from remediator.records import Outcome, Phase
from remediator.situation import mark_of
from remediator.steps import StepResult
from sickbay.assembly import assemble
from tests.support.rig import CATALOGUE, Rig, bolder, counts


class LateRunner:
    """Holds every call back until ``let`` is called: a slow scheduler, a busy pool, a stopped process."""

    def __init__(self) -> None:
        self.waiting: list[Task] = []
        self._done: list[tuple[Task, StepResult]] = []

    def submit(self, task: Task) -> None:
        self.waiting.append(task)

    def running(self) -> Sequence[Task]:
        return [*self.waiting, *(task for task, _ in self._done)]

    def finished(self) -> Sequence[tuple[Task, StepResult]]:
        done, self._done = self._done, []
        return done

    def let(self) -> None:
        self._done.extend((task, attempt(task)) for task in self.waiting)
        self.waiting = []

    def close(self) -> None:
        self.waiting.clear()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


@pytest.fixture
def late(rig: Rig) -> LateRunner:
    runner = LateRunner()
    rig.app = assemble(
        policy=rig.policy,
        store=cast(Ledger, rig.store),
        backend=rig.cluster.scheduler,
        catalogue=CATALOGUE,
        clock=rig.clock,
        runner=runner,
        incident_id=(f"i-{number}" for number in itertools.count(1)).__next__,
        holder="late",
    )
    return runner


def until(rig: Rig, late: LateRunner, step: Step) -> None:
    """Let every call through until the next one is of ``step``; that one waits."""
    for _ in range(60):
        rig.tick()
        if any(task.step is step for task in late.waiting):
            return
        late.let()
    raise AssertionError(f"no {step} was ever called")


# -- a cancel never overtakes the call before it


def test_a_cordon_on_its_way_is_waited_for_before_its_incident_is_closed(rig: Rig, late: LateRunner) -> None:
    rig.xid("n01")
    until(rig, late, Step.CORDON)
    rig.app.service.cancel("i-1", author="alice", reason="false alarm")
    rig.tick(5)  # the scheduler is seen several times without the cordon
    late.let()
    for _ in range(5):
        rig.tick()
        late.let()
    assert rig.incident().state is State.CANCELLED
    assert rig.our_verbs() == ["cordon", "uncordon"]
    assert not rig.cluster.scheduler.observe_node("n01").is_cordoned


def test_a_reboot_on_its_way_is_not_overtaken_by_the_return(rig: Rig, late: LateRunner) -> None:
    rig.xid("n01")
    until(rig, late, Step.REBOOT)
    rig.app.service.cancel("i-1", author="alice", reason="false alarm")
    rig.tick(5)
    assert [task.step for task in late.waiting] == [Step.REBOOT]
    for _ in range(60):
        late.let()
        rig.tick()
    assert rig.our_verbs() == ["cordon", "reboot", "uncordon"]
    assert rig.incident().state is State.CANCELLED


def test_a_verification_does_not_hold_up_a_cancel(rig: Rig, late: LateRunner) -> None:
    rig.xid("n01")
    until(rig, late, Step.VERIFY)
    rig.app.service.cancel("i-1", author="alice", reason="false alarm")
    rig.tick(1)
    assert [task.step for task in late.waiting] == [Step.VERIFY, Step.UNCORDON]
    late.let()
    rig.tick(2)
    assert rig.incident().state is State.CANCELLED


# -- the lease, when the call begins


def test_a_call_is_not_begun_when_the_lease_has_run_out_since(rig: Rig, late: LateRunner) -> None:
    rig.xid("n01")
    until(rig, late, Step.CORDON)
    rig.clock.advance(rig.policy.lease_seconds + 1)  # the process was stopped between check and call
    rig.clock.step_wall_clock(-30.0)  # and the wall clock would not tell
    late.let()
    assert rig.our_verbs() == []
    rig.tick(1)
    attempts = [s for s in rig.steps("i-1") if s.phase is Phase.ATTEMPT]
    assert [a.outcome for a in attempts] == [Outcome.UNKNOWN]
    assert "of our lease are left" in attempts[0].reason
    rig.tick(40)
    late.let()
    assert rig.our_verbs() == ["cordon"]


def test_a_call_is_not_begun_after_another_has_taken_the_lease(rig: Rig, late: LateRunner) -> None:
    rig.xid("n01")
    until(rig, late, Step.CORDON)
    with rig.store.transaction() as tx:
        assert tx.acquire_lease("other", rig.clock.now() + 16, 600.0) is not None
    rig.app.controller.step()
    late.let()
    assert rig.our_verbs() == []


@pytest.mark.parametrize(("seconds", "enough"), [(4.9, True), (5.0, False), (9.0, False)])
def test_a_write_needs_more_lease_than_its_deadline(seconds: float, enough: bool) -> None:
    clock = ManualClock()
    lease = RemainingLease(clock)
    with pytest.raises(UnavailableError):
        lease.require(0.0)
    lease.renewed(clock.monotonic(), 15.0)
    clock.advance(10.0)
    clock.step_wall_clock(-3600.0)
    if enough:
        lease.require(seconds)
    else:
        with pytest.raises(UnavailableError, match=r"5\.0 s of our lease"):
            lease.require(seconds)
    lease.lost()
    with pytest.raises(UnavailableError):
        lease.require(0.0)


# -- a job that we hold is let go, whatever becomes of us and of the node


def hold_the_job(rig: Rig) -> str:
    """A story stopped right after requeuehold: the job is ours to release."""
    job = rig.submit("n01")
    rig.tick(2)
    rig.xid("n01")
    rig.run_until(lambda: "requeue" in rig.our_verbs())
    return job


def pause(rig: Rig) -> None:
    rig.app.service.pause(pool=None, author="alice", reason="stop", expires_in_seconds=None)


def hold(rig: Rig) -> None:
    rig.app.service.hold("n01", author="alice", reason="mine", expires_in_seconds=None)


def cancel(rig: Rig) -> None:
    rig.app.service.cancel("i-1", author="alice", reason="false alarm")


def uncordon(rig: Rig) -> None:
    rig.cluster.scheduler.admin_undrain("n01")


def take_over(rig: Rig) -> None:
    rig.cluster.scheduler.admin_drain("n01", "ADMIN: mine now", "root")


def crash(rig: Rig) -> None:
    rig.cluster.scheduler._state.node_books("n01").down = True


@pytest.mark.parametrize("happens", [pause, hold, cancel, uncordon, take_over, crash])
def test_a_job_that_we_hold_is_let_go(rig: Rig, happens: Callable[[Rig], None]) -> None:
    job = hold_the_job(rig)
    happens(rig)
    rig.tick(10)
    record = next(j for j in rig.cluster.scheduler.observe().jobs if j.id == job)
    assert not record.held
    assert (record.state, record.restarts) == ("running", 1)
    assert counts(rig.our_verbs())["requeue"] == 1


@pytest.mark.parametrize("happens", [pause, hold, cancel, uncordon, take_over])
def test_a_requeue_that_has_not_begun_is_not_begun_any_more(rig: Rig, happens: Callable[[Rig], None]) -> None:
    job = rig.submit("n01")
    rig.tick(2)
    rig.xid("n01")
    rig.cluster.scheduler.disturbances.fail_next("requeue", UnavailableError("no answer"))
    rig.run_until(lambda: any(s.step is Step.REQUEUE for s in rig.steps("i-1")))
    happens(rig)
    rig.tick(30)
    assert "requeue" not in rig.our_verbs()
    record = next(j for j in rig.cluster.scheduler.observe().jobs if j.id == job)
    assert (record.state, record.restarts, record.held) == ("running", 0, False)


def test_a_requeue_given_up_under_a_pause_is_done_after_it(rig: Rig) -> None:
    rig.submit("n01")
    rig.tick(2)
    rig.xid("n01")
    rig.cluster.scheduler.disturbances.fail_next("requeue", UnavailableError("no answer"))
    rig.run_until(lambda: any(s.step is Step.REQUEUE for s in rig.steps("i-1")))
    pause(rig)
    rig.tick(30)
    rig.app.service.resume(pool=None, author="alice", reason="")
    rig.run_until(lambda: rig.state() is State.RETURNED)
    assert counts(rig.our_verbs())["requeue"] == 1


def test_a_backend_lets_go_without_beginning(rig: Rig) -> None:
    job = rig.submit("n01")
    rig.tick(2)
    record = next(j for j in rig.cluster.scheduler.observe().jobs if j.id == job)
    request = RequeueRequest(job, "n01", record.restarts, record.submitted_at, begin=False)
    assert rig.cluster.scheduler.requeue(request).state is RequeueState.REFUSED
    assert rig.our_verbs() == []
    rig.cluster.scheduler.requeue(replace(request, begin=True))
    rig.tick(3)
    assert rig.cluster.scheduler.requeue(request).state is RequeueState.DONE


# -- a gang with two sick nodes


def test_a_gang_is_requeued_once(rig: Rig, late: LateRunner) -> None:
    job = rig.submit("n01", nodes=2)
    rig.tick(2)
    nodes = next(j.nodes for j in rig.cluster.scheduler.observe().jobs if j.id == job)
    rig.xid(nodes[0])
    rig.xid(nodes[1], 119)
    for _ in range(20):
        rig.tick()
        assert len([task for task in late.waiting if task.step is Step.REQUEUE]) <= 1
        late.let()
    record = next(j for j in rig.cluster.scheduler.observe().jobs if j.id == job)
    assert (record.state, record.restarts, record.held) == ("running", 1, False)
    assert not set(record.nodes) & set(nodes)
    assert counts(rig.our_verbs())["requeue"] == 1


# -- results and the store


def test_a_result_survives_a_store_that_takes_nothing(rig: Rig) -> None:
    rig.xid("n01")
    broken = 0
    real = rig.app.controller._store

    class Full:
        def transaction(self, **given: object) -> object:
            nonlocal broken
            if rig.our_verbs() and broken < 3:
                broken += 1
                raise LedgerUnavailableError("database or disk is full")
            return real.transaction(**given)  # type: ignore[arg-type]

    rig.app.controller._store = cast(Ledger, Full())
    for _ in range(30):
        rig.clock.advance(1.0)
        rig.cluster.tick()
        try:
            rig._one_second()
        except LedgerUnavailableError:
            continue
    assert broken == 3
    rig.run_until(lambda: rig.state() is State.RETURNED)
    assert counts(rig.our_verbs()) == {"cordon": 1, "reboot": 1, "uncordon": 1}


# -- what can never be done ends in hands


def test_a_reboot_that_is_never_allowed_is_handed_over(tmp_path: Path) -> None:
    rig = Rig(tmp_path, policy=bolder(verify_timeout_seconds=120.0))
    for _ in range(60):
        rig.cluster.scheduler.disturbances.fail_next("reboot", ForbiddenError("not an administrator"))
    rig.xid("n01")
    rig.run_until(lambda: rig.state() is State.HANDED_OVER, limit=300)
    assert rig.our_verbs() == ["cordon"]
    with rig.store.transaction(read_only=True) as tx:
        assert tx.open_intents("i-1") == []
    rig.close()


def test_a_slow_scheduler_clock_does_not_reboot_twice(tmp_path: Path) -> None:
    """The answer was lost, the node is up again, its agent is not, and the scheduler's clock is behind ours:
    the note of the first reboot is dated before our intent.
    """
    rig = Rig(tmp_path, reboot_seconds=0.5)
    rig.cluster.scheduler.disturbances.time_out_after_next("reboot")
    rig.xid("n01")
    rig.run_until(lambda: "reboot" in rig.our_verbs())
    books = rig.cluster.scheduler._state.node_books("n01")
    assert books.reason is not None
    books.reason = replace(books.reason, time=rig.incident().mark_time)
    rig.cluster.fleet.silence_agent("n01", 60)
    rig.tick(120)
    assert rig.our_verbs().count("reboot") == 1
    rig.close()


# -- drains that nobody stands for


def orphan_pages(rig: Rig) -> list[str]:
    return [text for _, key, text in rig.app.notifier.pages if key.startswith("orphan/")]


def test_a_cordon_that_lands_after_its_incident_is_told_to_a_person(rig: Rig) -> None:
    rig.xid("n01")
    rig.cluster.scheduler.disturbances.fail_next("cordon", UnavailableError("no answer in time"))
    rig.run_until(lambda: rig.state() is State.CORDONING)
    rig.app.service.cancel("i-1", author="alice", reason="false alarm")
    rig.run_until(lambda: rig.state() is State.CANCELLED)
    rig.tick(2)
    assert orphan_pages(rig) == []
    rig.cluster.scheduler._state.drain("n01", mark_of(rig.incident()).reason(), "sickbay")
    rig.tick(5)
    assert len(orphan_pages(rig)) == 1
    assert "n01 is drained under our mark of incident i-1, which is cancelled" in orphan_pages(rig)[0]
    assert rig.our_verbs() == []


def test_what_we_return_cancel_or_hand_over_is_no_orphan(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.xid("n01")
    rig.run_until(lambda: rig.state() is State.RETURNED)
    rig.cluster.fleet.lose_gpu("n02", 3, back_after_reboot=False)
    rig.xid("n02")
    rig.run_until(lambda: rig.incidents()[0].state is State.HANDED_OVER)
    rig.tick(5)
    assert orphan_pages(rig) == []
    rig.close()
