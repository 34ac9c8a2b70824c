"""The policy page is written from the tables, and current."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rules.catalogue import load_catalogue
from rules.docs import PAGE, main, render_policy

ROOT = Path(__file__).parents[2]


def test_the_page_is_current() -> None:
    assert main(["--check", str(ROOT / PAGE)]) == 0


def test_a_stale_page_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    assert main(["--check", str(page)]) == 1
    page.write_text("old", encoding="utf-8")
    assert main(["--check", str(page)]) == 1
    assert "run python -m rules.docs" in capsys.readouterr().err
    assert main([str(page)]) == 0
    assert main(["--check", str(page)]) == 0


def test_links_lead_to_runbooks_and_tables_are_whole() -> None:
    text = render_policy(load_catalogue())
    links = re.findall(r"\]\((runbooks/[^)]+)\)", text)
    assert len(links) == 29
    assert all((ROOT / "docs" / link).is_file() for link in links)
    rows = [line for line in text.splitlines() if re.match(r"\| \d+ \|", line)]
    assert len(rows) == len(load_catalogue().policy)
    assert all(len(re.split(r"(?<!\\)\|", row)) == 9 for row in rows)
