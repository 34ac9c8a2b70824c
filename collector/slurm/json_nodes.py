"""Nodes from JSON: ``sinfo --json`` of 21.08 and 22.05, ``scontrol show nodes --json`` of 23.02 and later.

Also the grouped rows that ``sinfo --json`` prints from 23.02. The 22.05 form was read from real clusters
of 22.05.8, the list form from stored output of 24.11.5 (data_parser v0.0.42); 23.11 and 25.05 follow the
documented shapes. Unknown fields are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from collector.slurm import values
from collector.slurm.gres import Gpus, parse_gres
from collector.slurm.json_items import Json
from collector.slurm.records import Findings, build_node
from collector.slurm.states import NodeStates, from_list
from fleet.identity import is_node_name
from fleet.observations import ProblemReason
from fleet.scheduler import Reason


def read_nodes(items: Iterable[Any], found: Findings) -> None:
    """One record per item; an item that cannot be used is counted and costs no other."""
    unusable = 0
    for item in items:
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(item, dict) or not isinstance(name, str) or not is_node_name(name):
            unusable += 1
            continue
        _read_node(name, item, found)
    if unusable:
        found.unusable("node entries without a usable name", unusable)


def _read_node(name: str, item: Json, found: Findings) -> None:
    states = states_of(item.get("state"), item.get("state_flags"))
    if not values.words(item.get("state")):
        found.problem(ProblemReason.UNREADABLE, f"{name}: it has no state", node=name)
    free = values.count(item.get("free_memory") if item.get("free_mem") is None else item["free_mem"])
    found.add_node(
        build_node(
            found,
            name=name,
            states=states,
            gres=_gres(item, "gres") or _tres(item.get("tres")),
            gres_used=_gres(item, "gres_used") or _tres(item.get("tres_used")),
            reason=_reason(item.get("reason"), item.get("reason_set_by_user"), item.get("reason_changed_at")),
            partitions=values.words(item.get("partitions")),
            memory_free_bytes=None if free is None else free * values.MIB,
            os=values.text(item.get("operating_system")),
            comment=values.text(item.get("comment")),
            extra=values.text(item.get("extra")),
            boot_time=values.moment(item.get("boot_time")),
            reservation=values.text(item.get("reservation")),
            uid=values.text(item.get("instance_id")),
        )
    )


def states_of(state: object, flags: object) -> NodeStates:
    """``"idle"`` + ``["DRAIN"]`` (21.08, 22.05) or ``["IDLE", "DRAIN"]``."""
    return from_list((*values.words(state), *values.words(flags)))


def _gres(item: Json, key: str) -> Gpus | None:
    value = item.get(key)
    return parse_gres(value) if isinstance(value, str) else None


def _tres(value: object) -> Gpus | None:
    """TRES name GPUs only where the site accounts them, so without any they say nothing."""
    return parse_gres(value) if isinstance(value, str) and "gres/gpu" in value else None


def _reason(text: object, user: object, changed_at: object) -> Reason | None:
    said = values.text(text)
    return None if said is None else Reason(said, values.text(user), values.moment(changed_at))


def read_grouped(rows: list[Any], found: Findings) -> None:
    """The rows of ``sinfo --json`` from 23.02: nodes alike in state, partition and reason share one."""
    unusable = 0
    for row in rows:
        names = _grouped_names(row, found) if isinstance(row, dict) else ()
        if not names:
            unusable += 1
            continue
        _read_group(row, names, found)
    if unusable:
        found.unusable("sinfo rows without a usable node name", unusable)


def _grouped_names(row: Json, found: Findings) -> tuple[str, ...]:
    nodes = row.get("nodes")
    return found.hosts(nodes.get("nodes"), "sinfo row") if isinstance(nodes, dict) else ()


def _read_group(row: Json, names: tuple[str, ...], found: Findings) -> None:
    node, reason, gres = _part(row, "node"), _part(row, "reason"), _part(row, "gres")
    partition = values.text(_part(row, "partition").get("name"))
    free = _part(_part(row, "memory"), "free")
    lowest = values.count(free.get("minimum")) if len(names) == 1 else None
    for name in names:
        found.add_node(
            build_node(
                found,
                name=name,
                states=states_of(node.get("state"), None),
                gres=_gres(gres, "total"),
                gres_used=_gres(gres, "used"),
                reason=_reason(reason.get("description"), reason.get("user"), reason.get("time")),
                partitions=(partition,) if partition else (),
                memory_free_bytes=None if lowest is None else lowest * values.MIB,
                comment=values.text(row.get("comment")),
                extra=values.text(row.get("extra")),
                reservation=values.text(row.get("reservation")),
            )
        )


def _part(row: Json, key: str) -> Json:
    part = row.get(key)
    return part if isinstance(part, dict) else {}
