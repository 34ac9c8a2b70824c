"""A small strict Kubernetes API server on 127.0.0.1, in a thread, on a clock of its own.

It answers what the client may ask and refuses the rest. A fake proves that our two sides agree, not that
Kubernetes does: wire details follow what a real kube-apiserver 1.36 was seen to do (docs/kubernetes.md).
"""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from fleet.clock import Clock, ManualClock
from tests.fakes.kubernetes.controllers import GPU, Controllers, Workload
from tests.fakes.kubernetes.errors import Json, Refusal
from tests.fakes.kubernetes.routes import Request, Router
from tests.fakes.kubernetes.store import Store, stamp

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


class FakeKubernetes:
    """The API and what stands behind it. Tests use its methods; the product uses HTTP."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock if clock is not None else ManualClock()
        self.store = Store(self.clock)
        self.router = Router(self.store)
        self.controllers = Controllers(self.store)
        self.requests: list[Request] = []
        self.scripts: list[Script] = []
        self.token: str | None = TOKEN  # None: anybody (kubectl sends no token over plain HTTP)
        self._lock = threading.RLock()
        self._server = _Server(self)
        self._scheme = "http"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    def __enter__(self) -> FakeKubernetes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def serve_tls(self, certificate: Path, key: Path, *, clients: Path) -> None:
        """TLS with a certificate asked of each client, as ``clients`` (a CA) signs them; before the start."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        context.load_verify_locations(clients)
        context.verify_mode = ssl.CERT_REQUIRED
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._scheme = "https"

    def kubeconfig(
        self, folder: Path, *, token: str | None = None, user: Json | None = None, cluster: Json | None = None
    ) -> Path:
        """A kubeconfig file for this server; ``user`` and ``cluster`` are added to its entries."""
        path = folder / "kubeconfig"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "fake",
                    "clusters": [{"name": "fake", "cluster": {"server": self.url, **(cluster or {})}}],
                    "users": [{"name": "us", "user": {"token": token or self.token, **(user or {})}}],
                    "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "us"}}],
                }
            )
        )
        return path

    # -- the cluster's own hands

    def add_node(self, name: str, *, gpus: int = 8, labels: dict[str, str] | None = None) -> Json:
        resources = {"cpu": "192", "memory": "2113458348Ki", "pods": "110", GPU: str(gpus)}
        with self._lock:
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
        with self._lock:
            self.controllers.workloads.append(workload)
        return workload

    def add_pod(self, name: str, *, namespace: str = "default", **parts: Any) -> Json:
        """A pod as given: ``metadata``, ``spec``, ``status``."""
        meta = {"name": name, "namespace": namespace, **parts.pop("metadata", {})}
        with self._lock:
            return self.store.create("pods", {"metadata": meta, **parts})

    def add_budget(self, name: str, app: str, *, namespace: str = "default", **spec: Any) -> Json:
        selector = {"matchLabels": {"app": app}}
        with self._lock:
            made = self.store.create(
                "poddisruptionbudgets",
                {"metadata": {"name": name, "namespace": namespace}, "spec": {"selector": selector, **spec}},
            )
            self.controllers.step()
            return made

    def add_daemonset(self, name: str, *, namespace: str = "default") -> Json:
        with self._lock:
            return self.store.create("daemonsets", {"metadata": {"name": name, "namespace": namespace}})

    def edit(
        self, resource: str, name: str, change: Any, *, namespace: str = "", manager: str = "fake"
    ) -> Json:
        """``change`` gets the object to alter; nobody's resourceVersion is asked."""
        with self._lock:
            return self.store.edit(self.store.get(resource, name, namespace), change, manager=manager)

    def get(self, resource: str, name: str, namespace: str = "") -> Json:
        with self._lock:
            return json.loads(json.dumps(self.store.get(resource, name, namespace)))

    def find(self, resource: str, name: str, namespace: str = "") -> Json | None:
        with self._lock:
            return self.store.find(resource, name, namespace)

    def pods_on(self, node: str) -> list[str]:
        with self._lock:
            return [
                f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
                for pod in self.store.all("pods")
                if pod["spec"].get("nodeName") == node
            ]

    def delete(self, resource: str, name: str, namespace: str = "") -> None:
        """Gone at once, whatever it was."""
        with self._lock:
            self.store.remove(self.store.get(resource, name, namespace))

    def run(self, rounds: int = 4) -> None:
        """Let the controllers, the scheduler and the kubelets do their rounds."""
        with self._lock:
            for _ in range(rounds):
                self.controllers.step()

    def set_ready(self, node: str, status: str) -> None:
        """``True``, ``False`` or ``Unknown``; a kubelet that is not heard ends no pod."""
        with self._lock:
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

    # -- answering

    def handle(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        with self._lock:
            self.requests.append(request)
            sent = request.headers.get("authorization", "").partition(" ")
            if self.token is not None and (sent[0].lower(), sent[2]) != ("bearer", self.token):
                refused = Refusal(401, "Unauthorized", "Unauthorized")
                return refused.code, {}, json.dumps(refused.body).encode()
            try:
                code, body = self.router.answer(request)
            except Refusal as refusal:
                return refusal.code, refusal.headers, json.dumps(refusal.body).encode()
            return code, {}, json.dumps(body).encode()

    def script_for(self, request: Request) -> Script | None:
        with self._lock:
            found = next((script for script in self.scripts if script.matches(request)), None)
            if found is not None:
                found.times -= 1
            return found


def _ready(node: Json, status: str) -> None:
    for condition in node["status"]["conditions"]:
        if condition["type"] == "Ready":
            condition["status"] = status


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, api: FakeKubernetes) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.api = api


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # headers and body in one packet
    server: _Server

    def do_GET(self) -> None:  # the names of http.server
        self._serve()

    do_POST = do_PATCH = do_PUT = do_DELETE = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        del format, args

    def _serve(self) -> None:
        request = self._request()
        script = self.server.api.script_for(request)
        if script is None:
            self._send(*self.server.api.handle(request))
            return
        if script.then == "answer":
            with_text = {"Content-Type": "text/plain", **script.headers}
            self.server.api.requests.append(request)
            self._send(script.code, with_text, script.body.encode())
            return
        if script.then == "drop_after":
            self.server.api.handle(request)
        elif script.then == "hang":
            time.sleep(script.seconds)
        elif script.then == "drip":
            self._drip(script.seconds)
        self.close_connection = True

    def _request(self) -> Request:
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length) if length else b""
        split = urlsplit(self.path)
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            body = None
        return Request(
            method=self.command,
            path=split.path,
            query=dict(parse_qsl(split.query, keep_blank_values=True)),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=body,
        )

    def _send(self, code: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(code)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

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


@contextmanager
def running(
    nodes: Sequence[str] = ("w1", "w2", "w3", "w4"), clock: Clock | None = None
) -> Iterator[FakeKubernetes]:
    """A server with idle nodes of eight GPUs."""
    with FakeKubernetes(clock) as api:
        for name in nodes:
            api.add_node(name)
        yield api
