"""``sickbay doctor`` as a person runs it: exit codes, JSON, and a whole look at a simulated Kubernetes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleet.clock import SystemClock
from sickbay import cli
from sickbay.cli_doctor import as_document
from sickbay.doctor.model import fail, ok, unknown, warn
from tests.fakes.kubernetes_api import FakeKubernetes, running

SECRET = "0123456789abcdef"


def written(folder: Path, api: FakeKubernetes, **changes: str) -> Path:
    for name in ("agent.secret", "ops.token"):
        (folder / name).write_text(f"{name}-{SECRET}")
        (folder / name).chmod(0o600)
    values = {"mode": "observe", "match": '{nodes: "w[1-4]"}', "listen": "127.0.0.1:0", **changes}
    path = folder / "sickbay.yaml"
    path.write_text(
        f"""\
cluster: alpha
mode: {values["mode"]}
store: {{url: "sqlite:///./x.db"}}
scheduler: {{kind: kubernetes, kubernetes: {{kubeconfig: "{api.kubeconfig(folder)}", max_qps: 1000}}}}
metrics: {{source: scrape}}
pools: [{{name: gpu, match: {values["match"]}}}]
http:
  listen: "{values["listen"]}"
  agent_secret_file: agent.secret
  tokens: [{{name: ops, role: operator, token_file: ops.token}}]
"""
    )
    return path


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_good_cluster_exits_0_and_nothing_is_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(clock=SystemClock()) as api:
        path = written(tmp_path, api)
        before = sorted(one.name for one in tmp_path.iterdir())
        assert cli.run(["doctor", "--config", str(path), "--json"]) == 0
        found = document(capsys)
        assert api.writes() == []
    assert sorted(one.name for one in tmp_path.iterdir()) == before
    assert found["ok"] is True
    by_name = {one["name"]: one for one in found["checks"]}
    assert by_name["scheduler.pool.gpu"]["status"] == "ok"
    assert by_name["kubernetes.rights"]["status"] == "ok"
    assert all(one.keys() == {"name", "status", "sentence", "next_step"} for one in found["checks"])
    assert all(one["next_step"] for one in found["checks"] if one["status"] != "ok")


def test_a_failing_check_exits_1_and_the_table_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with running(clock=SystemClock()) as api:
        path = written(tmp_path, api, match='{nodes: "x[1-4]"}')
        assert cli.run(["doctor", "--config", str(path), "--problems"]) == 1
    shown = capsys.readouterr().out
    assert "scheduler.pool.gpu" in shown
    assert "-> correct the match of pool gpu" in shown
    assert "kubernetes.answers" not in shown
    assert "1 fail" in shown


def test_a_bad_configuration_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("cluster: a\n")
    assert cli.run(["doctor", "--config", str(path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "scheduler" in said.err


def test_a_bad_rule_file_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules/odd.yaml").write_text("rules: 7\n")
    path = tmp_path / "s.yaml"
    path.write_text(
        "cluster: a\nscheduler: {kind: slurm}\nmetrics: {source: scrape}\nrules: {directories: [rules]}\n"
    )
    assert cli.run(["doctor", "--config", str(path)]) == 2
    assert "odd.yaml" in capsys.readouterr().err


def test_unknown_and_warn_are_no_failure() -> None:
    gentle = [ok("a", "fine"), warn("b", "hm", "look"), unknown("c", "not seen", "look")]
    assert json.loads(as_document(gentle))["ok"] is True
    harsh = json.loads(as_document([*gentle, fail("d", "broken", "mend")]))
    assert harsh["ok"] is False
    assert [one["status"] for one in harsh["checks"]] == ["ok", "warn", "unknown", "fail"]
    assert harsh["checks"][0]["next_step"] is None
