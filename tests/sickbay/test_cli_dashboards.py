"""``sickbay dashboards build`` as a person and a pipeline meet it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sickbay.cli import run

COMMITTED = Path(__file__).parents[2] / "dashboards" / "json"


@pytest.fixture
def built(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert run(["dashboards", "build", "--out", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    return tmp_path / "out"


def check(folder: Path) -> int:
    return run(["dashboards", "build", "--out", str(folder), "--check"])


def test_what_is_committed_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(COMMITTED) == 0
    assert capsys.readouterr() == ("", "")


def test_it_prints_each_file_it_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dashboards", "build", "--out", str(tmp_path)]) == 0
    paths = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(path.name for path in paths) == ["sickbay-fleet.json", "sickbay-node.json"]
    for path in paths:
        assert json.loads(path.read_bytes())["uid"] == path.stem


def test_fresh_files_are_current(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(built) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("change", ["edit", "blank", "crlf", "binary"])
def test_a_changed_file_is_named(built: Path, change: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = built / "sickbay-node.json"
    old = path.read_bytes()
    new = {
        "edit": old.replace(b'"refresh": "30s"', b'"refresh": "5s"'),
        "blank": old + b"\n",
        "crlf": old.replace(b"\n", b"\r\n"),
        "binary": b"\xff\xfe" + old,
    }[change]
    assert new != old
    path.write_bytes(new)
    assert check(built) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert f"{path}: stale, or changed by hand" in err
    assert "sickbay-fleet.json" not in err
    assert f"run: sickbay dashboards build --out {built}" in err
    assert path.read_bytes() == new, "--check writes nothing"


def test_a_missing_file_is_named(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (built / "sickbay-fleet.json").unlink()
    assert check(built) == 1
    assert f"{built / 'sickbay-fleet.json'}: missing" in capsys.readouterr().err


def test_a_board_that_is_no_more_is_named_and_others_are_let_be(
    built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (built / "team-board.json").write_text("{}")
    assert check(built) == 0
    (built / "sickbay-old.json").write_text("{}")
    assert check(built) == 1
    err = capsys.readouterr().err
    assert f"{built / 'sickbay-old.json'}: of no board any more, delete it" in err
    assert "team-board" not in err


def test_a_folder_that_is_not_there_has_every_file_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(tmp_path / "nowhere") == 1
    assert capsys.readouterr().err.count(": missing") == 2
    assert not (tmp_path / "nowhere").exists()


def test_a_file_where_a_folder_should_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f").write_text("")
    assert run(["dashboards", "build", "--out", str(tmp_path / "f")]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert str(tmp_path / "f") in err


@pytest.mark.parametrize("args", [["build"], ["build", "--out"], ["build", "--out", "x", "--chek"], ["make"]])
def test_bad_usage(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dashboards", *args]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1


def test_another_process_builds_the_same_bytes(built: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    subprocess.run(
        [sys.executable, "-m", "sickbay.cli", "dashboards", "build", "--out", str(again)],
        check=True,
        capture_output=True,
        cwd=COMMITTED.parents[1],
        env={**os.environ, "PYTHONHASHSEED": "4711", "TZ": "Pacific/Apia"},
    )
    texts = {path.name: path.read_bytes() for path in again.iterdir()}
    assert texts == {path.name: path.read_bytes() for path in built.iterdir()}
