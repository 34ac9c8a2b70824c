"""Whose node an alert is about: its labels name exactly one node of the inventory, or none.

A name that the inventory does not know widens nothing: ``node[1-1000]`` is no node. The labels differ from
site to site (kube-state-metrics' own ``instance`` beside the ``node`` it speaks of, an exporter's pod address
beside its ``Hostname``), so every one that names a known node counts; two that differ contradict each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from collector.inventory import normal_address, without_port
from fleet.identity import is_node_name

#: Labels that may name a node, in this order. ``instance`` is an address: of the node, or of whoever exports.
NODE_LABELS = ("node", "kubernetes_node", "Hostname", "hostname", "nodename", "instance")
_ADDRESS_LABEL = "instance"

Resolve = Callable[[str], str | None]


def resolve_node(labels: Mapping[str, Any], resolve: Resolve) -> tuple[str | None, str]:
    """The one node the labels name, or (None, ``invalid|unknown|ambiguous``).

    ``resolve``: the inventory's word for a name, alias or address. A name is asked for whole, then without
    its domain.
    """
    found: set[str] = set()
    problem = "unknown"
    for label in NODE_LABELS:
        value = labels.get(label)
        if not isinstance(value, str) or not value.strip():
            continue
        text = _host(value.strip()) if label == _ADDRESS_LABEL else value.strip()
        if not is_node_name(text) and normal_address(text) is None:
            problem = "invalid"
            continue
        node = resolve(text) or (resolve(text.split(".", 1)[0]) if normal_address(text) is None else None)
        if node is not None:
            found.add(node)
    if len(found) == 1:
        return found.pop(), ""
    return None, "ambiguous" if found else problem


def by_name(names: Collection[str]) -> Resolve:
    """An inventory of bare names."""
    known = frozenset(names)
    return lambda text: text if text in known else None


def _host(address: str) -> str:
    """``http://10.0.0.1:9400/metrics`` -> ``10.0.0.1``; a port and the brackets of an IPv6 address go."""
    _, scheme, rest = address.partition("://")
    return without_port((rest if scheme else address).split("/", 1)[0])
