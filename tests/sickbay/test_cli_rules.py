"""``sickbay xid`` and ``sickbay rules`` as a person and a program meet them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from sickbay.cli_rules import register

RULE = """\
rules:
  - id: {id}
    kind: xid
    severity: warning
    response: notify
    repair: none
    clear_on: operator
    summary: A site's rule
    why: A site's reason
    on: [{{event: xid, codes: [31]}}]
"""
LOST = "[ 2077.5] NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name=[bold]py, GPU has fallen off the bus."


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    register(app)
    return app


def run(app: typer.Typer, *arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "100", "TERM": "dumb"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_xid_json(app: typer.Typer) -> None:
    status, out, _ = run(app, "xid", "79", "--json")
    assert status == 0
    assert out.count("\n") == 1
    answer = json.loads(out)
    assert (answer["code"], answer["response"], answer["repair"], answer["known"]) == (
        79,
        "drain",
        "reboot",
        True,
    )


def test_leading_zeros_are_decimal(app: typer.Typer) -> None:
    assert json.loads(run(app, "xid", "0079", "--json")[1])["code"] == 79


def test_an_unknown_code_is_an_answer(app: typer.Typer) -> None:
    status, out, _ = run(app, "xid", "4711", "--json")
    assert (status, json.loads(out)["known"]) == (0, False)
    status, out, _ = run(app, "xid", "4711")
    assert status == 0
    assert "observe" in out


@pytest.mark.parametrize("word", ["abc", "79x", "7.9", "", "９", "1" * 5000])
def test_what_is_no_number_is_bad_usage(app: typer.Typer, word: str) -> None:
    status, out, err = run(app, "xid", word, "--json")
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert "is no XID code" in err


def test_xid_for_people(app: typer.Typer) -> None:
    status, out, _ = run(app, "xid", "79", "--line", LOST)
    assert status == 0
    for words in (
        "what it means",
        "what sickbay does",
        "why",
        "next step",
        "docs/runbooks/gpu-fell-off-bus.md",
    ):
        assert words in out
    assert "process [bold]py" in out, "a process name is text, never markup"
    assert "the node must be drained and rebooted" in " ".join(out.replace("│", " ").split())


def test_a_line_of_another_code_is_noted(app: typer.Typer) -> None:
    _, out, _ = run(app, "xid", "31", "--line", LOST)
    assert "the line says xid 79, not 31" in out


def test_a_line_without_an_event(app: typer.Typer) -> None:
    _, out, _ = run(app, "xid", "79", "--line", "myapp[3]: NVRM: Xid (PCI:0000:3b:00): 79, x")
    assert "nothing is done" in out


def test_a_line_that_closes(app: typer.Typer) -> None:
    _, out, _ = run(app, "xid", "162", "--line", "NVRM: Xid (PCI:0000:3b:00): 162, PSHC re-engaged")
    assert "gpu-power-smoothing-out" in out


def test_rules_list(app: typer.Typer) -> None:
    status, out, _ = run(app, "rules", "list", "--json")
    assert status == 0
    items = {item["id"]: item for item in json.loads(out)["items"]}
    lost = items["gpu-fell-off-bus"]
    expected = {
        "kind": "gpu_lost",
        "severity": "critical",
        "response": "drain",
        "mode": "auto",
        "compiles": False,
    }
    assert {key: lost[key] for key in expected} == expected
    assert lost["summary"]
    assert "gpu-app-faults-follow-gpu" in run(app, "rules", "list")[1]


def test_rules_show(app: typer.Typer) -> None:
    status, out, _ = run(app, "rules", "show", "gpu-row-remap-pending", "--json")
    assert status == 0
    assert [code["code"] for code in json.loads(out)["codes"]] == [63, 156]
    assert "recovery_action_none" in run(app, "rules", "show", "gpu-recovery-reset")[1]
    assert "device known" in run(app, "rules", "show", "gpu-driver-fault")[1]
    assert "fatal unknown" in run(app, "rules", "show", "nvswitch-unclear")[1]


def test_rules_show_tells_a_metric_rules_condition(app: typer.Typer) -> None:
    out = " ".join(run(app, "rules", "show", "gpu-thermal-hw-slowdown")[1].split())
    assert "gpu_clock_event_reasons & 0x40 in > 60 % of 10 minutes" in out
    assert "gpu_sm_active_ratio or gpu_utilization_ratio > 0.1" in out
    condition = json.loads(run(app, "rules", "show", "gpu-vanished", "--json")[1])["condition"]
    assert condition == {"when": "missing for 2 minutes while 1 or more siblings report"}
    assert json.loads(run(app, "rules", "show", "gpu-needs-reset", "--json")[1])["condition"] is None


def test_rules_show_of_nothing(app: typer.Typer) -> None:
    status, out, err = run(app, "rules", "show", "no-such-rule")
    assert (status, out) == (1, "")
    assert "`sickbay rules list` names them all" in err


def test_rules_check_good(app: typer.Typer, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(RULE.format(id="site-rule"), encoding="utf-8")
    (tmp_path / "b.yaml").write_text(RULE.format(id="gpu-needs-reset"), encoding="utf-8")
    status, out, _ = run(app, "rules", "check", str(tmp_path))
    assert status == 0
    assert "2 rules, all good, of which in place of shipped ones: gpu-needs-reset" in out
    status, out, _ = run(app, "rules", "check", str(tmp_path), "--json")
    assert json.loads(out) == {"ok": True, "rules": ["site-rule", "gpu-needs-reset"], "problems": []}


def test_rules_check_bad_names_file_and_line(app: typer.Typer, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(RULE.format(id="site-rule").replace("notify", "shout"), encoding="utf-8")
    status, _, err = run(app, "rules", "check", str(tmp_path))
    assert status == 1
    assert err.startswith(f"{path}:5: response must be one of")
    status, out, _ = run(app, "rules", "check", str(tmp_path), "--json")
    assert status == 1
    assert json.loads(out)["problems"][0]["line"] == 5


def test_a_sites_rules_are_used(app: typer.Typer, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(RULE.format(id="site-rule"), encoding="utf-8")
    answer = json.loads(run(app, "xid", "31", "--json", "--rules", str(tmp_path))[1])
    assert (answer["rule"], answer["response"]) == ("site-rule", "notify")
    status, out, err = run(app, "xid", "31", "--rules", str(tmp_path / "absent"))
    assert (status, out) == (2, "")
    assert "cannot be listed" in err
