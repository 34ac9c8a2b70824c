"""The simulated fleet as a Kubernetes cluster: machines, jobs, budgets, and who did what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fleet.clock import ManualClock
from fleet.errors import NotFoundError
from fleet.scheduler import JobKind, NodeState, Owner
from simulator.cluster import ClusterOf
from simulator.fleet import SimulatedFleet
from simulator.jobs import JobSpec
from simulator.kubernetes_api.machines import GRACE_SECONDS, KUBELET_STARTS_SECONDS
from simulator.kubernetes_api.objects import ready_condition
from simulator.kubernetes_api.routes import Request
from simulator.kubernetes_api.scheduler import ADMIN_REASON, KubernetesScheduler

Pods = list[dict[str, Any]]


class Cluster:
    """Four nodes of eight GPUs, second by second."""

    def __init__(self, nodes: int = 4, seed: int = 1) -> None:
        self.clock = ManualClock()
        self.fleet = SimulatedFleet(clock=self.clock, nodes=nodes, seed=seed)
        self.scheduler = KubernetesScheduler(self.fleet, seed=seed, reboot_seconds=100.0)
        self.store = self.scheduler.api.store

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance(1.0)
            self.scheduler.tick()

    def until(self, condition: Callable[[], bool], seconds: int = 200) -> None:
        for _ in range(seconds):
            if condition():
                return
            self.run(1)
        raise TimeoutError("the cluster never got there")

    def pods(self) -> Pods:
        return self.store.all("pods", "training")

    def node(self, name: str) -> dict[str, Any]:
        return self.store.get("nodes", name)

    def evict(self, pod: dict[str, Any]) -> int:
        name = pod["metadata"]["name"]
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        request = Request(
            method="POST",
            path=f"/api/v1/namespaces/training/pods/{name}/eviction",
            query={},
            headers={
                "authorization": f"Bearer {self.scheduler.api.token}",
                "content-type": "application/json",
                "user-agent": "sickbay",
            },
            body={**body, "deleteOptions": {"preconditions": {"uid": pod["metadata"]["uid"]}}},
        )
        return self.scheduler.api.handle(request).code


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


class TestMachines:
    def test_a_reboot_is_unknown_after_the_grace_and_a_new_boot_when_the_kubelet_is_up(
        self, cluster: Cluster
    ) -> None:
        before = cluster.node("n01")["status"]["nodeInfo"]["bootID"]
        cluster.scheduler.power_cycle("n01")
        cluster.run(int(GRACE_SECONDS))
        assert ready_condition(cluster.node("n01"))["status"] == "True"
        cluster.run(1)
        assert ready_condition(cluster.node("n01"))["status"] == "Unknown"
        assert cluster.scheduler.observe_node("n01").state is NodeState.UNKNOWN
        cluster.run(int(100 - GRACE_SECONDS - 1 + KUBELET_STARTS_SECONDS) - 1)
        assert cluster.fleet.node("n01").up
        assert ready_condition(cluster.node("n01"))["status"] == "Unknown"
        cluster.run(1)
        assert ready_condition(cluster.node("n01"))["status"] == "True"
        after = cluster.node("n01")["status"]["nodeInfo"]["bootID"]
        assert before != after == cluster.fleet.node("n01").boot_id
        assert cluster.scheduler.observe_node("n01").state is NodeState.IDLE

    def test_a_lost_gpu_is_withdrawn_until_the_next_boot(self, cluster: Cluster) -> None:
        def gpus() -> tuple[str, str]:
            status = cluster.node("n02")["status"]
            return status["capacity"]["nvidia.com/gpu"], status["allocatable"]["nvidia.com/gpu"]

        cluster.fleet.lose_gpu("n02", 3)
        cluster.run(1)
        assert gpus() == ("8", "7")
        cluster.fleet.replace_gpu("n02", 3)
        cluster.run(1)
        assert gpus() == ("8", "7")
        cluster.scheduler.power_cycle("n02")
        cluster.run(int(100 + KUBELET_STARTS_SECONDS))
        assert gpus() == ("8", "8")

    def test_each_node_has_its_daemons_pod(self, cluster: Cluster) -> None:
        owner = cluster.store.all("daemonsets")[0]["metadata"]["uid"]
        daemons = cluster.store.all("pods", "gpu-operator")
        assert [pod["spec"]["nodeName"] for pod in daemons] == ["n01", "n02", "n03", "n04"]
        assert {pod["metadata"]["ownerReferences"][0]["uid"] for pod in daemons} == {owner}

    def test_what_ran_on_a_node_that_restarts_is_over_and_made_again(self, cluster: Cluster) -> None:
        cluster.scheduler.submit(JobSpec(seconds=1e6))
        cluster.run(2)
        (old,) = cluster.pods()
        cluster.scheduler.power_cycle("n01")
        cluster.run(int(100 + KUBELET_STARTS_SECONDS) + 3)
        again = [pod for pod in cluster.pods() if pod["status"]["phase"] == "Running"]
        assert len(again) == 1
        assert again[0]["metadata"]["uid"] != old["metadata"]["uid"]


class TestJobs:
    def test_an_evicted_pod_is_made_again_elsewhere_and_starts_over(self, cluster: Cluster) -> None:
        cluster.scheduler.submit(JobSpec(name="pretrain", user="dora", seconds=1e6))
        cluster.run(2)
        (pod,) = cluster.pods()
        assert pod["spec"]["nodeName"] == "n01"
        assert pod["metadata"]["ownerReferences"][0]["kind"] == "Job"
        cluster.store.edit(
            cluster.node("n01"), lambda node: node["spec"].update(unschedulable=True), manager="sickbay"
        )
        # The budget wants two of them up: one is too few to give any away.
        assert cluster.evict(pod) == 429
        cluster.scheduler.submit(JobSpec(name="pretrain", seconds=1e6))
        cluster.scheduler.submit(JobSpec(name="pretrain", seconds=1e6))
        cluster.run(3)
        assert cluster.evict(pod) == 201
        cluster.run(1)
        assert cluster.scheduler.observe_node("n01").state is NodeState.DRAINING
        cluster.until(lambda: cluster.scheduler.observe_node("n01").state is NodeState.DRAINED, 8)
        cluster.run(2)
        names = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in cluster.pods()}
        assert pod["metadata"]["name"] not in names
        assert sorted(names.values()) == ["n02", "n03", "n04"]
        (action,) = [one for one in cluster.scheduler.our_actions if one.verb == "requeue"]
        assert (action.node, action.job) == ("n01", f"training/{pod['metadata']['name']}")

    def test_a_job_ends_and_is_forgotten_later(self, cluster: Cluster) -> None:
        cluster.scheduler.submit(JobSpec(seconds=10.0))
        cluster.run(14)
        assert [pod["status"]["phase"] for pod in cluster.pods()] == ["Succeeded"]
        assert cluster.scheduler.gpus_wanted() == 0
        assert cluster.scheduler.jobs_on("n01") == ()
        cluster.run(602)
        assert cluster.pods() == []

    def test_a_failed_job_is_not_made_again(self, cluster: Cluster) -> None:
        cluster.scheduler.submit(JobSpec(nodes=2, seconds=1e6))
        cluster.run(2)
        job = cluster.scheduler.jobs_on("n02")[0]
        assert job.nodes == ("n01", "n02")
        cluster.scheduler.fail_job(job.id)
        cluster.run(3)
        assert [pod["status"]["phase"] for pod in cluster.pods()] == ["Failed", "Failed"]
        assert cluster.scheduler.gpus_wanted() == 0

    def test_a_gang_starts_whole_or_not_at_all(self, cluster: Cluster) -> None:
        cluster.scheduler.submit(JobSpec(name="one", seconds=1e6))
        cluster.scheduler.submit(JobSpec(name="four", nodes=4, seconds=1e6))
        cluster.run(5)
        placed = {pod["metadata"]["labels"]["app"] for pod in cluster.pods() if pod["spec"].get("nodeName")}
        assert placed == {"one"}

    @pytest.mark.parametrize(
        ("spec", "owned", "stays"),
        [
            (JobSpec(seconds=1e6), True, False),
            (JobSpec(seconds=1e6, requeue=False), True, True),
            (JobSpec(seconds=1e6, requeue=False, kind=JobKind.INTERACTIVE), False, False),
        ],
    )
    def test_which_pods_may_be_moved_is_written_on_them(
        self, cluster: Cluster, spec: JobSpec, owned: bool, stays: bool
    ) -> None:
        cluster.scheduler.submit(spec)
        cluster.run(2)
        meta = cluster.pods()[0]["metadata"]
        assert ("ownerReferences" in meta) is owned
        assert ("cluster-autoscaler.kubernetes.io/safe-to-evict" in meta.get("annotations", {})) is stays

    def test_where_a_user_wants_it_and_held_not_at_all(self, cluster: Cluster) -> None:
        cluster.scheduler.submit(JobSpec(name="there", seconds=1e6, required_nodes=("n03",)))
        cluster.scheduler.submit(JobSpec(name="not-there", seconds=1e6, excluded_nodes=("n01",)))
        cluster.scheduler.submit(JobSpec(name="held", seconds=1e6, held=True))
        cluster.run(3)
        where = {pod["metadata"]["labels"]["app"]: pod["spec"].get("nodeName") for pod in cluster.pods()}
        assert where == {"there": "n03", "not-there": "n02", "held": None}
        assert cluster.scheduler.gpus_wanted() == 16


class TestPeople:
    def test_an_admin_cordons_as_kubectl_does(self, cluster: Cluster) -> None:
        cluster.scheduler.admin_drain("n03", "ADMIN: chassis swap", "root")
        cluster.run(1)
        sent = [(r.method, r.path, r.query, r.body) for r in cluster.scheduler.api.requests]
        assert sent == [
            (
                "PATCH",
                "/api/v1/nodes/n03",
                {"fieldManager": "kubectl-annotate"},
                {"metadata": {"annotations": {ADMIN_REASON: "ADMIN: chassis swap"}}},
            ),
            (
                "PATCH",
                "/api/v1/nodes/n03",
                {"fieldManager": "kubectl-cordon"},
                {"spec": {"unschedulable": True}},
            ),
        ]
        record = cluster.scheduler.observe_node("n03")
        assert (record.owner, record.state) == (Owner.FOREIGN, NodeState.DRAINED)
        assert record.reason is not None
        assert (record.reason.text, record.reason.user) == ("ADMIN: chassis swap", "kubectl-cordon")
        assert cluster.node("n03")["spec"]["taints"][0]["key"] == "node.kubernetes.io/unschedulable"
        assert cluster.scheduler.our_actions == []
        cluster.scheduler.admin_undrain("n03")
        assert cluster.scheduler.observe_node("n03").owner is Owner.NONE

    def test_a_name_that_is_no_node_is_not_found(self, cluster: Cluster) -> None:
        for call in (cluster.scheduler.observe_node, cluster.scheduler.power_cycle):
            with pytest.raises(NotFoundError):
                call("n[01-04]")

    def test_nobody_is_answered_while_the_server_is_away(self, cluster: Cluster) -> None:
        cluster.scheduler.submit(JobSpec(seconds=1e6))
        cluster.run(2)
        cluster.scheduler.be_unavailable(30.0)
        assert cluster.evict(cluster.pods()[0]) == 503
        assert cluster.scheduler.our_actions == []
        cluster.run(31)
        assert cluster.evict(cluster.pods()[0]) == 201


def test_equal_seeds_are_equal_clusters() -> None:
    def story(seed: int) -> list[object]:
        clock = ManualClock()
        fleet = SimulatedFleet(clock=clock, nodes=4, seed=seed)
        made = ClusterOf(fleet, KubernetesScheduler(fleet, seed=seed), seed=seed)
        for _ in range(60):
            clock.advance(1.0)
            made.tick()
        return [*made.scheduler.api.store.all("pods"), *made.scheduler.api.store.all("nodes")]

    assert story(5) == story(5)
    assert story(5) != story(6)
