"""Putting the door together: ``create_app``."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sickbay.http.access import Access
from sickbay.http.acts import Acts
from sickbay.http.answers import Workers, json_response
from sickbay.http.bodies import DEFAULT_BODY_SECONDS, DEFAULT_MAX_BODY_BYTES
from sickbay.http.console import Console
from sickbay.http.contract import ANYBODY, SECURITY_SCHEMES, responses
from sickbay.http.errors import error_response, install_error_handlers
from sickbay.http.guard import Guard
from sickbay.http.pushes import Pushes, PushLimits
from sickbay.http.reads import Reads
from sickbay.http.schemas import Health
from sickbay.http.stream import DEFAULT_MAX_STREAMS, KEEP_ALIVE_SECONDS, Streams
from sickbay.ports import Service

# An agent's token lies on every node: it may not send as much as an Alertmanager.
MAX_EVENT_BODY_BYTES = 4 * 1024 * 1024
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}


class SickbayApi(FastAPI):
    """FastAPI with our security headers around everything and an OpenAPI document that is true."""

    streams: Streams

    def build_middleware_stack(self) -> ASGIApp:
        # Outermost, around Starlette's own error middleware: a 500 carries the headers as well.
        return _SecurityHeaders(super().build_middleware_stack())

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            schema = super().openapi()
            # Invalid parameters are our 400 with one sentence, never FastAPI's 422.
            for operations in schema["paths"].values():
                for operation in operations.values():
                    operation["responses"].pop("422", None)
            components = schema.setdefault("components", {})
            for unused in ("HTTPValidationError", "ValidationError"):
                components.get("schemas", {}).pop(unused, None)
            components["securitySchemes"] = SECURITY_SCHEMES
            self.openapi_schema = schema
        return self.openapi_schema

    def close_streams(self) -> None:
        """Ends the server-sent event streams, so that a server can stop. From any thread."""
        self.streams.close()


class _SecurityHeaders:
    """Pure ASGI: streams pass through untouched."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)


class _Health:
    """``/-/healthy``, ``/-/ready``, ``/metrics``: for supervisors and Prometheus, without a token."""

    def __init__(self, service: Service, workers: Workers) -> None:
        self._service = service
        self._workers = workers

    def router(self) -> APIRouter:
        router = APIRouter(tags=["health"])
        router.add_api_route(
            "/-/healthy", self.healthy, methods=["GET"], responses=responses(Health), openapi_extra=ANYBODY
        )
        router.add_api_route(
            "/-/ready", self.ready, methods=["GET"], responses=responses(Health, 503), openapi_extra=ANYBODY
        )
        router.add_api_route(
            "/metrics",
            self.metrics,
            methods=["GET"],
            response_class=PlainTextResponse,
            openapi_extra=ANYBODY,
        )
        return router

    async def healthy(self) -> Response:
        """The process is alive."""
        return json_response({"status": "ok", "version": self._service.version})

    async def ready(self) -> Response:
        """Configuration loaded and store writable. A standby is ready and accepts pushes."""
        ready, reason = await self._workers.other(self._service.ready)
        return json_response({"status": "ok"}) if ready else error_response(503, reason)

    async def metrics(self) -> Response:
        """Prometheus text exposition."""
        return Response(
            await self._workers.other(self._service.render_metrics), headers={"content-type": _METRICS_TYPE}
        )


def create_app(
    service: Service,
    access: Access,
    *,
    max_body_bytes: int = DEFAULT_MAX_BODY_BYTES,
    body_seconds: float = DEFAULT_BODY_SECONDS,
    max_streams: int = DEFAULT_MAX_STREAMS,
    keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
) -> SickbayApi:
    """The ASGI application over ``service``.

    ``max_body_bytes`` bounds an alert notification; an agent's push may take that or 4 MiB, whichever is
    less. ``body_seconds``: how long a body may take to arrive.
    """
    app = SickbayApi(
        title="sickbay",
        version=service.version,
        summary="Observability and auto-remediation for GPU clusters",
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    install_error_handlers(app)
    guard = Guard(access)
    workers = Workers()
    limits = PushLimits(max_body_bytes, min(max_body_bytes, MAX_EVENT_BODY_BYTES), body_seconds)
    app.streams = Streams(service, guard, max_streams=max_streams, keep_alive_seconds=keep_alive_seconds)
    app.include_router(_Health(service, workers).router())
    app.include_router(Pushes(service, guard, workers, limits).router())
    app.include_router(app.streams.router())
    app.include_router(Reads(service, guard, workers).router())
    app.include_router(Acts(service, guard, workers).router())
    app.include_router(Console(access, service.version).router())
    return app
