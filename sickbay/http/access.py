"""Who is asking: bearer tokens, console sessions, and the anonymous loopback of a lab."""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from fleet.clock import Clock, SystemClock
from sickbay.config import Role
from sickbay.tokens import TokenBook

SESSION_SECONDS = 12 * 3600.0
MAX_SESSIONS = 1000
MAX_TOKEN_CHARS = 4096
ANONYMOUS_NAME = "anonymous (loopback)"


READERS = frozenset({Role.VIEWER, Role.OPERATOR})


class Method(StrEnum):
    """How somebody proved who they are. All but BEARER are things a browser sends by itself."""

    BEARER = "bearer"
    SESSION = "session"
    ANONYMOUS = "anonymous"


@dataclass(frozen=True, slots=True)
class Identity:
    """``name`` is the author of what is done; ``node`` is set for agents: the one they speak for."""

    name: str
    role: Role
    node: str | None = None
    method: Method = Method.BEARER


class Access(Protocol):
    """Turns what a request carries into an identity. Called on the event loop: it must not block."""

    def identify(self, authorization: str | None, cookie: str | None, client_host: str) -> Identity | None:
        """``authorization``: the header as it came; ``cookie``: the session cookie's value.

        ``client_host`` is the address of the TCP peer, never a forwarded one. None: nobody we know.
        """
        ...

    def open_session(self, token: str) -> tuple[str, Identity] | None:
        """Exchange a token for a session cookie's value; None when the token is nobody's."""
        ...

    def close_session(self, cookie: str) -> None: ...


def is_loopback(host: str) -> bool:
    """True for 127.0.0.0/8 and ::1, also written as an IPv4-mapped IPv6 address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def bearer_token(authorization: str) -> str | None:
    """The token of an ``Authorization: Bearer ...`` header (RFC 6750), None for anything else."""
    scheme, _, token = authorization.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or len(token) > MAX_TOKEN_CHARS:
        return None
    return token


@dataclass(frozen=True, slots=True)
class _Session:
    token: str
    expires_at: float


class TokenAccess:
    """Access over a function that knows the tokens.

    ``lookup`` returns the identity behind a token, or None. Sessions live in this process's memory and
    are looked up by the hash of their cookie; each use asks ``lookup`` again, so that a token that is
    gone takes its sessions along. A restart ends them: people sign in again.
    """

    def __init__(
        self,
        lookup: Callable[[str], Identity | None],
        *,
        allow_anonymous_loopback: bool = False,
        clock: Clock | None = None,
        session_seconds: float = SESSION_SECONDS,
    ) -> None:
        self._lookup = lookup
        self._anonymous = allow_anonymous_loopback
        self._clock = clock or SystemClock()
        self._session_seconds = session_seconds
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._lock = threading.Lock()

    def identify(self, authorization: str | None, cookie: str | None, client_host: str) -> Identity | None:
        # A wrong token is refused even on an anonymous loopback: a program that presents one means it.
        if authorization is not None:
            token = bearer_token(authorization)
            return self._lookup(token) if token is not None else None
        if cookie:
            identity = self._session_identity(cookie)
            if identity is not None:
                return identity
        # A stale cookie is no claim, only what the browser still had: it falls through.
        if self._anonymous and is_loopback(client_host):
            return Identity(ANONYMOUS_NAME, Role.OPERATOR, None, Method.ANONYMOUS)
        return None

    def open_session(self, token: str) -> tuple[str, Identity] | None:
        if not token or len(token) > MAX_TOKEN_CHARS:
            return None
        identity = self._lookup(token)
        if identity is None:
            return None
        cookie = secrets.token_urlsafe(32)
        session = _Session(token, self._clock.monotonic() + self._session_seconds)
        with self._lock:
            self._sessions[_digest(cookie)] = session
            while len(self._sessions) > MAX_SESSIONS:
                self._sessions.popitem(last=False)
        return cookie, replace(identity, method=Method.SESSION)

    def close_session(self, cookie: str) -> None:
        with self._lock:
            self._sessions.pop(_digest(cookie), None)

    def _session_identity(self, cookie: str) -> Identity | None:
        key = _digest(cookie)
        with self._lock:
            session = self._sessions.get(key)
            if session is not None and session.expires_at <= self._clock.monotonic():
                del self._sessions[key]
                session = None
        if session is None:
            return None
        identity = self._lookup(session.token)
        return None if identity is None else replace(identity, method=Method.SESSION)


def access_from_book(
    book: TokenBook, *, allow_anonymous_loopback: bool, clock: Clock | None = None
) -> TokenAccess:
    """Access over the configured tokens (``http.tokens`` and ``http.agent_secret_file``)."""

    def lookup(token: str) -> Identity | None:
        found = book.identify(token)
        return None if found is None else Identity(found.name, found.role, found.node)

    return TokenAccess(lookup, allow_anonymous_loopback=allow_anonymous_loopback, clock=clock)


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "surrogateescape")).hexdigest()
