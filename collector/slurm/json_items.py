"""Slurm's JSON, decoded no further than what is read of it.

``squeue --json`` of a large cluster is hundreds of megabytes (24.11: 8.6 KB a job), nearly all of it fields
that nobody asks for. msgspec skips those without building them; what is kept is as Slurm wrote it, any type.
A document that is not of this form (records that are no objects, damage) is left to the general decoder,
which is slower and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

_NODE_KEYS = (
    "boot_time", "comment", "extra", "free_mem", "free_memory", "gres", "gres_used", "instance_id", "name",
    "operating_system", "partitions", "reason", "reason_changed_at", "reason_set_by_user", "reservation",
    "state", "state_flags", "tres", "tres_used",
)  # fmt: skip
_QUEUE_KEYS = (
    "array_job_id", "array_task_id", "array_task_string", "batch_flag", "comment", "cpus", "eligible_time",
    "end_time", "excluded_nodes", "exit_code", "failed_node", "gres_detail", "het_job_id", "het_job_offset",
    "job_id", "job_resources", "job_state", "memory_per_cpu", "memory_per_node", "name", "node_count",
    "nodes", "partition", "priority", "requeue", "required_nodes", "restart_cnt", "start_time",
    "state_description", "state_reason", "submit_time", "tasks", "time_limit", "tres_alloc_str", "tres_per_job", "tres_per_node",
    "tres_per_socket", "tres_per_task", "tres_req_str", "user_id", "user_name",
)  # fmt: skip
_ACCOUNTING_KEYS = (
    "array", "association", "cluster", "het", "required", "state", "steps", "submit_line", "time", "tres",
    "user",
)  # fmt: skip


class Item(msgspec.Struct):
    """A record with ``get`` like a mapping's; null is absent. A key that is not kept is an AttributeError."""

    def get(self, key: str, default: Any = None) -> Any:
        value = getattr(self, key)
        return default if value is None else value


Json = Mapping[str, Any] | Item


def _item(name: str, keys: tuple[str, ...]) -> Any:
    return msgspec.defstruct(name, [(key, Any, None) for key in keys], bases=(Item,))


NodeItem = _item("NodeItem", _NODE_KEYS)
JobItem = _item("JobItem", (*_QUEUE_KEYS, *_ACCOUNTING_KEYS))
_Lists: Any = msgspec.defstruct(
    "_Lists",
    [
        ("nodes", list[NodeItem] | None, None),  # type: ignore[valid-type]
        ("jobs", list[JobItem] | None, None),  # type: ignore[valid-type]
        ("errors", Any, None),
    ],
)
_DECODER = msgspec.json.Decoder(_Lists)


def decode_lists(data: bytes) -> dict[str, Any] | None:
    """``{"nodes" or "jobs": [...], "errors": ...}`` of a sound document, else None: ask the general decoder."""
    try:
        lists = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if lists.nodes is not None:
        return {"nodes": lists.nodes, "errors": lists.errors}
    if lists.jobs is not None:
        return {"jobs": lists.jobs, "errors": lists.errors}
    return None


def is_record(value: object) -> bool:
    return isinstance(value, (dict, Item))
