"""``/metrics`` and ``/-/healthy`` of the agent."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_SECONDS = 10.0
RETRY_SECONDS = 60.0


class MetricsServer:
    """Serves in threads of its own. A port that is taken never stops the agent: it is tried again."""

    def __init__(
        self,
        address: tuple[str, int],
        registry: CollectorRegistry,
        healthy: Callable[[], tuple[bool, str]],
    ) -> None:
        self._address = address
        self._handler = _handler(registry, healthy)
        self._server: ThreadingHTTPServer | None = None
        self._complained = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="agent-metrics", daemon=True)

    @property
    def port(self) -> int | None:
        """The port in use, or None while there is none."""
        server = self._server
        return None if server is None else int(server.server_address[1])

    def start(self) -> None:
        self._bind()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        server = self._server
        if server is not None:
            server.shutdown()
            server.server_close()

    def _bind(self) -> None:
        try:
            self._server = _Server(self._address, self._handler)
        except OSError as error:
            if not self._complained:
                log.warning(
                    "cannot serve metrics on %s:%d (%s): the agent works without; change agent.listen",
                    *self._address,
                    error.strerror or error,
                )
            self._complained = True

    def _run(self) -> None:
        while self._server is None and not self._stop.wait(RETRY_SECONDS):
            self._bind()
        if self._server is not None:
            self._server.serve_forever()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news."""
        log.debug("metrics request of %s failed", client_address, exc_info=True)


def _handler(
    registry: CollectorRegistry, healthy: Callable[[], tuple[bool, str]]
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_TIMEOUT_SECONDS
        server_version = "sickbay-agent"
        sys_version = ""

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, CONTENT_TYPE_PLAIN_0_0_4, generate_latest(registry))
            elif path == "/-/healthy":
                ok, reason = healthy()
                self._answer(200 if ok else 503, "text/plain; charset=utf-8", f"{reason}\n".encode())
            else:
                self._answer(404, "text/plain; charset=utf-8", b"see /metrics and /-/healthy\n")

        def _answer(self, status: int, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """One line per scrape helps nobody."""

    return Handler
