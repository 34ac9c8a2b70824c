"""The least of a cluster behind the API: owners that make pods again, a scheduler, kubelets, budgets."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from simulator.kubernetes_api.errors import Json
from simulator.kubernetes_api.objects import count_budget, excluded_nodes, gpus_of, mirror_cordon
from simulator.kubernetes_api.store import Store, stamp

GPU = "nvidia.com/gpu"


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
            mirror_cordon(self._store, node)
        for workload in self.workloads:
            self._make_pods(workload)
        for pod in self._store.all("pods"):
            self._end(pod)
        for pod in self._store.all("pods"):
            self._bind(pod)
        for pod in self._store.all("pods"):
            self._start(pod)
        for budget in self._store.all("poddisruptionbudgets"):
            count_budget(self._store, budget)

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
        if name in excluded_nodes(pod):
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
