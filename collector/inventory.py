"""The nodes a site knows, and the one question asked of them: whose name, alias or address is this?"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from fleet.errors import InvalidInputError
from fleet.identity import is_node_name


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryItem:
    """One node. ``expected_gpus`` is None where nobody says."""

    node: str
    addresses: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    expected_gpus: int | None = None


class Inventory:
    """Resolves what a label says to exactly one known node. What fits several nodes fits none."""

    def __init__(self, items: Iterable[InventoryItem]) -> None:
        self._items: dict[str, InventoryItem] = {}
        self._others: dict[str, set[str]] = {}
        for item in items:
            self._items[item.node] = item
            for text in (*item.addresses, *item.aliases):
                self._others.setdefault(_key(text), set()).add(item.node)

    def get(self, node: str) -> InventoryItem | None:
        """The item of an exact node name."""
        return self._items.get(node)

    def resolve(self, text: str) -> str | None:
        """The node named so, else the only one with this alias or address (a port is cut off)."""
        if text in self._items:
            return text
        for candidate in (text, without_port(text)):
            owners = self._others.get(_key(candidate), set())
            if candidate in self._items:
                owners = owners | {candidate}
            if len(owners) == 1:
                return next(iter(owners))
        return None


def normal_address(text: str) -> str | None:
    """The one spelling of an IP address; None for what is none."""
    try:
        return ip_address(text).compressed
    except ValueError:
        return None


def _key(text: str) -> str:
    return normal_address(text) or text.lower()


def without_port(text: str) -> str:
    """``10.0.0.1:9400`` -> ``10.0.0.1``; ``[fd00::1]:9400`` -> ``fd00::1``; a bare IPv6 address stays."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    host, colon, port = text.rpartition(":")
    return host if colon and port.isdecimal() and ":" not in host else text


def inventory_from_json(data: bytes) -> Inventory:
    """Read ``--inventory``: one item or a list; an item is a name or an object with ``node`` and, optionally,
    ``addresses``, ``aliases`` and ``expected_gpus``. Raises InvalidInputError, whose text names the item.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"inventory: is no JSON: {str(error)[:200]}") from error
    items = document if isinstance(document, list) else [document]
    return Inventory(_item(number, item) for number, item in enumerate(items, 1))


def _item(number: int, item: object) -> InventoryItem:
    where = f"inventory: item {number}"
    if isinstance(item, str):
        item = {"node": item}
    if not isinstance(item, Mapping):
        raise InvalidInputError(f"{where}: is neither a name nor an object with 'node'")
    node = item.get("node")
    if not isinstance(node, str) or not is_node_name(node):
        raise InvalidInputError(f"{where}: node: is not one plain node name")
    expected = item.get("expected_gpus")
    if expected is not None and (isinstance(expected, bool) or not isinstance(expected, int) or expected < 0):
        raise InvalidInputError(f"{where}: expected_gpus: must be a whole number of 0 or more, or null")
    return InventoryItem(
        node=node,
        addresses=_texts(where, item, "addresses"),
        aliases=_texts(where, item, "aliases"),
        expected_gpus=expected,
    )


def _texts(where: str, item: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = item.get(name) or []
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise InvalidInputError(f"{where}: {name}: must be a list of texts")
    return tuple(value)
