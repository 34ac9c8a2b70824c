"""Every query of every board through Prometheus' own parser."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from dashboards.build import files

pytestmark = pytest.mark.services
# What Grafana puts in the place of its variables.
VARIABLES = {"$__rate_interval": "1m", "$cluster": "a|b", "$pool": ".*", "$node": "n01"}


def queries() -> list[str]:
    boards = [json.loads(text) for text in files().values()]
    found = [
        target["expr"] for board in boards for panel in board["panels"] for target in panel.get("targets", ())
    ]
    for board in boards:
        for variable in board["templating"]["list"]:
            selector = re.match(r"label_values\((.*), \w+\)$", variable.get("definition", ""))
            found += [selector[1]] if selector else []
    return found


def check(folder: Path, expressions: list[str]) -> subprocess.CompletedProcess[str]:
    rules = [{"record": f"x:y:{number}", "expr": text} for number, text in enumerate(expressions)]
    path = folder / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": rules}]}))
    return subprocess.run(
        ["promtool", "check", "rules", str(path)], capture_output=True, text=True, check=False
    )


def test_promtool_parses_every_query(tmp_path: Path) -> None:
    filled = []
    for query in queries():
        text = query
        for variable, value in VARIABLES.items():
            text = text.replace(variable, value)
        assert "$" not in text
        filled.append(text)
    assert len(filled) > 60
    answer = check(tmp_path, filled)
    assert answer.returncode == 0, answer.stderr
    assert f"SUCCESS: {len(filled)} rules found" in answer.stdout


def test_promtool_would_have_said_so(tmp_path: Path) -> None:
    assert check(tmp_path, ["sum by (a) (b"]).returncode != 0
    assert check(tmp_path, ["rate(b)"]).returncode != 0
