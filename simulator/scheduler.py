"""The simulated scheduler: the backend protocol with Slurm's semantics, and what admins and users do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fleet.clock import Clock
from fleet.errors import ConflictError, RefusedError
from fleet.marks import Mark
from fleet.scheduler import (
    NodeRecord,
    NodeState,
    RequeueOutcome,
    RequeueRequest,
    RequeueState,
    SchedulerSnapshot,
)
from simulator.cluster_state import ClusterState
from simulator.disturbances import Disturbances
from simulator.fleet import SimulatedFleet
from simulator.jobs import JobSpec, SimulatedJob
from simulator.ports import Action, RunningJob

OUR_USER = "sickbay"
DEFAULT_REBOOT_SECONDS = 180.0
# States in which a node belongs to somebody else's procedure, or cannot be reached.
_HANDS_OFF = (NodeState.REBOOTING, NodeState.POWERED_DOWN, NodeState.MAINTENANCE, NodeState.UNKNOWN)


class SimulatedScheduler:
    """A SchedulerBackend over a simulated fleet. Thread-safe; every call first catches up with the clock.

    ``actions`` is the record of every write, ours and other people's, in order. ``disturbances`` makes
    the backend's calls fail; admins and users are never disturbed.
    """

    kind = "simulated"

    def __init__(
        self,
        fleet: SimulatedFleet,
        *,
        clock: Clock | None = None,
        our_user: str = OUR_USER,
        reboot_seconds: float = DEFAULT_REBOOT_SECONDS,
    ) -> None:
        self.fleet = fleet
        self.disturbances = Disturbances(clock or fleet.clock)
        self.actions: list[Action] = []
        self._clock = clock or fleet.clock
        self._our_user = our_user
        self._state = ClusterState(fleet, our_user=our_user, reboot_seconds=reboot_seconds)
        self._lock = threading.RLock()

    def tick(self) -> None:
        """Bring jobs and reboots to the clock's present."""
        with self._lock:
            self._state.tick()

    @property
    def our_actions(self) -> list[Action]:
        with self._lock:
            return [action for action in self.actions if action.actor == self._our_user]

    # -- the backend protocol

    def observe(self) -> SchedulerSnapshot:
        with self._call("observe"):
            now = self._clock.now()
            return SchedulerSnapshot(
                taken_at=now,
                nodes=self._state.records(),
                jobs=tuple(job.record(now) for job in self._state.jobs.values()),
            )

    def observe_node(self, node: str) -> NodeRecord:
        with self._call("observe_node"):
            return self._state.record(node)

    def cordon(self, node: str, mark: Mark) -> NodeRecord:
        with self._call("cordon"):
            before = self._state.record(node)
            if before.is_cordoned:
                self._require_ours(before, mark)
                return before
            if before.state in _HANDS_OFF or before.base == "down":
                raise ConflictError(f"{node} is {before.state.value}: not ours to cordon")
            self._state.drain(node, mark.reason(), self._our_user)
            self._log(self._our_user, "cordon", node=node, detail=mark.reason())
            return self._state.record(node)

    def uncordon(self, node: str, mark: Mark) -> NodeRecord:
        with self._call("uncordon"):
            before = self._state.record(node)
            if not before.is_cordoned:
                return before
            self._require_ours(before, mark)
            if before.state is NodeState.REBOOTING:
                raise ConflictError(f"{node} is rebooting: uncordon it when it is back")
            self._state.undrain(node)
            self._log(self._our_user, "uncordon", node=node)
            return self._state.record(node)

    def reboot(self, node: str, mark: Mark, *, ordered_at: float) -> NodeRecord:
        with self._call("reboot"):
            before = self._state.record(node)
            if not before.is_cordoned:
                raise ConflictError(f"{node} is not cordoned under {mark.incident}: no reboot")
            self._require_ours(before, mark)
            if before.state is NodeState.REBOOTING or self._state.rebooted_since(node, ordered_at):
                return before
            jobs = self._state.jobs_on(node)
            if jobs:
                raise ConflictError(f"{node} still has job {jobs[0].id}: no reboot")
            self._state.drain(node, mark.reason(), self._our_user)  # a no-op but for a repeated reboot
            self._state.reboot(node)
            self._log(self._our_user, "reboot", node=node)
            return self._state.record(node)

    def requeue(self, request: RequeueRequest) -> RequeueOutcome:
        with self._call("requeue"):
            self._state.node_books(request.node)
            job = self._state.jobs.get(request.job)
            if job is None or job.ended:
                ending = "is not known any more" if job is None else f"has ended ({job.state})"
                return RequeueOutcome(RequeueState.GONE, f"job {request.job} {ending}")
            return self._requeue_pass(job, request)

    def annotate(self, node: str, text: str) -> NodeRecord:
        with self._call("annotate"):
            books = self._state.node_books(node)
            if books.comment == text:
                return self._state.record(node)
            if books.comment and not books.comment.startswith("sickbay:"):
                raise ConflictError(f"{node} carries somebody else's comment; nothing written")
            books.comment = text
            self._log(self._our_user, "annotate", node=node, detail=text)
            return self._state.record(node)

    # -- admins and users

    def be_unavailable(self, seconds: float) -> None:
        """Every backend call fails for ``seconds``; jobs and nodes go on."""
        self.disturbances.be_unavailable(seconds)

    def admin_drain(self, node: str, reason: str, user: str = "root") -> None:
        """``scontrol update State=DRAIN Reason=...``: overwrites whatever reason is there."""
        with self._by(user, "drain", node=node, detail=reason):
            self._state.drain(node, reason, user)

    def admin_undrain(self, node: str, user: str = "root") -> None:
        with self._by(user, "undrain", node=node):
            self._state.undrain(node)

    def admin_comment(self, node: str, text: str, user: str = "root") -> None:
        with self._by(user, "comment", node=node, detail=text):
            self._state.node_books(node).comment = text or None

    def admin_maintenance(self, node: str, *, on: bool, user: str = "root") -> None:
        """A maintenance reservation over the node begins or ends."""
        with self._by(user, "maintenance", node=node, detail="on" if on else "off"):
            self._state.node_books(node).maintenance = on

    def admin_restart_daemon(self, node: str, user: str = "root") -> None:
        """Somebody restarts slurmd on the node: it registers anew, with the GPUs that it finds."""
        with self._by(user, "restart_daemon", node=node):
            self._state.register(node)

    def submit(self, spec: JobSpec) -> str:
        """A user submits a job; its id. It starts at once if there is room."""
        with self._by(spec.user, "submit", detail=spec.name):
            job = self._state.submit(spec)
        return job.id

    def submit_array(self, spec: JobSpec, tasks: int) -> list[str]:
        """Ids of the elements of one array job."""
        with self._by(spec.user, "submit", detail=f"{spec.name}[0-{tasks - 1}]"):
            jobs = self._state.submit_array(spec, tasks)
        return [job.id for job in jobs]

    def admin_hold_job(self, job: str, user: str = "root") -> None:
        """``scontrol hold``: a pending job stays pending, a running one will not start again."""
        with self._by(user, "hold", job=job):
            self._state.find_job(job).held = True

    def admin_release_job(self, job: str, user: str = "root") -> None:
        with self._by(user, "release", job=job):
            self._state.release(self._state.find_job(job))

    def finish_job(self, job: str) -> None:
        """The job ends by itself, successfully, before its time."""
        with self._by(self._job_user(job), "finish", job=job):
            self._state.end_job(self._state.find_job(job), "completed", exit_code=0)

    def fail_job(self, job: str, exit_code: int = 1) -> None:
        """The job's own program fails."""
        with self._by(self._job_user(job), "fail", job=job):
            self._state.end_job(self._state.find_job(job), "failed", exit_code=exit_code)

    def cancel_job(self, job: str, user: str | None = None) -> None:
        with self._by(user or self._job_user(job), "cancel", job=job):
            self._state.end_job(self._state.find_job(job), "cancelled", exit_code=0)

    def jobs_on(self, node: str) -> list[RunningJob]:
        """The jobs that run on ``node`` now, oldest first."""
        with self._lock:
            self._state.tick()
            return [
                RunningJob(job.id, job.spec.user, job.nodes, job.spec.gpus_per_node)
                for job in self._state.jobs_on(node)
                if job.state == "running"
            ]

    def gpus_wanted(self) -> int:
        """GPUs of all jobs that run or wait, held ones aside."""
        with self._lock:
            live = [job for job in self._state.jobs.values() if not job.ended and not job.held]
            return sum(job.spec.nodes * job.spec.gpus_per_node for job in live)

    # -- inside

    def _require_ours(self, node: NodeRecord, mark: Mark) -> None:
        reason = node.reason
        if reason is None or reason.user != self._our_user or not mark.owns(reason.text):
            owner = "nobody" if reason is None else f"{reason.user or 'unknown'} ({reason.text!r})"
            raise ConflictError(f"{node.name} is cordoned by {owner}, not under {mark.incident}")

    def _requeue_pass(self, job: SimulatedJob, request: RequeueRequest) -> RequeueOutcome:
        """One step towards: off the node, excluded from it, not held by us."""
        later_run = job.restarts > request.restarts
        if job.state == "completing":
            return RequeueOutcome(RequeueState.IN_PROGRESS, f"job {job.id} is leaving its nodes")
        if job.state == "running":
            if later_run:
                return RequeueOutcome(RequeueState.DONE, f"job {job.id} runs again on {','.join(job.nodes)}")
            if request.node not in job.nodes:
                return RequeueOutcome(RequeueState.DONE, f"job {job.id} is not on {request.node}")
            return self._begin_requeue(job, request)
        if not later_run:
            return RequeueOutcome(RequeueState.DONE, f"job {job.id} is pending, as its user left it")
        self._exclude(job, request)
        if job.held and not job.requeue_held:
            return RequeueOutcome(RequeueState.DONE, f"job {job.id} is pending under its user's own hold")
        if job.held:
            self._state.release(job)
            self._log(self._our_user, "release", node=request.node, job=job.id)
        return RequeueOutcome(RequeueState.DONE, f"job {job.id} is requeued without {request.node}")

    def _exclude(self, job: SimulatedJob, request: RequeueRequest) -> None:
        """Keep the job off the bad node, unless its user insists on that very node."""
        settled = request.node in (*job.excluded_nodes, *job.spec.required_nodes)
        if request.exclude_node and not settled:
            job.excluded_nodes = tuple(sorted({*job.excluded_nodes, request.node}))
            self._log(self._our_user, "exclude", node=request.node, job=job.id)

    def _begin_requeue(self, job: SimulatedJob, request: RequeueRequest) -> RequeueOutcome:
        if not request.begin:
            refusal = f"job {job.id} has not been requeued and stays where it is"
            return RequeueOutcome(RequeueState.REFUSED, refusal)
        try:
            self._state.requeue_hold(job)
        except RefusedError as refusal:
            return RequeueOutcome(RequeueState.REFUSED, str(refusal))
        self._log(self._our_user, "requeue", node=request.node, job=job.id)
        return RequeueOutcome(RequeueState.IN_PROGRESS, f"job {job.id} is requeued and leaving its nodes")

    @contextmanager
    def _call(self, verb: str) -> Iterator[None]:
        """A backend call: disturbed as planned, at the clock's present, one at a time."""
        with self._lock:
            later = self.disturbances.before(verb)
            self._state.tick()
            yield
            self._state.tick()
        if later is not None:
            raise later

    @contextmanager
    def _by(
        self, user: str, verb: str, *, node: str | None = None, job: str | None = None, detail: str = ""
    ) -> Iterator[None]:
        """Somebody else's write: recorded under their name once it has succeeded."""
        with self._lock:
            self._state.tick()
            yield
            self._log(user, verb, node=node, job=job, detail=detail)
            self._state.tick()

    def _job_user(self, job: str) -> str:
        return self._state.find_job(job).spec.user

    def _log(
        self, actor: str, verb: str, *, node: str | None = None, job: str | None = None, detail: str = ""
    ) -> None:
        self.actions.append(Action(self._clock.now(), actor, verb, node, job, detail))
