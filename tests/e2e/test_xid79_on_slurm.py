"""The main job on a real Slurm cluster, through the real agent and service, and what must never happen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import require_slurm
from tests.support.deployment import ALERTS_TOKEN, XID_79, Deployment
from tests.support.minislurm import MiniSlurm
from tests.support.processes import wait_until

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniSlurm]:
    require_slurm()
    with MiniSlurm() as made, made.serve_reboots(downtime_seconds=0.3):
        yield made


def writes(deployment: Deployment, node: str) -> list[str]:
    """What was written to Slurm about a node: drain, reboot, undrain, comment, in order."""
    found: list[str] = []
    for call in deployment.calls():
        if call == f"reboot {node}":
            found.append("reboot")
        elif call.startswith(f"update NodeName={node} "):
            words = {"State=DRAIN ": "drain", "State=UNDRAIN": "undrain", "Comment=": "comment"}
            found += [word for mark, word in words.items() if mark in call + " "]
    return found


def start_job(cluster: MiniSlurm, *options: str) -> tuple[str, str]:
    """A running job that fills a node: its id, and the node it runs on."""
    job = cluster.sbatch("-J", "train", "-N1", "--gres=gpu:8", *options)
    cluster.wait(lambda: cluster.job(job)[0] == "RUNNING", timeout=20, what=f"job {job} to run")
    return job, cluster.job(job)[2]


def done_steps(incident: Any) -> list[str]:
    return [step["step"] for step in incident["steps"] if step["phase"] == "effect"]


def test_from_kernel_line_to_returned_node(cluster: MiniSlurm, tmp_path: Path) -> None:
    job, sick = start_job(cluster, "--requeue")
    bystander, other = start_job(cluster, "--requeue")
    with Deployment(cluster, tmp_path / "d", nodes=(sick, other)) as sickbay:
        cluster.write_kernel_line(sick, XID_79)
        draining = wait_until(lambda: cluster.node_reason(sick), timeout=20, what="the node to be drained")
        assert draining.startswith("sickbay:i-")
        assert ":gpu-fell-off-bus " in draining
        incident = sickbay.wait_for_state(sick, "returned")
        assert done_steps(incident) == ["cordon", "requeue", "reboot", "verify", "uncordon"]
        for step in ("cordon", "requeue", "reboot", "verify", "uncordon"):
            phases = [s["phase"] for s in incident["steps"] if s["step"] == step]
            assert phases[0] == "intent"
            assert phases[-1] == "effect"
        assert writes(sickbay, sick) == ["drain", "reboot", "undrain"]
        why = wait_until(
            lambda: (w := sickbay.get(f"/api/v1/nodes/{sick}/why"))["verdict"] == "healthy" and w,
            timeout=20,
            what="the node to be healthy again",
        )
        assert (why["owner"], why["findings"], why["incident"]) == ("none", [], None)
    cluster.wait(
        lambda: cluster.node_state(sick) in ("idle", "mixed"), timeout=10, what="the node to be back"
    )
    state, _, where = cluster.job(job)
    assert (state, where != sick) == ("RUNNING", True)
    assert cluster.job(bystander) == ("RUNNING", "None", other)
    assert cluster.node_reason(sick) == ""
    cluster.run("scancel", job, bystander)


def test_a_node_an_admin_drained_is_untouched(cluster: MiniSlurm, tmp_path: Path) -> None:
    cluster.run("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=ADMIN: chassis swap")
    with Deployment(cluster, tmp_path / "d", nodes=("n2",)) as sickbay:
        cluster.write_kernel_line("n2", XID_79)
        wait_until(
            lambda: "Comment=sickbay: i-" in cluster.run("scontrol", "show", "node", "n2").stdout,
            timeout=20,
            what="the note beside the admin's drain",
        )
        incident = sickbay.incidents("n2")[0]
        assert (incident["state"], incident["blocked_by"]) == ("confirmed", ["foreign_owner"])
        assert writes(sickbay, "n2") == ["comment"]
    assert cluster.node_reason("n2") == "ADMIN: chassis swap"
    cluster.run("scontrol", "update", "NodeName=n2", "State=UNDRAIN", "Comment=")


def test_observe_mode_writes_nothing(cluster: MiniSlurm, tmp_path: Path) -> None:
    with Deployment(cluster, tmp_path / "d", nodes=("n2",), mode="observe") as sickbay:
        cluster.write_kernel_line("n2", XID_79)
        incident = sickbay.wait_for_state("n2", "confirmed", timeout=20)
        wait_until(lambda: sickbay.incidents("n2")[0]["blocked_by"], timeout=10, what="the mode gate")
        assert sickbay.get("/api/v1/nodes/n2/why")["next_step"]["step"] == "cordon"
        assert incident["node"] == "n2"
        assert writes(sickbay, "n2") == []
    assert cluster.node_reason("n2") == ""


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_every_action_the_end_is_the_same(cluster: MiniSlurm, tmp_path: Path, when: str) -> None:
    """kill -9 between intent and effect (before), and between effect and record (after), at each write."""
    job, sick = start_job(cluster, "--requeue")
    with Deployment(cluster, tmp_path / "d", nodes=(sick,)) as sickbay:
        for pattern in ("*State=DRAIN*", "*requeuehold*", "*release*", "reboot *", "*State=UNDRAIN*"):
            sickbay.kill_at(when, pattern)
        cluster.write_kernel_line(sick, XID_79)
        incident = sickbay.wait_for_state(sick, "returned", timeout=150)
        assert sickbay.kills_left() == 0
        assert sickbay.restarts == 5
        assert done_steps(incident) == ["cordon", "requeue", "reboot", "verify", "uncordon"]
        times = 2 if when == "before" else 1  # a call that was killed before it reached Slurm is made again
        for word in ("drain", "reboot", "undrain"):
            assert writes(sickbay, sick).count(word) == times
    cluster.wait(lambda: cluster.job(job)[0] == "RUNNING", timeout=20, what="the job to run again")
    assert "Restarts=1 " in cluster.run("scontrol", "show", "job", job).stdout
    assert cluster.node_reason(sick) == ""
    cluster.run("scancel", job)


def test_tokens_and_names(cluster: MiniSlurm, tmp_path: Path) -> None:
    with Deployment(cluster, tmp_path / "d", nodes=("n2",)) as sickbay:
        token = (tmp_path / "d" / "token-n2").read_text()
        event = {"type": "event", "kind": "xid", "code": 79, "time": 1.0, "boot_id": "b", "sequence": 1}

        def push(agent_node: str, event_node: str) -> httpx.Response:
            body = {
                "agent": {"node": agent_node, "version": "t", "boot_id": "b", "gpus": None},
                "events": [event | {"node": event_node}],
            }
            return httpx.post(
                f"{sickbay.url}/api/v1/events", json=body, headers={"Authorization": f"Bearer {token}"}
            )

        assert push("n1", "n1").status_code == httpx.codes.FORBIDDEN
        assert push("n[1-4]", "n[1-4]").status_code in (httpx.codes.BAD_REQUEST, httpx.codes.FORBIDDEN)
        foreign = push("n2", "n1")
        assert foreign.status_code == httpx.codes.OK
        assert (foreign.json()["accepted"], len(foreign.json()["rejected"])) == (0, 1)
        wide = {
            "version": "4",
            "status": "firing",
            "alerts": [
                {"status": "firing", "labels": {"alertname": "GpuLost", "node": "n[1-4]"}, "startsAt": "x"}
            ],
        }
        alerts = httpx.post(
            f"{sickbay.url}/api/v1/alerts", json=wide, headers={"Authorization": f"Bearer {ALERTS_TOKEN}"}
        )
        assert alerts.json().get("accepted") == 1, alerts.text
        sickbay.wait_for_no_incident(seconds=3)
        assert {node: writes(sickbay, node) for node in cluster.names} == {node: [] for node in cluster.names}
