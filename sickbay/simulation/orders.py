"""Faults as people write them: a file that plays by itself, or one order over HTTP."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from fleet.errors import InvalidInputError
from simulator.faults import Fault, FaultKind
from simulator.fleet import SimulatedFleet

_KEYS = frozenset(field.name for field in dataclasses.fields(Fault))
_MAX_SECONDS = 7 * 86_400.0
_MAX_XID = 1_000


def read_script(path: Path, fleet: SimulatedFleet) -> tuple[Fault, ...]:
    """The faults of a YAML file: a list of mappings with the fields of ``Fault``; ``at_seconds`` counts from
    the start. InvalidInputError names the file and the item.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path}: is no YAML: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(content, list):
        raise InvalidInputError(f"{path}: must be a list of faults")
    return tuple(read_fault(item, fleet, where=f"{path}: item {i}") for i, item in enumerate(content))


def read_fault(raw: object, fleet: SimulatedFleet, *, where: str) -> Fault:
    """One fault; ``at_seconds`` is 0 and ``scene`` is its kind where they are absent. InvalidInputError says
    what is wrong: an unknown key or kind, a node or GPU that is not there, a number out of range.
    """
    if not isinstance(raw, Mapping):
        raise InvalidInputError(f"{where}: must be a mapping with kind and node")
    unknown = sorted(str(key) for key in raw if key not in _KEYS)
    if unknown:
        known = ", ".join(sorted(_KEYS))
        raise InvalidInputError(f"{where}: unknown key {unknown[0]!r}; known are {known}")
    filled: dict[str, Any] = {"at_seconds": 0.0, "scene": str(raw.get("kind")), **raw}
    if filled.get("kind") == FaultKind.SCHEDULER_AWAY:
        filled.setdefault("node", "-")
    try:
        fault = msgspec.convert(filled, Fault)
    except msgspec.ValidationError as error:
        raise InvalidInputError(f"{where}: {error}") from error
    _check(fault, fleet, where)
    return fault


def _check(fault: Fault, fleet: SimulatedFleet, where: str) -> None:
    if fault.kind is not FaultKind.SCHEDULER_AWAY and fault.node not in fleet.names:
        first, last = fleet.names[0], fleet.names[-1]
        raise InvalidInputError(
            f"{where}: no node {fault.node[:40]!r} in the simulated fleet; it has {first} to {last}"
        )
    if not 0 <= fault.gpu_index < fleet.gpus_per_node:
        raise InvalidInputError(f"{where}: gpu_index must be 0 to {fleet.gpus_per_node - 1}")
    for name, value, highest in (
        ("at_seconds", fault.at_seconds, _MAX_SECONDS),
        ("seconds", fault.seconds, _MAX_SECONDS),
        ("code", fault.code, _MAX_XID),
    ):
        if not 0 <= value <= highest:
            raise InvalidInputError(f"{where}: {name} must be 0 to {highest:g}")
