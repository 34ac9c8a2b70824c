"""The composition's files with real servers: a fault is scraped, Prometheus alerts, Alertmanager delivers,
the controller stores it, opens an incident and acts. And every query of every board answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fleet.metric_names import names_in
from tests.support.composition import INTERVALS, QUICK
from tests.support.processes import wait_until
from tests.support.prometheus_servers import NODES, Stack, require_prometheus

pytestmark = [pytest.mark.services, pytest.mark.timeout(240)]

ROOT = Path(__file__).resolve().parents[2]
BOARDS = sorted((ROOT / "dashboards/json").glob("*.json"))
ECC = "gpu-ecc-uncorrected-rising"
HEAT = "gpu-thermal-hw-slowdown"
_LABEL_VALUES = re.compile(r"label_values\((.+), (\w+)\)")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    require_prometheus()
    with Stack(tmp_path_factory.mktemp("stack")) as running:
        yield running


def busy_nodes(stack: Stack) -> list[str]:
    """Nodes whose GPUs all work: heat slows nothing on an idle one."""
    busy = stack.query("min by (node) (sickbay_gpu_utilization_ratio) > 0.5")
    return sorted(series["metric"]["node"] for series in busy)


def test_only_places_and_intervals_differ_from_the_composition(stack: Stack) -> None:
    changes = stack.places.changes
    assert {
        "compose/prometheus/prometheus.yml",
        "compose/prometheus/targets/dcgm.yml",
        "compose/sickbay.yaml",
        "alerts/alertmanager/alertmanager.yml",
        "alerts/prometheus/fleet.yml",
    } <= set(changes)
    for file, leaves in changes.items():
        for path, (before, after) in leaves.items():
            if path.rsplit(".", 1)[-1] in INTERVALS:
                assert after == QUICK, (file, path)
                continue
            moved = {stack.places.moved(str(before), paths) for paths in stack.paths.values()}
            assert str(after) in moved, (file, path, before, after)
            assert "127.0.0.1" in str(after) or str(stack.folder) in str(after), (file, path)
    assert len(changes["compose/prometheus/targets/dcgm.yml"]) == NODES
    assert set(changes["alerts/alertmanager/alertmanager.yml"]) == {
        ".receivers[0].webhook_configs[0].url",
        ".receivers[0].webhook_configs[0].http_config.authorization.credentials_file",
    }


def test_every_target_is_up_and_every_rule_evaluates(stack: Stack) -> None:
    wanted = {"dcgm": str(NODES), "sickbay-agent": str(NODES), "sickbay": "1"}
    wait_until(
        lambda: {s["metric"]["job"]: s["value"][1] for s in stack.query("sum by (job) (up)")} == wanted,
        timeout=60,
        what=f"every target to be up: {wanted}",
    )
    groups = stack.get("prometheus", "/api/v1/rules").json()["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) > 30
    assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] == "err"] == []


@dataclass(frozen=True)
class Troubled:
    """Four nodes that had nothing and have a fault each now. ``lost`` and ``held`` have it in the kernel log;
    a person holds ``held``.
    """

    hot: str
    worn: str
    lost: str
    held: str


@pytest.fixture(scope="module")
def troubled(stack: Stack) -> Troubled:
    assert stack.api("/api/v1/incidents")["items"] == []
    hot, worn, lost, held = busy_nodes(stack)[:4]
    stack.post(f"/api/v1/nodes/{held}/hold", reason="a vendor looks at it")
    assert f"heat {hot} gpu 4" in stack.fault("heat", hot, "--gpu", "4")
    stack.fault("ecc_uncorrected", worn, "--gpu", "1")
    for node in (lost, held):
        stack.fault("gpu_lost", node, "--gpu", "2")
    for rule, node in ((ECC, worn), (HEAT, hot)):
        wait_until(
            lambda rule=rule, node=node: stack.query(
                f'ALERTS{{alertstate="firing", rule="{rule}", node="{node}"}}'
            ),
            timeout=60,
            what=f"{rule} to fire for {node}",
            interval=0.2,
        )
    return Troubled(hot, worn, lost, held)


@pytest.mark.parametrize(("rule", "of"), [(ECC, "worn"), (HEAT, "hot")])
def test_an_alert_becomes_a_finding_and_an_incident(
    stack: Stack, troubled: Troubled, rule: str, of: str
) -> None:
    node: str = getattr(troubled, of)
    wait_until(
        lambda: _held_by_alertmanager(stack, rule, node),
        timeout=15,
        what=f"Alertmanager to hold the alert of {rule}",
        interval=0.2,
    )
    why = wait_until(
        lambda: _with_finding(stack, rule, node),
        timeout=40,
        what=f"the alert of {rule} to be a finding of {node}",
        interval=0.2,
    )
    finding = next(found for found in why["findings"] if found["rule"] == rule)
    assert finding["evidence"]["alert"]
    assert finding["uuid"].startswith("GPU-")
    assert why["verdict"] == "unhealthy"
    assert why["incident"] is not None
    assert rule in why["incident"]["rules"]
    accepted = _numbers(stack, "sickbay", 'sickbay_alerts_received_total{result="accepted"}')
    assert sum(accepted.values()) >= 1
    failed = _numbers(stack, "alertmanager", "alertmanager_notifications_failed_total")
    assert failed
    assert sum(failed.values()) == 0


def test_the_incident_is_acted_on_and_nobody_else_is_touched(stack: Stack, troubled: Troubled) -> None:
    """The hot node keeps its job and takes no other: the rule of its alert says cordon_after_job."""
    wait_until(
        lambda: stack.api(f"/api/v1/nodes/{troubled.hot}")["owner"] == "sickbay",
        timeout=40,
        what=f"{troubled.hot} to be drained under our mark",
        interval=0.2,
    )
    assert stack.api(f"/api/v1/nodes/{troubled.hot}")["state"] in ("draining", "drained")
    wait_until(
        lambda: (
            [item["state"] for item in stack.api(f"/api/v1/incidents?node={troubled.lost}")["items"]]
            == ["probation"]
        ),
        timeout=40,
        what=f"{troubled.lost} to be rebooted, verified and back",
        interval=0.2,
    )
    incidents = {item["node"]: item for item in stack.api("/api/v1/incidents")["items"]}
    assert set(incidents) == {troubled.hot, troubled.worn, troubled.lost, troubled.held}
    assert "hold" in incidents[troubled.held]["blocked_by"]
    assert stack.api(f"/api/v1/nodes/{troubled.held}")["owner"] == "none"


def _held_by_alertmanager(stack: Stack, rule: str, node: str) -> bool:
    held = stack.get("alertmanager", "/api/v2/alerts").json()
    return any(
        alert["labels"].get("rule") == rule
        and alert["labels"].get("node") == node
        and "sickbay" in {receiver["name"] for receiver in alert["receivers"]}
        for alert in held
    )


def _with_finding(stack: Stack, rule: str, node: str) -> dict[str, Any] | None:
    why: dict[str, Any] = stack.api(f"/api/v1/nodes/{node}/why")
    found = any(finding["rule"] == rule for finding in why["findings"])
    return why if found and why["incident"] is not None else None


def _numbers(stack: Stack, service: str, name: str) -> dict[str, float]:
    """Series -> value of one exposition, for names that begin with ``name``."""
    lines = stack.get(service, "/metrics").text.splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if line.startswith(name)]
    return {series: float(value) for series, value in pairs}


def test_the_watchdog_reaches_the_controller_and_people(stack: Stack) -> None:
    """Without it the controller would not act on alerts: silence might be Alertmanager's."""
    held = wait_until(
        lambda: [
            alert
            for alert in stack.get("alertmanager", "/api/v2/alerts").json()
            if alert["labels"]["alertname"] == "SickbayWatchdog"
        ],
        timeout=20,
        what="the watchdog to be at Alertmanager",
        interval=0.2,
    )
    assert {receiver["name"] for receiver in held[0]["receivers"]} == {"sickbay", "watchdog"}


_NO_OWN_METRICS = "this controller reads no metrics itself: Prometheus holds the rules"
_NOT_SIMULATED = "the simulated exporter has no such field"
#: Queries of the boards without data here, by a metric that they ask for, and why.
NO_DATA = {
    "sickbay_gpu_memory_temperature_celsius": _NOT_SIMULATED,
    "sickbay_gpu_temperature_limit_celsius": _NOT_SIMULATED,
    "sickbay_gpu_power_limit_watts": _NOT_SIMULATED,
    "sickbay_gpu_ecc_corrected_volatile_total": _NOT_SIMULATED,
    "sickbay_gpu_retired_pages_pending": _NOT_SIMULATED,
    "sickbay_gpu_pcie_replays_total": _NOT_SIMULATED,
    "sickbay_gpu_nvlink_replay_errors_total": _NOT_SIMULATED,
    "sickbay_gpu_nvlink_crc_flit_errors_total": _NOT_SIMULATED,
    "sickbay_gpu_recovery_action": _NOT_SIMULATED,
    "sickbay_scrape_target_up": _NO_OWN_METRICS,
    "sickbay_scrape_target_last_success_timestamp_seconds": _NO_OWN_METRICS,
    "sickbay_rule_targets": _NO_OWN_METRICS,
    "sickbay_rule_targets_judged": _NO_OWN_METRICS,
    "sickbay_metric_last_evaluation_timestamp_seconds": _NO_OWN_METRICS,
    "sickbay_gpu_xid_last_code": "the simulated exporter's XID field stays 0: XIDs are in its kernel log",
    "sickbay_agent_problems_total": "no agent has met a problem",
}
#: Panels ask for more than 0 of these.
_THERE_BUT_ZERO = {"sickbay_gpu_xid_last_code", "sickbay_metric_last_evaluation_timestamp_seconds"}


def _panels(board: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


def _filled(board: dict[str, Any], expression: str) -> str:
    """The query as Grafana sends it with "All" chosen."""
    values = {
        variable["name"]: variable.get("allValue") or ".+"
        for variable in board["templating"]["list"]
        if variable["type"] == "query"
    }
    for name, value in {**values, "__rate_interval": "20s"}.items():
        expression = re.sub(rf"\$\{{?{name}\b\}}?", lambda _, value=value: value, expression)
    assert "$" not in expression, expression
    return expression


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_every_query_of_every_board_answers(stack: Stack, troubled: Troubled, path: Path) -> None:
    """As a panel asks it: at an instant, and as a graph. Data where the simulated fleet has any."""
    board = json.loads(path.read_text())
    panels = list(_panels(board))
    assert panels

    def unexplained() -> list[tuple[str, str]]:
        silent = [pair for pair in panels if not _has_data(stack, _filled(board, pair[1]))]
        return [pair for pair in silent if not _excused(pair[1])]

    # What has just begun is in the next scrape.
    wait_until(lambda: not unexplained(), timeout=15, what=f"data of {unexplained()}", interval=1.0)


def _has_data(stack: Stack, query: str) -> bool:
    at_an_instant, as_a_graph = stack.query(query), stack.query_range(query, 30)
    return bool(at_an_instant or as_a_graph)


def _excused(expression: str) -> bool:
    names = set(names_in(expression))
    return bool(names) and names <= set(NO_DATA)


def test_what_has_no_data_really_has_none(stack: Stack, troubled: Troubled) -> None:
    """The list of excuses is no longer than it must be."""
    needless = [
        metric for metric in NO_DATA if metric not in _THERE_BUT_ZERO and stack.query(f"count({metric}) > 0")
    ]
    assert needless == []


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_every_variable_of_every_board_offers_values(stack: Stack, path: Path) -> None:
    board = json.loads(path.read_text())
    variables = [v for v in board["templating"]["list"] if v["type"] == "query"]
    assert variables
    for variable in variables:
        found = _LABEL_VALUES.fullmatch(variable["query"]["query"])
        assert found, variable
        answer = stack.get(
            "prometheus", f"/api/v1/label/{found[2]}/values", **{"match[]": _filled(board, found[1])}
        ).json()
        assert answer["status"] == "success"
        assert len(answer["data"]) == (NODES if variable["name"] == "node" else 1)
