"""uvicorn in a thread: starts when it says so, stops when told, touches no signal."""

from __future__ import annotations

import logging
import socket
import threading
import time

import uvicorn

from fleet.errors import SickbayError
from sickbay.http.app import SickbayApi

log = logging.getLogger(__name__)

START_SECONDS = 10.0
STOP_SECONDS = 2.0
# Agents push every 15 s: a connection outlives the pause between two pushes.
KEEP_ALIVE_SECONDS = 75
_BACKLOG = 2048


class HttpServer:
    """Serves ``app`` on ``host:port``. Port 0 takes a free one; ``port`` tells which after ``start``.

    ``date_header`` false: the application says itself what time it is (its clock may be another one).
    """

    def __init__(self, app: SickbayApi, host: str, port: int, *, date_header: bool = True) -> None:
        self.app = app
        self.host = host
        self.port = port
        self._date_header = date_header
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    def start(self) -> None:
        """Returns when connections are accepted. SickbayError when the address cannot be had."""
        if self._thread is not None:
            raise SickbayError("the HTTP server is running already")
        listener = _listen(self.host, self.port)
        self.port = listener.getsockname()[1]
        config = uvicorn.Config(
            self.app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # X-Forwarded-For is anybody's to write: the peer's address counts
            server_header=False,
            date_header=self._date_header,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(
            target=self._serve, args=(server, listener), name="sickbay-http", daemon=True
        )
        thread.start()
        deadline = time.monotonic() + START_SECONDS
        while not server.started:
            if not thread.is_alive() or time.monotonic() > deadline:
                server.should_exit = True
                raise SickbayError(f"the HTTP server did not start on {self.url}; the log says why")
            time.sleep(0.005)
        self._server, self._thread = server, thread

    def stop(self) -> None:
        """Finishes requests in flight, ends streams, and returns within about two seconds."""
        server, thread = self._server, self._thread
        if server is None or thread is None:
            return
        self._server = self._thread = None
        self.app.close_streams()
        server.should_exit = True
        thread.join(STOP_SECONDS)
        if thread.is_alive():
            log.warning("requests were still running %.0f s after the stop; they are cut off", STOP_SECONDS)
            server.force_exit = True
            thread.join(STOP_SECONDS)

    def _serve(self, server: uvicorn.Server, listener: socket.socket) -> None:
        with listener:
            server.run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise SickbayError(f"http.listen: {host} is not an address of this machine: {error}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise SickbayError(
            f"http.listen: cannot listen on {host}:{port}: {error.strerror}; is sickbay running already?"
        ) from None
    return listener
