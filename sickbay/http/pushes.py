"""What machines send: agents' events and Alertmanager's notifications. 200 only after it is stored."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from collector import alertmanager
from fleet.errors import InvalidInputError
from sickbay.config import Role
from sickbay.http.access import Identity
from sickbay.http.answers import Workers, json_response
from sickbay.http.bodies import read_json
from sickbay.http.contract import TOKEN_ONLY, responses
from sickbay.http.errors import HttpError
from sickbay.http.guard import Guard
from sickbay.http.names import is_single_node
from sickbay.http.schemas import ALERTS_BODY, EVENTS_BODY, AlertsAnswer, EventsAnswer
from sickbay.ports import Json, Service

log = logging.getLogger(__name__)

_BOOT_ID = re.compile(r"[\x21-\x7e]{1,128}")
_MAX_VERSION_CHARS = 64
_MAX_GPUS = 1024


@dataclass(frozen=True, slots=True)
class PushLimits:
    """Bytes and seconds a push may take to arrive."""

    alert_bytes: int
    event_bytes: int
    seconds: float


class Pushes:
    """``POST /api/v1/events`` and ``POST /api/v1/alerts``."""

    def __init__(self, service: Service, guard: Guard, workers: Workers, limits: PushLimits) -> None:
        self._service = service
        self._guard = guard
        self._workers = workers
        self._limits = limits

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/api/v1", tags=["pushes"])
        refusals = (400, 401, 403, 408, 413, 415, 503)
        router.add_api_route(
            "/events",
            self.events,
            methods=["POST"],
            summary="An agent's push",
            responses=responses(EventsAnswer, *refusals, 404),
            openapi_extra={**EVENTS_BODY, **TOKEN_ONLY},
        )
        router.add_api_route(
            "/alerts",
            self.alerts,
            methods=["POST"],
            summary="Alertmanager webhook",
            responses=responses(AlertsAnswer, *refusals),
            openapi_extra={**ALERTS_BODY, **TOKEN_ONLY},
        )
        return router

    async def events(self, request: Request) -> Response:
        identity = self._guard.agent(request)
        body = await read_json(request, max_bytes=self._limits.event_bytes, seconds=self._limits.seconds)
        agent, events = parse_push(body, identity)
        call = partial(self._service.ingest_events, agent["node"], agent, events)
        return json_response(await self._workers.push(call))

    async def alerts(self, request: Request) -> Response:
        self._guard.alertmanager(request)
        body = await read_json(request, max_bytes=self._limits.alert_bytes, seconds=self._limits.seconds)
        notification, warnings = parse_notification(body)
        for warning in warnings:
            log.warning("alert notification: %s", warning)
        if notification["alerts"]:
            answer = await self._workers.push(partial(self._service.ingest_alerts, notification))
        else:
            answer = {"accepted": 0, "duplicates": 0}
        return json_response({**answer, "warnings": warnings} if warnings else answer)


def parse_push(body: object, identity: Identity) -> tuple[Json, list[Any]]:
    """(agent, events) of an agent's push; ``version`` and ``gpus`` are filled with None when absent.

    Single events are not looked at: one bad event never hides the good ones beside it, so the service
    judges each. Raises HttpError 400 (malformed) or 403 (another node's agent).
    """
    push = _object(body, "$")
    agent = _object(push.get("agent"), "$.agent")
    node = agent.get("node")
    if not isinstance(node, str):
        raise HttpError(400, "$.agent.node must be the node's name")
    if identity.role is Role.AGENT and node != identity.node:
        raise HttpError(403, f"this token speaks for {identity.node}, not for {node[:80]!r}")
    if not is_single_node(node):
        raise HttpError(400, f"$.agent.node: {node[:80]!r} is not the name of one node")
    boot_id = agent.get("boot_id")
    if not isinstance(boot_id, str) or _BOOT_ID.fullmatch(boot_id) is None:
        raise HttpError(400, "$.agent.boot_id must be 1 to 128 printable ASCII characters without spaces")
    version = agent.get("version")
    if version is not None and not (isinstance(version, str) and len(version) <= _MAX_VERSION_CHARS):
        raise HttpError(
            400, f"$.agent.version must be text of at most {_MAX_VERSION_CHARS} characters, or null"
        )
    gpus = agent.get("gpus")
    if not _is_gpu_count(gpus):
        raise HttpError(400, "$.agent.gpus must be a count, a list, or null when the agent cannot tell")
    events = push.get("events")
    if not isinstance(events, list):
        raise HttpError(400, "$.events must be a list (it may be empty)")
    return {**agent, "version": version, "gpus": gpus}, events


def _is_gpu_count(gpus: object) -> bool:
    if isinstance(gpus, bool):
        return False
    if isinstance(gpus, int):
        return 0 <= gpus <= _MAX_GPUS
    return gpus is None or (isinstance(gpus, list) and len(gpus) <= _MAX_GPUS)


def parse_notification(body: object) -> tuple[Json, list[str]]:
    """(notification, warnings) of a webhook body; 400 where it is none. Single alerts are the service's to
    judge.
    """
    try:
        return alertmanager.parse_notification(body)
    except InvalidInputError as error:
        raise HttpError(400, str(error)) from error


def _object(value: object, where: str) -> Json:
    if not isinstance(value, dict):
        raise HttpError(400, f"{where} must be an object, not {_kind(value)}")
    return value


def _kind(value: object) -> str:
    names: dict[type, str] = {
        dict: "an object",
        list: "a list",
        str: "text",
        bool: "true or false",
        type(None): "null or missing",
    }
    return names.get(type(value), "a number")
