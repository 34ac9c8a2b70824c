"""One GET with a deadline that nothing stretches: not a header a byte at a time, not an endless body.

Python's socket time-outs start anew with each byte. Here every read of the socket gets what is left of the
request's deadline, and the body is bounded on the wire and after decompression. Redirects are not followed,
proxies of the environment are not used, certificates are checked against the system's authorities.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fleet.errors import InvalidInputError, SickbayError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_CHUNK_BYTES = 64 * 1024
_GZIP_WINDOW = 31  # zlib: the largest window, a gzip header


class FetchError(SickbayError):
    """No usable answer; the text says why, in one line."""


class FetchTimeoutError(FetchError):
    """The deadline passed: connecting, waiting for an answer, or in the middle of it."""


class FetchTooLargeError(FetchError):
    """The body is larger than allowed, as declared, received or decompressed."""


class FetchTruncatedError(FetchError):
    """The connection ended before the body did."""


class FetchUnreadableError(FetchError):
    """The answer is no HTTP, or its encoding is broken."""


@dataclass(frozen=True, slots=True)
class Answer:
    """``content_type`` is lower case without parameters, "" where the server says nothing.

    ``framed``: the server said how long the body is (a length, or chunks), so that it is known to be whole.
    """

    status: int
    content_type: str
    body: bytes
    framed: bool


class Deadline:
    """How long a request may still take. ``monotonic`` must move with real time."""

    def __init__(self, monotonic: Callable[[], float], seconds: float) -> None:
        self._monotonic = monotonic
        self._until = monotonic() + seconds
        self._seconds = seconds

    def left(self) -> float:
        """Seconds left, more than 0; raises FetchTimeoutError when there are none."""
        left = self._until - self._monotonic()
        if left <= 0:
            raise self.error()
        return left

    def error(self) -> FetchTimeoutError:
        return FetchTimeoutError(f"no whole answer within {self._seconds:g} s")


class _BoundedSocket(io.RawIOBase):
    """A socket's bytes for reading; each wait is what is left of the deadline."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        self._sock.settimeout(self._deadline.left())
        try:
            return self._sock.recv_into(buffer)
        except TimeoutError:
            raise self._deadline.error() from None


class _ReadsWithDeadline:
    """What http.client's response needs of a socket: ``makefile``."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._raw = _BoundedSocket(sock, deadline)

    def makefile(self, mode: str) -> io.BufferedReader:
        del mode  # "rb"
        return io.BufferedReader(self._raw, _CHUNK_BYTES)


class Fetcher:
    """GETs one address over one connection that is kept between calls. Not thread-safe."""

    def __init__(
        self, url: str, *, headers: dict[str, str], max_bytes: int, tls: ssl.SSLContext | None = None
    ) -> None:
        """Raises InvalidInputError unless ``url`` is http(s) with a host and without a password.

        ``tls``: a context to share between many (each costs memory); None: one of its own.
        """
        if not url.isascii() or not url.isprintable() or " " in url:
            raise InvalidInputError(f"{url[:200]!r} is no plain address")
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError as error:
            raise InvalidInputError(f"{url[:200]!r}: {error}") from error
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise InvalidInputError(f"{url[:200]!r} is no http:// or https:// address")
        if parts.username is not None or parts.password is not None:
            raise InvalidInputError(
                f"the address of {parts.hostname} holds a user or password: not supported"
            )
        self._host = parts.hostname
        self._port = port or (443 if parts.scheme == "https" else 80)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        host = f"[{self._host}]" if ":" in self._host else self._host
        self._head = "".join(
            f"{name}: {value}\r\n" for name, value in {"Host": f"{host}:{self._port}", **headers}.items()
        )
        self._max_bytes = max_bytes
        self._sock: socket.socket | None = None

    def get(self, deadline: Deadline, *, connect_seconds: float) -> Answer:
        """One answer, whatever its status. Raises FetchError."""
        kept = self._sock is not None
        try:
            return self._get(deadline, connect_seconds)
        except (ConnectionError, http.client.RemoteDisconnected) as error:
            self.close()
            if not kept:
                raise FetchError(_words(error)) from error
        # A kept connection that the server had closed: a GET may be asked again.
        try:
            return self._get(deadline, connect_seconds)
        except (ConnectionError, http.client.RemoteDisconnected) as error:
            self.close()
            raise FetchError(_words(error)) from error

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def _get(self, deadline: Deadline, connect_seconds: float) -> Answer:
        try:
            answer, keep = self._exchange(deadline, connect_seconds)
        except FetchError:
            self.close()
            raise
        except TimeoutError:
            self.close()
            raise deadline.error() from None
        except http.client.IncompleteRead as error:
            self.close()
            raise FetchTruncatedError("the connection ended in the middle of the body") from error
        except (ConnectionError, http.client.RemoteDisconnected):
            raise
        except (OSError, UnicodeError) as error:
            self.close()
            raise FetchError(_words(error)) from error
        except (http.client.HTTPException, ValueError) as error:
            self.close()
            raise FetchUnreadableError(f"the answer is no HTTP: {_words(error)}") from error
        if not keep:
            self.close()
        return answer

    def _exchange(self, deadline: Deadline, connect_seconds: float) -> tuple[Answer, bool]:
        sock = self._sock or self._connect(deadline, connect_seconds)
        self._sock = sock
        sock.settimeout(deadline.left())
        sock.sendall(f"GET {self._path} HTTP/1.1\r\n{self._head}\r\n".encode("latin-1"))
        with http.client.HTTPResponse(_ReadsWithDeadline(sock, deadline), method="GET") as response:  # type: ignore[arg-type]
            response.begin()
            framed = response.chunked or response.length is not None
            if response.length is not None and response.length > self._max_bytes:
                raise FetchTooLargeError(f"a body of {response.length} bytes; {self._max_bytes} are allowed")
            body = self._body(response, deadline)
            content_type = (response.getheader("content-type") or "").partition(";")[0].strip().lower()
            return Answer(response.status, content_type, body, framed), not response.will_close

    def _connect(self, deadline: Deadline, connect_seconds: float) -> socket.socket:
        address = (self._host, self._port)
        try:
            sock = socket.create_connection(address, timeout=min(connect_seconds, deadline.left()))
        except TimeoutError:
            raise FetchTimeoutError(f"{self._host}:{self._port} does not answer") from None
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is None:
            return sock
        try:
            sock.settimeout(deadline.left())
            return self._tls.wrap_socket(sock, server_hostname=self._host)
        except OSError:
            sock.close()
            raise

    def _body(self, response: http.client.HTTPResponse, deadline: Deadline) -> bytes:
        encoding = (response.getheader("content-encoding") or "identity").strip().lower()
        if encoding not in {"identity", "gzip", "x-gzip"}:
            raise FetchUnreadableError(f"content encoding {encoding[:40]!r} was not asked for")
        unpack = None if encoding == "identity" else zlib.decompressobj(_GZIP_WINDOW)
        body, received = bytearray(), 0
        while chunk := response.read1(_CHUNK_BYTES):
            deadline.left()
            received += len(chunk)
            body += chunk if unpack is None else self._unpacked(unpack, chunk, len(body))
            if max(received, len(body)) > self._max_bytes:
                raise FetchTooLargeError(f"the body is larger than {self._max_bytes} bytes")
        if response.length:
            raise FetchTruncatedError("the connection ended in the middle of the body")
        if unpack is not None and received and not unpack.eof:
            raise FetchTruncatedError("the gzip body ends too early")
        return bytes(body)

    def _unpacked(self, unpack: zlib._Decompress, chunk: bytes, have: int) -> bytes:
        try:
            return unpack.decompress(chunk, self._max_bytes - have + 1)
        except zlib.error as error:
            raise FetchUnreadableError(f"the gzip body is broken: {error}") from error


def _words(error: Exception) -> str:
    text = " ".join(str(error).split())[:200]
    return text or type(error).__name__
