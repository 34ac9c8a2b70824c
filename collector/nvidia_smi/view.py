"""One GPU's printed values under the names of its source: what the table of fields is read against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from collector.nvidia_smi.xml_text import Element

# Free text that may imitate the tool's own words, and blocks no signal comes from.
_NOT_SCANNED = frozenset({"processes", "supported_clocks", "product_name", "fabric"})
_TEXT_COLUMNS = frozenset({"name", "process_name", "fabric.status", "fabric.state", "hostname"})


class GpuView(Protocol):
    """``key`` is an XML path below ``gpu`` (``temperature/gpu_temp``) or a query's column name."""

    def texts(self, key: str) -> Sequence[str]:
        """Everything printed under ``key``: usually one text, none when there is no such element."""
        ...

    def under(self, block: str) -> Sequence[tuple[str, str]]:
        """(name, text) of what stands in a block, e.g. of the clock event reasons."""
        ...

    def scan(self) -> Iterator[tuple[str, str]]:
        """(name, text) of every value in which an error word means an error."""
        ...


class XmlView:
    """A ``gpu`` (or ``mig_device``) element."""

    def __init__(self, element: Element) -> None:
        self.element = element

    def texts(self, key: str) -> Sequence[str]:
        return [element.text for element in self.element.at(key)]

    def under(self, block: str) -> Sequence[tuple[str, str]]:
        return [(child.name, child.text) for parent in self.element.at(block) for child in parent.children]

    def scan(self) -> Iterator[tuple[str, str]]:
        stack = [(child.name, child) for child in reversed(self.element.children)]
        while stack:
            path, element = stack.pop()
            if element.name in _NOT_SCANNED:
                continue
            if not element.children:
                yield path, element.text
            stack.extend((f"{path}/{child.name}", child) for child in reversed(element.children))


class RowView:
    """A row of a CSV query: canonical column name -> cell."""

    def __init__(self, cells: Mapping[str, str]) -> None:
        self.cells = cells

    def texts(self, key: str) -> Sequence[str]:
        return [self.cells[key]] if key in self.cells else []

    def under(self, block: str) -> Sequence[tuple[str, str]]:
        prefix = f"{block}."
        return [(name, text) for name, text in self.cells.items() if name.startswith(prefix)]

    def scan(self) -> Iterator[tuple[str, str]]:
        return ((name, text) for name, text in self.cells.items() if name not in _TEXT_COLUMNS)
