"""The simulated cluster's one HTTP port.

- ``GET /nodes/NAME/metrics``: what that node's dcgm-exporter answers; 503 when it would answer nothing.
- ``POST /scheduler/CALL``: the scheduler, for ``simulator.wire.RemoteScheduler``.
- ``GET /faults``, ``POST /faults``: what has happened; one more fault, now.
- ``GET /-/healthy``.

No token: whoever reaches this port plays with a simulation. It is not published beyond its own network.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from fleet.errors import InvalidInputError, NotFoundError, SickbayError
from sickbay.simulation.orders import read_fault
from sickbay.simulation.plant import Plant
from simulator.wire import PATH as SCHEDULER_PATH

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 * 1024
REQUEST_SECONDS = 10.0
_METRICS = re.compile(r"/nodes/([^/]{1,80})/metrics")
_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"


class SimulationServer:
    """Serves ``plant`` on ``host:port`` in threads of its own. Port 0 takes a free one."""

    def __init__(self, plant: Plant, host: str, port: int) -> None:
        try:
            self._server = _Server((host, port), plant)
        except OSError as error:
            raise SickbayError(
                f"cannot listen on {host}:{port} ({error.strerror or error}); choose another --listen"
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.05},
            name="simulation-http",
            daemon=True,
        )
        self.port = int(self._server.server_address[1])
        self.url = f"http://{host}:{self.port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5.0)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, address: tuple[str, int], plant: Plant) -> None:
        self.plant = plant
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news; anything else is a defect of ours."""
        if isinstance(sys.exc_info()[1], OSError):
            log.debug("%s hung up", client_address)
        else:
            log.exception("a request of %s failed", client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "sickbay-simulation"
    sys_version = ""
    timeout = REQUEST_SECONDS
    server: _Server

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        metrics = _METRICS.fullmatch(path)
        if metrics is not None:
            self._metrics(metrics[1])
        elif path == "/faults":
            self._json(200, self.server.plant.happened())
        elif path == "/-/healthy":
            ok, reason = self.server.plant.healthy()
            self._answer(200 if ok else 503, _TEXT, f"{reason}\n".encode())
        else:
            self._json(404, {"error": "see /nodes/NAME/metrics, /faults and /-/healthy"})

    def do_POST(self) -> None:
        body = self._body()
        if body is None:
            return
        path = self.path.partition("?")[0]
        if path.startswith(SCHEDULER_PATH):
            status, answer = self.server.plant.door.answer(path.removeprefix(SCHEDULER_PATH), body)
            self._answer(status, _JSON, answer)
        elif path == "/faults":
            self._inject(body)
        else:
            self._json(404, {"error": "see /faults"})

    def _metrics(self, node: str) -> None:
        try:
            text = self.server.plant.cluster.telemetry.exposition(node)
        except NotFoundError as error:
            self._json(404, {"error": str(error)})
            return
        if text is None:
            self._answer(503, _TEXT, f"nobody answers on {node} now\n".encode())
        else:
            self._answer(200, CONTENT_TYPE_PLAIN_0_0_4, text)

    def _inject(self, body: bytes) -> None:
        plant = self.server.plant
        try:
            fault = read_fault(msgspec.json.decode(body), plant.fleet, where="fault")
        except (InvalidInputError, msgspec.DecodeError) as error:
            self._json(400, {"error": str(error)})
            return
        plant.inject(fault)
        self._json(200, plant.happened()[-1])

    def _body(self) -> bytes | None:
        """The request's body; None when it was refused, with the answer sent."""
        length = self.headers.get("content-length", "")
        if not length.isascii() or not length.isdigit():
            self._refuse(411, "a body with its length is needed")
            return None
        if int(length[:12]) > MAX_BODY_BYTES:
            self._refuse(413, f"a body has at most {MAX_BODY_BYTES} bytes here")
            return None
        return self.rfile.read(int(length))

    def _refuse(self, status: int, sentence: str) -> None:
        self.close_connection = True  # what is left of the body must not be read as the next request
        self._json(status, {"error": sentence})

    def _json(self, status: int, content: object) -> None:
        self._answer(status, _JSON, json.dumps(content).encode())

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """A line for every scrape helps nobody."""
