"""``GET /api/v1/stream``: the ledger as server-sent events (WHATWG HTML, section 9.2).

Each message carries the ledger line's id, so that a browser that lost its connection goes on where it
was (Last-Event-ID). A stream waits in a thread of its own limiter: a wall of consoles takes nothing from
pushes and reads, and beyond ``max_streams`` the answer is 503.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator
from typing import Annotated

import anyio
import anyio.to_thread
import msgspec
from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from fleet.errors import SickbayError
from sickbay.http.contract import BROWSER_OR_TOKEN, responses
from sickbay.http.errors import HttpError
from sickbay.http.guard import Guard
from sickbay.ports import Json, Service

log = logging.getLogger(__name__)

DEFAULT_MAX_STREAMS = 32
KEEP_ALIVE_SECONDS = 15.0
# How long one look at the ledger may wait. It bounds how long a thread outlives a client that has gone,
# and how long a stop of the server has to wait for streams.
POLL_SECONDS = 1.0
_RETRY_MILLISECONDS = 3000
_MAX_ID = 2**63 - 1

LastEventId = Annotated[
    str | None, Header(description="Set by browsers when they reconnect; wins over after.")
]
After = Annotated[
    int | None,
    Query(ge=0, le=_MAX_ID, description="Ledger id to go on from; 0 replays everything; without: from now."),
]


class _CountedStream(StreamingResponse):
    """Gives its place back however it ends, also when the client had gone before the first byte."""

    def __init__(self, content: AsyncIterator[bytes], streams: Streams) -> None:
        super().__init__(content, media_type="text/event-stream", headers={"x-accel-buffering": "no"})
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.leave()


class Streams:
    """The open streams of this process. All but ``close`` runs on the event loop."""

    def __init__(
        self,
        service: Service,
        guard: Guard,
        *,
        max_streams: int = DEFAULT_MAX_STREAMS,
        keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
    ) -> None:
        self._service = service
        self._guard = guard
        self._max = max_streams
        self._keep_alive = keep_alive_seconds
        self._limiter = anyio.CapacityLimiter(max_streams)
        self._closing = threading.Event()
        self._open = 0
        self._latest = 0

    @property
    def open_count(self) -> int:
        return self._open

    def close(self) -> None:
        """End every stream within a poll; new ones are refused. May be called from any thread."""
        self._closing.set()

    def leave(self) -> None:
        self._open -= 1

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/api/v1", tags=["reads"])
        documented = responses(None, 400, 401, 403, 503)
        documented[200] = {
            "description": "One message per ledger line: `id: N`, `data: {...}`.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
        router.add_api_route(
            "/stream",
            self.stream,
            methods=["GET"],
            summary="Incidents and node states as they change",
            response_class=StreamingResponse,
            responses=documented,
            openapi_extra=BROWSER_OR_TOKEN,
        )
        return router

    async def stream(
        self, request: Request, after: After = None, last_event_id: LastEventId = None
    ) -> StreamingResponse:
        self._guard.reader(request)
        position = _position(after, last_event_id)
        if self._closing.is_set():
            raise HttpError(503, "the controller is stopping", {"retry-after": "5"})
        if self._open >= self._max:
            raise HttpError(503, f"{self._max} streams are open already; close one", {"retry-after": "30"})
        self._open += 1
        return _CountedStream(self._messages(request, position), self)

    async def _messages(self, request: Request, position: int | None) -> AsyncIterator[bytes]:
        yield f"retry: {_RETRY_MILLISECONDS}\n\n".encode()
        try:
            if position is None or not await self._is_known(position):
                position = await self._end_of_ledger()
            yield f": from {position}\n\n".encode()
            quiet_since = checked_at = anyio.current_time()
            while not self._closing.is_set():
                for change in await self._changes(position, POLL_SECONDS):
                    position = max(position, change["id"])
                    yield b"id: %d\ndata: %s\n\n" % (change["id"], msgspec.json.encode(change))
                    quiet_since = anyio.current_time()
                now = anyio.current_time()
                if now - checked_at >= self._keep_alive:
                    # A stream lives for days, a session for hours: who lost the right to read reads no more.
                    self._guard.reader(request)
                    checked_at = now
                if now - quiet_since >= self._keep_alive:
                    yield b": keep-alive\n\n"
                    quiet_since = now
        except HttpError:
            log.info("stream ended: its reader's session or token has ended")
        except SickbayError as error:
            # The status is sent already: end the stream, the client comes back in three seconds.
            log.warning("stream ended: %s", error)
        yield b": end\n\n"

    async def _is_known(self, position: int) -> bool:
        """Whether this ledger has got as far as ``position``.

        A browser that was connected to another ledger (restored from a backup, or a new one) would
        otherwise wait in silence until the new one has as many lines. Where nothing is at or after the
        position, to begin at the end loses nothing.
        """
        return position == 0 or bool(await self._changes(position - 1, 0.0))

    async def _end_of_ledger(self) -> int:
        """Skip what has happened already. The first stream after a start reads it once, later ones go on."""
        position = self._latest
        while changes := await self._changes(position, 0.0):
            position = max(position, *(change["id"] for change in changes))
        return position

    async def _changes(self, after: int, timeout: float) -> list[Json]:
        def look() -> list[Json]:
            return list(self._service.changes(after=after, timeout=timeout))

        changes = await anyio.to_thread.run_sync(look, limiter=self._limiter)
        if changes:
            self._latest = max(self._latest, *(change["id"] for change in changes))
        return changes


def _position(after: int | None, last_event_id: str | None) -> int | None:
    if not last_event_id:
        return after
    if not (last_event_id.isascii() and last_event_id.isdigit()) or int(last_event_id[:20]) > _MAX_ID:
        raise HttpError(400, "Last-Event-ID must be the id of a message of this stream")
    return int(last_event_id)
