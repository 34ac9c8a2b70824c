"""The nodes of a simulated fleet as the API server hears of them: kubelets, device plugin, node controller.

A kubelet that is not heard leaves its Node untouched until the node controller calls it Unknown (Kubernetes,
"Node Status": after 40 s, 50 s since 1.32). A GPU that is lost is withdrawn from ``allocatable`` by the
device plugin; ``capacity`` keeps it until the plugin starts again, with the next boot.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.fleet import SimulatedFleet, SimulatedNode
from simulator.kubernetes_api.errors import Json
from simulator.kubernetes_api.objects import (
    CONTROLLERS,
    GPU,
    HOSTNAME,
    KUBELET,
    mirror_cordon,
    ready_condition,
)
from simulator.kubernetes_api.store import Store, stamp

#: From the start of the kernel until the kubelet tells that its node is Ready.
KUBELET_STARTS_SECONDS = 8.0
GRACE_SECONDS = 40.0
#: Nothing new: a kubelet writes its node's status so often all the same (``nodeStatusReportFrequency``).
REPORT_SECONDS = 300.0
#: What the pools of the documentation's examples select.
GPU_NODE_LABEL = "nvidia.com/gpu.present"
DAEMON_NAMESPACE, DAEMON = "gpu-operator", "nvidia-dcgm-exporter"


@dataclass(slots=True)
class _Kubelet:
    """What one kubelet has told, and when it was heard last."""

    boot_id: str
    heard_at: float
    reported_at: float
    gpus: int


class Machines:
    """Node objects and one DaemonSet's pods for a fleet. ``step`` brings them to the clock's present."""

    def __init__(self, store: Store, fleet: SimulatedFleet) -> None:
        self._store = store
        self._fleet = fleet
        self._kubelets: dict[str, _Kubelet] = {}
        now = fleet.clock.now()
        racks = {name: rack for rack, names in fleet.racks.items() for name in names}
        self._daemon = store.create(
            "daemonsets",
            {"metadata": {"name": DAEMON, "namespace": DAEMON_NAMESPACE}},
            manager="gpu-operator",
        )
        for name in fleet.names:
            machine = fleet.node(name)
            store.create("nodes", _node(machine, racks[name], stamp(store.clock)), manager=KUBELET)
            self._kubelets[name] = _Kubelet(machine.boot_id, now, now, len(machine.present_gpus))
            self._make_daemon_pod(name)

    def works(self, node: str) -> bool:
        """Its kubelet runs, in the boot that the API server knows of: it can start and end pods."""
        machine = self._fleet.node(node)
        return machine.up and machine.boot_id == self._kubelets[node].boot_id

    def step(self) -> list[str]:
        """The nodes whose kubelet has just started in a new boot: what ran on them is over."""
        booted = []
        for name, kubelet in self._kubelets.items():
            if self._follow(name, kubelet):
                booted.append(name)
            mirror_cordon(self._store, self._store.get("nodes", name))
        return booted

    def _follow(self, name: str, kubelet: _Kubelet) -> bool:
        now = self._fleet.clock.now()
        machine = self._fleet.node(name)
        if machine.up and machine.boot_id == kubelet.boot_id:
            kubelet.heard_at = now
            self._withdraw(name, kubelet, len(machine.present_gpus))
            if now - kubelet.reported_at >= REPORT_SECONDS:
                self._report(name, kubelet, ready="True", reason="KubeletReady")
            return False
        if machine.up and now >= machine.boot_time + KUBELET_STARTS_SECONDS:
            self._register(name, kubelet, machine)
            return True
        if now - kubelet.heard_at > GRACE_SECONDS and self._ready(name) != "Unknown":
            self._report(name, kubelet, ready="Unknown", reason="NodeStatusUnknown", manager=CONTROLLERS)
        return False

    def _ready(self, name: str) -> str:
        return str(ready_condition(self._store.get("nodes", name))["status"])

    def _withdraw(self, name: str, kubelet: _Kubelet, present: int) -> None:
        """The device plugin takes a lost GPU out of ``allocatable`` and gives none back by itself."""
        if present >= kubelet.gpus:
            return
        kubelet.gpus = present

        def change(node: Json) -> None:
            node["status"]["allocatable"][GPU] = str(present)

        self._store.edit(self._store.get("nodes", name), change, manager=KUBELET)

    def _register(self, name: str, kubelet: _Kubelet, machine: SimulatedNode) -> None:
        kubelet.boot_id, kubelet.heard_at = machine.boot_id, self._fleet.clock.now()
        kubelet.gpus = len(machine.present_gpus)

        def change(node: Json) -> None:
            node["status"]["nodeInfo"]["bootID"] = machine.boot_id
            for group in ("capacity", "allocatable"):
                node["status"][group][GPU] = str(kubelet.gpus)

        self._store.edit(self._store.get("nodes", name), change, manager=KUBELET)
        self._report(name, kubelet, ready="True", reason="KubeletReady")

    def _report(
        self, name: str, kubelet: _Kubelet, *, ready: str, reason: str, manager: str = KUBELET
    ) -> None:
        at = stamp(self._store.clock)
        kubelet.reported_at = self._fleet.clock.now()

        def change(node: Json) -> None:
            condition = ready_condition(node)
            if condition["status"] != ready:
                condition["lastTransitionTime"] = at
            condition.update(status=ready, reason=reason, lastHeartbeatTime=at)

        self._store.edit(self._store.get("nodes", name), change, manager=manager)

    def _make_daemon_pod(self, node: str) -> None:
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": DAEMON, "controller": True}
        pod = {
            "metadata": {
                "name": f"{DAEMON}-{node}",
                "namespace": DAEMON_NAMESPACE,
                "labels": {"app": DAEMON},
                "ownerReferences": [{**owner, "uid": self._daemon["metadata"]["uid"]}],
            },
            "spec": {
                "nodeName": node,
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "exporter", "image": "dcgm-exporter"}],
            },
            "status": {
                "phase": "Running",
                "startTime": stamp(self._store.clock),
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        self._store.create("pods", pod, manager=CONTROLLERS)


def _node(machine: SimulatedNode, rack: str, at: str) -> Json:
    gpus = str(len(machine.present_gpus))
    resources = {"cpu": "192", "memory": "2113458348Ki", "pods": "110", GPU: gpus}
    return {
        "metadata": {
            "name": machine.name,
            "labels": {
                HOSTNAME: machine.name,
                "topology.kubernetes.io/zone": rack,
                GPU_NODE_LABEL: "true",
                "nvidia.com/gpu.count": gpus,
                "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
            },
        },
        "status": {
            "capacity": resources,
            "allocatable": dict(resources),
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "lastHeartbeatTime": at,
                    "lastTransitionTime": at,
                }
            ],
            "nodeInfo": {
                "bootID": machine.boot_id,
                "machineID": machine.machine_id,
                "osImage": "Debian GNU/Linux 12 (bookworm)",
            },
        },
    }
