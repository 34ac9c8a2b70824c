"""Typed access to the YAML nodes of one rule file: every complaint with its line and what to do.

The YAML is only composed (nodes with marks), never constructed: unknown keys, duplicates, wrong types
and values outside a closed list are all reported, not just the first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TypeVar

import yaml

from rules.errors import CatalogueProblem

MAX_FILE_BYTES = 1 << 20
_RULE_ID = re.compile(r"^[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?$")
_NUMBER = re.compile(r"^[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$")
_MASK = re.compile(r"^(?:0x[0-9a-fA-F]{1,13}|[0-9]{1,15})$")

E = TypeVar("E", bound=StrEnum)


class Reader:
    """Typed access to YAML nodes of one file. A complaint is recorded and a harmless value returned."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[CatalogueProblem] = []

    def complain(self, node: yaml.Node, message: str) -> None:
        self.problems.append(CatalogueProblem(self.file, node.start_mark.line + 1, message))

    def compose(self, data: bytes) -> yaml.Node | None:
        if len(data) > MAX_FILE_BYTES:
            self.problems.append(CatalogueProblem(self.file, 0, f"larger than {MAX_FILE_BYTES} bytes"))
            return None
        try:
            text = data.decode("utf-8")
            node = yaml.compose(text, Loader=yaml.SafeLoader)
        except UnicodeDecodeError as error:
            line = data[: error.start].count(b"\n") + 1
            self.problems.append(CatalogueProblem(self.file, line, "not UTF-8; save the file as UTF-8"))
            return None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark is not None else 0
            self.problems.append(CatalogueProblem(self.file, line, f"no YAML: {error.problem}"))
            return None
        except yaml.YAMLError as error:
            self.problems.append(CatalogueProblem(self.file, 0, f"no YAML: {' '.join(str(error).split())}"))
            return None
        except RecursionError:
            self.problems.append(CatalogueProblem(self.file, 0, "nested too deeply to be a rule file"))
            return None
        if node is None:
            self.problems.append(CatalogueProblem(self.file, 0, "empty; it must hold a list `rules:`"))
        return node

    def mapping(
        self, node: yaml.Node, what: str, *, required: Iterable[str], optional: Iterable[str] = ()
    ) -> Mapping[str, yaml.Node]:
        """The known keys of a mapping; unknown, duplicate and missing ones are complaints."""
        if not isinstance(node, yaml.MappingNode):
            self.complain(node, f"{what} must be a mapping (key: value)")
            return {}
        required, known = tuple(required), {*required, *optional}
        found: dict[str, yaml.Node] = {}
        for key_node, value in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else ""
            if key not in known:
                allowed = ", ".join(sorted(known))
                self.complain(key_node, f"{what} has no key {_short(key)}; known: {allowed}")
            elif key in found:
                self.complain(key_node, f"key {key} is given twice; keep one")
            else:
                found[key] = value
        missing = [key for key in required if key not in found]
        if missing:
            self.complain(node, f"{what} lacks {', '.join(missing)}")
        return found

    def sequence(self, node: yaml.Node, what: str) -> list[yaml.Node]:
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            self.complain(node, f"{what} must be a list with at least one entry")
            return []
        return list(node.value)

    def text(self, node: yaml.Node, what: str) -> str:
        value = self._scalar(node)
        if value is None or not value.strip():
            self.complain(node, f"{what} must be text")
            return ""
        return " ".join(value.split())

    def identifier(self, node: yaml.Node, what: str) -> str:
        value = self._scalar(node) or ""
        if not _RULE_ID.match(value):
            self.complain(node, f"{what} must be 1 to 64 of a-z, 0-9 and -, not {_short(value)}")
        return value

    def one_of(self, node: yaml.Node, what: str, allowed: Iterable[str]) -> str:
        value = self._scalar(node)
        if value is None or value not in (allowed := tuple(allowed)):
            self.complain(node, f"{what} must be one of {', '.join(allowed)}, not {_short(value)}")
            return ""
        return value

    def enum(self, node: yaml.Node, what: str, kind: type[E], fallback: E) -> E:
        value = self.one_of(node, what, [member.value for member in kind])
        return kind(value) if value else fallback

    def integer(self, node: yaml.Node, what: str, low: int, high: int) -> int:
        value = self._scalar(node) or ""
        if node.tag.endswith(":int") and value.isascii() and value.isdigit() and len(value) <= 10:  # noqa: PLR2004
            number = int(value)
            if low <= number <= high:
                return number
        self.complain(node, f"{what} must be a whole number from {low} to {high}, not {_short(value)}")
        return low

    def number(self, node: yaml.Node, what: str, low: float, high: float) -> float:
        value = self._scalar(node) or ""
        if node.tag.endswith((":int", ":float")) and _NUMBER.match(value):
            number = float(value)
            if math.isfinite(number) and low <= number <= high:
                return number
        self.complain(node, f"{what} must be a number from {low:g} to {high:g}, not {_short(value)}")
        return low

    def mask(self, node: yaml.Node, what: str) -> int:
        """A bit mask such as ``0x40``: at least one bit, at most the 52 that a float carries."""
        value = self._scalar(node) or ""
        if node.tag.endswith(":int") and _MASK.match(value):
            mask = int(value, 16 if value.startswith("0x") else 10)
            if 0 < mask < 1 << 52:
                return mask
        self.complain(node, f"{what} must be a bit mask such as 0x40, not {_short(value)}")
        return 1

    def boolean(self, node: yaml.Node, what: str) -> bool:
        value = (self._scalar(node) or "").lower()
        if value not in ("true", "false"):
            self.complain(node, f"{what} must be true or false")
        return value == "true"

    @staticmethod
    def _scalar(node: yaml.Node) -> str | None:
        return str(node.value) if isinstance(node, yaml.ScalarNode) else None


def _short(value: object) -> str:
    text = "a list or mapping" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."  # noqa: PLR2004 - one line on a terminal
