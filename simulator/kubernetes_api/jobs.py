"""Users' jobs as pods: the Job controller, the scheduler, and what kubelets do with the pods on their nodes.

A job is a batch/v1 Job with one pod per node it asks for. A pod that is evicted is made again under another
name as soon as it is terminating (``podReplacementPolicy: TerminatingOrFailed``) and starts over elsewhere.
Not all may be moved: a job that must not be requeued carries the autoscaler's word for it, an interactive
one is a bare pod without any owner.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fleet.scheduler import JobKind
from simulator.jobs import JobSpec
from simulator.kubernetes_api.errors import Json
from simulator.kubernetes_api.machines import Machines
from simulator.kubernetes_api.objects import (
    CONTROLLERS,
    GPU,
    KUBELET,
    SCHEDULER,
    affinity,
    count_budget,
    excluded_nodes,
    gpus_of,
    is_cordoned,
    is_finished,
    is_terminating,
    ready_condition,
    required_nodes,
)
from simulator.kubernetes_api.store import Store, stamp

NAMESPACE = "training"
STAY_PUT = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
GRACE_SECONDS = 30
#: How long a container that was told to end takes to write what it must, within its grace.
STOPS_AFTER_SECONDS = 5.0
#: ``ttlSecondsAfterFinished``.
KEPT_SECONDS = 600.0
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"  # the letters of apimachinery's generated names


@dataclass(slots=True, kw_only=True)
class Work:
    """One job and its pods: index -> the name of the pod that stands for it now. Times are epoch seconds."""

    name: str
    uid: str
    spec: JobSpec
    number: int
    pods: dict[int, str] = field(default_factory=dict)
    started: bool = False
    ended_at: float | None = None

    @property
    def owned(self) -> bool:
        return self.spec.kind is not JobKind.INTERACTIVE


@dataclass(slots=True)
class _Placed:
    """What one pod does on its node. ``stops_at``: it was told to end, and its containers will have then."""

    work: Work
    index: int
    started_at: float | None = None
    stops_at: float | None = None


class Jobs:
    """``step`` is one round of everything, at the clock's present. Not thread-safe: its owner locks."""

    def __init__(self, store: Store, machines: Machines, *, seed: int) -> None:
        self._store = store
        self._machines = machines
        self._random = random.Random(seed)  # noqa: S311 - a simulation, not a secret
        self._placed: dict[str, _Placed] = {}
        self._submitted = 0
        self.works: list[Work] = []

    # -- users

    def submit(self, spec: JobSpec, uid: str) -> Work:
        self._submitted += 1
        work = Work(name=f"{spec.name}-{self._submitted}", uid=uid, spec=spec, number=self._submitted)
        self.works.append(work)
        return work

    def fail(self, pod_name: str) -> None:
        """The program in the pod fails: its Job has no second try (``backoffLimit: 0``) and ends whole."""
        work = self._placed[pod_name].work
        for name in work.pods.values():
            pod = self._store.find("pods", name, NAMESPACE)
            if pod is not None and not is_finished(pod):
                self._finish(pod, "Failed")
        work.ended_at = self._now()

    def gpus_wanted(self) -> int:
        return sum(
            work.spec.nodes * work.spec.gpus_per_node
            for work in self.works
            if work.ended_at is None and not work.spec.held
        )

    def work_of(self, pod: Json) -> Work | None:
        placed = self._placed.get(pod["metadata"]["name"])
        return placed.work if placed is not None else None

    # -- time

    def step(self, booted: Iterable[str] = ()) -> None:
        """``booted``: nodes that have started anew; the pods they had are over."""
        fresh = set(booted)
        for pod in self._pods():
            self._run(pod, lost=pod["spec"].get("nodeName") in fresh)
        for work in self.works:
            self._keep_up(work)
        self._bind()
        for budget in self._store.all("poddisruptionbudgets"):
            count_budget(self._store, budget)
        self._forget()

    def _now(self) -> float:
        return self._store.clock.now()

    def _pods(self) -> list[Json]:
        return self._store.all("pods", NAMESPACE)

    # -- kubelets

    def _run(self, pod: Json, *, lost: bool) -> None:
        node, placed = pod["spec"].get("nodeName"), self._placed[pod["metadata"]["name"]]
        if node is None or is_finished(pod) or not self._machines.works(node):
            return
        if is_terminating(pod):
            self._stop(pod, placed, at_once=lost)
        elif lost and pod["status"]["phase"] == "Running":
            self._finish(pod, "Failed")
        elif pod["status"]["phase"] == "Pending":
            self._start(pod, placed)
        elif placed.started_at is not None and self._now() >= placed.started_at + placed.work.spec.seconds:
            self._finish(pod, "Succeeded")

    def _start(self, pod: Json, placed: _Placed) -> None:
        placed.started_at = self._now()
        at = stamp(self._store.clock)

        def change(changed: Json) -> None:
            ready = [{"type": "Ready", "status": "True", "lastTransitionTime": at}]
            changed["status"].update(phase="Running", startTime=at, conditions=ready)

        self._store.edit(pod, change, manager=KUBELET)

    def _stop(self, pod: Json, placed: _Placed, *, at_once: bool) -> None:
        """The containers end within the pod's grace; then the kubelet takes the object away."""
        if placed.stops_at is None:
            placed.stops_at = self._now() + STOPS_AFTER_SECONDS
        if at_once or self._now() >= placed.stops_at:
            self._remove(pod)

    def _finish(self, pod: Json, phase: str) -> None:
        def change(changed: Json) -> None:
            changed["status"].update(phase=phase, conditions=[{"type": "Ready", "status": "False"}])

        self._store.edit(pod, change, manager=KUBELET)

    def _remove(self, pod: Json) -> None:
        self._store.remove(pod)
        self._placed.pop(pod["metadata"]["name"], None)

    # -- the Job controller

    def _keep_up(self, work: Work) -> None:
        """A pod for each index that has none, or whose pod is on its way out; the end when all are done."""
        if work.ended_at is not None:
            return
        done = 0
        for index in range(work.spec.nodes):
            known = work.pods.get(index)
            pod = self._store.find("pods", known, NAMESPACE) if known is not None else None
            if pod is not None and pod["status"]["phase"] == "Succeeded":
                done += 1
            elif pod is None or is_terminating(pod) or is_finished(pod):
                if known is not None and not work.owned:
                    done += 1  # nobody makes a bare pod again
                else:
                    self._make_pod(work, index)
        if done == work.spec.nodes:
            work.ended_at = self._now()

    def _make_pod(self, work: Work, index: int) -> None:
        suffix = "".join(self._random.choices(_SUFFIX, k=5))
        name = f"{work.name}-{index}-{suffix}" if work.owned else work.name
        limits = {GPU: str(work.spec.gpus_per_node)}
        spec: Json = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "containers": [
                {"name": "main", "image": "train", "resources": {"limits": limits, "requests": limits}}
            ],
            **affinity(required=work.spec.required_nodes, excluded=work.spec.excluded_nodes),
        }
        if work.spec.held:
            spec["schedulingGates"] = [{"name": "example.com/hold"}]
        meta: Json = {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {
                "app": work.spec.name,
                "user": work.spec.user,
                "batch.kubernetes.io/job-name": work.name,
            },
        }
        if not work.spec.requeue and work.owned:
            meta["annotations"] = dict(STAY_PUT)
        if work.owned:
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": work.name, "uid": work.uid}
            meta["ownerReferences"] = [{**owner, "controller": True, "blockOwnerDeletion": True}]
        pod = {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}
        self._store.create("pods", pod, manager=CONTROLLERS if work.owned else work.spec.user)
        work.pods[index] = name
        self._placed[name] = _Placed(work, index)

    def _forget(self) -> None:
        old = self._now() - KEPT_SECONDS
        gone = [work for work in self.works if work.ended_at is not None and work.ended_at < old]
        if not gone:
            return
        numbers = {work.number for work in gone}
        for pod in self._pods():
            if self._placed[pod["metadata"]["name"]].work.number in numbers:
                self._remove(pod)
        self.works = [work for work in self.works if work.number not in numbers]

    # -- the scheduler

    def _bind(self) -> None:
        """In the order of submission; a job that has not begun starts with all its pods or not at all."""
        waiting: dict[int, list[Json]] = {}
        for pod in self._pods():
            if _waits(pod):
                waiting.setdefault(self._placed[pod["metadata"]["name"]].work.number, []).append(pod)
        if not waiting:
            return
        free = self._free_gpus()
        for number in sorted(waiting):
            pods = waiting[number]
            chosen = _choose(pods, free)
            work = self._placed[pods[0]["metadata"]["name"]].work
            if not work.started and len(chosen) < work.spec.nodes:
                continue
            work.started = True
            for pod, node in chosen:
                free[node] -= gpus_of(pod)
                self._bind_to(pod, node)

    def _bind_to(self, pod: Json, node: str) -> None:
        self._store.edit(pod, lambda changed: changed["spec"].update(nodeName=node), manager=SCHEDULER)

    def _free_gpus(self) -> dict[str, int]:
        """Of the nodes that take new pods: GPUs that no unfinished pod holds."""
        free = {
            node["metadata"]["name"]: int(node["status"]["allocatable"][GPU])
            for node in self._store.all("nodes")
            if not is_cordoned(node) and ready_condition(node)["status"] == "True"
        }
        for pod in self._pods():
            node = pod["spec"].get("nodeName")
            if node in free and not is_finished(pod):
                free[node] -= gpus_of(pod)
        return free


def _waits(pod: Json) -> bool:
    spec = pod["spec"]
    return not (
        spec.get("nodeName") or spec.get("schedulingGates") or is_terminating(pod) or is_finished(pod)
    )


def _choose(pods: Iterable[Json], free: Mapping[str, int]) -> list[tuple[Json, str]]:
    """A node for each pod that fits: the fullest one, so that whole nodes stay free for those who need them.

    A job's pods are one per node, as its ranks are.
    """
    taken: set[str] = set()
    chosen = []
    for pod in pods:
        wanted, required = gpus_of(pod), required_nodes(pod)
        usable = [
            name
            for name, gpus in free.items()
            if gpus >= max(wanted, 1)
            and name not in taken
            and name not in excluded_nodes(pod)
            and (not required or name in required)
        ]
        if usable:
            node = min(usable, key=lambda name: (free[name], name))
            taken.add(node)
            chosen.append((pod, node))
    return chosen
