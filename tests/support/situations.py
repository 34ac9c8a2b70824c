"""Builders for planner and gate tests: a plain XID 79 incident, with whatever a test wants different."""

from __future__ import annotations

from typing import Any

from fleet.findings import ClearOn, Finding, IncidentState, Mode, Repair, Response, Severity
from fleet.marks import Mark
from fleet.scheduler import JobKind, JobRecord, NodeRecord, NodeState, Owner, Reason
from remediator.gates import GateInput
from remediator.policy import Policy, Pool
from remediator.records import AgentContact, IncidentRecord, Lease
from remediator.situation import Situation

NOW = 1_767_225_600.0
RULE = "gpu-fell-off-bus"
MARK = Mark("i-1", RULE, "XID 79")


def finding(**changes: Any) -> Finding:
    values: dict[str, Any] = {
        "id": "f-1",
        "rule": RULE,
        "kind": "gpu_lost",
        "node": "n01",
        "severity": Severity.CRITICAL,
        "response": Response.DRAIN,
        "repair": Repair.REBOOT,
        "clear_on": ClearOn.NEW_EPOCH_AND_GPU_COUNT,
        "since": NOW - 10,
        "boot_id": "boot-a",
        "sentence": "XID 79",
    }
    return Finding(**(values | changes))


def incident(**changes: Any) -> IncidentRecord:
    values: dict[str, Any] = {
        "id": "i-1",
        "node": "n01",
        "pool": "gpu",
        "rule": RULE,
        "state": IncidentState.CONFIRMED,
        "opened_at": NOW - 10,
        "updated_at": NOW - 10,
        "state_since": NOW - 10,
        "boot_id": "boot-a",
        "response": Response.DRAIN,
        "repair": Repair.REBOOT,
        "sentence": "XID 79",
        "expected_gpus": 8,
        "prior": {"agent_counts_gpus": True},
        "mark_user": "sickbay",
    }
    return IncidentRecord(**(values | changes))


def node(**changes: Any) -> NodeRecord:
    values: dict[str, Any] = {
        "name": "n01",
        "state": NodeState.IDLE,
        "base": "idle",
        "partitions": ("gpu",),
        "gpus_total": 8,
        "schedulable": True,
    }
    return NodeRecord(**(values | changes))


def drained(*, ours: bool = True, **changes: Any) -> NodeRecord:
    reason = Reason(MARK.reason(), "sickbay", NOW) if ours else Reason("ADMIN: chassis swap", "root", NOW)
    values: dict[str, Any] = {
        "state": NodeState.DRAINED,
        "flags": ("DRAIN",),
        "owner": Owner.SICKBAY if ours else Owner.FOREIGN,
        "reason": reason,
        "schedulable": False,
    }
    return node(**(values | changes))


def job(**changes: Any) -> JobRecord:
    values: dict[str, Any] = {
        "id": "41",
        "state": "running",
        "nodes": ("n01",),
        "requeue": True,
        "kind": JobKind.BATCH,
        "submitted_at": NOW - 500,
    }
    return JobRecord(**(values | changes))


def contact(**changes: Any) -> AgentContact:
    values: dict[str, Any] = {
        "node": "n01",
        "boot_id": "boot-a",
        "last_seen": NOW - 1,
        "first_seen_boot": NOW - 1000,
        "gpu_count": 8,
    }
    return AgentContact(**(values | changes))


def situation(**changes: Any) -> Situation:
    values: dict[str, Any] = {
        "incident": incident(),
        "policy": Policy(cluster="test", mode=Mode.AUTO),
        "mode": Mode.AUTO,
        "now": NOW,
        "findings": (finding(),),
        "node": node(),
        "node_at": NOW,
        "jobs": (),
        "jobs_at": NOW,
        "agent": contact(),
    }
    return Situation(**(values | changes))


def gate_input(**changes: Any) -> GateInput:
    values: dict[str, Any] = {
        "incident": incident(),
        "policy": Policy(cluster="test", mode=Mode.AUTO),
        "pool": Pool(name="gpu", partition="gpu", max_unavailable_percent=25.0),
        "mode": Mode.AUTO,
        "mode_source": "cluster 'test'",
        "now": NOW,
        "node": node(),
        "snapshot_at": NOW - 1,
        "pool_nodes": tuple(node(name=f"n{i:02d}") for i in range(1, 17)),
        "findings": (finding(),),
        "agent": contact(),
        "lease": Lease("me", NOW + 10, 1),
        "holder": "me",
    }
    return GateInput(**(values | changes))
