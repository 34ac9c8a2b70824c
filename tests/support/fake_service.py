"""A service in memory, in the shapes of docs/api.md: what stands behind the door in HTTP tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sickbay.ports import (
    Json,
    NoSuchIncidentError,
    NoSuchNodeError,
    NotPossibleError,
    StoreUnavailableError,
)

GATES = (
    ("mode", False, "cluster, pool and rule allow auto"),
    ("budget", False, "1 of 2 nodes in flight"),
    ("rate", False, "1 of 3 cordons in the last 600 s"),
    ("burst", False, "one node with this cause"),
    ("settle", False, "settled for 2 s"),
    ("freshness", False, "agent heard 4 s ago, scheduler read 2 s ago"),
    ("foreign_owner", False, "nobody else drained it"),
    ("hold", False, "no hold"),
    ("pause", False, "no pause"),
    ("lease", False, "this controller holds the lease"),
)


class FakeService:
    """Thread-safe; ``calls`` keeps (method, arguments) of every act and push that was let through."""

    version = "0.0-test"

    def __init__(self, names: Sequence[str] = ("n01", "n02", "n03", "n04")) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.broken = False
        self.is_ready = True
        self.raises: Exception | None = None
        self._seen: set[tuple[str, str, int]] = set()
        self._changes: list[Json] = []
        self._condition = threading.Condition()
        self._nodes: dict[str, Json] = {name: _node(name) for name in names}
        self._incidents: dict[str, Json] = {}

    # -- what tests set up
    def put_node(self, name: str, **fields: Any) -> None:
        self._nodes[name] = {**_node(name), **fields}

    def put_incident(self, incident_id: str, node: str, **fields: Any) -> None:
        self._incidents[incident_id] = {
            "id": incident_id,
            "node": node,
            "incarnation": None,
            "state": "draining",
            "blocked_by": [],
            "opened_at": 1_767_225_600.0 + len(self._incidents),
            "closed_at": None,
            "rules": ["xid-79"],
            "findings": [],
            "steps": [],
            **fields,
        }
        if node in self._nodes:
            self._nodes[node]["incident"] = incident_id

    def emit(self, **change: Any) -> int:
        with self._condition:
            line = {"id": len(self._changes) + 1, "node": None, "incident": None, "state": None, "step": None}
            self._changes.append({**line, **change})
            self._condition.notify_all()
            return len(self._changes)

    # -- the port
    def ready(self) -> tuple[bool, str]:
        return (True, "ok") if self.is_ready else (False, "the store is not writable: disk full")

    def ingest_events(self, node: str, agent: Mapping[str, Any], events: Sequence[Any]) -> Json:
        self._check()
        self._known(node)
        accepted = duplicates = 0
        rejected = []
        for index, event in enumerate(events):
            if not isinstance(event, dict) or event.get("node") != node:
                rejected.append({"index": index, "reason": "event.node is not the agent's node"})
                continue
            key = (node, event["boot_id"], event["sequence"])
            duplicates += key in self._seen
            accepted += key not in self._seen
            self._seen.add(key)
        self.calls.append(("ingest_events", {"node": node, "agent": dict(agent), "events": list(events)}))
        return {"accepted": accepted, "duplicates": duplicates, "rejected": rejected}

    def ingest_alerts(self, notification: Mapping[str, Any]) -> Json:
        self._check()
        self.calls.append(("ingest_alerts", dict(notification)))
        return {"accepted": len(notification["alerts"]), "duplicates": 0}

    def nodes(self, *, limit: int, after: str | None) -> Json:
        self._check()
        names = sorted(name for name in self._nodes if after is None or name > after)
        page = names[:limit]
        return {
            "items": [self._nodes[name] for name in page],
            "next": page[-1] if len(names) > limit else None,
        }

    def node(self, name: str) -> Json:
        return self._known(name)

    def why(self, name: str) -> Json:
        node = self._known(name)
        incident = self._incidents.get(node["incident"] or "")
        findings = incident["findings"] if incident else []
        blocked = set(incident["blocked_by"]) if incident else set()
        return {
            "node": name,
            "verdict": node["verdict"],
            "owner": node["owner"],
            "findings": findings,
            "incident": incident,
            "next_step": {"step": "reboot", "reason": "the node is empty"} if incident else None,
            "gates": [
                {"gate": gate, "blocks": blocks or gate in blocked, "reason": reason}
                for gate, blocks, reason in GATES
            ],
        }

    def incidents(self, *, state: str | None, node: str | None, limit: int, before: float | None) -> Json:
        found = [
            incident
            for incident in sorted(self._incidents.values(), key=lambda i: i["opened_at"], reverse=True)
            if (state is None or incident["state"] == state)
            and (node is None or incident["node"] == node)
            and (before is None or incident["opened_at"] < before)
        ]
        page = found[:limit]
        return {"items": page, "next": page[-1]["opened_at"] if len(found) > limit else None}

    def incident(self, incident_id: str) -> Json:
        if incident_id not in self._incidents:
            raise NoSuchIncidentError(f"there is no incident {incident_id}")
        return self._incidents[incident_id]

    def findings(self, *, node: str | None, include_cleared: bool) -> Json:
        self.calls.append(("findings", {"node": node, "include_cleared": include_cleared}))
        return {"items": [f for i in self._incidents.values() for f in i["findings"]]}

    def approve(self, incident_id: str, *, author: str, reason: str) -> Json:
        if self.incident(incident_id)["closed_at"] is not None:
            raise NotPossibleError(f"incident {incident_id} is closed")
        return self._act("approve", incident=incident_id, author=author, reason=reason)

    def cancel(self, incident_id: str, *, author: str, reason: str) -> Json:
        self.incident(incident_id)
        return self._act("cancel", incident=incident_id, author=author, reason=reason)

    def hold(self, node: str, *, author: str, reason: str, expires_in_seconds: float | None) -> Json:
        self._known(node)
        return self._act(
            "hold", node=node, author=author, reason=reason, expires_in_seconds=expires_in_seconds
        )

    def release(self, node: str, *, author: str, reason: str) -> Json:
        self._known(node)
        return self._act("release", node=node, author=author, reason=reason)

    def pause(self, *, pool: str | None, author: str, reason: str, expires_in_seconds: float | None) -> Json:
        return self._act(
            "pause", pool=pool, author=author, reason=reason, expires_in_seconds=expires_in_seconds
        )

    def resume(self, *, pool: str | None, author: str, reason: str) -> Json:
        return self._act("resume", pool=pool, author=author, reason=reason)

    def changes(self, *, after: int, timeout: float) -> Iterator[Json]:
        self._check()
        with self._condition:
            self._condition.wait_for(lambda: len(self._changes) > after, timeout=timeout)
            found = self._changes[after : after + 500]
        yield from found

    def render_metrics(self) -> bytes:
        return b"# HELP sickbay_up One.\n# TYPE sickbay_up gauge\nsickbay_up 1\n"

    def _act(self, method: str, **arguments: Any) -> Json:
        self._check()
        self.calls.append((method, arguments))
        return {"ok": True, **arguments}

    def _known(self, name: str) -> Json:
        if name not in self._nodes:
            raise NoSuchNodeError(f"the inventory does not know the node {name}")
        return self._nodes[name]

    def _check(self) -> None:
        if self.raises is not None:
            raise self.raises
        if self.broken:
            raise StoreUnavailableError("the push could not be stored: disk full; send it again")


def _node(name: str) -> Json:
    return {
        "name": name,
        "state": "idle",
        "verdict": "healthy",
        "owner": "none",
        "pool": "gpu",
        "incident": None,
    }
