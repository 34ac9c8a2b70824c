"""The simulated scheduler over HTTP, both ends: one POST per call of the backend protocol, JSON bodies.

``SchedulerDoor`` is the serving end without the server: a call and its body in, a status and a body out.
``RemoteScheduler`` is the calling end, a SchedulerBackend like any other. It exists so that a controller in
a process of its own can work on a simulated cluster; nothing here speaks to real hardware.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import httpx
import msgspec

from fleet.errors import (
    BackendError,
    ConflictError,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    RateLimitedError,
    RefusedError,
    UnavailableError,
)
from fleet.marks import Mark
from fleet.scheduler import NodeRecord, RequeueOutcome, RequeueRequest, SchedulerBackend, SchedulerSnapshot

#: Calls are ``POST <url>/scheduler/<call>``.
PATH: Final = "/scheduler/"

_ERRORS: Final[Mapping[str, tuple[type[BackendError], int]]] = {
    "unavailable": (UnavailableError, 503),
    "conflict": (ConflictError, 409),
    "forbidden": (ForbiddenError, 403),
    "not_found": (NotFoundError, 404),
    "rate_limited": (RateLimitedError, 429),
    "refused": (RefusedError, 422),
}
_OK = 200
T = TypeVar("T")


class ObserveNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    node: str


class Marked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cordon, or its end."""

    node: str
    mark: Mark


class Reboot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    node: str
    mark: Mark
    ordered_at: float


class Annotate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    node: str
    text: str


class Failure(msgspec.Struct, frozen=True):
    """A refused or failed call: ``error`` is a word of the closed list in ``fleet.errors``."""

    error: str
    message: str


class SchedulerDoor:
    """Answers calls out of ``backend``. Thread-safe if the backend is."""

    def __init__(self, backend: SchedulerBackend) -> None:
        self._calls: Mapping[str, Callable[[bytes], object]] = {
            "observe": lambda _: backend.observe(),
            "observe_node": lambda body: backend.observe_node(_read(body, ObserveNode).node),
            "cordon": lambda body: _marked(_read(body, Marked), backend.cordon),
            "uncordon": lambda body: _marked(_read(body, Marked), backend.uncordon),
            "reboot": lambda body: _reboot(backend, _read(body, Reboot)),
            "requeue": lambda body: backend.requeue(_read(body, RequeueRequest)),
            "annotate": lambda body: _annotate(backend, _read(body, Annotate)),
        }

    def answer(self, call: str, body: bytes) -> tuple[int, bytes]:
        """(HTTP status, JSON). A call that is not in the protocol is 404, a malformed body 400."""
        handler = self._calls.get(call)
        if handler is None:
            return 404, _failure("refused", f"the scheduler has no call {call[:40]!r}")
        try:
            return _OK, msgspec.json.encode(handler(body))
        except InvalidInputError as error:
            return 400, _failure("refused", str(error))
        except BackendError as error:
            word, status = _word_of(error)
            return status, _failure(word, str(error))


class RemoteScheduler:
    """A SchedulerBackend whose scheduler is simulated in another process (``sickbay simulate serve``).

    ``url``: that process's base address. ``timeout_seconds``: deadline of one read; ``action_seconds``: of
    one write. ``may_act`` is asked before each write with its deadline and raises UnavailableError when it
    may not be begun. ``client`` carries the calls in place of one of its own.
    """

    kind = "simulated"

    def __init__(
        self,
        url: str,
        *,
        timeout_seconds: float = 10.0,
        action_seconds: float = 10.0,
        may_act: Callable[[float], None] = lambda _: None,
        client: httpx.Client | None = None,
    ) -> None:
        self._url = url.rstrip("/")
        self._reading, self._acting = timeout_seconds, action_seconds
        self._may_act = may_act
        self._client = client or httpx.Client(trust_env=False)

    def close(self) -> None:
        self._client.close()

    def observe(self) -> SchedulerSnapshot:
        return self._call("observe", None, SchedulerSnapshot)

    def observe_node(self, node: str) -> NodeRecord:
        return self._call("observe_node", ObserveNode(node), NodeRecord)

    def cordon(self, node: str, mark: Mark) -> NodeRecord:
        return self._act("cordon", Marked(node, mark), NodeRecord)

    def uncordon(self, node: str, mark: Mark) -> NodeRecord:
        return self._act("uncordon", Marked(node, mark), NodeRecord)

    def requeue(self, request: RequeueRequest) -> RequeueOutcome:
        return self._act("requeue", request, RequeueOutcome)

    def reboot(self, node: str, mark: Mark, *, ordered_at: float) -> NodeRecord:
        return self._act("reboot", Reboot(node, mark, ordered_at), NodeRecord)

    def annotate(self, node: str, text: str) -> NodeRecord:
        return self._act("annotate", Annotate(node, text), NodeRecord)

    def _act(self, call: str, argument: object, answer: type[T]) -> T:
        self._may_act(self._acting)
        return self._call(call, argument, answer, seconds=self._acting)

    def _call(self, call: str, argument: object, answer: type[T], *, seconds: float | None = None) -> T:
        where = f"{self._url}{PATH}{call}"
        try:
            response = self._client.post(
                where, content=msgspec.json.encode(argument), timeout=seconds or self._reading
            )
        except httpx.HTTPError as error:
            raise UnavailableError(f"{where}: {str(error) or type(error).__name__}") from error
        try:
            if response.status_code == _OK:
                return msgspec.json.decode(response.content, type=answer)
            failure = msgspec.json.decode(response.content, type=Failure)
        except msgspec.MsgspecError as error:
            raise UnavailableError(
                f"{where}: HTTP {response.status_code}, not understood: {error}"
            ) from error
        kind, _ = _ERRORS.get(failure.error, (UnavailableError, 503))
        raise kind(failure.message)


def _marked(asked: Marked, call: Callable[[str, Mark], NodeRecord]) -> NodeRecord:
    return call(asked.node, asked.mark)


def _reboot(backend: SchedulerBackend, asked: Reboot) -> NodeRecord:
    return backend.reboot(asked.node, asked.mark, ordered_at=asked.ordered_at)


def _annotate(backend: SchedulerBackend, asked: Annotate) -> NodeRecord:
    return backend.annotate(asked.node, asked.text)


def _read(body: bytes, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.MsgspecError as error:
        raise InvalidInputError(f"the body is no {shape.__name__}: {error}") from error


def _word_of(error: BackendError) -> tuple[str, int]:
    for word, (kind, status) in _ERRORS.items():
        if isinstance(error, kind):
            return word, status
    return "unavailable", 503


def _failure(word: str, message: str) -> bytes:
    return msgspec.json.encode(Failure(word, message))
