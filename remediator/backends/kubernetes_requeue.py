"""What one pass of bringing a pod off a node does next. Pure: a pod as it was just read, and the request.

A pod's name may be used again, so the pod we mean is known by when it was made, and the eviction carries the
UID that was read: a newcomer of the same name is never evicted on an old decision.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from collector.kubernetes.eviction import Eviction, EvictionAnswer
from collector.kubernetes.marks import epoch
from collector.kubernetes.objects import PodObject
from collector.kubernetes.pods import OrphanTest, PodClass, classify, controller_of, why_pinned
from fleet.scheduler import RequeueOutcome, RequeueRequest, RequeueState

_POD_ID = re.compile(
    r"(?P<namespace>[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)/(?P<name>[a-z0-9][a-z0-9.-]{0,252})"
)
_DONE, _GONE = RequeueState.DONE, RequeueState.GONE
_REFUSED, _WAIT = RequeueState.REFUSED, RequeueState.IN_PROGRESS


def parse_pod_id(job: str) -> tuple[str, str] | None:
    """``namespace/name``, or None: nothing else names a pod."""
    match = _POD_ID.fullmatch(job)
    return None if match is None else (match["namespace"], match["name"])


def decide(pod: PodObject | None, request: RequeueRequest, *, is_orphan: OrphanTest) -> RequeueOutcome | None:
    """The outcome as it stands, or None: the pod is there and has to be evicted."""
    if pod is None:
        return RequeueOutcome(_GONE, f"pod {request.job} is gone")
    node = pod.spec.node_name if pod.spec else None
    made = epoch(pod.metadata.creation_timestamp)
    if request.submitted_at is not None and made is not None and made != request.submitted_at:
        if node == request.node:
            return RequeueOutcome(_GONE, f"pod {pod.id} has ended; its name is another pod's now")
        return RequeueOutcome(_DONE, f"pod {pod.id} was made again and {_whereabouts(node)}")
    if node != request.node:
        return RequeueOutcome(_DONE, f"pod {pod.id} is not on {request.node}: it {_whereabouts(node)}")
    return _by_class(pod, classify(pod, is_orphan=is_orphan))


def _whereabouts(node: str | None) -> str:
    return f"runs on {node}" if node else "waits to be scheduled"


def _by_class(pod: PodObject, kind: PodClass) -> RequeueOutcome | None:
    name = f"pod {pod.id}"
    if kind is PodClass.FINISHED:
        return RequeueOutcome(_GONE, f"{name} has finished")
    if kind is PodClass.TERMINATING:
        return RequeueOutcome(_DONE, leaving(pod))
    if kind is PodClass.DAEMON:
        return RequeueOutcome(_REFUSED, f"{name} belongs to a DaemonSet and would be put straight back")
    if kind is PodClass.MIRROR:
        return RequeueOutcome(_REFUSED, f"{name} is the mirror of a static pod; only its node can end it")
    if kind is PodClass.UNMANAGED:
        return RequeueOutcome(
            _REFUSED,
            f"{name} has no controller: evicted it would be lost for good, so its owner must move it",
        )
    if kind in (PodClass.PINNED, PodClass.TOLERANT):
        return RequeueOutcome(_REFUSED, f"{name} is left where it is: {why_pinned(pod)}")
    if kind is PodClass.LOST:
        return RequeueOutcome(
            _WAIT, f"{name} is in phase Unknown: its node is not heard, so it is not forced"
        )
    return None


def leaving(pod: PodObject) -> str:
    """Terminating: until when, and what else holds it."""
    until = pod.metadata.deletion_timestamp
    held = (
        f"; its finalizers {', '.join(pod.metadata.finalizers)} must be served"
        if pod.metadata.finalizers
        else ""
    )
    return f"pod {pod.id} is terminating, its grace ends at {until}{held}"


def after_eviction(answer: EvictionAnswer, pod: PodObject, budgets: Iterable[str]) -> RequeueOutcome:
    """The outcome of a refused eviction that a re-read did not settle. ``budgets``: those that select it."""
    name = f"pod {pod.id}"
    if answer.kind is Eviction.BUDGET:
        which = answer.budget or ", ".join(budgets) or "a PodDisruptionBudget"
        return RequeueOutcome(
            _WAIT,
            f"{name} may not go now: PodDisruptionBudget {which} says no ({answer.text}){_unready(pod)}",
        )
    if answer.kind is Eviction.BUDGET_LAGS:
        return RequeueOutcome(
            _WAIT, f"{name}: the budget's controller lags, asking again ({answer.budget or answer.text})"
        )
    if answer.kind is Eviction.LEAVING:
        return RequeueOutcome(_WAIT, f"the namespace of {name} is being deleted, it is leaving with it")
    if answer.kind is Eviction.PERMANENT:
        both = ", ".join(budgets)
        why = f"PodDisruptionBudgets {both} both select it; leave it one" if both else answer.text
        return RequeueOutcome(_REFUSED, f"{name} cannot be evicted: {why}")
    return RequeueOutcome(_WAIT, f"{name}: the eviction is not seen yet, asking again ({answer.text})")


def accepted(pod: PodObject) -> str:
    """The eviction took effect, with what it costs."""
    owner = controller_of(pod)
    maker = f"{owner.kind} {owner.name}" if owner is not None else "its owner"
    scratch = [
        volume.name
        for volume in (pod.spec.volumes if pod.spec else None) or ()
        if volume.empty_dir is not None and volume.empty_dir.medium != "Memory"
    ]
    lost = f"; what is in its emptyDir {', '.join(scratch)} is lost" if scratch else ""
    return f"pod {pod.id} was evicted; {maker} makes it again elsewhere{lost}"


def selecting(budgets: Iterable[Mapping[str, Any]], pod: PodObject) -> tuple[str, ...]:
    """Names of the budgets whose selector matches (policy/v1: an empty selector selects all)."""
    labels = pod.metadata.labels or {}
    return tuple(
        sorted(
            str(budget.get("metadata", {}).get("name"))
            for budget in budgets
            if _selects(budget.get("spec", {}).get("selector"), labels)
        )
    )


def _selects(selector: Any, labels: Mapping[str, str]) -> bool:
    """metav1.LabelSelector; what cannot be read does not match."""
    if not isinstance(selector, Mapping):
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_meets(one, labels) for one in selector.get("matchExpressions") or ())


def _meets(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, wanted = labels.get(str(expression.get("key"))), expression.get("values") or ()
    operator = expression.get("operator")
    if operator == "In":
        return value in wanted
    if operator == "NotIn":
        return value not in wanted
    if operator == "Exists":
        return value is not None
    return operator == "DoesNotExist" and value is None


def _unready(pod: PodObject) -> str:
    conditions = (pod.status.conditions if pod.status else None) or ()
    if not any(one.type == "Ready" and one.status == "False" for one in conditions):
        return ""
    return "; it is not Ready, and unhealthyPodEvictionPolicy: AlwaysAllow would let such pods go"
