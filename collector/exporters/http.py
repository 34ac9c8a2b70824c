"""``/metrics``, ``/-/healthy``, ``/-/ready`` and a page at ``/`` for people."""

from __future__ import annotations

import logging
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from collector.exporters.poller import Poller

_LOG = logging.getLogger(__name__)
REQUEST_TIMEOUT_SECONDS = 10.0
_TEXT = "text/plain; charset=utf-8"
_PAGE = """<!doctype html>
<html lang="en"><head><title>sickbay exporter</title></head>
<body><h1>sickbay exporter: {kind}</h1><p><a href="metrics">metrics</a></p></body></html>
"""


class ExporterServer:
    """Binds at once (OSError if it cannot) and serves in threads of its own from ``start`` to ``stop``."""

    def __init__(self, address: tuple[str, int], registry: CollectorRegistry, poller: Poller) -> None:
        self._server = _Server(address, _handler(registry, poller))
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            name="exporter-http",
            kwargs={"poll_interval": 0.1},
            daemon=True,
        )

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens; the port in use when 0 was asked for."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        family, *_, resolved = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
        self.address_family = family
        super().__init__((str(resolved[0]), int(resolved[1])), handler)

    def server_bind(self) -> None:
        """Without http.server's look at the DNS for our own name, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news."""
        _LOG.debug("a request of %s failed", client_address, exc_info=True)


def _handler(registry: CollectorRegistry, poller: Poller) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_TIMEOUT_SECONDS
        server_version = "sickbay-exporter"
        sys_version = ""

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, CONTENT_TYPE_PLAIN_0_0_4, generate_latest(registry))
            elif path == "/":
                self._answer(200, "text/html; charset=utf-8", _PAGE.format(kind=poller.kind).encode())
            elif path == "/-/healthy":
                self._answer(200, _TEXT, b"alive\n")
            elif path == "/-/ready":
                self._ready()
            else:
                self._answer(404, _TEXT, b"see /metrics, /-/healthy and /-/ready\n")

        def _ready(self) -> None:
            """The scheduler being away is no fault of the exporter: it is ready to say so."""
            if poller.state().reads:
                self._answer(200, _TEXT, b"ready\n")
            else:
                self._answer(503, _TEXT, b"the first read of the scheduler is under way\n")

        def _answer(self, status: int, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """One line per scrape helps nobody."""

    return Handler
