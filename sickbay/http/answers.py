"""Encoding answers, and the threads that fetch them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import anyio
import anyio.to_thread
import msgspec
from starlette.responses import Response

T = TypeVar("T")

PUSH_THREADS = 16
OTHER_THREADS = 16


def json_response(body: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(
        msgspec.json.encode(body), status_code=status, headers=headers, media_type="application/json"
    )


class Workers:
    """Threads for calls into the service, which may wait for the store.

    Pushes have their own: a crowd of slow readers never delays a fault on its way in.
    """

    def __init__(self) -> None:
        self._pushes = anyio.CapacityLimiter(PUSH_THREADS)
        self._others = anyio.CapacityLimiter(OTHER_THREADS)

    async def push(self, call: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(call, limiter=self._pushes)

    async def other(self, call: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(call, limiter=self._others)
