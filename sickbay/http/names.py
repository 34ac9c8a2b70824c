"""Names in paths, queries and bodies. What is not one plain name names nothing."""

from __future__ import annotations

import re

from fleet.identity import is_node_name
from sickbay.http.errors import HttpError

_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# Overrides of the writing direction can make a reason read as something else.
_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_DELETE = 0x7F
_C1_END = 0x9F
MAX_REASON_CHARS = 500


def is_single_node(text: str) -> bool:
    """One host name; no hostlist, path, or line end."""
    return not text.endswith("\n") and is_node_name(text)


def node_in_path(name: str) -> str:
    if not is_single_node(name):
        raise HttpError(404, f"{name[:80]!r} is not the name of a node")
    return name


def node_in_query(name: str | None, parameter: str) -> str | None:
    if name is not None and not is_single_node(name):
        raise HttpError(400, f"query {parameter}: {name[:80]!r} is not the name of one node")
    return name


def incident_in_path(incident_id: str) -> str:
    if _IDENTIFIER.fullmatch(incident_id) is None:
        raise HttpError(404, f"{incident_id[:80]!r} is not the id of an incident")
    return incident_id


def pool_in_body(pool: str | None) -> str | None:
    if pool is not None and _IDENTIFIER.fullmatch(pool) is None:
        raise HttpError(400, f"$.pool: {pool[:80]!r} is not the name of a pool; null means the whole fleet")
    return pool


def reason_in_body(reason: str | None, *, required: bool) -> str:
    """One line of text a person wrote; white space runs become one space."""
    line = " ".join((reason or "").split())
    if not line and required:
        raise HttpError(400, "$.reason is required: say in one sentence why")
    if len(line) > MAX_REASON_CHARS:
        raise HttpError(400, f"$.reason is longer than {MAX_REASON_CHARS} characters")
    if any(_is_control(char) for char in line):
        raise HttpError(400, "$.reason contains control characters")
    return line


def _is_control(char: str) -> bool:
    return char < " " or _DELETE <= ord(char) <= _C1_END or char in _BIDI
