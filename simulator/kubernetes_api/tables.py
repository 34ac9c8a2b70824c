"""Lists and objects as tables for people: what ``kubectl get`` asks for (meta.k8s.io/v1 Table).

Columns and cells: kubernetes pkg/printers/internalversion/printers.go, the ones shown without ``-o wide``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from fleet.clock import Clock
from simulator.kubernetes_api.errors import Json

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def wants_table(accept: str) -> bool:
    """Tables come first in kubectl's list of media types where a person asks."""
    first = accept.partition(",")[0]
    return "as=Table" in first and "g=meta.k8s.io" in first and "v=v1" in first.split(";")


def table(answer: Json, clock: Clock) -> Json:
    """``answer`` (an object or a list of one kind) as a Table; each row holds its object's metadata."""
    kind = answer["kind"].removesuffix("List")
    objects = answer["items"] if answer["kind"].endswith("List") else [answer]
    columns, cells = _PRINTERS.get(kind, (("Name", "Age"), _plain))
    rows = [
        {
            "cells": cells(one, clock),
            "object": {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": one["metadata"],
            },
        }
        for one in objects
    ]
    meta = answer["metadata"] if answer["kind"].endswith("List") else {}
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {**meta, "resourceVersion": answer["metadata"].get("resourceVersion", "")}
        if meta
        else {"resourceVersion": answer["metadata"].get("resourceVersion", "")},
        "columnDefinitions": [
            {
                "name": name,
                "type": "string",
                "format": "name" if name == "Name" else "",
                "description": "",
                "priority": 0,
            }
            for name in columns
        ],
        "rows": rows,
    }


def _age(found: Json, clock: Clock) -> str:
    made = datetime.fromisoformat(found["metadata"]["creationTimestamp"]).timestamp()
    seconds = max(0, int(clock.now() - made))
    if seconds < 2 * _MINUTE:
        return f"{seconds}s"
    if seconds < 2 * _HOUR:
        return f"{seconds // _MINUTE}m"
    return f"{seconds // _HOUR}h" if seconds < 2 * _DAY else f"{seconds // _DAY}d"


def _plain(found: Json, clock: Clock) -> list[str]:
    return [found["metadata"]["name"], _age(found, clock)]


def _node(found: Json, clock: Clock) -> list[str]:
    conditions = {one["type"]: one["status"] for one in found["status"].get("conditions") or []}
    ready = conditions.get("Ready")
    words = ["Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"]
    if found["spec"].get("unschedulable"):
        words.append("SchedulingDisabled")
    version = (found["status"].get("nodeInfo") or {}).get("kubeletVersion", "")
    return [found["metadata"]["name"], ",".join(words), "<none>", _age(found, clock), version]


def _pod(found: Json, clock: Clock) -> list[str]:
    status = found["status"]
    containers = status.get("containerStatuses") or []
    shown = "Terminating" if "deletionTimestamp" in found["metadata"] else status.get("reason")
    ready = sum(bool(one.get("ready")) for one in containers)
    return [
        found["metadata"]["name"],
        f"{ready}/{len(found['spec'].get('containers') or [])}",
        shown or status.get("phase", ""),
        str(sum(one.get("restartCount", 0) for one in containers)),
        _age(found, clock),
    ]


def _budget(found: Json, clock: Clock) -> list[str]:
    spec = found["spec"]
    return [
        found["metadata"]["name"],
        str(spec.get("minAvailable", "N/A")),
        str(spec.get("maxUnavailable", "N/A")),
        str(found["status"].get("disruptionsAllowed", 0)),
        _age(found, clock),
    ]


_PRINTERS: dict[str, tuple[tuple[str, ...], Callable[[Json, Clock], list[str]]]] = {
    "Node": (("Name", "Status", "Roles", "Age", "Version"), _node),
    "Pod": (("Name", "Ready", "Status", "Restarts", "Age"), _pod),
    "PodDisruptionBudget": (
        ("Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age"),
        _budget,
    ),
}
