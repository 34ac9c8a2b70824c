"""A controller that remembers every push and can answer in scripted ways, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """A scripted answer; ``hang_up``: close the connection without one."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    hang_up: bool = False


Script = Callable[[Json], Reply | None]


class RecordingController:
    """Answers as the events API does, unless ``script`` answers first.

    ``accepted`` holds (boot_id, sequence) -> event, in order of acceptance; ``pushes`` every body.
    """

    def __init__(self) -> None:
        self.pushes: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self.accepted: dict[tuple[str, int], Json] = {}
        self.reject: Callable[[Json], str | None] = lambda _event: None
        self.script: Script = lambda _push: None
        self._arrived = threading.Condition()
        controller = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                push = json.loads(self.rfile.read(int(self.headers["content-length"])))
                reply = controller._receive(push, {k.lower(): v for k, v in self.headers.items()}, self.path)
                if reply.hang_up:
                    self.close_connection = True
                    return
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

            def log_message(self, format: str, *args: Any) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def events(self) -> list[Json]:
        return list(self.accepted.values())

    def wait_for(self, condition: Callable[[], object], timeout: float = 10.0) -> None:
        """Wait until a push makes ``condition`` true."""
        with self._arrived:
            if not self._arrived.wait_for(condition, timeout):
                raise TimeoutError(f"the condition did not come true within {timeout:g} s")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> RecordingController:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _receive(self, push: Json, headers: dict[str, str], path: str) -> Reply:
        with self._arrived:
            self.pushes.append(push)
            self.headers.append(headers)
            self._arrived.notify_all()
        if path != "/api/v1/events":
            return Reply(404)
        # Outside the lock: a script may keep this push waiting.
        scripted = self.script(push)
        if scripted is not None:
            return scripted
        with self._arrived:
            reply = self.store(push)
            self._arrived.notify_all()
            return reply

    def store(self, push: Json) -> Reply:
        rejected, duplicates, accepted = [], 0, 0
        for index, event in enumerate(push["events"]):
            reason = self.reject(event)
            key = (event["boot_id"], event["sequence"])
            if reason is not None:
                rejected.append({"index": index, "reason": reason})
            elif key in self.accepted:
                duplicates += 1
            else:
                self.accepted[key] = event
                accepted += 1
        answer = {"accepted": accepted, "duplicates": duplicates, "rejected": rejected}
        return Reply(200, json.dumps(answer).encode(), {"content-type": "application/json"})
