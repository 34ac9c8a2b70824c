"""May this identity do that? And is the request really meant by the person whose browser sent it?"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.requests import Request

from sickbay.config import Role
from sickbay.http.access import READERS, Access, Identity, Method, is_loopback
from sickbay.http.errors import HttpError

SESSION_COOKIE = "sickbay_session"
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Guard:
    """Identifies a request and refuses what its role may not do, with a sentence."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def reader(self, request: Request) -> Identity:
        """Viewer or operator."""
        identity = self._identify(request)
        if identity.role not in READERS:
            raise _forbidden(identity, "read this", "viewer or operator")
        return identity

    def operator(self, request: Request) -> Identity:
        identity = self._identify(request)
        if identity.role is not Role.OPERATOR:
            raise _forbidden(identity, "do this", "operator")
        return identity

    def agent(self, request: Request) -> Identity:
        """A node's agent, or the anonymous loopback. Whether the node is its own is the caller's check."""
        identity = self._identify(request)
        if identity.role is not Role.AGENT and identity.method is not Method.ANONYMOUS:
            raise _forbidden(identity, "push events", "agent")
        return identity

    def alertmanager(self, request: Request) -> Identity:
        identity = self._identify(request)
        if identity.role is not Role.ALERTMANAGER and identity.method is not Method.ANONYMOUS:
            raise _forbidden(identity, "push alerts", "alertmanager")
        return identity

    def _identify(self, request: Request) -> Identity:
        client_host = request.client.host if request.client is not None else ""
        identity = self._access.identify(
            request.headers.get("authorization"), request.cookies.get(SESSION_COOKIE), client_host
        )
        if identity is None:
            raise unauthenticated("a valid token is required: send Authorization: Bearer TOKEN")
        if identity.method is Method.ANONYMOUS and not _host_is_loopback(request):
            # A web page can point its own name at 127.0.0.1 (DNS rebinding) and read what comes back.
            raise HttpError(
                403, "anonymous access is for 127.0.0.1 and localhost; use one of them in the URL, or a token"
            )
        if identity.method is not Method.BEARER and request.method not in _SAFE_METHODS:
            require_same_origin(request, strict=identity.method is Method.SESSION)
        return identity


def unauthenticated(sentence: str) -> HttpError:
    return HttpError(401, sentence, {"www-authenticate": 'Bearer realm="sickbay"', "connection": "close"})


def require_same_origin(request: Request, *, strict: bool) -> None:
    """Refuse what another site's page made a browser send (Fetch Metadata, then Origin against Host).

    ``strict``: a request that carries neither header is refused too. Every browser that knows
    SameSite sends at least Origin on a POST; programs use a bearer token and never come here.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        raise HttpError(403, f"a request from another site ({site[:20]}) is not accepted")
    origin = request.headers.get("origin")
    if origin is not None:
        if urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower():
            raise HttpError(403, "the Origin of this request is not this console")
    elif strict and site is None:
        raise HttpError(403, "a signed-in browser must send Origin or Sec-Fetch-Site; programs use a token")


def _host_is_loopback(request: Request) -> bool:
    host = request.headers.get("host", "").lower()
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name == "localhost" or is_loopback(name)


def _forbidden(identity: Identity, what: str, role: str) -> HttpError:
    return HttpError(
        403,
        f"{identity.name} has the role {identity.role.value} and may not {what}: that takes {role}",
        {"connection": "close"},
    )
