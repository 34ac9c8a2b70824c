"""Human word: approve, cancel, hold, release, pause, resume. The author is whoever the token names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from sickbay.http.answers import Workers, json_response
from sickbay.http.bodies import DEFAULT_BODY_SECONDS, SMALL_BODY_BYTES, read_body, require_json
from sickbay.http.contract import BROWSER_OR_TOKEN, responses
from sickbay.http.errors import HttpError
from sickbay.http.guard import Guard
from sickbay.http.names import incident_in_path, node_in_path, pool_in_body, reason_in_body
from sickbay.http.schemas import ActAnswer, act_body
from sickbay.ports import Json, Service

MAX_EXPIRY_SECONDS = 366 * 86400.0


class ActBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of every act; a key without meaning for an act may only be null there."""

    reason: str | None = None
    expires_in_seconds: float | None = None
    pool: str | None = None


class Acts:
    """The ``POST`` side of ``/api/v1`` for operators."""

    def __init__(self, service: Service, guard: Guard, workers: Workers) -> None:
        self._service = service
        self._guard = guard
        self._workers = workers

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/api/v1", tags=["acts"])
        # path, endpoint, summary, reason required, may expire, takes a pool
        routes: tuple[tuple[str, Callable[..., Any], str, bool, bool, bool], ...] = (
            (
                "/incidents/{incident_id}/approve",
                self.approve,
                "Let the next step happen",
                False,
                False,
                False,
            ),
            ("/incidents/{incident_id}/cancel", self.cancel, "End an incident", True, False, False),
            ("/nodes/{name}/hold", self.hold, "Keep our hands off a node", True, True, False),
            ("/nodes/{name}/release", self.release, "End a hold", False, False, False),
            ("/pause", self.pause, "The red button: all action stops", True, True, True),
            ("/resume", self.resume, "End a pause", False, False, True),
        )
        for path, endpoint, summary, needs_reason, expires, pool in routes:
            router.add_api_route(
                path,
                endpoint,
                methods=["POST"],
                summary=summary,
                responses=responses(ActAnswer, 400, 401, 403, 404, 408, 409, 413, 415, 503),
                openapi_extra={
                    **act_body(reason_required=needs_reason, expires=expires, pool=pool),
                    **BROWSER_OR_TOKEN,
                },
            )
        return router

    async def approve(self, request: Request, incident_id: str) -> Response:
        author = self._guard.operator(request).name
        incident = incident_in_path(incident_id)
        body = await read_act(request)
        reason = reason_in_body(body.reason, required=False)
        return await self._answer(partial(self._service.approve, incident, author=author, reason=reason))

    async def cancel(self, request: Request, incident_id: str) -> Response:
        author = self._guard.operator(request).name
        incident = incident_in_path(incident_id)
        body = await read_act(request)
        reason = reason_in_body(body.reason, required=True)
        return await self._answer(partial(self._service.cancel, incident, author=author, reason=reason))

    async def hold(self, request: Request, name: str) -> Response:
        author = self._guard.operator(request).name
        node = node_in_path(name)
        body = await read_act(request, expires=True)
        call = partial(
            self._service.hold,
            node,
            author=author,
            reason=reason_in_body(body.reason, required=True),
            expires_in_seconds=body.expires_in_seconds,
        )
        return await self._answer(call)

    async def release(self, request: Request, name: str) -> Response:
        author = self._guard.operator(request).name
        node = node_in_path(name)
        body = await read_act(request)
        reason = reason_in_body(body.reason, required=False)
        return await self._answer(partial(self._service.release, node, author=author, reason=reason))

    async def pause(self, request: Request) -> Response:
        author = self._guard.operator(request).name
        body = await read_act(request, expires=True, pool=True)
        call = partial(
            self._service.pause,
            pool=pool_in_body(body.pool),
            author=author,
            reason=reason_in_body(body.reason, required=True),
            expires_in_seconds=body.expires_in_seconds,
        )
        return await self._answer(call)

    async def resume(self, request: Request) -> Response:
        author = self._guard.operator(request).name
        body = await read_act(request, pool=True)
        reason = reason_in_body(body.reason, required=False)
        call = partial(self._service.resume, pool=pool_in_body(body.pool), author=author, reason=reason)
        return await self._answer(call)

    async def _answer(self, call: Callable[[], Json]) -> Response:
        return json_response(await self._workers.other(call))


async def read_act(request: Request, *, expires: bool = False, pool: bool = False) -> ActBody:
    """The body, strict. No body at all is an empty one; a key that would be ignored is refused instead."""
    raw = await read_body(request, max_bytes=SMALL_BODY_BYTES, seconds=DEFAULT_BODY_SECONDS)
    if not raw:
        return ActBody()
    require_json(request)
    try:
        body = msgspec.json.decode(raw, type=ActBody)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise HttpError(400, f"the body is not what this path takes: {error}") from None
    except RecursionError:
        raise HttpError(400, "the body is nested too deeply") from None
    seconds = body.expires_in_seconds
    if seconds is not None and not expires:
        raise HttpError(400, "$.expires_in_seconds has no meaning here: leave it out")
    if seconds is not None and not 0 < seconds <= MAX_EXPIRY_SECONDS:
        raise HttpError(400, f"$.expires_in_seconds must be above 0 and at most {MAX_EXPIRY_SECONDS:.0f}")
    if body.pool is not None and not pool:
        raise HttpError(400, "$.pool has no meaning here: leave it out")
    return body
