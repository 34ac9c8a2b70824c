"""Against the simulated API server, over real HTTP: what is asked, and that nothing is written."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.clock import ManualClock, SystemClock
from sickbay.config import Config, parse_config
from sickbay.doctor.kubernetes import KubernetesChecks, judge_budget
from sickbay.doctor.model import Status
from sickbay.doctor.run import examine
from tests.fakes.kubernetes_api import FakeKubernetes, Script, running


@pytest.fixture
def api() -> Iterator[FakeKubernetes]:
    with running(clock=SystemClock()) as made:
        yield made


def config_for(kubeconfig: Path | str, **more: Any) -> Config:
    return parse_config(
        {
            "cluster": "a",
            "scheduler": {"kind": "kubernetes", "kubernetes": {"kubeconfig": str(kubeconfig)}},
            "metrics": {"source": "scrape"},
            **more,
        }
    )


def look(api: FakeKubernetes, folder: Path, **more: Any) -> dict[str, tuple[Status, str]]:
    checks = KubernetesChecks(config_for(api.kubeconfig(folder), **more), SystemClock())
    results = examine(checks.checks(), SystemClock())
    assert api.writes() == []
    return {one.name: (one.status, one.sentence) for one in results}


def test_a_cluster_that_is_well(api: FakeKubernetes, tmp_path: Path) -> None:
    found = look(api, tmp_path, mode="auto")
    assert {status for status, _ in found.values()} == {Status.OK}
    assert "1.36" in found["kubernetes.version"][1]
    assert "actor" in found["kubernetes.rights"][1]


@pytest.mark.parametrize(
    ("denied", "mode", "status"),
    [
        ({("patch", "nodes")}, "auto", Status.FAIL),
        ({("patch", "nodes")}, "observe", Status.OK),
        ({("list", "pods")}, "observe", Status.FAIL),
    ],
)
def test_rights_are_those_of_the_mode(
    denied: set[tuple[str, str]], mode: str, status: Status, api: FakeKubernetes, tmp_path: Path
) -> None:
    api.router.denied |= denied
    found = look(api, tmp_path, mode=mode)["kubernetes.rights"]
    assert found[0] is status
    if status is Status.FAIL:
        verb, resource = next(iter(denied))
        assert f"{verb} {resource}" in found[1]


def test_budgets_that_never_give_way(api: FakeKubernetes, tmp_path: Path) -> None:
    api.add_workload("strict", replicas=2)
    api.add_workload("kind", replicas=2)
    api.run()
    api.add_budget("never", "strict", maxUnavailable=0)
    api.add_budget("one", "kind", maxUnavailable=1)
    api.run()
    found = look(api, tmp_path)
    assert found["kubernetes.budgets_never"][0] is Status.WARN
    assert "default/never" in found["kubernetes.budgets_never"][1]
    assert "default/one" not in found["kubernetes.budgets_never"][1]


@pytest.mark.parametrize(
    ("status", "blocked"),
    [
        ({"disruptionsAllowed": 1, "expectedPods": 2, "desiredHealthy": 1}, None),
        ({"disruptionsAllowed": 0, "expectedPods": 2, "desiredHealthy": 2}, True),
        ({"disruptionsAllowed": 0, "expectedPods": 2, "desiredHealthy": 1}, False),
        ({"disruptionsAllowed": 0, "expectedPods": 0, "desiredHealthy": 0}, None),
        ({}, None),
        (None, None),
    ],
)
def test_a_budget(status: Any, blocked: bool | None) -> None:
    assert judge_budget({"status": status}) is blocked


@pytest.mark.parametrize(
    ("body", "mode", "status"),
    [
        ('{"major":"1","minor":"24+","gitVersion":"v1.24.1"}', "observe", Status.FAIL),
        ('{"major":"1","minor":"28","gitVersion":"v1.28.1"}', "observe", Status.OK),
        ('{"major":"1","minor":"28","gitVersion":"v1.28.1"}', "auto", Status.WARN),
        ('{"gitVersion":"odd"}', "observe", Status.UNKNOWN),
    ],
)
def test_versions(body: str, mode: str, status: Status, api: FakeKubernetes, tmp_path: Path) -> None:
    api.scripts.append(
        Script("GET", "/version", code=200, body=body, headers={"Content-Type": "application/json"})
    )
    assert look(api, tmp_path, mode=mode)["kubernetes.version"][0] is status


@pytest.mark.parametrize(
    "script",
    [
        Script("GET", "/version", code=500, body="boom"),
        Script("GET", "/version", code=200, body="<html>"),
        Script("GET", "/version", then="drop"),
    ],
)
def test_an_answer_that_is_none(script: Script, api: FakeKubernetes, tmp_path: Path) -> None:
    api.scripts.append(script)
    found = look(api, tmp_path)
    assert found["kubernetes.answers"][0] is Status.FAIL
    assert found["kubernetes.rights"][0] is Status.OK


@pytest.mark.parametrize(("off", "status"), [(0.0, Status.OK), (20.0, Status.WARN), (-400.0, Status.FAIL)])
def test_clocks(off: float, status: Status, api: FakeKubernetes, tmp_path: Path) -> None:
    """The server tells the real time; ours is off."""
    ours = ManualClock(time.time() + off)
    checks = KubernetesChecks(config_for(api.kubeconfig(tmp_path)), ours)
    found = {one.name: one.status for one in examine(checks.checks(), SystemClock())}
    assert found["kubernetes.clock"] is status


def test_no_kubeconfig(tmp_path: Path) -> None:
    checks = KubernetesChecks(config_for(tmp_path / "absent"), SystemClock())
    found = {one.name: one.status for one in examine(checks.checks(), SystemClock())}
    assert found["kubernetes.answers"] is Status.FAIL
    assert found["kubernetes.rights"] is Status.UNKNOWN
