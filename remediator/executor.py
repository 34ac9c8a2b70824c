"""Doing a step: the only place that calls a backend's writes. What happened comes back as a ``StepResult``.

A task runs in a worker thread; its result is picked up by the controller's own thread, which alone writes
the ledger. The intent is durable before a task is submitted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from fleet.errors import BackendError, ConflictError, SickbayError
from fleet.findings import Repair, Step
from fleet.scheduler import RequeueRequest, RequeueState, SchedulerBackend
from remediator.commands import CommandRunner
from remediator.decisions import Act
from remediator.records import IncidentRecord, Outcome
from remediator.situation import JobRun, Situation, has_all_gpus, mark_of
from remediator.steps import StepResult

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Task:
    """One submitted attempt, ``key`` is the intent's. An incident, and a job, has one at a time: a cancel
    must not overtake the call that is on its way, and a gang with two sick nodes is requeued once.
    """

    key: str
    incident: str
    node: str
    step: Step | None
    call: Callable[[], StepResult]
    job: str | None = None


class Runner(Protocol):
    """Runs tasks somewhere; hands back what has ended."""

    def submit(self, task: Task) -> None: ...

    def running(self) -> Sequence[Task]:
        """What was submitted and is not handed back yet."""
        ...

    def finished(self) -> Sequence[tuple[Task, StepResult]]: ...

    def close(self) -> None: ...


def attempt(task: Task) -> StepResult:
    """Run a task's call; every error becomes a result. The named boundary for a step's errors."""
    try:
        return task.call()
    except ConflictError as error:
        return StepResult(Outcome.REFUSED, str(error))
    except BackendError as error:
        outcome = Outcome.UNKNOWN if error.retryable else Outcome.FAILED
        return StepResult(outcome, str(error))
    except SickbayError as error:
        return StepResult(Outcome.FAILED, str(error))
    except Exception as error:  # boundary: a defect in one step must not stop the others; it is logged
        log.exception("step %s of incident %s ended in an unexpected error", task.step, task.incident)
        return StepResult(Outcome.UNKNOWN, f"unexpected {type(error).__name__}: {error}")


class InlineRunner:
    """Runs each task at once, in the caller's thread: deterministic, for the demo, backtests and tests."""

    def __init__(self) -> None:
        self._done: list[tuple[Task, StepResult]] = []

    def submit(self, task: Task) -> None:
        self._done.append((task, attempt(task)))

    def running(self) -> Sequence[Task]:
        return [task for task, _ in self._done]

    def finished(self) -> Sequence[tuple[Task, StepResult]]:
        done, self._done = self._done, []
        return done

    def close(self) -> None:
        self._done.clear()


class ThreadRunner:
    """Runs tasks on a small pool; ``wake`` is called whenever one has ended."""

    def __init__(self, *, workers: int = 8, wake: Callable[[], None]) -> None:
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="step")
        self._running: dict[str, tuple[Task, Future[StepResult]]] = {}
        self._wake = wake

    def submit(self, task: Task) -> None:
        future = self._pool.submit(attempt, task)
        self._running[task.key] = (task, future)
        future.add_done_callback(lambda _: self._wake())

    def running(self) -> Sequence[Task]:
        return [task for task, _ in self._running.values()]

    def finished(self) -> Sequence[tuple[Task, StepResult]]:
        ended = [(key, task, future) for key, (task, future) in self._running.items() if future.done()]
        for key, _, _ in ended:
            del self._running[key]
        # What was dropped at a stop has no result: its open intent tells the next start.
        return [(task, future.result()) for _, task, future in ended if not future.cancelled()]

    def close(self) -> None:
        """Stop taking tasks; what runs is left to its own deadline. Open intents tell the next start."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class Hands:
    """Builds the call for each step: backend and commands, with everything they need bound in."""

    def __init__(self, *, backend: SchedulerBackend, commands: CommandRunner) -> None:
        self._backend = backend
        self._commands = commands

    def call_for(self, act: Act, situation: Situation, incident: IncidentRecord) -> Callable[[], StepResult]:
        """The call of ``act`` for ``incident`` as it stands after its intent was written."""
        step, job = act.step, act.job
        if step is Step.CORDON:
            return lambda: self._cordon(incident)
        if step is Step.UNCORDON:
            return lambda: self._uncordon(incident)
        if step is Step.REBOOT and Repair.REBOOT not in situation.policy.repair_commands:
            return lambda: self._reboot(incident)
        if step is Step.VERIFY:
            return lambda: self._verify(situation, incident)
        if step is Step.REQUEUE and job is not None:
            exclude = situation.policy.exclude_node
            return lambda: self._requeue(incident, job, exclude=exclude, begin=not act.let_go)
        if step in (Step.RESET_GPU, Step.REBOOT, Step.POWER_CYCLE):
            return lambda: self._commands.repair(step, situation, incident)
        raise ValueError(f"no hand does {step}")

    def annotate(self, node: str, text: str) -> StepResult:
        record = self._backend.annotate(node, text)
        return StepResult(Outcome.DONE, "noted beside the foreign cordon", record)

    def _cordon(self, incident: IncidentRecord) -> StepResult:
        record = self._backend.cordon(incident.node, mark_of(incident))
        return StepResult(Outcome.DONE, f"the scheduler says {record.state} under our mark", record)

    def _uncordon(self, incident: IncidentRecord) -> StepResult:
        record = self._backend.uncordon(incident.node, mark_of(incident))
        return StepResult(Outcome.DONE, f"the scheduler says {record.state}, the cordon is gone", record)

    def _reboot(self, incident: IncidentRecord) -> StepResult:
        ordered_at = incident.repair_started_at or incident.state_since
        if incident.repair_attempts <= 1 and incident.mark_time is not None:
            # Our cordon wrote a reason without any reboot's note, dated by the scheduler's own clock.
            ordered_at = min(ordered_at, incident.mark_time)
        record = self._backend.reboot(incident.node, mark_of(incident), ordered_at=ordered_at)
        return StepResult(Outcome.DONE, f"the scheduler took the reboot ({record.state})", record)

    def _requeue(self, incident: IncidentRecord, job: JobRun, *, exclude: bool, begin: bool) -> StepResult:
        answer = self._backend.requeue(
            RequeueRequest(
                job=job.job,
                node=incident.node,
                restarts=job.restarts,
                submitted_at=job.submitted_at,
                exclude_node=exclude,
                begin=begin,
            )
        )
        outcome = {
            RequeueState.DONE: Outcome.DONE,
            RequeueState.GONE: Outcome.ALREADY,
            RequeueState.REFUSED: Outcome.REFUSED if begin else Outcome.ABANDONED,
            RequeueState.IN_PROGRESS: Outcome.IN_PROGRESS,
        }[answer.state]
        return StepResult(outcome, answer.reason)

    def _verify(self, situation: Situation, incident: IncidentRecord) -> StepResult:
        """The planner looked at epoch and GPU count; what is left is to record them and run the check."""
        whole, count = has_all_gpus(situation)
        if not whole:
            return StepResult(Outcome.FAILED, count)
        return self._commands.verify(situation, incident, count)
