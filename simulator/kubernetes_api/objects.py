"""Facts about nodes, pods and budgets that more than one part of the cluster's own hands needs."""

from __future__ import annotations

from typing import Any

from simulator.kubernetes_api.errors import Json
from simulator.kubernetes_api.evictions import is_ready
from simulator.kubernetes_api.selectors import matches_selector
from simulator.kubernetes_api.store import Store, stamp

GPU = "nvidia.com/gpu"
HOSTNAME = "kubernetes.io/hostname"
UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
CONTROLLERS = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
KUBELET = "kubelet"
FINISHED = ("Succeeded", "Failed")


def gpus_of(pod: Json) -> int:
    """Whole GPUs that its containers ask for."""
    return sum(
        int((container.get("resources", {}).get("limits") or {}).get(GPU, 0))
        for container in pod["spec"].get("containers") or []
    )


def is_finished(pod: Json) -> bool:
    return pod["status"].get("phase") in FINISHED


def is_terminating(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def is_cordoned(node: Json) -> bool:
    return bool(node["spec"].get("unschedulable"))


def ready_condition(node: Json) -> Json:
    """The node's one Ready condition."""
    return next(one for one in node["status"]["conditions"] if one["type"] == "Ready")


def excluded_nodes(pod: Json) -> set[str]:
    """Its user's wish: required node affinity, hostname NotIn."""
    return _hostnames(pod, "NotIn")


def required_nodes(pod: Json) -> set[str]:
    """Its user's wish: required node affinity, hostname In; empty: any node."""
    return _hostnames(pod, "In")


def affinity(*, required: tuple[str, ...], excluded: tuple[str, ...]) -> Json:
    """Node affinity of a pod spec for these hostnames; empty without any."""
    expressions = [
        {"key": HOSTNAME, "operator": operator, "values": list(names)}
        for operator, names in (("In", required), ("NotIn", excluded))
        if names
    ]
    if not expressions:
        return {}
    terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def _hostnames(pod: Json, operator: str) -> set[str]:
    wishes = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = wishes.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return {
        name
        for term in required.get("nodeSelectorTerms") or []
        for expression in term.get("matchExpressions") or []
        if (expression["key"], expression["operator"]) == (HOSTNAME, operator)
        for name in expression["values"]
    }


def mirror_cordon(store: Store, node: Json) -> None:
    """The node controller mirrors ``spec.unschedulable`` into a taint."""
    taints = [taint for taint in node["spec"].get("taints") or [] if taint["key"] != UNSCHEDULABLE["key"]]
    has = len(taints) != len(node["spec"].get("taints") or [])
    wanted = is_cordoned(node)
    if has == wanted:
        return

    def change(changed: Json) -> None:
        new = [*taints, {**UNSCHEDULABLE, "timeAdded": stamp(store.clock)}] if wanted else taints
        if new:
            changed["spec"]["taints"] = new
        else:
            changed["spec"].pop("taints", None)

    store.edit(node, change, manager=CONTROLLERS)


def count_budget(store: Store, budget: Json) -> None:
    """The disruption controller, with whole numbers only."""
    selected = [
        pod
        for pod in store.all("pods", budget["metadata"]["namespace"])
        if matches_selector(budget["spec"].get("selector"), pod["metadata"].get("labels") or {})
        and not is_finished(pod)
    ]
    healthy = sum(is_ready(pod) and not is_terminating(pod) for pod in selected)
    spec: dict[str, Any] = budget["spec"]
    if "minAvailable" in spec:
        desired = int(spec["minAvailable"])
    else:
        desired = len(selected) - int(spec["maxUnavailable"])
    status = {
        "disruptionsAllowed": max(0, healthy - desired),
        "currentHealthy": healthy,
        "desiredHealthy": max(0, desired),
        "expectedPods": len(selected),
        "observedGeneration": budget["metadata"]["generation"],
    }
    if status != budget["status"]:
        store.edit(budget, lambda changed: changed.update(status=status), manager=CONTROLLERS)
