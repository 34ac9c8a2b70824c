"""May we touch this Kubernetes node, and with which patch? Pure decisions over a node that was just read.

Each write is one merge patch that carries the resourceVersion of the read it was decided on, so the marks
and the cordon appear together or not at all, and never over somebody's change in between.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from collector.kubernetes.marks import (
    CLAIMS,
    CORDONED_AT,
    CORDONED_BY_US,
    INCIDENT,
    OBSERVED,
    PRIOR_STATE,
    RULE,
    SCHEDULABLE,
    SENTENCE,
    claimed,
)
from collector.kubernetes.nodes import DELETING, foreign_mark
from collector.kubernetes.objects import NodeObject
from fleet.errors import BackendError, ConflictError, RefusedError
from fleet.marks import MAX_REASON_CHARS, Mark
from fleet.scheduler import NodeRecord, NodeState, Owner

COMMENT_PREFIX = "sickbay:"
Patch = dict[str, Any]


def is_ours(record: NodeRecord, mark: Mark) -> bool:
    """Cordoned under this very mark."""
    reason = record.reason.text if record.reason else None
    return record.owner is Owner.SICKBAY and mark.owns(reason)


def has_marks_of(node: NodeObject, mark: Mark) -> bool:
    """Our claim is on the node, whatever became of the cordon."""
    known = claimed(node)
    return known is not None and (known.incident, known.rule) == (mark.incident, mark.rule)


def has_stale_marks(node: NodeObject, mark: Mark) -> bool:
    return has_marks_of(node, mark) or any(
        (node.metadata.annotations or {}).get(key) == mark.incident for key in (INCIDENT, CORDONED_BY_US)
    )


def cordon_patch(mark: Mark, *, now: float) -> Patch:
    """The cordon and its claim in one."""
    at = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    notes = {
        INCIDENT: mark.incident,
        RULE: mark.rule,
        CORDONED_BY_US: mark.incident,
        PRIOR_STATE: SCHEDULABLE,
        SENTENCE: " ".join(mark.sentence.split())[:MAX_REASON_CHARS],
        CORDONED_AT: at,
    }
    return {"metadata": {"annotations": notes}, "spec": {"unschedulable": True}}


def uncordon_patch() -> Patch:
    return {**forget_patch(), "spec": {"unschedulable": None}}


def forget_patch() -> Patch:
    """Our claim goes, the cordon (somebody else's, or none) stays as it is."""
    return {"metadata": {"annotations": dict.fromkeys(CLAIMS)}}


def note_patch(text: str) -> Patch:
    return {"metadata": {"annotations": {OBSERVED: text}}}


def claim(record: NodeRecord) -> str:
    """Who holds the node, for a sentence."""
    reason = record.reason
    if reason is None or not (reason.user or reason.text):
        return "somebody who left no name"
    words = f" ({reason.text[:80]!r})" if reason.text else ""
    return f"{reason.user or 'somebody'}{words}"


def why_not_cordon(node: NodeObject, record: NodeRecord) -> BackendError | None:
    """What forbids a first cordon of ``node``, which is not cordoned under our mark."""
    if record.is_cordoned:
        return ConflictError(f"{record.name} is already cordoned by {claim(record)}; it stays theirs")
    if record.has(DELETING):
        return ConflictError(f"{record.name} is being deleted; nothing is written to it")
    foreign = foreign_mark(node)
    if foreign is not None:
        return ConflictError(f"{record.name} is being taken out of service by somebody else ({foreign})")
    return None


def why_not_uncordon(record: NodeRecord, mark: Mark) -> BackendError | None:
    """What forbids the return of a cordoned ``node`` to service."""
    if not is_ours(record, mark):
        return ConflictError(f"{record.name} is cordoned by {claim(record)}, not under {mark.incident}")
    if record.ready is not True:
        return ConflictError(f"{record.name} is not Ready ({record.base}); it cannot return to service")
    return None


def why_not_reboot(record: NodeRecord, mark: Mark) -> BackendError:
    """Kubernetes reboots nothing; who asks for the wrong node is told that first."""
    name = record.name
    if not record.is_cordoned:
        return ConflictError(f"{name} is not cordoned under {mark.incident}: no reboot")
    if not is_ours(record, mark):
        return ConflictError(f"{name} is cordoned by {claim(record)}, not under {mark.incident}: no reboot")
    if record.state is not NodeState.DRAINED:
        return ConflictError(f"{name} still has work on it ({record.state.value}): no reboot")
    return RefusedError(
        "Kubernetes reboots no node; set repair.commands.reboot to a command that does "
        "(it gets SICKBAY_NODE), or take reboot off repair.ladder"
    )


def why_not_annotate(record: NodeRecord) -> BackendError | None:
    if record.comment and not record.comment.startswith(COMMENT_PREFIX):
        return RefusedError(f"{record.name} carries somebody else's {OBSERVED}; nothing is written over it")
    return None
