"""At a stop the lease is given back only when no call of ours is on its way."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from fleet.clock import SystemClock
from remediator.executor import Task, ThreadRunner
from remediator.ledger import open_ledger
from remediator.records import Outcome
from remediator.steps import StepResult
from sickbay.assembly import Application, assemble
from sickbay.loop import ControlLoop
from simulator.cluster import SimulatedCluster
from tests.support.rig import CATALOGUE, POLICY


def application(folder: Path, runner: ThreadRunner) -> Application:
    clock = SystemClock()
    return assemble(
        policy=POLICY,
        store=open_ledger(f"sqlite:///{folder / 'ledger.db'}", clock),
        backend=SimulatedCluster(clock=clock, nodes=2, seed=1).scheduler,
        catalogue=CATALOGUE,
        clock=clock,
        runner=runner,
    )


@pytest.mark.parametrize("call_runs", [True, False])
def test_a_lease_is_not_given_back_over_a_call(tmp_path: Path, *, call_runs: bool) -> None:
    runner = ThreadRunner(wake=lambda: None)
    app = application(tmp_path, runner)
    loop = ControlLoop(app)
    loop.start()
    loop.wake()
    let = threading.Event()
    for _ in range(200):
        if app.controller.lease is not None:
            break
        threading.Event().wait(0.02)

    def call() -> StepResult:
        let.wait(10.0)
        return StepResult(Outcome.DONE, "done at last")

    if call_runs:
        runner.submit(Task("k", "i-1", "n01", None, call))
    loop.stop()
    with app.store.transaction(read_only=True) as tx:
        lease = tx.lease()
    assert (lease is not None and lease.holder == app.holder) is call_runs
    let.set()
    runner.close()
    app.store.close()


def test_a_runner_that_is_closed_drops_what_has_not_begun() -> None:
    let, begun = threading.Event(), threading.Event()
    runner = ThreadRunner(workers=1, wake=lambda: None)

    def slow() -> StepResult:
        begun.set()
        let.wait(10.0)
        return StepResult(Outcome.DONE, "slow")

    runner.submit(Task("first", "i-1", "n01", None, slow))
    runner.submit(Task("second", "i-2", "n02", None, lambda: StepResult(Outcome.DONE, "never")))
    assert begun.wait(10.0)
    runner.close()
    let.set()
    for _ in range(200):
        done = runner.finished()
        if done:
            break
        threading.Event().wait(0.02)
    assert [task.key for task, _ in done] == ["first"]
    assert [task.key for task in runner.running()] == []
