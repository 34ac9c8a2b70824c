"""The main job through the real agent and service, on the fake Kubernetes API."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from fleet.clock import SystemClock
from tests.fakes.kubernetes_api import FakeKubernetes, running
from tests.support.deployment import XID_79, Deployment
from tests.support.minislurm import MiniSlurm
from tests.support.processes import wait_until

pytestmark = [pytest.mark.services, pytest.mark.timeout(120)]

# The site's reboot command: the node comes back with another boot id.
REBOOT = """
import os, pathlib
folder = pathlib.Path({folder!r})
boots = folder / (os.environ["SICKBAY_NODE"] + ".boots")
boots.write_text(boots.read_text() + "x")
"""


class Machines:
    """What lies on the nodes: a kernel log and a boot id; the cluster lives its life meanwhile."""

    def __init__(self, api: FakeKubernetes, folder: Path) -> None:
        self.api = api
        self.folder = folder
        self.names = ("w1", "w2", "w3", "w4")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)
        for name in self.names:
            self.kernel_log(name).touch()
            (folder / f"{name}.boots").write_text("x")
            self._boot(name)

    def kernel_log(self, node: str) -> Path:
        return self.folder / f"{node}.kernel.log"

    def boot_id_file(self, node: str) -> Path:
        return self.folder / f"{node}.boot_id"

    def boots(self, node: str) -> int:
        return len((self.folder / f"{node}.boots").read_text())

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(5)

    def _live(self) -> None:
        while not self._stop.wait(0.1):
            self.api.run(1)
            for name in self.names:
                self._boot(name)

    def _boot(self, node: str) -> None:
        boot_id = f"00000000-0000-4000-8000-{self.boots(node):012d}"
        if not self.boot_id_file(node).exists() or self.boot_id_file(node).read_text().strip() != boot_id:
            self.boot_id_file(node).write_text(boot_id + "\n")
            self.api.edit("nodes", node, lambda found: found["status"]["nodeInfo"].update(bootID=boot_id))


class KubernetesDeployment(Deployment):
    def _write_files(self) -> None:
        self.folder.mkdir(parents=True)
        for name, text in (
            ("secret", "agent-secret-of-the-test-cluster"),
            ("alerts", "alerts-token-of-the-test"),
        ):
            self._secret(name, text)
        self._secret("operator", "operator-token-of-the-test")
        config = self._config()
        (self.folder / "sickbay.yaml").write_text(json.dumps(config))

    def _config(self) -> dict[str, Any]:
        machines = cast(Any, self.cluster)
        config: dict[str, Any] = {"cluster": "lab", "mode": "auto"}
        kubeconfig = machines.api.kubeconfig(self.folder)
        script = self.folder / "reboot.py"
        script.write_text(REBOOT.format(folder=str(machines.folder)))
        reboot = [sys.executable, str(script)]
        config.update(
            store={"url": f"sqlite:///{self.folder}/sickbay.db"},
            lease={"duration_seconds": 6},
            scheduler={"kind": "kubernetes", "kubernetes": {"kubeconfig": str(kubeconfig), "max_qps": 100}},
            metrics={"source": "scrape", "scrape": {"targets": []}},
            interval_seconds=1,
            settle_seconds=0.5,
            pools=[
                {
                    "name": "gpu",
                    "match": {"nodes": "w[1-4]"},
                    "budget": {"max_in_flight": 2, "max_unavailable_percent": 50},
                }
            ],
            repair={"ladder": ["reboot"], "commands": {"reboot": reboot}},
            verify={"probation_seconds": 1},
            http={
                "listen": f"127.0.0.1:{self.port}",
                "agent_secret_file": str(self.folder / "secret"),
                "tokens": [
                    {"name": "alice", "role": "operator", "token_file": str(self.folder / "operator")}
                ],
            },
        )
        return config


@contextmanager
def deployed(tmp_path: Path) -> Iterator[tuple[KubernetesDeployment, Machines]]:
    with running(clock=SystemClock()) as api:
        machines = Machines(api, tmp_path)
        api.add_workload("train", spec={"terminationGracePeriodSeconds": 1})
        api.add_workload("untouched", spec={"terminationGracePeriodSeconds": 1})
        api.run()
        machines.start()
        try:
            with KubernetesDeployment(cast(MiniSlurm, machines), tmp_path / "d", nodes=("w1",)) as sickbay:
                yield sickbay, machines
        finally:
            machines.stop()


def fault(machines: Machines, node: str) -> None:
    with machines.kernel_log(node).open("a") as log:
        log.write(f"[  100.000000] {XID_79}\n")


def test_from_kernel_line_to_returned_node(tmp_path: Path) -> None:
    with deployed(tmp_path) as (sickbay, machines):
        api = machines.api
        sick = api.get("pods", "train-0", "default")["spec"]["nodeName"]
        assert sick == "w1"
        fault(machines, sick)

        notes = wait_until(
            lambda: api.get("nodes", sick)["metadata"].get("annotations"), timeout=20, what="the cordon"
        )
        assert notes["sickbay.io/rule"] == "gpu-fell-off-bus"
        try:
            incident = sickbay.wait_for_state(sick, "returned", timeout=60)
        except (TimeoutError, AttributeError) as error:
            raise AssertionError(f"{sickbay.incidents(sick)}\n{sickbay.log_tail()}") from error

        steps = [step["step"] for step in incident["steps"] if step["phase"] == "effect"]
        assert steps == ["cordon", "requeue", "reboot", "verify", "uncordon"]
        assert machines.boots(sick) == 2
        assert api.get("pods", "train-0", "default")["spec"]["nodeName"] not in (sick, None)
        assert "unschedulable" not in api.get("nodes", sick)["spec"]
        assert "annotations" not in api.get("nodes", sick)["metadata"]
        assert [write for write in api.writes() if "/pods/" in write] == [
            "POST /api/v1/namespaces/default/pods/train-0/eviction"
        ]
        assert [machines.boots(name) for name in machines.names] == [2, 1, 1, 1]


def test_a_node_that_an_admin_cordoned_is_noted_and_left(tmp_path: Path) -> None:
    with deployed(tmp_path) as (sickbay, machines):
        api = machines.api
        api.edit(
            "nodes", "w1", lambda found: found["spec"].update(unschedulable=True), manager="kubectl-cordon"
        )
        threading.Event().wait(2.0)  # the next look
        fault(machines, "w1")

        note = wait_until(
            lambda: (api.get("nodes", "w1")["metadata"].get("annotations") or {}).get("sickbay.io/observed"),
            timeout=20,
            what="the note",
        )

        assert note.startswith("sickbay: ")
        assert set(api.writes()) == {"PATCH /api/v1/nodes/w1"}
        assert set(api.get("nodes", "w1")["metadata"]["annotations"]) == {"sickbay.io/observed"}
        assert api.get("pods", "train-0", "default")["spec"]["nodeName"] == "w1"
        (incident,) = sickbay.incidents("w1")
        assert "foreign_owner" in incident["blocked_by"]
