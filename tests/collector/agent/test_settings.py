"""Settings: what is refused, and with which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collector.agent.settings import AgentSettings, read_token
from collector.agent.transport import HttpTransport
from fleet.clock import ManualClock
from fleet.errors import InvalidInputError


def settings(**more: Any) -> AgentSettings:
    fields: dict[str, Any] = {"node": "n01", "controller": "http://c:8470", "spool_dir": Path("/spool")}
    return AgentSettings(**(fields | more))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("node", "n[1-4]"),
        ("node", "n01,n02"),
        ("node", ""),
        ("node", "../n01"),
        ("controller", "controller:8470"),
        ("controller", "ftp://controller"),
        ("controller", "http://"),
        ("listen", "9870"),
        ("listen", "0.0.0.0:99999"),
        ("listen", "0.0.0.0:http"),
    ],
)
def test_what_cannot_be_used_is_named(field: str, value: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"agent\.{field}"):
        settings(**{field: value})


def test_a_url_that_httpx_cannot_use_is_named() -> None:
    with pytest.raises(InvalidInputError, match=r"agent\.controller"):
        HttpTransport(settings(controller="http://c:port"), ManualClock())


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        (None, None),
        ("", None),
        ("127.0.0.1:9870", ("127.0.0.1", 9870)),
        (":9870", ("0.0.0.0", 9870)),
        ("[::1]:0", ("::1", 0)),
    ],
)
def test_listen(listen: str | None, address: tuple[str, int] | None) -> None:
    assert settings(listen=listen).listen_address() == address


@pytest.mark.parametrize("controller", ["http://c:8470", "http://c:8470/"])
def test_the_events_url(controller: str) -> None:
    assert settings(controller=controller).events_url == "http://c:8470/api/v1/events"


def test_the_token_is_never_shown() -> None:
    assert "secret" not in repr(settings(token="secret"))


@pytest.mark.parametrize("content", [b"", b"\n", b"two words\n", b"two\nlines\n", b"\xff\xfe", b"x" * 5000])
def test_a_file_that_holds_no_token_is_named_without_its_content(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"agent\.token_file") as caught:
        read_token(path)
    assert "words" not in str(caught.value)


def test_a_token_is_stripped(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("  sbn1.abc.def\n")
    assert read_token(path) == "sbn1.abc.def"


def test_a_missing_token_file_names_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="sickbay agent-token"):
        read_token(tmp_path / "missing")
