"""The console page and its sign-in. The page is one answer without any external request."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from sickbay.http.access import READERS, Access
from sickbay.http.answers import json_response
from sickbay.http.bodies import DEFAULT_BODY_SECONDS, SMALL_BODY_BYTES, read_body, require_json
from sickbay.http.contract import ANYBODY, responses
from sickbay.http.errors import HttpError
from sickbay.http.guard import SESSION_COOKIE, require_same_origin, unauthenticated
from sickbay.http.schemas import LOGIN_BODY, SessionAnswer


class LoginBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    token: str


class Console:
    """``GET /``, ``POST /login``, ``POST /logout``."""

    def __init__(self, access: Access, version: str) -> None:
        self._access = access
        self._version = version
        self._page, self._policy = build_page()

    def router(self) -> APIRouter:
        router = APIRouter(tags=["console"])
        router.add_api_route(
            "/",
            self.page,
            methods=["GET"],
            summary="The console",
            response_class=HTMLResponse,
            openapi_extra=ANYBODY,
        )
        router.add_api_route(
            "/login",
            self.login,
            methods=["POST"],
            summary="Exchange a token for a session cookie",
            responses=responses(SessionAnswer, 400, 401, 403, 408, 413, 415),
            openapi_extra={**LOGIN_BODY, **ANYBODY},
        )
        router.add_api_route(
            "/logout",
            self.logout,
            methods=["POST"],
            summary="End the session",
            status_code=204,
            response_class=Response,
            responses=responses(None, 403),
            openapi_extra=ANYBODY,
        )
        return router

    async def page(self) -> Response:
        return HTMLResponse(self._page, headers={"content-security-policy": self._policy})

    async def login(self, request: Request) -> Response:
        require_same_origin(request, strict=False)
        require_json(request)
        raw = await read_body(request, max_bytes=SMALL_BODY_BYTES, seconds=DEFAULT_BODY_SECONDS)
        try:
            token = msgspec.json.decode(raw, type=LoginBody).token.strip()
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            # The error's text could quote the token: a sentence of our own.
            raise HttpError(400, 'the body must be {"token": "..."}') from None
        opened = self._access.open_session(token)
        if opened is None:
            raise unauthenticated("this token is nobody's")
        cookie, identity = opened
        if identity.role not in READERS:
            self._access.close_session(cookie)
            raise HttpError(
                403, f"the console is for viewers and operators, not for {identity.role.value} tokens"
            )
        answer = {
            "name": identity.name,
            "role": identity.role.value,
            "method": identity.method.value,
            "version": self._version,
        }
        response = json_response(answer)
        response.set_cookie(
            SESSION_COOKIE, cookie, path="/", httponly=True, samesite="strict", secure=_over_https(request)
        )
        return response

    async def logout(self, request: Request) -> Response:
        require_same_origin(request, strict=False)
        cookie = request.cookies.get(SESSION_COOKIE)
        if cookie:
            self._access.close_session(cookie)
        response = Response(status_code=204)
        response.delete_cookie(
            SESSION_COOKIE, path="/", httponly=True, samesite="strict", secure=_over_https(request)
        )
        return response


def _over_https(request: Request) -> bool:
    """As the browser sees it: behind a TLS proxy the connection is plain, but its Origin says https."""
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")


def build_page() -> tuple[str, str]:
    """(page, Content-Security-Policy). Only this very script and style run, by their hashes."""
    files = resources.files("sickbay.http") / "page"
    style = (files / "console.css").read_text("utf-8")
    scripts = sorted((file for file in files.iterdir() if file.name.endswith(".js")), key=lambda f: f.name)
    script = "\n".join(file.read_text("utf-8") for file in scripts)
    page = (files / "console.html").read_text("utf-8")
    page = page.replace("/*STYLE*/", style).replace("/*SCRIPT*/", script)
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_source_hash(script)}'",
            f"style-src '{_source_hash(style)}'",
            "img-src data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        )
    )
    return page, policy


def _source_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
