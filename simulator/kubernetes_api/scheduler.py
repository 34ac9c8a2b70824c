"""A simulated fleet as a Kubernetes cluster: real HTTP in front, users, admins and faults behind.

The service gets at it by ``url`` and ``token`` only. What this class itself answers is the truth that a run
is judged by, read from the store and not through any client.
"""

from __future__ import annotations

import random
import secrets
import uuid
from collections.abc import Mapping, Sequence
from typing import Final

from fleet.errors import InvalidInputError, NotFoundError
from fleet.marks import Mark
from fleet.scheduler import NodeRecord, NodeState, Owner, Reason
from simulator.fleet import SimulatedFleet
from simulator.jobs import JobSpec
from simulator.kubernetes_api.errors import Json
from simulator.kubernetes_api.jobs import NAMESPACE, Jobs, Work
from simulator.kubernetes_api.machines import DAEMON_NAMESPACE, Machines
from simulator.kubernetes_api.objects import (
    gpus_of,
    is_cordoned,
    is_finished,
    is_terminating,
    ready_condition,
)
from simulator.kubernetes_api.recorder import INCIDENT, OBSERVED, OUR_USER, RULE, SENTENCE, RecordedApi
from simulator.kubernetes_api.routes import Request
from simulator.ports import Action, RunningJob

#: Where an admin's words stand (the Slurm operator's documentation names the key).
ADMIN_REASON: Final = "nodeset.slinky.slurm.net/node-cordon-reason"
DEFAULT_REBOOT_SECONDS = 180.0
#: The one budget of the cluster: of these jobs' pods so many must stay up, whatever anybody wants to evict.
GUARDED_APP, MIN_AVAILABLE = "pretrain", 2
_KUBECTL: Final = {"user-agent": "kubectl/v1.36.0 (linux/amd64)"}


class KubernetesScheduler:
    """A ``FleetScheduler`` whose service side is an API server. ``close`` stops its port.

    Time passes for it in ``tick`` only, so that all requests of one moment meet the same cluster.
    """

    kind = "kubernetes"

    def __init__(
        self, fleet: SimulatedFleet, *, seed: int = 1, reboot_seconds: float = DEFAULT_REBOOT_SECONDS
    ) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a simulation, not a secret
        self._fleet = fleet
        self._reboot_seconds = reboot_seconds
        self.api = RecordedApi(fleet.clock, token=secrets.token_urlsafe(), new_uid=self._new_uid)
        self.machines = Machines(self.api.store, fleet)
        self.jobs = Jobs(self.api.store, self.machines, seed=seed)
        self._running: tuple[int, Mapping[str, Sequence[RunningJob]]] = (-1, {})
        self.api.store.create("poddisruptionbudgets", _budget(), manager="kubectl-create")

    @property
    def fleet(self) -> SimulatedFleet:
        return self._fleet

    @property
    def our_actions(self) -> Sequence[Action]:
        return self.api.our_actions()

    def start(self) -> None:
        """Open the port. Without it there is a cluster, and nobody who watches it."""
        self.api.start()

    def close(self) -> None:
        self.api.stop()

    # -- time

    def tick(self) -> None:
        with self.api.lock:
            self._fleet.tick()
            self.jobs.step(self.machines.step())

    # -- the truth

    def observe_node(self, node: str) -> NodeRecord:
        with self.api.lock:
            found = self._node(node)
            pods = [pod for pod in self._pods_on(node) if not is_finished(pod)]
            state = _state(found, pods)
            reason = _reason(found)
            return NodeRecord(
                name=node,
                state=state,
                base="ready" if ready_condition(found)["status"] == "True" else "unknown",
                uid=found["metadata"]["uid"],
                gpus_allocated=sum(map(gpus_of, pods)),
                owner=_owner(found),
                reason=reason,
                comment=_notes(found).get(OBSERVED),
                schedulable=state in (NodeState.IDLE, NodeState.MIXED, NodeState.ALLOCATED),
            )

    def jobs_on(self, node: str) -> Sequence[RunningJob]:
        with self.api.lock:
            version, running = self._running
            if version != self.api.store.version:
                running = self._all_running()
                self._running = (self.api.store.version, running)
            return running.get(node, ())

    def gpus_wanted(self) -> int:
        with self.api.lock:
            return self.jobs.gpus_wanted()

    # -- users and admins

    def submit(self, spec: JobSpec) -> str:
        """The name of its Job, or of the bare pod of an interactive one; pods come with the next tick."""
        with self.api.lock:
            work = self.jobs.submit(spec, self._new_uid())
        return f"{NAMESPACE}/{work.name}"

    def fail_job(self, job: str, exit_code: int = 1) -> None:
        """``job`` is the id of one of its pods."""
        del exit_code  # a pod that failed is Failed, whatever its containers said
        with self.api.lock:
            self.jobs.fail(job.partition("/")[2])

    def admin_drain(self, node: str, reason: str, user: str = "root") -> None:
        """As by hand: ``kubectl annotate``, then ``kubectl cordon``, each with its own field manager."""
        self._kubectl(
            node,
            {"metadata": {"annotations": {ADMIN_REASON: reason}}},
            user,
            content_type="application/merge-patch+json",
            manager="kubectl-annotate",
        )
        self._kubectl(
            node,
            {"spec": {"unschedulable": True}},
            user,
            content_type="application/strategic-merge-patch+json",
            manager="kubectl-cordon",
        )

    def admin_undrain(self, node: str, user: str = "root") -> None:
        """``kubectl uncordon``."""
        self._kubectl(
            node,
            {"spec": {"unschedulable": None}},
            user,
            content_type="application/strategic-merge-patch+json",
            manager="kubectl-cordon",
        )

    def be_unavailable(self, seconds: float) -> None:
        with self.api.lock:
            self.api.away_until = self._fleet.clock.now() + seconds

    def power_cycle(self, node: str) -> None:
        """What a site's reboot command does, through the machine's own controller: Kubernetes has no part."""
        with self.api.lock:
            self._node(node)
            self._fleet.reboot(node, self._reboot_seconds)
            self.api.actions.append(Action(self._fleet.clock.now(), OUR_USER, "reboot", node))

    # -- inside

    def _new_uid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def _node(self, name: str) -> Json:
        found = self.api.store.find("nodes", name)
        if found is None:
            raise NotFoundError(f"no node {name!r} in the simulated cluster")
        return found

    def _pods_on(self, node: str) -> list[Json]:
        return [
            pod
            for pod in self.api.store.all("pods")
            if pod["spec"].get("nodeName") == node and pod["metadata"]["namespace"] != DAEMON_NAMESPACE
        ]

    def _all_running(self) -> dict[str, list[RunningJob]]:
        found: list[tuple[int, str, Work, Json]] = []
        nodes: dict[int, list[str]] = {}
        for pod in self.api.store.all("pods", NAMESPACE):
            work = self.jobs.work_of(pod)
            if work is not None and pod["status"]["phase"] == "Running":
                node = pod["spec"]["nodeName"]
                found.append((work.number, node, work, pod))
                nodes.setdefault(work.number, []).append(node)
        running: dict[str, list[RunningJob]] = {}
        for number, node, work, pod in sorted(found, key=lambda one: one[:2]):
            job = f"{NAMESPACE}/{pod['metadata']['name']}"
            where = tuple(sorted(nodes[number]))
            running.setdefault(node, []).append(
                RunningJob(job, work.spec.user, where, work.spec.gpus_per_node)
            )
        return running

    def _kubectl(self, node: str, patch: Json, user: str, *, content_type: str, manager: str) -> None:
        answer = self.api.by_person(
            Request(
                method="PATCH",
                path=f"/api/v1/nodes/{node}",
                query={"fieldManager": manager},
                headers={**_KUBECTL, "content-type": content_type},
                body=patch,
            ),
            user,
        )
        if not answer.ok:
            raise InvalidInputError(f"kubectl on {node}: {answer.body.decode()}")


def _budget() -> Json:
    """Of jobs no budget can know how many pods there should be: a plain number is what policy/v1 allows."""
    return {
        "metadata": {"name": GUARDED_APP, "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": {"app": GUARDED_APP}}, "minAvailable": MIN_AVAILABLE},
    }


def _notes(node: Json) -> dict[str, str]:
    return node["metadata"].get("annotations") or {}


def _manager_of_cordon(node: Json) -> str | None:
    for entry in node["metadata"]["managedFields"]:
        if "f:unschedulable" in entry["fieldsV1"].get("f:spec", {}):
            return str(entry["manager"])
    return None


def _owner(node: Json) -> Owner:
    if not is_cordoned(node):
        return Owner.NONE
    return Owner.SICKBAY if _manager_of_cordon(node) == OUR_USER else Owner.FOREIGN


def _reason(node: Json) -> Reason | None:
    """Ours as our annotations say it, an admin's as the admin's does; without a cordon there is none."""
    if not is_cordoned(node):
        return None
    notes, who = _notes(node), _manager_of_cordon(node)
    if _owner(node) is Owner.SICKBAY:
        mark = Mark(notes.get(INCIDENT, ""), notes.get(RULE, ""), notes.get(SENTENCE, ""))
        return Reason(mark.reason(), who)
    return Reason(notes.get(ADMIN_REASON, ""), who)


def _state(node: Json, pods: Sequence[Json]) -> NodeState:
    """``pods``: the unfinished ones of users."""
    if is_cordoned(node):
        return NodeState.DRAINING if pods else NodeState.DRAINED
    if ready_condition(node)["status"] != "True":
        return NodeState.UNKNOWN
    live = [pod for pod in pods if not is_terminating(pod)]
    if not live:
        return NodeState.IDLE
    whole = sum(map(gpus_of, live)) >= int(node["status"]["capacity"]["nvidia.com/gpu"])
    return NodeState.ALLOCATED if whole else NodeState.MIXED
