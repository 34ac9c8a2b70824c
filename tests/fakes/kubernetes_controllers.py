"""The least of a cluster behind the API: owners that make pods again, a scheduler, kubelets, budgets."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from simulator.kubernetes_api.errors import Json
from simulator.kubernetes_api.evictions import is_ready
from simulator.kubernetes_api.selectors import matches_selector
from simulator.kubernetes_api.store import Store, stamp

GPU = "nvidia.com/gpu"
UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


@dataclass(slots=True)
class Workload:
    """An owner of ``replicas`` pods. ``stable``: a pod comes back under its name, else under a new one."""

    owner: Json
    namespace: str
    template: Json
    replicas: int = 1
    stable: bool = True
    made: int = 0
    slots: dict[int, str] = field(default_factory=dict)


class Controllers:
    """``step`` is one round of everything; time is the store's clock."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.workloads: list[Workload] = []
        self.silent_kubelets: set[str] = set()

    def step(self) -> None:
        for node in self._store.all("nodes"):
            self._taint(node)
        for workload in self.workloads:
            self._make_pods(workload)
        for pod in self._store.all("pods"):
            self._end(pod)
        for pod in self._store.all("pods"):
            self._bind(pod)
        for pod in self._store.all("pods"):
            self._start(pod)
        for budget in self._store.all("poddisruptionbudgets"):
            self._count(budget)

    def _taint(self, node: Json) -> None:
        """The node controller mirrors the cordon into a taint."""
        taints = [taint for taint in node["spec"].get("taints") or [] if taint["key"] != UNSCHEDULABLE["key"]]
        has = len(taints) != len(node["spec"].get("taints") or [])
        wanted = bool(node["spec"].get("unschedulable"))
        if has == wanted:
            return

        def change(changed: Json) -> None:
            new = [*taints, {**UNSCHEDULABLE, "timeAdded": stamp(self._store.clock)}] if wanted else taints
            if new:
                changed["spec"]["taints"] = new
            else:
                changed["spec"].pop("taints", None)

        self._store.edit(node, change, manager="kube-controller-manager")

    def _make_pods(self, workload: Workload) -> None:
        for slot in range(workload.replicas):
            name = workload.slots.get(slot)
            if name is not None and self._store.find("pods", name, workload.namespace) is not None:
                continue
            workload.made += 1
            suffix = str(slot) if workload.stable else f"{slot}-{workload.made:05x}"
            pod = copy.deepcopy(workload.template)
            pod.setdefault("metadata", {}).update(
                name=f"{workload.owner['name']}-{suffix}",
                namespace=workload.namespace,
                ownerReferences=[{**workload.owner, "controller": True, "blockOwnerDeletion": True}],
            )
            pod["status"] = {"phase": "Pending"}
            made = self._store.create("pods", pod, manager="kube-controller-manager")
            workload.slots[slot] = made["metadata"]["name"]

    def _end(self, pod: Json) -> None:
        """The kubelet kills at the end of the grace and confirms; finalizers keep the object."""
        until = pod["metadata"].get("deletionTimestamp")
        node = pod["spec"].get("nodeName")
        if until is None or node in self.silent_kubelets or until > stamp(self._store.clock):
            return
        if not pod["metadata"].get("finalizers"):
            self._store.remove(pod)

    def _bind(self, pod: Json) -> None:
        spec = pod["spec"]
        if spec.get("nodeName") or spec.get("schedulingGates") or "deletionTimestamp" in pod["metadata"]:
            return
        for node in self._store.all("nodes"):
            if self._fits(pod, node):
                name = node["metadata"]["name"]
                self._store.edit(pod, lambda changed, name=name: changed["spec"].update(nodeName=name))
                return

    def _fits(self, pod: Json, node: Json) -> bool:
        name = node["metadata"]["name"]
        if node["spec"].get("unschedulable") or name in self.silent_kubelets:
            return False
        if name in _excluded(pod):
            return False
        held = sum(
            gpus_of(other)
            for other in self._store.all("pods")
            if other["spec"].get("nodeName") == name
            and other["status"].get("phase") not in ("Succeeded", "Failed")
        )
        return gpus_of(pod) <= int(node["status"]["allocatable"].get(GPU, "0")) - held

    def _start(self, pod: Json) -> None:
        node = pod["spec"].get("nodeName")
        if not node or node in self.silent_kubelets or pod["status"].get("phase") != "Pending":
            return

        def change(changed: Json) -> None:
            changed["status"].update(
                phase="Running",
                startTime=stamp(self._store.clock),
                conditions=[{"type": "Ready", "status": "True"}],
            )

        self._store.edit(pod, change, manager="kubelet")

    def _count(self, budget: Json) -> None:
        """The disruption controller, with whole numbers only."""
        selected = [
            pod
            for pod in self._store.all("pods", budget["metadata"]["namespace"])
            if matches_selector(budget["spec"].get("selector"), pod["metadata"].get("labels") or {})
            and pod["status"].get("phase") not in ("Succeeded", "Failed")
        ]
        healthy = sum(is_ready(pod) and "deletionTimestamp" not in pod["metadata"] for pod in selected)
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
        self._store.edit(budget, lambda changed: changed.update(status=status))


def gpus_of(pod: Json) -> int:
    return sum(
        int((container.get("resources", {}).get("limits") or {}).get(GPU, 0))
        for container in pod["spec"].get("containers") or []
    )


def _excluded(pod: Json) -> set[str]:
    """Its user's wish: required node affinity, hostname NotIn."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return {
        name
        for term in required.get("nodeSelectorTerms") or []
        for expression in term.get("matchExpressions") or []
        if (expression["key"], expression["operator"]) == ("kubernetes.io/hostname", "NotIn")
        for name in expression["values"]
    }
