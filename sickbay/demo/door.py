"""The demo's HTTP door: notices people, who are in no script, and tells the time by the simulated clock."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fleet.clock import Clock

#: An alert is a hint and decides nothing; reads and sign-ins change nothing.
_HARMLESS = frozenset({"alerts"})
_API = "/api/v1/"
_FIRST_ERROR = 400


class Door:
    """ASGI middleware: tells ``noticed`` the last word of each path whose POST the service accepted.

    Every answer's ``Date`` is ``clock``'s, so that ages are right on the other side.
    """

    def __init__(self, app: ASGIApp, *, noticed: Callable[[str], None], clock: Clock) -> None:
        self._app = app
        self._noticed = noticed
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        act = _act_of(scope)

        async def watching(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["date"] = formatdate(self._clock.now(), usegmt=True)
                if act is not None and message["status"] < _FIRST_ERROR:
                    self._noticed(act)
            await send(message)

        await self._app(scope, receive, watching)


def _act_of(scope: Scope) -> str | None:
    if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].startswith(_API):
        return None
    act = str(scope["path"]).rstrip("/").rsplit("/", 1)[-1]
    return None if act in _HARMLESS else act
