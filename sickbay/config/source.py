"""YAML with positions: the value, and for every path in it the line it came from.

YAML 1.2's core schema (yaml.org/spec/1.2.2, chapter 10.3), not PyYAML's 1.1: ``no`` and ``on`` are text,
``12:30`` is text, a date is text. Anchors are allowed and bounded; tags and merge keys are not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from sickbay.config.errors import ConfigError

MAX_BYTES = 1_048_576
_MAX_VALUES = 200_000
_MAX_DEPTH = 64
_NULL = re.compile(r"(?:~|null|Null|NULL|)")
_TRUE = re.compile(r"(?:true|True|TRUE)")
_FALSE = re.compile(r"(?:false|False|FALSE)")
_INT = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_STR_TAG = "tag:yaml.org,2002:str"
_PLAIN_TAGS = {"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}

Loc = tuple[str | int, ...]


class _Composer(yaml.SafeLoader):
    """PyYAML's reader, scanner, parser and composer without its implicit types."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own class attribute


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed file. ``name`` is how messages call it."""

    name: str
    value: Any
    lines: dict[Loc, int] = field(default_factory=dict)

    def line_of(self, loc: Sequence[str | int]) -> int:
        """The line (from 1) of ``loc``, or of the nearest thing around it."""
        path = tuple(loc)
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def parse_yaml(text: str, name: str) -> Source:
    """Parse one document. Raises ConfigError with every duplicate key, or the first syntax error."""
    try:
        root = _Composer(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        problem = " ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError(
            [f"{name}:{line}: not valid YAML: {problem}; mind indentation and quotes"]
        ) from None
    except yaml.YAMLError:
        raise ConfigError([f"{name}:1: not a YAML text file; is this the right file?"]) from None
    except RecursionError:
        raise ConfigError([f"{name}:1: nested too deeply; is this the right file?"]) from None
    if root is None:
        raise ConfigError([f"{name}:1: the file is empty; see docs/configuration.md for what to write"])
    builder = _Builder(name)
    value = builder.build(root, ())
    if builder.problems:
        raise ConfigError(builder.problems)
    return Source(name, value, builder.lines)


class _Builder:
    """Nodes to values. Collects lines and problems as it goes."""

    def __init__(self, name: str) -> None:
        self.lines: dict[Loc, int] = {}
        self.problems: list[str] = []
        self._name = name
        self._values = 0

    def build(self, node: yaml.Node, loc: Loc) -> Any:
        self._values += 1
        if self._values > _MAX_VALUES or len(loc) > _MAX_DEPTH:
            # Anchors that repeat (or contain) themselves end here, long before memory does.
            raise ConfigError([f"{self._name}:{_line(node)}: too much in one file; is this the right file?"])
        self.lines.setdefault(loc, _line(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, loc)
        if isinstance(node, yaml.SequenceNode):
            self._check_tag(node, loc, _PLAIN_TAGS)
            return [self.build(item, (*loc, index)) for index, item in enumerate(node.value)]
        self._check_tag(node, loc, {_STR_TAG})
        # Quoted or a block: text, whatever it looks like.
        quoted = getattr(node, "style", None) is not None
        return str(node.value) if quoted else _plain(str(node.value))

    def _mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[str, Any]:
        self._check_tag(node, loc, _PLAIN_TAGS)
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._problem(key_node, loc, "a key is a list or a mapping; write plain keys")
                continue
            key = str(key_node.value)
            path = (*loc, key)
            if key in found:
                first = self.lines[path]
                self._problem(key_node, path, f"is given twice (first on line {first}); keep one of them")
                continue
            self.lines[path] = _line(key_node)
            found[key] = self.build(value_node, path)
        return found

    def _check_tag(self, node: yaml.Node, loc: Loc, allowed: set[str]) -> None:
        if node.tag not in allowed:
            self._problem(node, loc, f"has the tag {str(node.tag)[:80]!r}; write plain values without tags")

    def _problem(self, node: yaml.Node, loc: Loc, text: str) -> None:
        self.problems.append(problem_line(self._name, _line(node), loc, text))


def problem_line(name: str, line: int, loc: Sequence[str | int], text: str) -> str:
    """``file:line: path.to.key: what is wrong; what to do``."""
    path = format_path(loc)
    return f"{name}:{line}: {path}: {text}" if path else f"{name}:{line}: {text}"


def format_path(loc: Sequence[str | int]) -> str:
    """("pools", 0, "budget") -> ``pools[0].budget``. Keys come from a file: shown printable and bounded."""
    path = ""
    for part in loc:
        if isinstance(part, int):
            path += f"[{part}]"
            continue
        shown = part if part.isprintable() else repr(part)
        path += f".{shown[:80]}" if path else shown[:80]
    return path


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _plain(text: str) -> str | int | float | bool | None:
    if _NULL.fullmatch(text):
        return None
    if _TRUE.fullmatch(text):
        return True
    if _FALSE.fullmatch(text):
        return False
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
