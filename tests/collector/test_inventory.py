"""Names, aliases and addresses of nodes."""

from __future__ import annotations

import pytest

from collector.inventory import Inventory, InventoryItem, inventory_from_json, without_port
from fleet.errors import InvalidInputError


def test_what_fits_two_nodes_fits_none() -> None:
    inventory = Inventory(
        [InventoryItem(node="n1", aliases=("gpu",)), InventoryItem(node="n2", aliases=("GPU",))]
    )
    assert inventory.resolve("gpu") is None
    assert inventory.resolve("n1") == "n1"
    assert inventory.resolve("n[1-2]") is None


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("10.0.0.1:9400", "10.0.0.1"),
        ("n01:9400", "n01"),
        ("[fd00::1]:9400", "fd00::1"),
        ("fd00::1", "fd00::1"),
        ("n01", "n01"),
    ],
)
def test_ports_are_cut_off(text: str, host: str) -> None:
    assert without_port(text) == host


def test_one_item_or_a_list_names_or_objects() -> None:
    assert inventory_from_json(b'"n01"').resolve("n01") == "n01"
    inventory = inventory_from_json(
        b'["n01", {"node": "n02", "addresses": ["10.0.0.2"], "expected_gpus": 8}]'
    )
    assert inventory.resolve("10.0.0.2:9400") == "n02"
    item = inventory.get("n02")
    assert item is not None
    assert item.expected_gpus == 8


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[" * 100_000,
        b"7",
        b'{"node": "n[1-4]"}',
        b'{"node": "n1", "aliases": "x"}',
        b'{"node": "n1", "expected_gpus": -1}',
        b'{"node": "n1", "expected_gpus": true}',
    ],
)
def test_a_broken_inventory_is_one_line(data: bytes) -> None:
    with pytest.raises(InvalidInputError, match=r"^inventory: [^\n]*$"):
        inventory_from_json(data)
