"""What people and dashboards read: nodes, why, incidents, findings."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from fleet.findings import IncidentState
from sickbay.http.answers import Workers, json_response
from sickbay.http.contract import BROWSER_OR_TOKEN, responses
from sickbay.http.guard import Guard
from sickbay.http.names import incident_in_path, node_in_path, node_in_query
from sickbay.http.schemas import (
    FindingPage,
    IncidentDetail,
    IncidentPage,
    NodeItem,
    NodePage,
    SessionAnswer,
    Why,
)
from sickbay.ports import Service

NodeLimit = Annotated[int, Query(ge=1, le=5000)]
IncidentLimit = Annotated[int, Query(ge=1, le=500)]
Before = Annotated[
    float | None, Query(allow_inf_nan=False, description="Epoch seconds: only incidents opened earlier.")
]


class Reads:
    """The ``GET`` side of ``/api/v1``."""

    def __init__(self, service: Service, guard: Guard, workers: Workers) -> None:
        self._service = service
        self._guard = guard
        self._workers = workers

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/api/v1", tags=["reads"])
        routes = (
            ("/session", self.session, SessionAnswer, "Who this request is", ()),
            ("/nodes", self.nodes, NodePage, "The fleet, by name", (400,)),
            ("/nodes/{name}", self.node, NodeItem, "One node", (404,)),
            ("/nodes/{name}/why", self.why, Why, "Verdict, findings, next step, and every gate", (404,)),
            ("/incidents", self.incidents, IncidentPage, "Incidents, newest first", (400,)),
            (
                "/incidents/{incident_id}",
                self.incident,
                IncidentDetail,
                "One incident's full history",
                (404,),
            ),
            ("/findings", self.findings, FindingPage, "Findings that hold", (400, 404)),
        )
        for path, endpoint, model, summary, refusals in routes:
            router.add_api_route(
                path,
                endpoint,
                methods=["GET"],
                summary=summary,
                responses=responses(model, 401, 403, *refusals, 503),
                openapi_extra=BROWSER_OR_TOKEN,
            )
        return router

    async def session(self, request: Request) -> Response:
        identity = self._guard.reader(request)
        return json_response(
            {
                "name": identity.name,
                "role": identity.role.value,
                "method": identity.method.value,
                "version": self._service.version,
            }
        )

    async def nodes(self, request: Request, limit: NodeLimit = 500, after: str | None = None) -> Response:
        self._guard.reader(request)
        after = node_in_query(after, "after")
        return json_response(
            await self._workers.other(partial(self._service.nodes, limit=limit, after=after))
        )

    async def node(self, request: Request, name: str) -> Response:
        self._guard.reader(request)
        return json_response(await self._workers.other(partial(self._service.node, node_in_path(name))))

    async def why(self, request: Request, name: str) -> Response:
        self._guard.reader(request)
        return json_response(await self._workers.other(partial(self._service.why, node_in_path(name))))

    async def incidents(
        self,
        request: Request,
        state: IncidentState | None = None,
        node: str | None = None,
        limit: IncidentLimit = 100,
        before: Before = None,
    ) -> Response:
        self._guard.reader(request)
        call = partial(
            self._service.incidents,
            state=state.value if state is not None else None,
            node=node_in_query(node, "node"),
            limit=limit,
            before=before,
        )
        return json_response(await self._workers.other(call))

    async def incident(self, request: Request, incident_id: str) -> Response:
        self._guard.reader(request)
        call = partial(self._service.incident, incident_in_path(incident_id))
        return json_response(await self._workers.other(call))

    async def findings(
        self,
        request: Request,
        node: str | None = None,
        include_cleared: bool = False,  # noqa: FBT001, FBT002 - a query parameter
    ) -> Response:
        self._guard.reader(request)
        call = partial(
            self._service.findings, node=node_in_query(node, "node"), include_cleared=include_cleared
        )
        return json_response(await self._workers.other(call))
