"""Our marks on a Node, and whose cordon a cordon is.

``spec.unschedulable`` is one bit without an owner. The claim stands in annotations that one patch writes
together with the bit; who last set the bit itself is in ``metadata.managedFields`` (Kubernetes API
concepts, "Server-Side Apply: field management"; ordinary patches are tracked as operation Update). A person
who uncordons and cordons again leaves our annotations behind but owns the bit: the cordon is theirs.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from collector.kubernetes.objects import ManagedFields, NodeObject
from fleet.marks import MAX_REASON_CHARS, Mark, parse_mark
from fleet.scheduler import Owner, Reason

PREFIX = "sickbay.io/"
INCIDENT = PREFIX + "incident"
RULE = PREFIX + "rule"
CORDONED_BY_US = PREFIX + "cordoned-by-us"
PRIOR_STATE = PREFIX + "prior-state"
SENTENCE = PREFIX + "reason"
CORDONED_AT = PREFIX + "cordoned-at"
OBSERVED = PREFIX + "observed"
CLAIMS = (INCIDENT, RULE, CORDONED_BY_US, PRIOR_STATE, SENTENCE, CORDONED_AT)
# The only prior state we ever take a node from; a mark with another one was not there alone.
SCHEDULABLE = "schedulable"
UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"
# Where others write why they cordoned (the Slurm operator's documentation names it).
_FOREIGN_REASONS = ("nodeset.slinky.slurm.net/node-cordon-reason",)


def epoch(text: str | None) -> float | None:
    """RFC 3339 to epoch seconds; None if absent or unreadable."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment.timestamp() if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def claimed(node: NodeObject) -> Mark | None:
    """The claim in the node's annotations, whatever its cordon says now."""
    notes = node.metadata.annotations or {}
    incident = notes.get(CORDONED_BY_US)
    if not incident or notes.get(INCIDENT, incident) != incident:
        return None
    return Mark(incident, notes.get(RULE, "unknown"), notes.get(SENTENCE, ""))


def is_cordoned(node: NodeObject) -> bool:
    return bool(node.spec and node.spec.unschedulable)


def owner_of(node: NodeObject) -> Owner:
    """Whose cordon it is; without a cordon nobody's, whatever marks are left."""
    if not is_cordoned(node):
        return Owner.NONE
    mark = claimed(node)
    prior = (node.metadata.annotations or {}).get(PRIOR_STATE, SCHEDULABLE)
    if mark is None or parse_mark(mark.reason()) is None or prior != SCHEDULABLE or _taken_over(node):
        return Owner.FOREIGN
    return Owner.SICKBAY


def reason_of(node: NodeObject) -> Reason | None:
    """Ours as ``fleet.marks`` writes it; a foreign one as far as its owner left words.

    A cordon without words has a reason with an empty text: its user (the field manager, such as
    ``kubectl-cordon``) and its time (the taint that the node controller adds) may be known all the same.
    """
    if not is_cordoned(node):
        return None
    notes = node.metadata.annotations or {}
    entry = _who_cordoned(node)
    user = entry.manager or None if entry else None
    mark = claimed(node)
    if mark is not None and owner_of(node) is Owner.SICKBAY:
        return Reason(mark.reason(), user, epoch(notes.get(CORDONED_AT)) or _tainted_at(node))
    text = next((notes[key] for key in _FOREIGN_REASONS if notes.get(key)), "")[:MAX_REASON_CHARS]
    if parse_mark(text) is not None:  # their words imitate our mark: they must not read as ours
        text = f"(not ours) {text}"[:MAX_REASON_CHARS]
    return Reason(text, user, _tainted_at(node))


def _tainted_at(node: NodeObject) -> float | None:
    taints = (node.spec.taints if node.spec else None) or ()
    return next((epoch(taint.time_added) for taint in taints if taint.key == UNSCHEDULABLE_TAINT), None)


def _taken_over(node: NodeObject) -> bool:
    """The bit was set by another manager than our annotations. Unknown (fields stripped) is no."""
    entry = _who_cordoned(node)
    if entry is None:
        return False
    annotations = _path(_fields(entry), "f:metadata", "f:annotations")
    return f"f:{CORDONED_BY_US}" not in annotations


def _who_cordoned(node: NodeObject) -> ManagedFields | None:
    """The manager that last set ``spec.unschedulable``, if the API server tells."""
    for entry in node.metadata.managed_fields or ():
        if b'"f:unschedulable"' in bytes(entry.fields_v1) and "f:unschedulable" in _path(
            _fields(entry), "f:spec"
        ):
            return entry
    return None


def _fields(entry: ManagedFields) -> dict[str, Any]:
    try:
        fields = msgspec.json.decode(entry.fields_v1)
    except msgspec.DecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _path(fields: dict[str, Any], *keys: str) -> dict[str, Any]:
    for key in keys:
        inner = fields.get(key)
        if not isinstance(inner, dict):
            return {}
        fields = inner
    return fields
