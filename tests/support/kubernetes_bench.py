"""The bench over the fake Kubernetes API: real HTTP, the cluster's time passes only when a test waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from collector.kubernetes.auth import load_credentials
from collector.kubernetes.client import KubernetesClient
from collector.kubernetes.marks import INCIDENT, OBSERVED, RULE, SENTENCE
from fleet.clock import ManualClock
from fleet.marks import Mark
from fleet.scheduler import SchedulerBackend
from remediator.backends.kubernetes import KubernetesBackend
from simulator.kubernetes_api.errors import Json
from tests.fakes.kubernetes_api import FakeKubernetes, running
from tests.support.bench import Capability, JobView, NodeView
from tests.support.processes import free_ports

# Where an admin's words stand on a Kubernetes node (the Slurm operator reads them there too).
ADMIN_REASON = "nodeset.slinky.slurm.net/node-cordon-reason"
_PATIENCE_SECONDS = 600.0
_STEP_SECONDS = 1.0
_STATES = {"succeeded": "completed"}


class KubernetesBench:
    """Four nodes; a job is the one pod of an owner that makes it again under its name."""

    kind = "kubernetes"
    cannot: Mapping[Capability, str] = MappingProxyType(
        {
            Capability.PARTITIONS: "there are none; pools are labels or names",
            Capability.GPU_REGISTRATION: "no count is configured that a node must register",
            Capability.REBOOT: "the API reboots no node; repair.commands.reboot does",
            Capability.GANG: "a pod is on one node; gangs are moved by their own operators",
            Capability.HOLD_WHILE_RUNNING: "a running pod cannot be held",
            Capability.RESTART_COUNT: "an evicted pod is replaced by another one, which counts from 0",
        }
    )
    unknown_job = "default/no-such-pod"

    def __init__(self, api: FakeKubernetes, clock: ManualClock, folder: Path) -> None:
        self.api = api
        self.clock = clock
        self._folder = folder
        self._jobs = 0
        self._clients: list[KubernetesClient] = []
        self.nodes = tuple(node["metadata"]["name"] for node in api.store.all("nodes"))
        self.backend: SchedulerBackend = self._make_backend(api.kubeconfig(folder))

    def submit(
        self, *, count: int = 1, requeue: bool = True, held: bool = False, exclude: Sequence[str] = ()
    ) -> str:
        assert count == 1, "a pod is on one node"
        self._jobs += 1
        name = f"job-{self._jobs}"
        spec: Json = {"terminationGracePeriodSeconds": 5}
        if held:
            spec["schedulingGates"] = [{"name": "example.com/hold"}]
        if exclude:
            spec["affinity"] = _not_on(exclude)
        if not requeue:
            limits = {"nvidia.com/gpu": "8"}
            containers = [{"name": "main", "image": "x", "resources": {"limits": limits}}]
            self.api.add_pod(name, spec={**spec, "containers": containers}, status={"phase": "Pending"})
            return f"default/{name}"
        self._add_job(name, spec, replicas=1)
        return f"default/{name}-0"

    def submit_array(self, tasks: int) -> list[str]:
        self._jobs += 1
        name = f"array-{self._jobs}"
        self._add_job(name, {"terminationGracePeriodSeconds": 5}, replicas=tasks)
        return [f"default/{name}-{task}" for task in range(tasks)]

    def finish(self, job: str) -> None:
        self.api.edit(
            "pods",
            job.partition("/")[2],
            lambda pod: pod["status"].update(phase="Succeeded"),
            namespace="default",
        )

    def job(self, job: str) -> JobView:
        self.api.run(1)
        pod = self.api.find("pods", job.partition("/")[2], "default")
        if pod is None:
            return JobView("pending", (), "")
        phase = str(pod["status"]["phase"]).lower()
        state = "terminating" if "deletionTimestamp" in pod["metadata"] else _STATES.get(phase, phase)
        node = pod["spec"].get("nodeName")
        held = bool(pod["spec"].get("schedulingGates"))
        return JobView(state, (node,) if node else (), "JobHeldUser" if held else "")

    def runs(self, job: str) -> bool:
        return self.job(job).state == "running"

    def node(self, node: str) -> NodeView:
        found = self.api.get("nodes", node)
        notes = found["metadata"].get("annotations") or {}
        mark = Mark(notes.get(INCIDENT, ""), notes.get(RULE, ""), notes.get(SENTENCE, ""))
        reason = notes.get(ADMIN_REASON) or (mark.reason() if mark.incident else "")
        return NodeView(bool(found["spec"].get("unschedulable")), reason, notes.get(OBSERVED, ""))

    def admin_drain(self, node: str, reason: str) -> None:
        """As by hand: kubectl annotate, uncordon (if somebody else had cordoned it), cordon."""
        self.admin_undrain(node)

        def cordon(found: Json) -> None:
            found["metadata"].setdefault("annotations", {})[ADMIN_REASON] = reason
            found["spec"]["unschedulable"] = True

        self.api.edit("nodes", node, cordon, manager="kubectl-cordon")

    def admin_undrain(self, node: str) -> None:
        self.api.edit(
            "nodes", node, lambda found: found["spec"].pop("unschedulable", None), manager="kubectl"
        )

    def admin_comment(self, node: str, text: str) -> None:
        self.api.edit(
            "nodes",
            node,
            lambda found: found["metadata"].setdefault("annotations", {}).update({OBSERVED: text}),
            manager="kubectl",
        )

    def register_with_gpus(self, node: str, count: int) -> None:
        self.api.edit(
            "nodes", node, lambda found: found["status"]["capacity"].update({"nvidia.com/gpu": str(count)})
        )

    def hold(self, job: str) -> None:
        raise AssertionError(f"{job}: a running pod cannot be held")

    def now(self) -> float:
        return self.clock.now()

    def boots(self, node: str) -> int:
        return int(self.api.get("nodes", node)["status"]["nodeInfo"]["bootID"].split("-")[1])

    def writes(self) -> list[str]:
        return self.api.writes()

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        waited = 0.0
        while not condition():
            if waited > _PATIENCE_SECONDS:
                raise TimeoutError(f"waited {waited:g} seconds of the cluster's time for {what}")
            self.clock.advance(_STEP_SECONDS)
            waited += _STEP_SECONDS
            self.api.run(1)

    def without_controller(self) -> SchedulerBackend:
        nobody = self._folder / "nobody"
        nobody.mkdir()
        path = self.api.kubeconfig(nobody)
        path.write_text(path.read_text().replace(self.api.url, f"http://127.0.0.1:{free_ports(1)[0]}"))
        return self._make_backend(path)

    def _add_job(self, name: str, spec: Json, *, replicas: int) -> None:
        self.api.add_workload(
            name, kind="PyTorchJob", api_version="kubeflow.org/v1", replicas=replicas, spec=spec
        )

    def _make_backend(self, kubeconfig: Path) -> SchedulerBackend:
        client = KubernetesClient(load_credentials(kubeconfig), clock=self.clock, max_qps=1000.0)
        self._clients.append(client)
        return KubernetesBackend(client, self.clock)

    def close(self) -> None:
        for client in self._clients:
            client.close()


def _not_on(nodes: Sequence[str]) -> Json:
    expression = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": list(nodes)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


@contextmanager
def kubernetes_bench(folder: Path) -> Iterator[KubernetesBench]:
    clock = ManualClock()
    with running(clock=clock) as api:
        bench = KubernetesBench(api, clock, folder)
        try:
            yield bench
        finally:
            bench.close()
