"""Slurm's JSON, decoded no further than what is read of it.

``squeue --json`` of a large cluster is hundreds of megabytes (24.11: 7 KB a job), nearly all of it fields
that nobody asks for. msgspec skips those without building them, and one record is decoded after the other, so
that memory holds the text and the results only. A document that is not of this form is left to the general
decoder, which is slower and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

Json = Mapping[str, Any]
# What the readers ask for. A test holds them to it.
NODE_KEYS = (
    "boot_time", "comment", "extra", "free_mem", "free_memory", "gres", "gres_used", "instance_id", "name",
    "operating_system", "partitions", "reason", "reason_changed_at", "reason_set_by_user", "reservation",
    "state", "state_flags", "tres", "tres_used",
)  # fmt: skip
JOB_KEYS = (
    # squeue and scontrol
    "array_job_id", "array_task_id", "array_task_string", "batch_flag", "comment", "cpus", "eligible_time",
    "end_time", "excluded_nodes", "exit_code", "failed_node", "gres_detail", "het_job_id", "het_job_offset",
    "job_id", "job_resources", "job_state", "memory_per_cpu", "memory_per_node", "name", "node_count",
    "nodes", "partition", "priority", "requeue", "required_nodes", "restart_cnt", "start_time",
    "state_description", "state_reason", "submit_time", "tasks", "time_limit", "tres_alloc_str",
    "tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task", "tres_req_str", "user_id",
    "user_name",
    # sacct
    "array", "association", "cluster", "het", "required", "state", "steps", "submit_line", "time", "tres",
    "user",
)  # fmt: skip
_Lists = msgspec.defstruct(
    "_Lists",
    [
        ("nodes", list[msgspec.Raw] | None, None),
        ("jobs", list[msgspec.Raw] | None, None),
        ("errors", Any, None),
    ],
)
_LISTS: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Lists)


def _record_decoder(name: str, keys: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(msgspec.defstruct(name, [(key, Any, None) for key in keys]))


_RECORDS = {"nodes": _record_decoder("_Node", NODE_KEYS), "jobs": _record_decoder("_Job", JOB_KEYS)}


@dataclass(frozen=True, slots=True)
class Records:
    """One document's list: ``kind`` is ``nodes`` or ``jobs``, ``errors`` what stands beside it."""

    kind: str
    errors: Any
    _raw: list[msgspec.Raw]

    def __len__(self) -> int:
        return len(self._raw)

    def __iter__(self) -> Iterator[Any]:
        """Each record with all its keys (null where absent), or None for what is no record."""
        decode = _RECORDS[self.kind].decode
        for raw in self._raw:
            try:
                yield msgspec.structs.asdict(decode(raw))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                yield None


def decode_records(data: bytes) -> Records | None:
    """The list of nodes or jobs in one sound document, else None: ask the general decoder."""
    try:
        lists = _LISTS.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    for kind in ("nodes", "jobs"):
        raw = getattr(lists, kind)
        if raw is not None:
            return Records(kind, lists.errors, raw)
    return None
