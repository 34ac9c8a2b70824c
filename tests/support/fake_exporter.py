"""An exporter that answers as a test says: well, wrongly, slowly or never."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Respond = Callable[["Exchange"], None]


class Exchange(BaseHTTPRequestHandler):
    """One request; ``raw`` writes bytes as they are."""

    protocol_version = "HTTP/1.1"
    server: FakeExporter

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        self.server.respond(self)

    def answer(self, body: bytes, *, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        if not any(name.lower() == "content_type" for name in headers):
            self.send_header("Content-Type", "text/plain; version=0.0.4")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def raw(self, data: bytes) -> None:
        self.wfile.write(data)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""


class FakeExporter(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, respond: Respond) -> None:
        super().__init__(("127.0.0.1", 0), Exchange)
        self.respond = respond
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.connections = 0
        self.stopped = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/metrics"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is what these tests are about."""


@contextmanager
def fake_exporter(respond: Respond) -> Iterator[FakeExporter]:
    server = FakeExporter(respond)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stopped.set()
        server.shutdown()
        server.server_close()
        thread.join(5)


@contextmanager
def silent_port() -> Iterator[str]:
    """An address that accepts connections (the kernel does) and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"
