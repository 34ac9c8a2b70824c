"""The API server on 127.0.0.1: HTTP in threads in front of one router, with a record of every request."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar, Self
from urllib.parse import parse_qsl, urlsplit

import msgspec

from fleet.clock import Clock
from simulator.kubernetes_api.errors import Json, Refusal
from simulator.kubernetes_api.protobuf import CONTENT_TYPE as PROTOBUF
from simulator.kubernetes_api.routes import Request, Router
from simulator.kubernetes_api.store import Store, random_uid

HOST = "127.0.0.1"
#: So many of the last requests are kept.
MAX_REQUESTS = 20_000
_FIRST_ERROR = 400
_STOP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Answer:
    """``body`` is JSON as bytes."""

    code: int
    headers: dict[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        return self.code < _FIRST_ERROR


class KubernetesApi:
    """The store behind a router behind HTTP. A context manager: it listens inside of ``with``.

    ``token`` is the bearer token asked of everybody who comes by HTTP; None asks for none. ``lock`` guards
    the store: whoever changes it beside HTTP holds it. ``requests`` keeps what was asked, newest last.
    """

    #: What serves one connection; tests put a misbehaving one in its place.
    handler: ClassVar[type[Handler]]

    def __init__(self, clock: Clock, *, token: str | None, new_uid: Callable[[], str] = random_uid) -> None:
        self.clock = clock
        self.token = token
        self.store = Store(clock, new_uid=new_uid)
        self.router = Router(self.store)
        self.requests: list[Request] = []
        self.lock = threading.RLock()
        self._tls: ssl.SSLContext | None = None
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Open the port and serve it, in threads of its own."""
        self._server = _Server((HOST, 0), self)
        if self._tls is not None:
            self._server.socket = self._tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.02},
            name="kubernetes-api",
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> None:
        """Close the port. An API that was never started has none."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join(timeout=_STOP_SECONDS)

    @property
    def url(self) -> str:
        """Known from the start on."""
        if self._server is None:
            raise ValueError("the API server has not been started: it has no address yet")
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{HOST}:{self._server.server_address[1]}"

    def serve_tls(self, certificate: Path, key: Path, *, clients: Path) -> None:
        """TLS with a certificate asked of each client, as ``clients`` (a CA) signs them; before the start."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        context.load_verify_locations(clients)
        context.verify_mode = ssl.CERT_REQUIRED
        self._tls = context

    def kubeconfig(
        self, folder: Path, *, token: str | None = None, user: Json | None = None, cluster: Json | None = None
    ) -> Path:
        """A kubeconfig file for this server; ``user`` and ``cluster`` are added to its entries.

        A value of None takes an entry out again, the token too.
        """
        entries = {"token": token or self.token, **(user or {})}
        path = folder / "kubeconfig"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "fake",
                    "clusters": [{"name": "fake", "cluster": {"server": self.url, **(cluster or {})}}],
                    "users": [{"name": "us", "user": _without_none(entries)}],
                    "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "us"}}],
                }
            )
        )
        return path

    def handle(self, request: Request) -> Answer:
        """What comes by HTTP: authenticate, answer."""
        with self.lock:
            sent = request.headers.get("authorization", "").partition(" ")
            if self.token is not None and (sent[0].lower(), sent[2]) != ("bearer", self.token):
                self._remember(request)
                return _refused(Refusal(401, "Unauthorized", "Unauthorized"))
            return self.answer(request)

    def answer(self, request: Request) -> Answer:
        """Answer somebody who is known."""
        with self.lock:
            self._remember(request)
            try:
                code, body = self.router.answer(request)
            except Refusal as refusal:
                return _refused(refusal)
            return Answer(code, {}, msgspec.json.encode(body))

    def _remember(self, request: Request) -> None:
        self.requests.append(request)
        del self.requests[:-MAX_REQUESTS]


def _without_none(found: Json) -> Json:
    return {key: value for key, value in found.items() if value is not None}


def _refused(refusal: Refusal) -> Answer:
    return Answer(refusal.code, refusal.headers, msgspec.json.encode(refusal.body))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], api: KubernetesApi) -> None:
        super().__init__(address, api.handler)
        self.api = api


class Handler(BaseHTTPRequestHandler):
    """One connection, kept open between requests."""

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
        self.answer(self._request())

    def answer(self, request: Request) -> None:
        self.send(self.server.api.handle(request))

    def send(self, answer: Answer) -> None:
        self.send_response(answer.code)
        for name, value in {"Content-Type": "application/json", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def _request(self) -> Request:
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length) if length else b""
        split = urlsplit(self.path)
        try:
            protobuf = self.headers.get("Content-Type") == PROTOBUF
            body = raw if protobuf else json.loads(raw) if raw else None
        except ValueError:
            body = None
        return Request(
            method=self.command,
            path=split.path,
            query=dict(parse_qsl(split.query, keep_blank_values=True)),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=body,
        )


KubernetesApi.handler = Handler
