"""Bearer tokens: who is speaking, and what they may do.

An agent's token is derived, never stored: ``sbn1.<node>.<mac>``, the node's name and an HMAC-SHA256 over
it, both in unpadded base64url (RFC 4648, section 5; RFC 2104). One secret serves the cluster, and a token
that leaks speaks for one node. Other tokens are opaque and live in files of their own.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import os
import threading
from dataclasses import dataclass
from pathlib import Path

from fleet.identity import is_node_name
from sickbay.config import ConfigError, Http, Role

_LOG = logging.getLogger(__name__)
_PREFIX = "sbn1"
_CONTEXT = b"sickbay agent token v1\x00"
MIN_CHARS = 16
_MAX_BYTES = 8_192
_MAX_TOKEN_CHARS = 4_096
_Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose token it is. ``node`` is set for agents: the one node they may push for."""

    name: str
    role: Role
    node: str | None = None


def agent_token(secret: bytes, node: str) -> str:
    """The token of ``node``. Raises ConfigError when ``node`` is no single host name."""
    if not is_node_name(node):
        raise ConfigError([f"{node[:80]!r} is no single host name; give one node, such as n01"])
    return f"{_PREFIX}.{_encode(node.encode())}.{_encode(_mac(secret, node))}"


def token_node(secret: bytes, token: str) -> str | None:
    """The node that ``token`` speaks for; None when it was not made with ``secret``."""
    prefix, _, rest = token.partition(".")
    node_part, _, _ = rest.partition(".")
    if prefix != _PREFIX or len(token) > _MAX_TOKEN_CHARS:
        return None
    try:
        node = _decode(node_part).decode()
    except (ValueError, binascii.Error):
        return None
    # The whole text is compared: base64 has several spellings of one value, only ours is valid.
    if not is_node_name(node) or not _same(agent_token(secret, node), token):
        return None
    return node


def verify_agent_token(secret: bytes, node: str, token: str) -> bool:
    """True when ``token`` was made for ``node`` with ``secret``; compared in constant time."""
    return is_node_name(node) and _same(agent_token(secret, node), token)


def read_secret(path: Path) -> bytes:
    """The secret or token in ``path``, stripped. Raises ConfigError: one line, never the secret itself."""
    return _read(path)[0]


class TokenBook:
    """Bearer token -> Identity, from the files the configuration names.

    Files are read at once (a bad one is a ConfigError at start) and again whenever they change, so a token
    is rotated by replacing its file. A file that becomes unreadable ends its token until it can be read.
    Safe to call from any thread.
    """

    def __init__(self, http: Http) -> None:
        self._lock = threading.Lock()
        self._static = [
            (
                Identity(token.name, token.role, node=_own_node(token.name, token.role)),
                _File(token.token_file),
            )
            for token in http.tokens
        ]
        self._secret = _File(http.agent_secret_file) if http.agent_secret_file is not None else None
        self._refuse_twins()

    def identify(self, token: str) -> Identity | None:
        """Whose token this is; None when it is nobody's. Looks at every token, whichever fits."""
        if not token or len(token) > _MAX_TOKEN_CHARS:
            return None
        found: Identity | None = None
        with self._lock:
            entries = [(identity, file.current()) for identity, file in self._static]
            secret = self._secret.current() if self._secret is not None else None
        for identity, value in entries:
            if value is not None and _same_bytes(value, token.encode(errors="replace")) and found is None:
                found = identity
        if found is None and secret is not None:
            node = token_node(secret, token)
            if node is not None:
                found = Identity(node, Role.AGENT, node=node)
        return found

    def _refuse_twins(self) -> None:
        seen: dict[bytes, str] = {}
        for identity, file in self._static:
            value = file.current()
            if value is None:
                continue
            other = seen.setdefault(value, identity.name)
            if other != identity.name:
                raise ConfigError(
                    [f"{file.path}: holds the same token as that of {other!r}; give every name its own"]
                )


class _File:
    """A secret's file, re-read when its inode, size or modification time changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._value: bytes | None
        self._stamp: _Stamp | None
        self._value, self._stamp = _read(path)

    def current(self) -> bytes | None:
        """The secret as the file has it now; None while it cannot be used."""
        stamp: _Stamp | None
        try:
            stamp = _stamp(self.path.stat())
        except OSError:
            stamp = None
        if stamp == self._stamp:
            return self._value
        try:
            self._value, self._stamp = _read(self.path)
            _LOG.info("%s changed and was read again", self.path)
        except ConfigError as error:
            self._value, self._stamp = None, stamp
            _LOG.error("its token is not valid until this is mended: %s", error)
        return self._value


def _read(path: Path) -> tuple[bytes, _Stamp]:
    """(the secret, what identifies this version of the file)."""
    try:
        with path.open("rb") as file:
            value = file.read(_MAX_BYTES + 1).strip()
            stat = os.fstat(file.fileno())
    except FileNotFoundError:
        raise ConfigError([f"{path}: no such file; write a long random text into it"]) from None
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read ({error.strerror}); check its rights"]) from None
    if len(value) > _MAX_BYTES:
        raise ConfigError([f"{path}: larger than {_MAX_BYTES} bytes; is this a token file?"])
    if len(value) < MIN_CHARS:
        raise ConfigError(
            [
                f"{path}: the secret has {len(value)} characters, {MIN_CHARS} are the least; "
                "make one with: openssl rand -hex 32"
            ]
        )
    return value, _stamp(stat)


def _stamp(stat: os.stat_result) -> _Stamp:
    return (stat.st_ino, stat.st_size, stat.st_mtime_ns)


def _own_node(name: str, role: Role) -> str | None:
    return name if role is Role.AGENT else None


def _mac(secret: bytes, node: str) -> bytes:
    return hmac.new(secret, _CONTEXT + node.encode(), hashlib.sha256).digest()


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))


def _same(ours: str, theirs: str) -> bool:
    return _same_bytes(ours.encode(), theirs.encode(errors="replace"))


def _same_bytes(ours: bytes, theirs: bytes) -> bool:
    return hmac.compare_digest(ours, theirs)
