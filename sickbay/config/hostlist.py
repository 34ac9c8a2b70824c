"""Hostlists in the configuration: ClusterShell's syntax without its groups, bounded before expansion.

ClusterShell expands eagerly, and its group sources run commands that a site's files name; so the text is
checked first and no resolver is given (ClusterShell documentation, "Node groups", ``RESOLVER_NOGROUP``).
"""

from __future__ import annotations

import math
import re

from fleet.identity import is_node_name

MAX_NODES = 65_536
_MAX_CHARS = 65_536
_ALLOWED = re.compile(r"[A-Za-z0-9._,/\[\]-]+")
_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?:/(\d{1,9}))?)?")
_ADVICE = "write names and ranges such as n[01-16],m1"


def expand_hostlist(text: str) -> tuple[str, ...]:
    """``n[01-03],m1`` -> the node names, in order. Raises ValueError: ``what; what to do``."""
    if len(text) > _MAX_CHARS or _ALLOWED.fullmatch(text) is None:
        raise ValueError(f"{text[:80]!r} is no hostlist; {_ADVICE} (no groups, wildcards or blanks)")
    _check_size(text)
    # Here, not above: an agent and a client read configurations without hostlists, and ClusterShell is
    # a third of their start-up time.
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException  # noqa: PLC0415

    try:
        names = tuple(str(name) for name in NodeSet(text, resolver=RESOLVER_NOGROUP))
    except NodeSetException as error:
        raise ValueError(f"{text[:80]!r} is no hostlist ({error}); {_ADVICE}") from None
    wrong = next((name for name in names if not is_node_name(name)), None)
    if wrong is not None or not names:
        raise ValueError(f"{text[:80]!r} is no hostlist ({wrong!r} is no node name); {_ADVICE}")
    return names


def _check_size(text: str) -> None:
    """Refuse what would expand to more than MAX_NODES names, without expanding it."""
    total = 0
    # Commas inside brackets separate ranges, those outside separate names.
    for item in re.split(r",(?![^\[]*\])", text):
        total += math.prod(_range_size(body) for body in _BRACKET.findall(item))
        if total > MAX_NODES:
            raise ValueError(
                f"{text[:80]!r} names more than {MAX_NODES} nodes; split the cluster or use a label"
            )


def _range_size(body: str) -> int:
    size = 0
    for part in body.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"'[{body[:80]}]' is no range of a hostlist; {_ADVICE}")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or step < 1:
            raise ValueError(f"the range {part!r} runs backwards or stands still; {_ADVICE}")
        size += (last - first) // step + 1
    return size
