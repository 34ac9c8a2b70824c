"""The demo without a terminal: what scripts run."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sickbay import cli
from sickbay.demo.clockwork import node_names
from sickbay.demo.scenes import Expect, default_script

pytestmark = pytest.mark.slow

SCENES = [
    "xid-79",
    "thermal",
    "xid-31",
    "unknown-xid",
    "foreign-drain",
    "silent-agents",
    "red-button",
    "silent-exporters",
    "memory",
    "budget-first",
    "budget-full",
    "burst",
]
KEYS = ["scene", "node", "expected", "seen", "ok", "detected_after_seconds", "returned_after_seconds"]


@pytest.mark.parametrize(("seed", "nodes"), [(1, 16), (3, 24), (7, 16)])
def test_every_expected_outcome_happens_and_nothing_else_is_touched(capsys, seed, nodes):
    code = cli.run(["demo", "--headless", "--json", "--seed", str(seed), "--nodes", str(nodes)])
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert list(answer) == ["scenes", "unexpected_actions", "ok", "bill"]
    assert [row["scene"] for row in answer["scenes"]] == SCENES
    assert all(list(row) == KEYS for row in answer["scenes"])
    assert (answer["ok"], answer["unexpected_actions"], code, err) == (True, 0, 0, "")
    by_scene = {row["scene"]: row for row in answer["scenes"]}
    assert 180 < by_scene["xid-79"]["returned_after_seconds"] < 300
    assert by_scene["silent-agents"]["detected_after_seconds"] is None
    assert by_scene["foreign-drain"]["returned_after_seconds"] is None
    assert 180 < by_scene["thermal"]["detected_after_seconds"] < 600, "seen over several scrapes"
    bill = answer["bill"]
    assert bill["with_sickbay"]["lost_gpu_hours"] * 5 < bill["without_sickbay"]["lost_gpu_hours"]
    assert set(bill["with_sickbay"]["by_scene"]) == set(bill["without_sickbay"]["by_scene"])


class TestAWrongScript:
    @pytest.fixture(autouse=True)
    def expect_nothing_of_a_lost_gpu(self, monkeypatch):
        def wrong(names, **_):
            script = default_script(names)
            scene = replace(script.scenes[0], expect=Expect.NOTHING)
            return replace(script, scenes=(scene,), buttons=(), ends_at=60.0)

        monkeypatch.setattr("sickbay.demo.clockwork.default_script", wrong)

    def test_json_and_exit_code_say_so(self, capsys):
        assert cli.run(["demo", "--json"]) == 1
        answer = json.loads(capsys.readouterr().out)
        assert answer["ok"] is False
        assert answer["unexpected_actions"] >= 3  # cordon, requeue, reboot
        assert [row["ok"] for row in answer["scenes"]] == [False]
        assert answer["scenes"][0]["seen"].startswith("TOUCHED: cordon")

    def test_without_a_terminal_the_table_is_plain_text_and_says_so(self, capsys, monkeypatch):
        monkeypatch.setenv("COLUMNS", "80")
        assert cli.run(["demo"]) == 1
        out, err = capsys.readouterr()
        assert "\x1b" not in out
        assert max(map(len, out.splitlines())) <= 80
        assert " NO" in out
        assert "0 of 1 as expected" in out
        assert "unexpected: cordon n03" in out
        assert err == ""


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--nodes", "15"], "'--nodes'"),
        (["--nodes", "513"], "'--nodes'"),
        (["--scheduler", "pbs"], "'pbs' is not one of 'slurm', 'kubernetes'"),
        (["--speed", "0"], "must be a number above 0"),
        (["--speed", "nan"], "must be a number above 0"),
        (["--port", "65536"], "'--port'"),
        (["--rules", "/nowhere/at/all"], "'--rules'"),
    ],
)
def test_bad_usage_is_one_line_and_2(capsys, args, told):
    assert cli.run(["demo", *args]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert told in err


def test_rules_that_cannot_be_used_are_named_before_anything_runs(capsys, tmp_path):
    (tmp_path / "mine.yaml").write_text("rules:\n  - id: mine\n    response: drain\n")
    assert cli.run(["demo", "--json", "--rules", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "mine.yaml:2: a rule lacks kind" in err


def test_the_limits_of_the_command_are_those_of_the_script():
    from sickbay import cli_demo
    from sickbay.demo import scenes

    assert (cli_demo.MIN_NODES, cli_demo.MAX_NODES) == (scenes.MIN_NODES, scenes.MAX_NODES)
    with pytest.raises(ValueError, match="at least 16"):
        default_script(node_names(15))
