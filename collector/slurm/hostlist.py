"""Slurm's host lists (``n[001-003],login``) to names, bounded.

One bracket, nearly all there are, is expanded here (fifty thousand jobs have as many lists); several by
ClusterShell without any group source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ClusterShell.NodeSet import NodeSet, NodeSetException, NodeSetParseRangeError
from ClusterShell.NodeUtils import GroupResolver

from fleet.errors import InvalidInputError
from fleet.identity import is_node_name

MAX_NODES = 65_536
MAX_CHARS = 262_144
# What Slurm prints where there is no node (squeue, scontrol, sacct).
NOTHING = frozenset({"", "(null)", "None assigned", "None", "N/A", "n/a", "Unassigned"})
# A set of groups, `@`, is ClusterShell's own syntax; operators `!&^` too: no host name holds any of them.
_ALLOWED = re.compile(r"^[A-Za-z0-9._,\[\]\s-]*$")
_LIST = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._,\[\]-]*$")
_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_ONE_BRACKET = re.compile(r"^([^\[\]]*)\[([^\[\]]*)\]([^\[\]]*)$")
_RANGE = re.compile(r"^(\d{1,12})(?:-(\d{1,12}))?$", re.ASCII)


def expand(text: str, *, limit: int = MAX_NODES) -> tuple[str, ...]:
    """The names in the order they are listed, each once. Raises InvalidInputError, never guesses.

    Zero padding is kept, several brackets per name and text after a bracket are understood, and the size
    is checked before anything is expanded: ``n[001-100000000]`` is an attack or a typo.
    """
    text = text.strip()
    if text in NOTHING:
        return ()
    if len(text) > MAX_CHARS or _ALLOWED.match(text) is None:
        raise InvalidInputError(f"host list {text[:60]!r} is too long or holds characters no name has")
    names: dict[str, None] = {}
    for item in _split(text):
        if len(names) + _size(item, limit) > limit:
            raise InvalidInputError(f"host list {text[:60]!r} names more than {limit} nodes")
        for name in _expand_one(item):
            if not is_node_name(name):
                raise InvalidInputError(f"host list {text[:60]!r} holds {name[:60]!r}, which is no host name")
            names[name] = None
    return tuple(names)


def is_host_list(text: str) -> bool:
    """True for what may stand in a column of nodes: a host list, or a word for none. Nothing is expanded."""
    return text in NOTHING or _LIST.match(text) is not None


def _split(text: str) -> list[str]:
    """The items between the commas outside brackets."""
    items, depth, start = [], 0, 0
    for position, char in enumerate(text):
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
        elif char == "," and depth == 0:
            items.append(text[start:position].strip())
            start = position + 1
        if depth not in (0, 1):
            raise InvalidInputError(f"host list {text[:60]!r} has unbalanced brackets")
    if depth != 0:
        raise InvalidInputError(f"host list {text[:60]!r} has unbalanced brackets")
    items.append(text[start:].strip())
    if "" in items:
        raise InvalidInputError(f"host list {text[:60]!r} holds an empty name")
    return items


def _size(item: str, limit: int) -> int:
    """How many names ``item`` stands for, from its ranges alone."""
    size = 1
    for bracket in _BRACKET.findall(item):
        here = 0
        for part in bracket.split(","):
            match = _RANGE.match(part.strip())
            if match is None:
                raise InvalidInputError(f"host list holds {item[:60]!r}, which has no valid range")
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first:
                raise InvalidInputError(f"host list holds {item[:60]!r}, whose range runs backwards")
            here += last - first + 1
        size *= here
        if size > limit:
            raise InvalidInputError(f"host list holds {item[:60]!r}, which names more than {limit} nodes")
    return size


def _numbers(part: str) -> Iterator[str]:
    """``08-11`` -> 08, 09, 10, 11: as wide as the first. ``_size`` has checked it."""
    first, _, last = part.partition("-")
    width = len(first)
    for number in range(int(first), int(last or first) + 1):
        yield f"{number:0{width}d}"


def _expand_one(item: str) -> list[str]:
    if "[" not in item:
        return [item]
    if (one := _ONE_BRACKET.match(item)) is not None:
        return [
            f"{one[1]}{number}{one[3]}" for part in one[2].split(",") for number in _numbers(part.strip())
        ]
    try:
        return [str(name) for name in NodeSet(item, resolver=GroupResolver())]
    except (NodeSetException, NodeSetParseRangeError) as error:
        raise InvalidInputError(f"host list item {item[:60]!r} is not understood: {error}") from error
