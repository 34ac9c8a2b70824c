"""Reading request bodies: bounded in bytes and in time while they arrive, decoded with one clear line."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import msgspec
from starlette.requests import ClientDisconnect, Request

from sickbay.http.errors import HttpError

DEFAULT_MAX_BODY_BYTES = 16 * 1024 * 1024
DEFAULT_BODY_SECONDS = 10.0
SMALL_BODY_BYTES = 16 * 1024
# After "too large" we read on for a moment, so that the answer reaches a sender that is still writing:
# closing with unread bytes resets the connection and the sender sees a broken pipe instead of 413.
_LINGER_SECONDS = 1.0
_BOM = b"\xef\xbb\xbf"
_CLOSE = {"connection": "close"}


def require_json(request: Request) -> None:
    """415 unless the body says it is JSON, uncompressed."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        said = f"content type is {kind!r}" if kind else "there is no content type"
        raise HttpError(415, f"{said}; send JSON as application/json", _CLOSE)
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise HttpError(
            415, f"content encoding {encoding!r} is not supported; send the JSON as it is", _CLOSE
        )


async def read_body(request: Request, *, max_bytes: int, seconds: float) -> bytes:
    """The whole body, or 413 / 408. Content-Length may only refuse early; what arrives is counted."""
    too_large = HttpError(413, f"the body is larger than {max_bytes} bytes; send less at once", _CLOSE)
    declared = request.headers.get("content-length", "")
    stream = request.stream()
    try:
        with anyio.fail_after(seconds):
            if declared.isascii() and declared.isdigit() and int(declared[:18]) > max_bytes:
                await _linger(stream, max_bytes)
                raise too_large
            body = bytearray()
            async for chunk in stream:
                body += chunk
                if len(body) > max_bytes:
                    del body
                    await _linger(stream, max_bytes)
                    raise too_large
    except TimeoutError:
        raise HttpError(408, f"the body did not arrive within {seconds:g} s", _CLOSE) from None
    except ClientDisconnect:
        raise HttpError(400, "the sender went away before the body was complete", _CLOSE) from None
    return bytes(body)


async def _linger(stream: AsyncIterator[bytes], max_bytes: int) -> None:
    """Throw away up to as much again, for at most a second."""
    discarded = 0
    with anyio.move_on_after(_LINGER_SECONDS):
        async for chunk in stream:
            discarded += len(chunk)
            if discarded > max_bytes:
                return


async def read_json(request: Request, *, max_bytes: int, seconds: float) -> object:
    """The decoded body. A leading byte order mark is stripped: some proxies and scripts put one there."""
    require_json(request)
    body = await read_body(request, max_bytes=max_bytes, seconds=seconds)
    return decode_json(body)


def decode_json(body: bytes) -> object:
    """Plain data, or 400 naming what is wrong and where."""
    try:
        return msgspec.json.decode(body.removeprefix(_BOM))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise HttpError(400, f"the body is not valid JSON: {error} ({len(body)} bytes received)") from None
    except RecursionError:
        raise HttpError(400, "the body is nested too deeply") from None
