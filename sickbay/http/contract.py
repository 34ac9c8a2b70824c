"""Documentation of routes, shared by the routers: which refusals a path gives and what proves who asks."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from sickbay.http.schemas import ErrorAnswer

_REFUSALS = {
    400: "Malformed; the sentence says what and where.",
    401: "No token, or one that is nobody's.",
    403: "The role may not do this, or the token speaks for another node, or another site sent it.",
    404: "No such node or incident.",
    408: "The body did not arrive in time.",
    409: "It contradicts the present state.",
    413: "The body is too large.",
    415: "Not JSON.",
    503: "Cannot store or answer now; try again.",
}

ANYBODY: dict[str, Any] = {"security": []}
BROWSER_OR_TOKEN: dict[str, Any] = {"security": [{"bearer": []}, {"session": []}]}
TOKEN_ONLY: dict[str, Any] = {"security": [{"bearer": []}]}
SECURITY_SCHEMES: dict[str, Any] = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "session": {"type": "apiKey", "in": "cookie", "name": "sickbay_session"},
}


def responses(model: type[BaseModel] | None, *refusals: int) -> dict[int | str, dict[str, Any]]:
    """The ``responses=`` of a route: 200 with its model, and its refusals."""
    listed: dict[int | str, dict[str, Any]] = {}
    if model is not None:
        listed[200] = {"model": model}
    for status in refusals:
        listed[status] = {"model": ErrorAnswer, "description": _REFUSALS[status]}
    return listed
