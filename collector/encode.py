"""Records as JSON, and pushed events back again: the shapes of ``sickbay collect`` and of the agent's push.

Every key is always there, null where nothing is known: absent is never 0, -1 or a sentinel.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from functools import singledispatch
from typing import Any, TypeVar

from fleet.errors import InvalidInputError
from fleet.identity import MigInstance, is_node_name, normalise_pci
from fleet.observations import (
    AlertRecord,
    Allocation,
    Event,
    EventKind,
    GpuProcess,
    Problem,
    RecoveryAction,
    Sample,
    TimeSource,
)
from fleet.scheduler import ArrayRef, JobRecord, NodeRecord, Reason

Json = dict[str, Any]
MAX_TEXT_CHARS = 8192
MAX_REGISTERS = 64
MAX_INTEGER = 2**63 - 1
_SURROGATE_OR_NUL = re.compile(r"[\x00\ud800-\udfff]")


@singledispatch
def to_dict(record: object) -> Json:
    """One record with exactly the keys of the contract, in its order (docs/collect.md)."""
    raise TypeError(f"no record: {type(record).__name__}")


@to_dict.register
def _sample(record: Sample) -> Json:
    return {
        "type": "sample",
        "node": record.node,
        "gpu": record.gpu,
        "index": record.index,
        "pci": record.pci,
        "mig": _mig(record.mig),
        "signal": record.signal,
        "value": record.value,
        "time": record.time,
        "labels": dict(record.labels),
    }


@to_dict.register
def _event(record: Event) -> Json:
    return {
        "type": "event",
        "kind": record.kind.value,
        "code": record.code,
        "node": record.node,
        "gpu": record.gpu,
        "pci": record.pci,
        "mig": _mig(record.mig),
        "time": record.time,
        "time_source": record.time_source.value,
        "pid": record.pid,
        "process": record.process,
        "cause": record.cause,
        "link": record.link,
        "unit": record.unit,
        "registers": list(record.registers),
        "fatal": record.fatal,
        "recovery_action": record.recovery_action.value if record.recovery_action is not None else None,
        "uncertain": record.uncertain,
        "count": record.count,
        "message": record.message,
    }


@to_dict.register
def _process(record: GpuProcess) -> Json:
    return {
        "type": "process",
        "node": record.node,
        "gpu": record.gpu,
        "pid": record.pid,
        "name": record.name,
        "memory_bytes": record.memory_bytes,
        "time": record.time,
    }


@to_dict.register
def _allocation(record: Allocation) -> Json:
    return {
        "type": "allocation",
        "node": record.node,
        "gpu": record.gpu,
        "index": record.index,
        "mig": _mig(record.mig),
        "jobs": list(record.jobs),
        "pods": list(record.pods),
    }


@to_dict.register
def _problem(record: Problem) -> Json:
    return {
        "type": "problem",
        "source": record.source,
        "node": record.node,
        "gpu": record.gpu,
        "index": record.index,
        "pci": record.pci,
        "reason": record.reason.value,
        "count": record.count,
        "message": record.message,
    }


@to_dict.register
def _node(record: NodeRecord) -> Json:
    return {
        "type": "node",
        "name": record.name,
        "uid": record.uid,
        "boot_id": record.boot_id,
        "machine_id": record.machine_id,
        "state": record.state.value,
        "base": record.base,
        "flags": list(record.flags),
        "partitions": list(record.partitions),
        "gpus_total": record.gpus_total,
        "gpus_allocated": record.gpus_allocated,
        "gpu_types": dict(record.gpu_types),
        "gpu_resources": dict(record.gpu_resources),
        "memory_free_bytes": record.memory_free_bytes,
        "os": record.os,
        "owner": record.owner.value,
        "reason": _reason(record.reason),
        "comment": record.comment,
        "extra": record.extra,
        "ready": record.ready,
        "schedulable": record.schedulable,
    }


@to_dict.register
def _job(record: JobRecord) -> Json:
    return {
        "type": "job",
        "id": record.id,
        "array": _array(record.array),
        "name": record.name,
        "user": record.user,
        "state": record.state,
        "nodes": list(record.nodes),
        "partitions": list(record.partitions),
        "gpus": record.gpus,
        "gpu_use": record.gpu_use.value,
        "requeue": record.requeue,
        "kind": record.kind.value,
        "time_left_seconds": record.time_left_seconds,
        "memory_bytes": record.memory_bytes,
        "exit_code": record.exit_code,
        "signal": record.signal,
        "failed_nodes": list(record.failed_nodes),
        "ended_at": record.ended_at,
        "restarts": record.restarts,
    }


@to_dict.register
def _alert(record: AlertRecord) -> Json:
    return {
        "type": "alert",
        "name": record.name,
        "status": record.status,
        "node": record.node,
        "unresolved": record.unresolved,
        "gpu": record.gpu,
        "index": record.index,
        "severity": record.severity,
        "starts_at": record.starts_at,
        "ends_at": record.ends_at,
        "fingerprint": record.fingerprint,
    }


def _mig(mig: MigInstance | None) -> Json | None:
    return None if mig is None else {"gi": mig.gi, "ci": mig.ci, "profile": mig.profile}


def _reason(reason: Reason | None) -> Json | None:
    return None if reason is None else {"text": reason.text, "user": reason.user, "time": reason.time}


def _array(array: ArrayRef | None) -> Json | None:
    if array is None:
        return None
    if array.tasks is None:
        return {"job": array.job, "task": array.task}
    return {"job": array.job, "tasks": array.tasks, "limit": array.limit}


def to_json_line(record: object) -> str:
    """One line of plain ASCII (any terminal and any log can carry it), without the newline."""
    return json.dumps(to_dict(record), separators=(",", ":"), allow_nan=False)


def event_to_push(event: Event, *, sequence: int) -> Json:
    """The event as an agent pushes it: as printed, plus ``boot_id`` and ``sequence``."""
    return {**to_dict(event), "boot_id": event.boot_id, "sequence": sequence}


# --- intake: strict, and every error names the field ---------------------------------------------------

E = TypeVar("E", bound=StrEnum)


def event_from_dict(data: Mapping[str, Any]) -> Event:
    """The event in a pushed item (any JSON object); the inverse of ``event_to_push``.

    Needs ``kind``, ``node``, ``time``, ``boot_id``, and ``code`` for an XID; the rest may be missing or
    null. Keys it does not know are ignored: a newer agent may say more. Raises InvalidInputError, whose
    text names the field. That the node exists, and is the sender's own, is for the caller to check.
    """
    if not isinstance(data, Mapping):
        raise InvalidInputError("an event must be a JSON object")
    if data.get("type", "event") != "event":
        raise InvalidInputError("type: must be 'event'")
    kind = _enum(data, "kind", EventKind)
    if kind is None:
        raise InvalidInputError("kind: is missing")
    node = _required_text(data, "node")
    if not is_node_name(node):
        raise InvalidInputError("node: is not one plain node name")
    code = _integer(data, "code")
    if code is None and kind is EventKind.XID:
        raise InvalidInputError("code: is missing (an xid event needs one)")
    count = _integer(data, "count")
    if count == 0:
        raise InvalidInputError("count: must be at least 1")
    return Event(
        kind=kind,
        code=code,
        node=node,
        gpu=_text(data, "gpu"),
        pci=_pci(data),
        mig=_mig_from(data.get("mig")),
        time=_time(data),
        time_source=_enum(data, "time_source", TimeSource) or TimeSource.LINE,
        pid=_integer(data, "pid"),
        process=_text(data, "process"),
        cause=_integer(data, "cause"),
        link=_integer(data, "link"),
        unit=_text(data, "unit"),
        registers=_registers(data),
        fatal=_boolean(data, "fatal"),
        recovery_action=_enum(data, "recovery_action", RecoveryAction),
        uncertain=_boolean(data, "uncertain") or False,
        count=1 if count is None else count,
        message=_text(data, "message") or "",
        boot_id=_required_text(data, "boot_id"),
    )


def sequence_from_dict(data: Mapping[str, Any]) -> int:
    """The ``sequence`` of a pushed event: with node and boot_id it makes a push idempotent."""
    sequence = _integer(data, "sequence")
    if sequence is None:
        raise InvalidInputError("sequence: is missing")
    return sequence


def _text(data: Mapping[str, Any], name: str) -> str | None:
    value = data.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidInputError(f"{name}: must be text or null")
    if len(value) > MAX_TEXT_CHARS:
        raise InvalidInputError(f"{name}: is longer than {MAX_TEXT_CHARS} characters")
    if _SURROGATE_OR_NUL.search(value) is not None:
        raise InvalidInputError(f"{name}: holds a character that is no text (NUL or half a surrogate pair)")
    return value


def _required_text(data: Mapping[str, Any], name: str) -> str:
    value = _text(data, name)
    if not value:
        raise InvalidInputError(f"{name}: is missing")
    return value


def _integer(data: Mapping[str, Any], name: str) -> int | None:
    value = data.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_INTEGER:
        raise InvalidInputError(f"{name}: must be a whole number of 0 or more, or null")
    return value


def _boolean(data: Mapping[str, Any], name: str) -> bool | None:
    value = data.get(name)
    if value is None or isinstance(value, bool):
        return value
    raise InvalidInputError(f"{name}: must be true, false or null")


def _time(data: Mapping[str, Any]) -> float:
    value = data.get("time")
    if value is None:
        raise InvalidInputError("time: is missing")
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < MAX_INTEGER:
        raise InvalidInputError("time: must be epoch seconds")
    return float(value)


def _enum(data: Mapping[str, Any], name: str, kind: type[E]) -> E | None:
    value = data.get(name)
    if value is None:
        return None
    try:
        return kind(value)
    except ValueError:
        raise InvalidInputError(f"{name}: must be one of {', '.join(kind)}") from None


def _pci(data: Mapping[str, Any]) -> str | None:
    text = _text(data, "pci")
    if text is None:
        return None
    pci = normalise_pci(text)
    if pci is None:
        raise InvalidInputError("pci: is no PCI address (0000:3b:00.0)")
    return pci


def _registers(data: Mapping[str, Any]) -> tuple[str, ...]:
    value = data.get("registers")
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or len(value) > MAX_REGISTERS:
        raise InvalidInputError(f"registers: must be a list of at most {MAX_REGISTERS} texts")
    return tuple(_required_text({"registers": one}, "registers") for one in value)


def _mig_from(value: object) -> MigInstance | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidInputError("mig: must be an object or null")
    inner = {f"mig.{name}": value.get(name) for name in ("gi", "ci", "profile")}
    gi = _integer(inner, "mig.gi")
    if gi is None:
        raise InvalidInputError("mig.gi: is missing")
    return MigInstance(gi=gi, ci=_integer(inner, "mig.ci"), profile=_text(inner, "mig.profile"))
