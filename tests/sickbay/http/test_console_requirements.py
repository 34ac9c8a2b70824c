"""A machine without a browser: the reason is said, and on CI it is a failure."""

from __future__ import annotations

import pytest

from tests.support import chromium


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chromium, "chromium_program", lambda: None)


def test_without_chromium_a_test_skips_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"run: sh tests/services/install\.sh"):
        chromium.require_chromium()


def test_without_chromium_ci_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="Chromium is not installed"):
        chromium.require_chromium()
