"""Every refusal is ``{"error": "one sentence"}`` with the status that tells the sender whether to retry."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from fleet.errors import BackendError, InvalidInputError, SickbayError
from sickbay.http.answers import json_response
from sickbay.ports import NoSuchIncidentError, NoSuchNodeError, NotPossibleError

log = logging.getLogger(__name__)
MAX_SENTENCE_CHARS = 500

# Most specific first. 5xx makes Alertmanager and agents try again, 4xx does not (Alertmanager,
# notify/webhook): only what may pass by itself is 5xx.
_STATUS: tuple[tuple[type[SickbayError], int], ...] = (
    (NoSuchNodeError, 404),
    (NoSuchIncidentError, 404),
    (NotPossibleError, 409),
    (InvalidInputError, 400),
    (BackendError, 503),
    (SickbayError, 503),
)


class HttpError(Exception):
    """A refusal at the door. ``sentence`` is shown to the sender as it is."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.headers = dict(headers or {})


def error_response(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    """One line, bounded, whatever it quotes."""
    line = " ".join(sentence.split())[:MAX_SENTENCE_CHARS] or "refused"
    return json_response({"error": line}, status=status, headers=headers)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpError)  # noqa: S101 - registered for this class only
    return error_response(error.status, error.sentence, error.headers)


async def _on_sickbay_error(request: Request, error: Exception) -> Response:
    status = next(code for kind, code in _STATUS if isinstance(error, kind))
    headers: dict[str, str] = {}
    if status >= 500:  # noqa: PLR2004 - the class of server errors
        log.warning("%s %s answered %d: %s", request.method, request.url.path, status, error)
        headers["retry-after"] = "5"
    return error_response(status, str(error), headers)


async def _on_invalid_parameters(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class only
    first = error.errors()[0]
    where = " ".join(str(part) for part in first["loc"])
    return error_response(400, f"{where}: {first['msg']}")


async def _on_routing(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class only
    sentence = {
        404: "there is nothing at this path; /openapi.json lists what there is",
        405: f"this path does not take {request.method}",
    }.get(error.status_code, str(error.detail))
    return error_response(error.status_code, sentence, error.headers)


async def _on_bug(request: Request, error: Exception) -> Response:
    """The named boundary: Starlette hands the traceback to the server's log, the sender gets a sentence."""
    return error_response(
        500, "an internal error, written to the controller's log; nothing is known to be done"
    )


def install_error_handlers(app: FastAPI) -> None:
    app.add_exception_handler(HttpError, _on_http_error)
    app.add_exception_handler(SickbayError, _on_sickbay_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_parameters)
    app.add_exception_handler(HTTPException, _on_routing)
    app.add_exception_handler(Exception, _on_bug)
