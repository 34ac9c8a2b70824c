"""Which node the lines of one body belong to. A label never widens the target, and a pod is no node."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from collector.dcgm.labels import is_exporter_pod
from collector.dcgm.tally import Tally
from collector.inventory import Inventory
from fleet.identity import is_node_name
from fleet.observations import ProblemReason

_ADDRESS = re.compile(r"[0-9.]+|.*:.*")
_QUOTED_CHARS = 80


@dataclass(frozen=True, slots=True)
class Placement:
    """Host label -> node (None: unknown), for the lines that are kept; those of other hosts are left out."""

    nodes: dict[str | None, str | None] = field(default_factory=dict)


def same_host(one: str, other: str) -> bool:
    """The same machine, one perhaps with its domain: ``n01`` and ``N01.cluster.local``."""
    one, other = one.lower(), other.lower()
    if one == other:
        return True
    if _ADDRESS.fullmatch(one) or _ADDRESS.fullmatch(other) or ("." in one) == ("." in other):
        return False
    return one.partition(".")[0] == other.partition(".")[0]


def place(
    lines: Mapping[str | None, int],
    *,
    node: str | None,
    inventory: Inventory | None,
    tally: Tally,
    neighbours: Iterable[str] = (),
) -> Placement:
    """Decide for every host label in a body; ``lines`` says how many lines carry each (None: no label).

    ``node``, the target's own, wins over the label; a disagreement is told. A body that speaks of several
    hosts (a federation endpoint) gives ``node`` only the lines that name it. One that names a neighbour (a
    node with an exporter of its own) is that node's: addresses are mixed up, nothing of it is ``node``'s.
    """
    if node is None:
        return Placement({host: _unplaced(host, count, inventory, tally) for host, count in lines.items()})
    named = [host for host in lines if host is not None]
    if all(same_host(named[0], host) for host in named[1:]):
        if named and not _is_node(named[0], node, inventory):
            if any(same_host(named[0], other) for other in neighbours):
                tally.add(
                    ProblemReason.CONFLICT,
                    f"the exporter of {_quote(named[0])} answers at the address of {node}: nothing of it is "
                    "used; correct the target's address",
                    count=sum(lines.values()),
                )
                return Placement()
            tally.add(
                ProblemReason.INCONSISTENT,
                f"the exporter calls its host {_quote(named[0])}, its target is {node}: the target's name "
                "stands; set NODE_NAME in the exporter's environment",
                count=1,
            )
        return Placement(dict.fromkeys(lines, node))
    kept = [host for host in named if _is_node(host, node, inventory)]
    foreign = sum(count for host, count in lines.items() if host not in kept)
    tally.add(
        ProblemReason.CONFLICT,
        f"the answer speaks of {len(named)} hosts: lines that do not name {node} are left out; "
        "point the target at the node's own exporter",
        count=foreign,
    )
    return Placement(dict.fromkeys(kept, node))


def _is_node(host: str, node: str, inventory: Inventory | None) -> bool:
    return same_host(host, node) or (inventory is not None and inventory.resolve(host) == node)


def _unplaced(host: str | None, lines: int, inventory: Inventory | None, tally: Tally) -> str | None:
    if host is None:
        tally.add(ProblemReason.PARTIAL, "no label names the host: pass --node", count=lines)
        return None
    if inventory is not None:
        found = inventory.resolve(host)
        if found is None:
            tally.add(
                ProblemReason.UNRECOGNISED_VALUE,
                f"host {_quote(host)} is no node of the inventory",
                count=lines,
            )
        return found
    if is_exporter_pod(host) or not is_node_name(host):
        tally.add(
            ProblemReason.UNRECOGNISED_VALUE,
            f"host {_quote(host)} is no node's name: pass --node, or set NODE_NAME for the exporter",
            count=lines,
        )
        return None
    return host


def _quote(text: str) -> str:
    return repr(text[:_QUOTED_CHARS])
