"""The committed files through Prometheus' and Alertmanager's own tools; and: the stories can fail."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import yaml

from tests.support.promtool import tool

pytestmark = pytest.mark.services
ALERTS = Path(__file__).parents[2] / "alerts"
CONFIGURATION = ALERTS / "alertmanager" / "alertmanager.yml"
STORIES = sorted(path.name for path in (ALERTS / "tests").glob("*.yml"))


def test_the_rules_are_well_formed() -> None:
    paths = sorted((ALERTS / "prometheus").glob("*.yml"))
    assert [path.stem for path in paths] == ["fleet", "normalise-dcgm", "sickbay"]
    answer = tool("promtool", "check", "rules", "--lint=all", "--lint-fatal", *paths)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert answer.stdout.count("SUCCESS") == 3


@pytest.mark.parametrize("story", STORIES)
def test_every_story_holds(story: str) -> None:
    answer = tool("promtool", "test", "rules", story, cwd=ALERTS / "tests")
    assert answer.returncode == 0, answer.stdout + answer.stderr


MUTATIONS = (
    ("gpu-rules_test.yml", "fleet.yml", "reasons / 64)", "reasons / 8)"),
    ("gpu-rules_test.yml", "fleet.yml", "hw_slowdown:bit[10m]) > 0.6", "hw_slowdown:bit[10m]) > 0.2"),
    ("gpu-rules_test.yml", "fleet.yml", 'sickbay_gpu_sm_active_ratio{gi=""}', "sickbay_gpu_sm_active_ratio"),
    ("gpu-rules_test.yml", "fleet.yml", "for: 2m", "for: 5m"),
    ("gpu-rules_test.yml", "fleet.yml", "for: 1m", "for: 0s"),
    ("gpu-rules_test.yml", "fleet.yml", "recovery_action == 3", "recovery_action == 4"),
    ("gpu-rules_test.yml", "fleet.yml", "total[10m]) > 0.5", "total[10m]) >= 0"),
    ("gpu-rules_test.yml", "fleet.yml", "unless on (cluster, uuid)", "unless on (cluster, node, uuid)"),
    ("gpu-rules_test.yml", "fleet.yml", "unless on (cluster, uuid)", "unless on (cluster, node, gpu)"),
    ("gpu-rules_test.yml", "fleet.yml", "and on (cluster, node) node:sickbay_gpu_present:count <", "or 0 * "),
    ("gpu-rules_test.yml", "fleet.yml", "gpu:sickbay_dcgm_printed:group\n        or ", ""),
    ("normalise-dcgm_test.yml", "normalise-dcgm.yml", "/ 1000000000", "/ 1000000"),
    ("normalise-dcgm_test.yml", "normalise-dcgm.yml", "<= 105 ", "<= 1e9 "),
    ("normalise-dcgm_test.yml", "normalise-dcgm.yml", "!= 2147483632 ", ""),
    ("normalise-dcgm_test.yml", "normalise-dcgm.yml", '"Hostname", "hostname"', '"Hostname"'),
    ("normalise-dcgm_test.yml", "normalise-dcgm.yml", '"UUID", "uuid", "gpu_uuid"', '"UUID", "gpu_uuid"'),
    ("normalise-dcgm_test.yml", "normalise-dcgm.yml", "* 1048576", "* 1000000"),
    ("normalise-dcgm_test.yml", "normalise-dcgm.yml", "uuid, xid, window_seconds)", "uuid, window_seconds)"),
    ("normalise-dcgm_test.yml", "normalise-dcgm.yml", "gpu, uuid, nvlink)", "gpu, uuid)"),
    ("availability_test.yml", "fleet.yml", " > 0.15", " > 0.05"),
    ("availability_test.yml", "fleet.yml", "max without (instance, pod)", "sum without (instance, pod)"),
    ("sickbay_test.yml", "sickbay.yml", "sickbay_leader) < 0.5", "sickbay_leader) < 1.5"),
    (
        "sickbay_test.yml",
        "sickbay.yml",
        "last_evaluation_timestamp_seconds > 0)",
        "last_evaluation_timestamp_seconds)",
    ),
    ("sickbay_test.yml", "sickbay.yml", "judged[1d]", "judged[5m]"),
    ("sickbay_test.yml", "sickbay.yml", "unless on (cluster, node, uuid, rule)", "unless on (cluster, node)"),
    ("sickbay_test.yml", "sickbay.yml", '"mode|settle"', '"settle"'),
)


#: A walk through all rules of the catalogue takes promtool ten seconds: every third of those mutations in the
#: suite, all of them with SICKBAY_THOROUGH=1.
_SLOW = [mutation for mutation in MUTATIONS if mutation[0] == "gpu-rules_test.yml"]
_LEFT_OUT = () if os.environ.get("SICKBAY_THOROUGH") else tuple(m for n, m in enumerate(_SLOW) if n % 3)


@pytest.mark.parametrize(("story", "rules", "old", "new"), [m for m in MUTATIONS if m not in _LEFT_OUT])
def test_a_wrong_expression_fails_its_story(
    story: str, rules: str, old: str, new: str, tmp_path: Path
) -> None:
    shutil.copytree(ALERTS / "prometheus", tmp_path / "prometheus")
    shutil.copytree(ALERTS / "tests", tmp_path / "tests")
    path = tmp_path / "prometheus" / rules
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    answer = tool("promtool", "check", "rules", path)
    assert answer.returncode == 0, answer.stderr
    answer = tool("promtool", "test", "rules", story, cwd=tmp_path / "tests")
    assert answer.returncode != 0
    assert "FAILED" in answer.stdout + answer.stderr


def test_the_alertmanager_configuration_is_well_formed() -> None:
    answer = tool("amtool", "check-config", CONFIGURATION)
    assert answer.returncode == 0, answer.stderr
    assert "4 receivers" in answer.stdout


ROUTES = (
    (("alertname=SickbayWatchdog", "severity=info"), "sickbay,watchdog"),
    (("alertname=GpuVanished", "rule=gpu-vanished", "severity=critical", "node=n01"), "sickbay,people"),
    (("alertname=SiteRule", "rule=site-rule", "severity=info", "node=n01"), "sickbay,nobody"),
    (("alertname=SickbayFinding", "found_by=gpu-fell-off-bus", "severity=critical"), "people"),
    (("alertname=SickbayRuleBlind", "rule=gpu-vanished", "severity=info"), "nobody"),
    (("alertname=SickbayRuleBlind", "rule=gpu-vanished", "severity=warning"), "people"),
    (("alertname=SickbayDown", "severity=critical"), "people"),
    (("alertname=FleetErrorBudgetBurn", "severity=warning", "long=1d"), "people"),
    (("alertname=Foreign", "severity=info"), "nobody"),
    (("alertname=Foreign", "severity=warning", "node=n01"), "people"),
)


@pytest.mark.parametrize(("labels", "receivers"), ROUTES, ids=[labels[0] for labels, _ in ROUTES])
def test_alerts_reach_their_receivers(labels: tuple[str, ...], receivers: str) -> None:
    answer = tool(
        "amtool",
        *("config", "routes", "test", f"--config.file={CONFIGURATION}"),
        *(f"--verify.receivers={receivers}", *labels),
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert answer.stdout.strip() == receivers


def test_amtool_would_have_said_so(tmp_path: Path) -> None:
    loaded = yaml.safe_load(CONFIGURATION.read_text())
    loaded["route"]["routes"][2]["receiver"] = "nowhere"
    path = tmp_path / "alertmanager.yml"
    path.write_text(yaml.safe_dump(loaded))
    assert tool("amtool", "check-config", path).returncode != 0
