"""Where each GPU of a node stands. Every GPU is counted exactly once. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from collector.exporters.classes import GpuStatus, OutReason
from fleet.scheduler import NodeRecord, NodeState, Owner

UNTYPED = "gpu"
GpuPlace = tuple[str, GpuStatus, OutReason]

# A node in one of these has no GPU that anybody could call at work, whatever jobs it still lists.
_ALL_OUT = {NodeState.DOWN: OutReason.DOWN, NodeState.UNKNOWN: OutReason.UNKNOWN}
# Its jobs go on; what is free takes no new work.
_FREE_OUT = {
    NodeState.REBOOTING: OutReason.REBOOTING,
    NodeState.RESERVED: OutReason.RESERVED,
    NodeState.MAINTENANCE: OutReason.MAINTENANCE,
    NodeState.POWERED_DOWN: OutReason.POWERED_DOWN,
}
# Without a word on allocated GPUs, a node in one of these holds none: no job is on it.
_EMPTY = (NodeState.IDLE, NodeState.DRAINED, NodeState.POWERED_DOWN)


def gpu_places(node: NodeRecord, *, withdrawn: int = 0) -> Mapping[GpuPlace, int]:
    """(GPU type, status, reason) -> GPUs of one node. Empty when the number of its GPUs is unknown.

    The first that applies: the node is down or unknown (all its GPUs), a job holds the GPU, the device
    plugin withdrew it, its node takes no work for one reason, it is idle.
    """
    places: Counter[GpuPlace] = Counter()
    types, held = _types(node)
    whole = _whole(node)
    free_reason = _free_reason(node)
    for gpu_type, total in types.items():
        used = 0 if whole is not None else held.get(gpu_type, 0) if held is not None else None
        if used is None:  # busy, but nobody says with how many
            places[(gpu_type, GpuStatus.UNAVAILABLE, OutReason.UNKNOWN)] += total
            continue
        used = min(total, used)
        gone = min(withdrawn, total - used) if whole is None else 0
        withdrawn -= gone
        reason = free_reason if whole is None else whole
        free = GpuStatus.IDLE if reason is OutReason.NONE else GpuStatus.UNAVAILABLE
        places[(gpu_type, GpuStatus.ALLOCATED, OutReason.NONE)] += used
        places[(gpu_type, GpuStatus.UNAVAILABLE, OutReason.WITHDRAWN)] += gone
        places[(gpu_type, free, reason)] += total - used - gone
    return {place: amount for place, amount in places.items() if amount}


def _whole(node: NodeRecord) -> OutReason | None:
    if node.has("INVALID_REG") and node.state is not NodeState.DOWN:
        return None if node.gpus_allocated else OutReason.INVALID_REGISTRATION
    return _ALL_OUT.get(node.state)


def _free_reason(node: NodeRecord) -> OutReason:
    if node.has("INVALID_REG"):
        return OutReason.INVALID_REGISTRATION
    if node.state in _FREE_OUT:
        return _FREE_OUT[node.state]
    if node.state in (NodeState.DRAINING, NodeState.DRAINED):
        return OutReason.SICKBAY if node.owner is Owner.SICKBAY else OutReason.FOREIGN
    return OutReason.NONE if node.schedulable else OutReason.NOT_SCHEDULABLE


def _types(node: NodeRecord) -> tuple[Mapping[str, int], Mapping[str, int] | None]:
    """GPUs and held GPUs by type; the latter None if unknown. Types that do not add up are not believed."""
    total = node.gpus_total or 0
    if not total:
        return {}, {}
    held = node.gpus_allocated
    if held is None and node.state in _EMPTY:
        held = 0
    types = {kind: amount for kind, amount in node.gpu_types.items() if amount}
    if sum(types.values()) != total:
        types = {UNTYPED: total}
    if held is None:
        return types, None
    if len(types) == 1:
        return types, dict.fromkeys(types, held)
    by_type = {kind: amount for kind, amount in node.gpu_types_allocated.items() if amount}
    if held == sum(by_type.values()) and by_type.keys() <= types.keys():
        return types, by_type
    return {UNTYPED: total}, {UNTYPED: held}
