"""What an answer of the API server means. Sources: Kubernetes API conventions ("HTTP status codes",
"Response Status Kind"), and what a real kube-apiserver 1.36 was seen to say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from collector.kubernetes.objects import StatusObject
from fleet.errors import (
    BackendError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    RateLimitedError,
    RefusedError,
    UnavailableError,
)

OK = range(200, 300)
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, GONE, TOO_MANY = 401, 403, 404, 409, 410, 429
SERVER_ERROR, GATEWAY_TIMEOUT = 500, 504
_REDIRECT, _BAD_REQUEST = 300, 400
# The RBAC authorizer's sentence; an admission policy's refusal is a 403 too, with another one.
_RBAC = re.compile(r"cannot \w+ resource|cannot \w+ path")
_SHOWN, _READ = 300, 4096


class ExpiredError(UnavailableError):
    """410: a continue token or resource version is too old. List again from the start."""


@dataclass(frozen=True, slots=True)
class Answer:
    """``retry_after_seconds`` from the header, else from the Status. ``status`` if the body is one."""

    code: int
    body: bytes
    retry_after_seconds: float | None = None
    status: StatusObject | None = None

    @property
    def ok(self) -> bool:
        return self.code in OK

    @property
    def text(self) -> str:
        """What the server said, one line for people."""
        return f"{self.message[:_SHOWN] or 'no explanation'} (HTTP {self.code})"

    @property
    def message(self) -> str:
        """What the server said, one line, not cut: names may be long and the reason stands behind them."""
        if self.status is not None and self.status.message:
            said = self.status.message
        else:
            said = self.body[:_READ].decode("utf-8", errors="replace")
        return " ".join(said.split())

    @property
    def is_missing_right(self) -> bool:
        """A 403 of the authorizer, not of an admission policy or a namespace that ends."""
        return self.code == FORBIDDEN and _RBAC.search(self.message) is not None

    def has_cause(self, reason: str) -> bool:
        details = self.status.details if self.status else None
        return any(cause.reason == reason for cause in (details.causes if details else None) or ())


def read_answer(code: int, body: bytes, retry_after: str | None) -> Answer:
    """An answer; a body that is no Status (a proxy's page, priority and fairness' text) stays text."""
    status = None
    if code not in OK:
        try:
            decoded = msgspec.json.decode(body, type=StatusObject)
            status = decoded if decoded.kind == "Status" else None
        except msgspec.MsgspecError:
            status = None
    seconds = float(retry_after) if retry_after is not None and retry_after.strip().isdecimal() else None
    if seconds is None and status is not None and status.details is not None:
        wait = status.details.retry_after_seconds
        seconds = float(wait) if wait else None
    return Answer(code, body, seconds, status)


def error_for(answer: Answer, what: str) -> BackendError:
    """The error of an answer that is not OK. ``what``: the call, for the sentence."""
    said = f"{what}: {answer.text}"
    if answer.code == NOT_FOUND:
        return NotFoundError(said)
    if answer.code == CONFLICT:
        return ConflictError(said)
    if answer.code == GONE:
        return ExpiredError(said)
    if answer.code == TOO_MANY:
        return RateLimitedError(said, answer.retry_after_seconds)
    if answer.code == UNAUTHORIZED or answer.is_missing_right:
        return ForbiddenError(said)
    if _BAD_REQUEST <= answer.code < SERVER_ERROR:
        return RefusedError(said)
    if _REDIRECT <= answer.code < _BAD_REQUEST:
        return UnavailableError(f"{said}; a redirect: is this the API server's address?")
    return UnavailableError(said)
