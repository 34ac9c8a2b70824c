"""The address we listen on, secrets, and webhooks that are looked up and never called."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from fleet.clock import SystemClock
from sickbay.config import Config, parse_config
from sickbay.doctor.doors import DoorChecks, bind_error, secrets
from sickbay.doctor.model import Status
from sickbay.doctor.run import examine


def config(**more: Any) -> Config:
    return parse_config(
        {"cluster": "a", "scheduler": {"kind": "slurm"}, "metrics": {"source": "scrape"}, **more}
    )


def look(configured: Config, **options: Any) -> dict[str, tuple[Status, str]]:
    checks = DoorChecks(configured, SystemClock(), **options)
    return {one.name: (one.status, one.sentence) for one in examine(checks.checks(), SystemClock())}


@contextmanager
def serving(answers: Mapping[str, tuple[int, bytes]]) -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"GET {self.path}")
            code, body = answers.get(self.path, (404, b""))
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Silent."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


METRICS = b"sickbay_build_info 1\n"


@pytest.mark.parametrize(
    ("answers", "status", "said"),
    [
        ({"/metrics": (200, METRICS), "/-/ready": (200, b"{}")}, Status.OK, "is ready"),
        ({"/metrics": (200, METRICS), "/-/ready": (503, b"no store")}, Status.FAIL, "no store"),
        ({"/metrics": (200, b"other 1\n")}, Status.FAIL, "another program"),
        ({}, Status.FAIL, "another program"),
    ],
)
def test_who_listens_there(answers: Mapping[str, tuple[int, bytes]], status: Status, said: str) -> None:
    with serving(answers) as (address, asked):
        found = look(config(http={"listen": address}))["http.listen"]
    assert found[0] is status
    assert said in found[1]
    assert set(asked) <= {"GET /metrics", "GET /-/ready"}


def test_what_speaks_no_http() -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        assert look(config(http={"listen": address}))["http.listen"][0] is Status.FAIL


def test_a_free_address_stays_free() -> None:
    address = free_address()
    assert look(config(http={"listen": address}))["http.listen"][0] is Status.OK
    host, _, port = address.partition(":")
    assert bind_error(host, int(port)) is None


@pytest.mark.parametrize(("listen", "status"), [("127.0.0.1:0", Status.OK), ("192.0.2.1:8470", Status.FAIL)])
def test_addresses(listen: str, status: Status) -> None:
    assert look(config(http={"listen": listen}))["http.listen"][0] is status


def secret(folder: Path, name: str, text: str = "0123456789abcdef0", mode: int = 0o600) -> str:
    path = folder / name
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def http(folder: Path, **changes: Any) -> dict[str, Any]:
    return {
        "agent_secret_file": secret(folder, "agent"),
        "tokens": [
            {"name": "ops", "role": "operator", "token_file": secret(folder, "ops", "abcdefghijklmnopq")}
        ],
        **changes,
    }


def of_secrets(section: dict[str, Any]) -> list[tuple[Status, str]]:
    return [(one.status, one.sentence) for one in secrets(config(http=section).http)]


def test_good_secrets(tmp_path: Path) -> None:
    assert [status for status, _ in of_secrets(http(tmp_path))] == [Status.OK]


@pytest.mark.parametrize(
    ("text", "mode"),
    [("short", 0o600), ("0123456789abcdef0", 0o644), ("0123456789abcdef0", 0o660), (None, 0o600)],
)
def test_bad_secrets_are_told_without_showing_them(text: str | None, mode: int, tmp_path: Path) -> None:
    bad = secret(tmp_path, "bad", text, mode) if text is not None else str(tmp_path / "absent")
    found = of_secrets(http(tmp_path, agent_secret_file=bad))
    assert [status for status, _ in found] == [Status.FAIL]
    assert bad in found[0][1]
    assert text is None or text not in found[0][1]


def test_two_names_with_one_token(tmp_path: Path) -> None:
    tokens = [
        {"name": name, "role": "viewer", "token_file": secret(tmp_path, name)} for name in ("one", "two")
    ]
    found = of_secrets(http(tmp_path, tokens=tokens))
    assert [status for status, _ in found] == [Status.FAIL]


def test_no_agent_secret(tmp_path: Path) -> None:
    found = of_secrets(http(tmp_path, agent_secret_file=None))
    assert Status.WARN in [status for status, _ in found]


def test_access(tmp_path: Path) -> None:
    assert look(config())["http.access"][0] is Status.WARN
    assert look(config(http={"allow_anonymous_loopback": True}))["http.access"][0] is Status.WARN
    assert look(config(http=http(tmp_path)))["http.access"][0] is Status.OK
    open_to_all = look(config(http=http(tmp_path, listen="0.0.0.0:0")))["http.access"]
    assert open_to_all[0] is Status.WARN
    assert "plain HTTP" in open_to_all[1]


def test_webhooks_are_looked_up_only() -> None:
    asked: list[tuple[str, int]] = []

    def resolve(host: str, port: int) -> None:
        asked.append((host, port))
        if host == "absent.example":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with serving({}) as (address, posted):
        found = look(
            config(
                handover={"webhook_url": "https://absent.example/hook?key=secret"},
                notify={"webhook_url": f"http://{address}/page"},
            ),
            resolve=resolve,
        )
    assert found["webhooks.handover"][0] is Status.FAIL
    assert "secret" not in found["webhooks.handover"][1]
    assert found["webhooks.notify"][0] is Status.OK
    assert ("absent.example", 443) in asked
    assert posted == []
