"""The test-facing door of the simulated Kubernetes API: a cluster by hand, and an API that misbehaves.

The server itself is the demo's (``simulator.kubernetes_api``). It answers what the client may ask and refuses
the rest. A fake proves that our two sides agree, not that Kubernetes does: wire details follow what a real
kube-apiserver 1.36 was seen to do (docs/kubernetes.md).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from fleet.clock import Clock, ManualClock
from simulator.kubernetes_api.errors import Json
from simulator.kubernetes_api.routes import Request
from simulator.kubernetes_api.server import Answer, Handler, KubernetesApi
from simulator.kubernetes_api.store import stamp
from tests.fakes.kubernetes_controllers import GPU, Controllers, Workload

TOKEN = "token-of-the-fake"


@dataclass(slots=True)
class Script:
    """What happens to the next ``times`` requests that match, instead of an answer.

    ``then``: ``answer`` (code, headers, body), ``drop`` (cut the line, nothing done), ``drop_after`` (done,
    then cut), ``hang`` (accept and say nothing for ``seconds``), ``drip`` (a byte now and then).
    """

    method: str
    path: str
    then: str = "answer"
    times: int = 1
    code: int = 500
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def matches(self, request: Request) -> bool:
        return (
            self.times > 0
            and self.method in ("*", request.method)
            and re.search(self.path, request.path) is not None
        )


class FakeKubernetes(KubernetesApi):
    """The API and what stands behind it. Tests use its methods; the product uses HTTP."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock if clock is not None else ManualClock(), token=TOKEN)
        self.controllers = Controllers(self.store)
        self.scripts: list[Script] = []

    # -- the cluster's own hands

    def add_node(self, name: str, *, gpus: int = 8, labels: dict[str, str] | None = None) -> Json:
        resources = {"cpu": "192", "memory": "2113458348Ki", "pods": "110", GPU: str(gpus)}
        with self.lock:
            return self.store.create(
                "nodes",
                {
                    "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
                    "status": {
                        "capacity": resources,
                        "allocatable": dict(resources),
                        "conditions": [
                            {"type": "Ready", "status": "True", "lastHeartbeatTime": stamp(self.clock)}
                        ],
                        "nodeInfo": {
                            "bootID": f"boot-1-of-{name}",
                            "machineID": f"machine-{name}",
                            "osImage": "Debian GNU/Linux 12",
                        },
                    },
                },
                manager="kubelet",
            )

    def add_workload(
        self,
        name: str,
        *,
        kind: str = "StatefulSet",
        api_version: str = "apps/v1",
        namespace: str = "default",
        replicas: int = 1,
        gpus: int = 8,
        stable: bool = True,
        spec: Json | None = None,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
    ) -> Workload:
        """An owner and its pods; they are made and bound in the next rounds."""
        limits = {GPU: str(gpus)} if gpus else {}
        containers = [{"name": "main", "image": "x", "resources": {"limits": limits, "requests": limits}}]
        workload = Workload(
            owner={"apiVersion": api_version, "kind": kind, "name": name, "uid": f"uid-of-{name}"},
            namespace=namespace,
            template={
                "metadata": {"labels": {"app": name, **(labels or {})}, "annotations": annotations or {}},
                "spec": {"containers": containers, **(spec or {})},
            },
            replicas=replicas,
            stable=stable,
        )
        with self.lock:
            self.controllers.workloads.append(workload)
        return workload

    def add_pod(self, name: str, *, namespace: str = "default", **parts: Any) -> Json:
        """A pod as given: ``metadata``, ``spec``, ``status``."""
        meta = {"name": name, "namespace": namespace, **parts.pop("metadata", {})}
        with self.lock:
            return self.store.create("pods", {"metadata": meta, **parts})

    def add_budget(self, name: str, app: str, *, namespace: str = "default", **spec: Any) -> Json:
        selector = {"matchLabels": {"app": app}}
        with self.lock:
            made = self.store.create(
                "poddisruptionbudgets",
                {"metadata": {"name": name, "namespace": namespace}, "spec": {"selector": selector, **spec}},
            )
            self.controllers.step()
            return made

    def add_daemonset(self, name: str, *, namespace: str = "default") -> Json:
        with self.lock:
            return self.store.create("daemonsets", {"metadata": {"name": name, "namespace": namespace}})

    def edit(
        self, resource: str, name: str, change: Any, *, namespace: str = "", manager: str = "fake"
    ) -> Json:
        """``change`` gets the object to alter; nobody's resourceVersion is asked."""
        with self.lock:
            return self.store.edit(self.store.get(resource, name, namespace), change, manager=manager)

    def get(self, resource: str, name: str, namespace: str = "") -> Json:
        with self.lock:
            return json.loads(json.dumps(self.store.get(resource, name, namespace)))

    def find(self, resource: str, name: str, namespace: str = "") -> Json | None:
        with self.lock:
            return self.store.find(resource, name, namespace)

    def pods_on(self, node: str) -> list[str]:
        with self.lock:
            return [
                f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
                for pod in self.store.all("pods")
                if pod["spec"].get("nodeName") == node
            ]

    def delete(self, resource: str, name: str, namespace: str = "") -> None:
        """Gone at once, whatever it was."""
        with self.lock:
            self.store.remove(self.store.get(resource, name, namespace))

    def run(self, rounds: int = 4) -> None:
        """Let the controllers, the scheduler and the kubelets do their rounds."""
        with self.lock:
            for _ in range(rounds):
                self.controllers.step()

    def set_ready(self, node: str, status: str) -> None:
        """``True``, ``False`` or ``Unknown``; a kubelet that is not heard ends no pod."""
        with self.lock:
            if status == "True":
                self.controllers.silent_kubelets.discard(node)
            else:
                self.controllers.silent_kubelets.add(node)
        self.edit("nodes", node, lambda found: _ready(found, status))

    def writes(self, agent: str = "sickbay") -> list[str]:
        """Every request of ``agent`` that could have changed something, oldest first."""
        return [
            f"{request.method} {request.path}"
            for request in self.requests
            if request.method != "GET"
            and not request.path.endswith("selfsubjectaccessreviews")
            and request.headers.get("user-agent", "").startswith(agent)
        ]

    # -- misbehaving

    def script_for(self, request: Request) -> Script | None:
        with self.lock:
            found = next((script for script in self.scripts if script.matches(request)), None)
            if found is not None:
                found.times -= 1
            return found


def _ready(node: Json, status: str) -> None:
    for condition in node["status"]["conditions"]:
        if condition["type"] == "Ready":
            condition["status"] = status


class _ScriptedHandler(Handler):
    """Does what a script says, where one matches."""

    def answer(self, request: Request) -> None:
        api = cast(FakeKubernetes, self.server.api)
        script = api.script_for(request)
        if script is None:
            super().answer(request)
            return
        if script.then == "answer":
            api.requests.append(request)
            headers = {"Content-Type": "text/plain", **script.headers}
            self.send(Answer(script.code, headers, script.body.encode()))
            return
        if script.then == "drop_after":
            api.handle(request)
        elif script.then == "hang":
            time.sleep(script.seconds)
        elif script.then == "drip":
            self._drip(script.seconds)
        self.close_connection = True

    def _drip(self, seconds: float) -> None:
        """Each byte within any read time-out, the whole beyond any deadline."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "100000")
        self.end_headers()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                self.wfile.write(b" ")
                self.wfile.flush()
            except OSError:
                return
            time.sleep(0.02)


FakeKubernetes.handler = _ScriptedHandler


@contextmanager
def running(
    nodes: Sequence[str] = ("w1", "w2", "w3", "w4"), clock: Clock | None = None
) -> Iterator[FakeKubernetes]:
    """A server with idle nodes of eight GPUs."""
    with FakeKubernetes(clock) as api:
        for name in nodes:
            api.add_node(name)
        yield api
