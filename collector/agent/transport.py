"""One request to the controller and what its answer means. The only place that knows HTTP."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import httpx

from collector.agent.settings import AgentSettings
from collector.agent.stats import PushFailure
from fleet.clock import Clock
from fleet.errors import InvalidInputError, SickbayError

MAX_ANSWER_BYTES = 1 << 20
LONGEST_RETRY_AFTER_SECONDS = 60.0
_QUOTED_CHARS = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """The controller's word on a batch: what it refuses for good, as (index, reason)."""

    rejected: tuple[tuple[int, str], ...] = ()


class PushError(SickbayError):
    """A push without the controller's word. The text says what to do about it.

    ``refused``: waiting alone will not help. ``retry_after_seconds``: what the answer asked for, or None.
    ``detail`` (a status, the name of an error) with ``failure`` tells one cause from another.
    """

    def __init__(
        self,
        failure: PushFailure,
        message: str,
        *,
        detail: str = "",
        refused: bool = False,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.failure = failure
        self.detail = detail
        self.refused = refused
        self.retry_after_seconds = retry_after_seconds


class Transport(Protocol):
    """How a push travels. ``post`` raises PushError for everything but the controller's own 2xx."""

    def post(self, payload: Mapping[str, Any], token: str | None) -> Answer: ...

    def close(self) -> None: ...


class HttpTransport:
    """HTTP with a kept-alive connection, explicit deadlines, no redirects, and certificates checked against
    the system's authorities (a site's own CA belongs there).
    """

    def __init__(self, settings: AgentSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        try:
            httpx.URL(settings.events_url)
        except httpx.InvalidURL as error:
            raise InvalidInputError(f"agent.controller: {settings.controller!r}: {error}") from error
        wait = settings.read_timeout_seconds
        self._client = httpx.Client(
            timeout=httpx.Timeout(connect=settings.connect_timeout_seconds, read=wait, write=wait, pool=wait),
            limits=httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=60.0),
            trust_env=settings.trust_env,
            verify=ssl.create_default_context() if settings.controller.startswith("https:") else True,
            follow_redirects=False,
            headers={"user-agent": f"sickbay-agent/{settings.version}"},
        )

    def post(self, payload: Mapping[str, Any], token: str | None) -> Answer:
        headers = {"content-type": "application/json"}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        try:
            content = json.dumps(payload, separators=(",", ":"), allow_nan=False).encode("ascii")
        except (TypeError, ValueError) as error:
            raise PushError(
                PushFailure.BAD_REQUEST, f"the push is no JSON: {error}", detail="encoding"
            ) from error
        try:
            status, answered, body = self._send(content, headers)
        except httpx.HTTPError as error:
            raise PushError(
                PushFailure.UNREACHABLE,
                f"cannot reach {self._settings.events_url}: {_cause(error)}; "
                "check that 'sickbay serve' runs there and agent.controller is right",
                detail=type(error).__name__,
            ) from error
        return interpret(self._settings, status=status, headers=answered, body=body)

    def close(self) -> None:
        self._client.close()

    def _send(self, content: bytes, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str], bytes]:
        try:
            return self._send_once(content, headers)
        except httpx.RemoteProtocolError:
            # The server closed the idle connection just as we used it. A push is idempotent: once more.
            return self._send_once(content, headers)

    def _send_once(self, content: bytes, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str], bytes]:
        deadline = self._clock.monotonic() + 2 * self._settings.read_timeout_seconds
        body = bytearray()
        url = self._settings.events_url
        with self._client.stream("POST", url, content=content, headers=dict(headers)) as response:
            for chunk in response.iter_bytes():
                body += chunk
                # httpx's read time-out starts anew with each byte; a trickle must end all the same.
                if len(body) > MAX_ANSWER_BYTES or self._clock.monotonic() > deadline:
                    raise httpx.ReadTimeout("the answer is endless", request=response.request)
            return response.status_code, response.headers, bytes(body)


def interpret(settings: AgentSettings, *, status: int, headers: Mapping[str, str], body: bytes) -> Answer:
    """Read an answer; PushError for all but the controller's own 2xx."""
    if 200 <= status < 300:  # noqa: PLR2004 - the class of success
        return _read_answer(settings, body)
    said = _quote(body)
    advice = _ADVICE.get(status)
    if advice is not None:
        failure, text = advice
        message = f"the controller answered {status} ({said}): {text(settings)}"
        raise PushError(failure, message, detail=str(status), refused=failure is PushFailure.REFUSED)
    if status == 429 or status >= 500:  # noqa: PLR2004 - RFC 6585 and the class of server errors
        raise PushError(
            PushFailure.BUSY,
            f"the controller answered {status} ({said}): trying again; see its log",
            detail=str(status),
            retry_after_seconds=_retry_after(headers),
        )
    raise PushError(
        PushFailure.NOT_THE_API,
        f"{settings.events_url} answered {status} ({said}): this is not sickbay's API; "
        "check agent.controller",
        detail=str(status),
        refused=True,
    )


def _read_answer(settings: AgentSettings, body: bytes) -> Answer:
    """A 2xx counts only in the API's own shape: a proxy's friendly page must not cost an event."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    match document:
        case {"accepted": int(), "duplicates": int(), "rejected": list(items)}:
            return Answer(tuple(filter(None, map(_read_rejection, items))))
    raise PushError(
        PushFailure.NOT_THE_API,
        f"{settings.events_url} answered 2xx but not as sickbay's API does ({_quote(body)}): "
        "check agent.controller and what stands between; the events are kept",
        refused=True,
    )


def _read_rejection(item: object) -> tuple[int, str] | None:
    match item:
        case {"index": int(index), "reason": reason}:
            return index, str(reason)[:_QUOTED_CHARS]
    return None


_Advice = tuple[PushFailure, Callable[[AgentSettings], str]]
_ADVICE: Mapping[int, _Advice] = {
    400: (PushFailure.BAD_REQUEST, lambda _: "it does not understand the push; compare versions"),
    401: (
        PushFailure.REFUSED,
        lambda s: (
            "it does not know this token; on the controller run "
            f"'sickbay agent-token {s.node} --config FILE' and put what it prints into agent.token_file"
        ),
    ),
    403: (
        PushFailure.REFUSED,
        lambda s: (
            f"this token may not speak for {s.node}; check agent.node and agent.token_file "
            f"('sickbay agent-token {s.node} --config FILE' prints the right token)"
        ),
    ),
    404: (
        PushFailure.REFUSED,
        lambda s: (
            f"it does not know node {s.node}, or is not sickbay; check agent.node against "
            "'sickbay nodes', and agent.controller"
        ),
    ),
    409: (PushFailure.REFUSED, lambda s: f"it refuses {s.node} in its present state; see its log"),
    413: (PushFailure.TOO_LARGE, lambda _: "the push is too large for it or for a proxy between"),
    422: (PushFailure.BAD_REQUEST, lambda _: "it does not understand the push; compare versions"),
}


def _quote(body: bytes) -> str:
    text = " ".join(body[: 4 * _QUOTED_CHARS].decode("utf-8", "replace").split())
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text[:_QUOTED_CHARS] or "no text"


def _cause(error: httpx.HTTPError) -> str:
    text = " ".join(str(error).split())[:_QUOTED_CHARS]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """``Retry-After`` in seconds (RFC 9110 10.2.3); its date form is not worth a clock comparison."""
    text = headers.get("retry-after", "").strip()
    return min(float(text), LONGEST_RETRY_AFTER_SECONDS) if text.isdecimal() else None
