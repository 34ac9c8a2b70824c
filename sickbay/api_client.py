"""The controller's API, as the command line speaks to it: deadlines, one error line, paging."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from fleet.errors import SickbayError
from sickbay.config import ConfigError, is_loopback
from sickbay.config.types import check_url
from sickbay.tokens import read_secret

CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
MAX_PAGES = 10_000
_MAX_SENTENCE = 400

Json = dict[str, Any]
Query = Mapping[str, str]


class ApiError(SickbayError):
    """The API could not be asked, or said no. ``status`` is None when there was no answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Answer:
    """A body: as it came, and what it means.

    ``now``: the controller's time (epoch seconds) when it answered, by its ``Date``; ages are counted by the
    clock that wrote the times. Our own time where it did not say.
    """

    text: str
    value: Json
    now: float


class ApiClient:
    """One controller. ``transport`` is httpx's, for tests; None is the network."""

    def __init__(
        self, url: str, token_file: Path | None = None, transport: httpx.BaseTransport | None = None
    ) -> None:
        try:
            check_url(url)
        except ValueError as error:
            raise ConfigError([f"--url (or SICKBAY_URL) {error}"]) from None
        self._url = url.rstrip("/")
        self._token_file = token_file
        headers = {"Accept": "application/json"}
        if token_file is not None:
            headers["Authorization"] = f"Bearer {_token(token_file)}"
        self._client = httpx.Client(
            headers=headers,
            timeout=httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS),
            transport=transport,
            # A proxy from the environment is for the world outside, not for this machine.
            trust_env=not is_loopback(urlsplit(url).hostname or ""),
        )

    def __enter__(self) -> ApiClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self._client.close()

    def get(self, *path: str, query: Query | None = None) -> Answer:
        """GET /api/v1/PATH. Raises ApiError."""
        return self._ask("GET", path, query=query)

    def get_all(self, *path: str, cursor: str, query: Query | None = None) -> Answer:
        """Every page of a list, as one ``{"items", "next": null}``; ``cursor`` names the parameter."""
        first = self._ask("GET", path, query=query)
        items, after = list(_items(first)), first.value.get("next")
        if after is None:
            return first
        for _ in range(MAX_PAGES):
            page = self._ask("GET", path, query={**(query or {}), cursor: str(after)})
            items += _items(page)
            previous, after = after, page.value.get("next")
            if after is None:
                value = {**first.value, "items": items, "next": None}
                return Answer(json.dumps(value, ensure_ascii=False), value, page.now)
            if after == previous:
                break
        raise ApiError(f"{self._url} pages its answer without an end; compare the versions of both sides")

    def post(self, *path: str, body: Mapping[str, Any]) -> Answer:
        """POST /api/v1/PATH; keys that are None are left out. Raises ApiError."""
        return self._ask("POST", path, body={key: value for key, value in body.items() if value is not None})

    def _ask(
        self, method: str, path: tuple[str, ...], *, query: Query | None = None, body: Json | None = None
    ) -> Answer:
        url = f"{self._url}/api/v1/" + "/".join(quote(part, safe="") for part in path)
        try:
            response = self._client.request(method, url, params=query, json=body)
        except httpx.TimeoutException:
            raise ApiError(
                f"{self._url} did not answer in time; {_outcome(method)}look at the controller's log"
            ) from None
        except httpx.HTTPError as error:
            raise ApiError(
                f"no answer from {self._url} ({_cause(error)}); start the controller with "
                "'sickbay serve --config FILE', or say where it is with --url or SICKBAY_URL"
            ) from None
        if not response.is_success:
            raise ApiError(self._refusal(response, method), response.status_code)
        value = _decode(response)
        if value is None:
            raise ApiError(
                f"{self._url} did not answer with a JSON object; does --url point at a controller?"
            )
        return Answer(response.text, value, _date(response))

    def _refusal(self, response: httpx.Response, method: str) -> str:
        status, said = response.status_code, _sentence(response)
        if status == httpx.codes.UNAUTHORIZED and self._token_file is None:
            return f"{self._url} asks for a token; name its file with --token-file or SICKBAY_TOKEN_FILE"
        if status == httpx.codes.UNAUTHORIZED:
            return f"{self._url} does not know the token in {self._token_file}; ask for a valid one"
        if status == httpx.codes.FORBIDDEN:
            role = "viewer or operator" if method == "GET" else "operator"
            return f"not allowed: {said or f'this needs a token with role {role}'}"
        if said and status in (httpx.codes.BAD_REQUEST, httpx.codes.NOT_FOUND, httpx.codes.CONFLICT):
            return said
        if status >= httpx.codes.INTERNAL_SERVER_ERROR:
            said = said or response.reason_phrase
            return f"the controller answered {status}: {said}; {_outcome(method)}its log says more"
        said = said or response.reason_phrase
        return f"the controller answered {status}: {said}; does --url point at a controller?"


def _token(path: Path) -> str:
    try:
        token = read_secret(path).decode("ascii")
    except UnicodeDecodeError:
        token = ""
    if not token.isprintable() or not token or " " in token:
        raise ConfigError([f"{path}: is no token; it must be one line of plain ASCII"])
    return token


def _outcome(method: str) -> str:
    return "" if method == "GET" else "whether it was done is unknown, so ask again before repeating it; "


def _cause(error: httpx.HTTPError) -> str:
    """``[Errno 111] Connection refused`` -> ``connection refused``."""
    text = re.sub(r"^\[Errno -?\d+\] ", "", _line(str(error))) or type(error).__name__
    return text[:1].lower() + text[1:]


def _decode(response: httpx.Response) -> Json | None:
    try:
        value = json.loads(response.content)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _date(response: httpx.Response) -> float:
    """RFC 9110 ``Date``, whole seconds."""
    try:
        return parsedate_to_datetime(response.headers["date"]).timestamp()
    except (KeyError, ValueError, OverflowError):
        return time.time()


def _items(answer: Answer) -> list[Any]:
    items = answer.value.get("items")
    return items if isinstance(items, list) else []


def _sentence(response: httpx.Response) -> str:
    value = _decode(response) or {}
    said = value.get("error") or value.get("detail") or ""
    return _line(said) if isinstance(said, str) else ""


def _line(text: str) -> str:
    """One printable line, bounded: it comes from the other side."""
    clean = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(clean.split())[:_MAX_SENTENCE].rstrip(".")
