"""The frame of the command line: what is listed, what is loaded, how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fleet.errors import UnavailableError
from sickbay import __version__, cli
from sickbay.tokens import agent_token, read_secret

MINIMAL = "cluster: alpha\nscheduler: {kind: slurm}\nmetrics: {source: scrape}\n"


@pytest.fixture
def sickbay(capsys):
    """Run a command line: (exit code, stdout, stderr)."""

    def run(*args: object) -> tuple[int, str, str]:
        code = cli.run([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


class TestFrame:
    def test_version(self, sickbay):
        assert sickbay("--version") == (0, f"sickbay {__version__}\n", "")

    def test_help_lists_every_command(self, sickbay):
        code, out, err = sickbay("--help")
        assert (code, err) == (0, "")
        for name in cli.COMMANDS:
            assert f" {name} " in out

    @pytest.mark.parametrize("name", cli.COMMANDS)
    def test_every_listed_command_exists(self, name):
        assert cli.load_command(name).name == name

    def test_no_module_registers_a_command_that_is_not_listed(self):
        import importlib

        import typer
        from typer.main import get_group

        for module in {lazy.module for lazy in cli.COMMANDS.values()}:
            app = typer.Typer()
            importlib.import_module(module).register(app)
            assert set(get_group(app).commands) == {
                name for name, lazy in cli.COMMANDS.items() if lazy.module == module
            }

    @pytest.mark.parametrize(
        ("command", "unwanted"),
        [
            (["--help"], ["pydantic", "httpx", "sqlalchemy", "fastapi", "ClusterShell"]),
            (["why", "--help"], ["sqlalchemy", "fastapi", "apscheduler", "ClusterShell", "sklearn"]),
            (
                ["agent", "--help"],
                ["sqlalchemy", "fastapi", "apscheduler", "ClusterShell", "sklearn", "numpy"],
            ),
        ],
    )
    def test_a_command_loads_only_what_it_needs(self, command, unwanted):
        done = python(
            "import sys; from sickbay import cli; code = cli.run(" + repr(command) + ");"
            f"print([name for name in {unwanted!r} if name in sys.modules], file=sys.stderr); sys.exit(code)"
        )
        assert done.returncode == 0
        assert done.stderr.splitlines()[-1] == "[]"

    def test_no_command(self, sickbay):
        code, out, err = sickbay()
        assert code == 2
        assert "Usage: sickbay" in out
        assert err == "sickbay: no command given; choose one of those above\n"

    def test_a_group_without_a_command(self, sickbay):
        code, out, err = sickbay("rules")
        assert code == 2
        assert "Usage: sickbay rules" in out
        assert err == "sickbay rules: no command given; choose one of those above\n"

    @pytest.mark.parametrize(
        ("args", "line"),
        [
            (["nodse"], "sickbay: No such command 'nodse'. Did you mean 'nodes'?"),
            (
                ["exporter", "nope"],
                "sickbay exporter: Invalid value for 'scheduler': 'nope' is not one of 'slurm', 'kubernetes'"
                "; see 'sickbay exporter --help'",
            ),
            (["--nope"], "sickbay: No such option: --nope; see 'sickbay --help'"),
            (["why"], "sickbay why: Missing argument 'NODE'; see 'sickbay why --help'"),
            (["hold", "n01"], "sickbay hold: Missing option '--reason'; see 'sickbay hold --help'"),
        ],
    )
    def test_bad_usage_is_one_line_and_2(self, sickbay, args, line):
        assert sickbay(*args) == (2, "", line + "\n")


class TestFailures:
    def fail_with(self, monkeypatch, error: BaseException) -> None:
        def check(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr("sickbay.cli_config.load_config", check)

    def test_our_errors_are_one_line_and_1(self, sickbay, monkeypatch):
        self.fail_with(monkeypatch, UnavailableError("slurmctld did not answer; try again"))
        assert sickbay("config", "check", "x") == (1, "", "sickbay: slurmctld did not answer; try again\n")

    def test_a_missing_package_is_named(self, sickbay, monkeypatch):
        self.fail_with(
            monkeypatch, ModuleNotFoundError("No module named 'apscheduler'", name="apscheduler.x")
        )
        code, _, err = sickbay("config", "check", "x")
        assert code == 1
        assert err == (
            "sickbay: this needs apscheduler.x, which is not installed; pip install 'sickbay[controller]'\n"
        )

    def test_a_missing_module_of_our_own_is_a_bug_and_shown_as_one(self, sickbay, monkeypatch):
        self.fail_with(monkeypatch, ModuleNotFoundError("No module named 'fleet.x'", name="fleet.x"))
        with pytest.raises(ModuleNotFoundError):
            sickbay("config", "check", "x")

    def test_the_systems_errors_name_the_file(self, sickbay, monkeypatch):
        self.fail_with(monkeypatch, PermissionError(13, "Permission denied", "/x/y"))
        code, _, err = sickbay("config", "check", "x")
        assert (code, err) == (1, "sickbay: /x/y: Permission denied; check the path and its rights\n")

    def test_interrupt(self, sickbay, monkeypatch):
        self.fail_with(monkeypatch, KeyboardInterrupt())
        assert sickbay("config", "check", "x") == (130, "", "")

    def test_control_c_from_outside(self, tmp_path):
        code = (
            "import time; from sickbay import cli, cli_config\n"
            "def wait(*a, **k): print('waiting', flush=True); time.sleep(60)\n"
            "cli_config.load_config = wait\n"
            "import sys; sys.argv = ['sickbay', 'config', 'check', 'x']; cli.main()"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        time.sleep(0.1)  # the print comes a moment before the sleep it announces
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
        assert (process.returncode, err) == (130, "")

    def test_a_reader_that_leaves_is_no_noise(self, tmp_path):
        config = tmp_path / "c.yaml"
        config.write_text(MINIMAL)
        process = subprocess.Popen(
            [sys.executable, "-m", "sickbay.cli", "config", "check", str(config), "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        process.stderr.close()
        assert process.wait(timeout=20) == 1


class TestConfigCheck:
    def test_good(self, sickbay, tmp_path):
        path = tmp_path / "c.yaml"
        path.write_text(MINIMAL + "mode: auto\npools: [{name: gpu, match: {partition: g}, mode: approve}]\n")
        code, out, err = sickbay("config", "check", path)
        assert code == 0
        assert out.startswith("OK ")
        assert "g, approve, 2 nodes in flight, 10 % out" in out
        assert err.startswith("warning: ")

    def test_bad(self, sickbay, tmp_path):
        path = tmp_path / "c.yaml"
        path.write_text(MINIMAL + "mdoe: auto\nlease: []\n")
        assert sickbay("config", "check", path) == (
            2,
            "",
            f"{path}:4: mdoe: unknown key; did you mean mode?\n"
            f"{path}:5: lease: is a list, but must be a mapping of keys\n",
        )

    def test_json(self, sickbay, tmp_path):
        path = tmp_path / "c.yaml"
        path.write_text(MINIMAL)
        code, out, _ = sickbay("config", "check", path, "--json")
        assert code == 0
        assert json.loads(out)["ok"] is True
        path.write_text("zz: 1\n")
        code, out, err = sickbay("config", "check", path, "--json")
        assert code == 2
        assert json.loads(out)["problems"] == err.splitlines()

    def test_an_agents_file(self, sickbay, tmp_path):
        path = tmp_path / "c.yaml"
        path.write_text("agent: {node: n01}\n")
        assert sickbay("config", "check", path)[0] == 2
        assert sickbay("config", "check", path, "--agent")[0] == 0


class TestAgentToken:
    def config(self, folder: Path, text: str = "http: {agent_secret_file: secret}\n") -> Path:
        (folder / "secret").write_text("s" * 32)
        (folder / "c.yaml").write_text(MINIMAL + text)
        return folder / "c.yaml"

    def test_prints_the_token_alone(self, sickbay, tmp_path):
        path = self.config(tmp_path)
        token = agent_token(read_secret(tmp_path / "secret"), "n01")
        assert sickbay("agent-token", "n01", "--config", path) == (0, f"{token}\n", "")
        code, out, _ = sickbay("agent-token", "n01", "--config", path, "--json")
        assert (code, json.loads(out)) == (0, {"node": "n01", "token": token})

    def test_refuses_more_than_one_node(self, sickbay, tmp_path):
        code, out, err = sickbay("agent-token", "n[1-4]", "--config", self.config(tmp_path))
        assert (code, out) == (2, "")
        assert err == "'n[1-4]' is no single host name; give one node, such as n01\n"

    def test_without_a_secret(self, sickbay, tmp_path):
        path = self.config(tmp_path, "")
        code, _, err = sickbay("agent-token", "n01", "--config", path)
        assert code == 2
        assert (
            err == f"{path}: http.agent_secret_file: is not set; name a file with a long random text in it\n"
        )
