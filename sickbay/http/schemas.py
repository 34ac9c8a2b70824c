"""What OpenAPI says about bodies and answers.

The service returns plain data that is encoded as it is; these models document it and the tests check the
fake and the real service against them. Answers may grow fields (``extra="allow"``), never lose one.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from fleet.findings import GateName, IncidentState, Response, Severity, Step, Verdict
from fleet.scheduler import NodeState

Owner = Literal["none", "sickbay", "foreign"]


class _Answer(BaseModel):
    model_config = ConfigDict(extra="allow")


class ErrorAnswer(_Answer):
    error: str = Field(description="One sentence: what is wrong and, where possible, what to do.")


class Rejected(_Answer):
    index: int = Field(description="Position in the pushed list of events.")
    reason: str


class EventsAnswer(_Answer):
    accepted: int
    duplicates: int = Field(description="Events with a (node, boot_id, sequence) that is stored already.")
    rejected: list[Rejected]


class AlertsAnswer(_Answer):
    accepted: int
    duplicates: int
    warnings: list[str] = Field(default=[], description="What was tolerated, for the person who wired it.")


class NodeItem(_Answer):
    name: str
    state: NodeState
    verdict: Verdict
    owner: Owner = Field(description="Who drained or cordoned it.")
    pool: str | None
    incident: str | None = Field(description="Id of the open incident.")


class NodePage(_Answer):
    items: list[NodeItem]
    next: str | None = Field(description="Pass it as `after` for the next page; null at the end.")


class FindingItem(_Answer):
    id: str
    rule: str
    kind: str
    gpu: str | None
    uuid: str | None
    severity: Severity
    response: Response
    since: float
    evidence: dict[str, Any]


class FindingPage(_Answer):
    items: list[FindingItem]
    next: str | None = None


class NextStep(_Answer):
    step: Step | None
    reason: str


class Gate(_Answer):
    gate: GateName
    blocks: bool
    reason: str


class IncidentItem(_Answer):
    id: str
    node: str
    state: IncidentState
    blocked_by: list[GateName]
    opened_at: float
    closed_at: float | None
    rules: list[str]


class IncidentPage(_Answer):
    items: list[IncidentItem]
    next: float | None = Field(description="Pass it as `before` for the next (older) page; null at the end.")


class StepItem(_Answer):
    at: float
    step: Step | None
    phase: Literal["intent", "attempt", "effect", "decision"]
    outcome: str | None
    reason: str
    actor: str


class IncidentDetail(_Answer):
    id: str
    node: str
    incarnation: str | None
    state: IncidentState
    blocked_by: list[GateName]
    findings: list[FindingItem]
    steps: list[StepItem]


class Why(_Answer):
    node: str
    verdict: Verdict
    owner: Owner
    findings: list[FindingItem]
    incident: dict[str, Any] | None
    next_step: NextStep | None
    gates: list[Gate]


class ActAnswer(_Answer):
    """What is in force now: the incident (approve, cancel), the word (hold, pause), what ended."""


class SessionAnswer(_Answer):
    name: str
    role: Literal["viewer", "operator", "agent", "alertmanager"]
    method: Literal["bearer", "session", "anonymous"]
    version: str


class Health(_Answer):
    status: str


def _object(properties: dict[str, Any], required: list[str], *, extra: bool = False) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": extra,
    }


def _body(schema: dict[str, Any], *, required: bool = True) -> dict[str, Any]:
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


def _nullable(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": [kind, "null"], **more}


LOGIN_BODY = _body(_object({"token": {"type": "string"}}, ["token"]))

EVENTS_BODY = _body(
    _object(
        {
            "agent": _object(
                {
                    "node": {"type": "string"},
                    "version": _nullable("string", maxLength=64),
                    "boot_id": {"type": "string", "minLength": 1, "maxLength": 128},
                    "gpus": {
                        "type": ["integer", "array", "null"],
                        "items": {},
                        "description": "How many GPUs the node sees, or which (UUIDs); null: it cannot tell.",
                    },
                },
                ["node", "boot_id"],
                extra=True,
            ),
            "events": {
                "type": "array",
                "description": "May be empty. Each needs kind, node, time, boot_id, sequence (code for xid).",
                "items": {"type": "object"},
            },
        },
        ["agent", "events"],
        extra=True,
    )
)

ALERTS_BODY = _body(
    _object(
        {
            "version": {"type": "string", "examples": ["4"]},
            "status": {"type": "string"},
            "groupKey": {"type": "string"},
            "truncatedAlerts": {"type": "integer"},
            "alerts": {
                "type": ["array", "null"],
                "items": _object(
                    {
                        "status": {"type": "string", "enum": ["firing", "resolved"]},
                        "labels": {"type": "object"},
                        "annotations": {"type": ["object", "null"]},
                        "startsAt": {"type": "string"},
                        "endsAt": {"type": "string"},
                        "fingerprint": {"type": "string"},
                    },
                    [],
                    extra=True,
                ),
            },
        },
        ["alerts"],
        extra=True,
    )
)


def act_body(*, reason_required: bool, expires: bool, pool: bool) -> dict[str, Any]:
    """The act body as this act takes it: keys without meaning here may only be null."""
    schema = _object(
        {
            "reason": {"type": "string", "minLength": 1, "maxLength": 500}
            if reason_required
            else _nullable("string", maxLength=500),
            "expires_in_seconds": _nullable("number", exclusiveMinimum=0) if expires else {"type": "null"},
            "pool": _nullable("string") if pool else {"type": "null"},
        },
        ["reason"] if reason_required else [],
    )
    return _body(schema, required=reason_required)
