"""The contract of a scheduler backend, jobs: bringing one off a node without harming another."""

from __future__ import annotations

from dataclasses import replace

from fleet.marks import Mark
from fleet.scheduler import RequeueState
from tests.support.bench import (
    Bench,
    Capability,
    needs,
    request_for,
    requeue_until_settled,
    wait_running,
)

MARK = Mark("inc-1", "gpu-xid", "GPU 3 fell off the bus (XID 79).")


def test_a_requeued_job_runs_elsewhere_and_is_not_held(bench: Bench) -> None:
    job = bench.submit(exclude=bench.nodes[3:])
    (node,) = wait_running(bench, job)
    bench.backend.cordon(node, MARK)
    request = request_for(bench, job, node)

    outcome = requeue_until_settled(bench, request)

    assert outcome.state is RequeueState.DONE
    assert outcome.reason
    (elsewhere,) = wait_running(bench, job)
    assert elsewhere not in (node, bench.nodes[3])  # the user's own exclusion is kept
    again = bench.backend.requeue(request)
    assert again.state is RequeueState.DONE  # this run is another one: not touched again
    assert bench.job(job).state == "running"
    assert bench.job(job).nodes == (elsewhere,)


def test_a_requeue_that_may_not_begin_leaves_a_running_job_where_it_is(bench: Bench) -> None:
    """What a red button or a cancel leaves of a requeue that was announced and not begun."""
    job = bench.submit()
    (node,) = wait_running(bench, job)
    bench.backend.cordon(node, MARK)

    outcome = bench.backend.requeue(replace(request_for(bench, job, node), begin=False))

    assert outcome.state is RequeueState.REFUSED
    assert outcome.reason
    assert bench.job(job).state == "running"
    assert bench.job(job).nodes == (node,)


def test_a_gang_leaves_all_its_nodes_and_comes_back_without_the_bad_one(bench: Bench) -> None:
    needs(bench, Capability.GANG)
    job = bench.submit(count=2)
    nodes = wait_running(bench, job)
    bench.backend.cordon(nodes[0], MARK)

    outcome = requeue_until_settled(bench, request_for(bench, job, nodes[0]))

    assert outcome.state is RequeueState.DONE
    assert nodes[0] not in wait_running(bench, job)


def test_a_job_that_may_not_be_requeued_is_refused_and_goes_on(bench: Bench) -> None:
    job = bench.submit(requeue=False)
    (node,) = wait_running(bench, job)

    outcome = requeue_until_settled(bench, request_for(bench, job, node))

    assert outcome.state is RequeueState.REFUSED
    assert outcome.reason
    assert bench.job(job).state == "running"
    assert bench.job(job).nodes == (node,)


def test_a_finished_job_is_gone_and_does_not_run_again(bench: Bench) -> None:
    job = bench.submit()
    (node,) = wait_running(bench, job)
    request = request_for(bench, job, node)
    bench.finish(job)
    bench.wait(lambda: bench.job(job).state == "completed", "the job to complete")
    written = bench.writes()

    assert bench.backend.requeue(request).state is RequeueState.GONE

    assert bench.job(job).state == "completed"
    assert bench.writes() == written


def test_an_unknown_job_is_gone(bench: Bench) -> None:
    job = bench.submit()
    (node,) = wait_running(bench, job)
    request = replace(request_for(bench, job, node), job=bench.unknown_job)

    assert bench.backend.requeue(request).state is RequeueState.GONE

    assert bench.job(job).state == "running"


def test_a_users_held_job_stays_held(bench: Bench) -> None:
    job = bench.submit(held=True)
    bench.wait(lambda: bench.job(job).reason == "JobHeldUser", "the job to be held")
    request = request_for(bench, job, bench.nodes[0])
    written = bench.writes()

    outcome = bench.backend.requeue(request)

    assert outcome.state in (RequeueState.DONE, RequeueState.GONE)
    assert bench.writes() == written
    assert (bench.job(job).state, bench.job(job).reason) == ("pending", "JobHeldUser")


def test_a_hold_that_a_user_put_on_a_running_job_outlives_its_requeue(bench: Bench) -> None:
    needs(bench, Capability.HOLD_WHILE_RUNNING)
    job = bench.submit()
    (node,) = wait_running(bench, job)
    bench.hold(job)
    bench.backend.cordon(node, MARK)

    outcome = requeue_until_settled(bench, request_for(bench, job, node))

    assert outcome.state is RequeueState.DONE
    assert bench.job(job).state == "pending"
    record = next(found for found in bench.backend.observe().jobs if found.id == job)
    assert record.held is True
    assert bench.job(job).reason == "JobHeldUser"


def test_a_requeue_of_an_array_task_touches_no_other_task(bench: Bench) -> None:
    tasks = bench.submit_array(3)
    before = {task: wait_running(bench, task) for task in tasks}
    moved, *others = tasks[1], tasks[0], tasks[2]
    (node,) = before[moved]
    bench.backend.cordon(node, MARK)

    outcome = requeue_until_settled(bench, request_for(bench, moved, node))

    assert outcome.state is RequeueState.DONE
    assert wait_running(bench, moved) != (node,)
    for task in others:
        assert (bench.job(task).state, bench.job(task).nodes) == ("running", before[task])
    records = {job.id: job for job in bench.backend.observe().jobs}
    assert [records[task].restarts for task in others] == [0, 0]
    if Capability.RESTART_COUNT not in bench.cannot:
        assert records[moved].restarts == 1


def test_two_jobs_on_one_fleet_do_not_disturb_each_other(bench: Bench) -> None:
    sick, healthy = bench.submit(), bench.submit()
    (node,) = wait_running(bench, sick)
    undisturbed = wait_running(bench, healthy)
    bench.backend.cordon(node, MARK)

    assert requeue_until_settled(bench, request_for(bench, sick, node)).state is RequeueState.DONE

    assert (bench.job(healthy).state, bench.job(healthy).nodes) == ("running", undisturbed)
