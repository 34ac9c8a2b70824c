"""Real Prometheus and Alertmanager with controller and simulated cluster, as compose/ puts them together."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import httpx
import pytest

from tests.support.composition import Places, make_tokens, services
from tests.support.processes import free_ports, wait_until

SICKBAY = Path(sys.executable).with_name("sickbay")
PROGRAMS = ("prometheus", "promtool", "prometheus-alertmanager", "amtool")
NODES = 8
_FIRST_AGENT = 9871
_SEARCH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def require_prometheus() -> None:
    """Skip with the reason when the servers are not installed; on CI their absence is a failure."""
    missing = [program for program in PROGRAMS if shutil.which(program, path=_SEARCH) is None]
    if not missing:
        return
    reason = f"not installed: {', '.join(missing)}; run: sh tests/services/install.sh"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def program(name: str) -> str:
    """The path of one of ``PROGRAMS``."""
    found = shutil.which(name, path=_SEARCH)
    assert found is not None, name
    return found


def consecutive_ports(count: int) -> int:
    """The first of ``count`` ports in a row that can all be had now."""
    for first in free_ports(200):
        wanted = range(first, first + count)
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for port in wanted:
                held.enter_context(_bound(port))
            return first
    raise RuntimeError(f"no {count} free ports in a row")


@contextlib.contextmanager
def _bound(port: int) -> Iterator[None]:
    with socket.socket() as candidate:
        candidate.bind(("127.0.0.1", port))
        yield


class Stack:
    """``with Stack(folder) as stack``: everything is up, every node is heard and every GPU is scraped."""

    def __init__(self, folder: Path) -> None:
        prometheus, alertmanager, controller, fleet = free_ports(4)
        first_agent = consecutive_ports(NODES)
        self.urls = {
            "prometheus": f"http://127.0.0.1:{prometheus}",
            "alertmanager": f"http://127.0.0.1:{alertmanager}",
            "sickbay": f"http://127.0.0.1:{controller}",
            "fleet": f"http://127.0.0.1:{fleet}",
        }
        addresses = {
            "prometheus:9090": f"127.0.0.1:{prometheus}",
            "alertmanager:9093": f"127.0.0.1:{alertmanager}",
            "sickbay:8470": f"127.0.0.1:{controller}",
            "0.0.0.0:8470": f"127.0.0.1:{controller}",
            "fleet:9400": f"127.0.0.1:{fleet}",
            "0.0.0.0:9400": f"127.0.0.1:{fleet}",
            f"0.0.0.0:{_FIRST_AGENT}": f"127.0.0.1:{first_agent}",
        }
        for number in range(NODES):
            addresses[f"fleet:{_FIRST_AGENT + number}"] = f"127.0.0.1:{first_agent + number}"
        self.folder = folder
        self.places = Places(folder, addresses)
        self.paths: dict[str, dict[str, str]] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._http = httpx.Client(timeout=10.0, trust_env=False)

    # -- life

    def __enter__(self) -> Self:
        make_tokens(self.places)
        for service in ("fleet", "sickbay", "alertmanager", "prometheus"):
            self.paths[service] = self.places.lay_out(service)
        try:
            self._start("fleet", [str(SICKBAY)], "--reboot=2s")
            self._wait_for("fleet", "/-/healthy")
            self._start("sickbay", [str(SICKBAY)])
            self._start("alertmanager", [program("prometheus-alertmanager")], *self._listen("alertmanager"))
            # An alert that fires before Prometheus has found Alertmanager is sent again after this time.
            again = "--rules.alert.resend-delay=5s"
            self._start("prometheus", [program("prometheus")], *self._listen("prometheus"), again)
            for service in ("sickbay", "alertmanager", "prometheus"):
                self._wait_for(service, "/-/ready")
            wait_until(self._all_healthy, timeout=40, what="every node to be healthy", interval=0.2)
            wait_until(
                lambda: self.value("count(sickbay_gpu_temperature_celsius)") == NODES * 8,
                timeout=30,
                what="every GPU to be scraped and normalised",
                interval=0.2,
            )
        except BaseException:
            self._stop()
            print(self.logs())
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _start(self, service: str, argv: Sequence[str], *more: str) -> None:
        command = [*argv, *self.places.command(service, self.paths[service]), *more]
        environment = {
            name: self.places.moved(value, self.paths[service])
            for name, value in services()[service].get("environment", {}).items()
        }
        with (self.folder / f"{service}.log").open("wb") as log:
            self._running[service] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "TZ": "UTC", **environment},
                cwd=self.folder,
            )

    def _listen(self, service: str) -> tuple[str]:
        return (f"--web.listen-address={self.urls[service].removeprefix('http://')}",)

    def _wait_for(self, service: str, path: str) -> None:
        def answers() -> bool:
            if self._running[service].poll() is not None:
                raise RuntimeError(f"{service} ended at once")
            try:
                return self._http.get(f"{self.urls[service]}{path}").status_code == httpx.codes.OK
            except httpx.TransportError:
                return False

        wait_until(answers, timeout=30, what=f"{service} to be ready")

    def _stop(self) -> None:
        for process in self._running.values():
            if process.poll() is None:
                process.terminate()
        for process in self._running.values():
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(15)
        self._http.close()

    def logs(self) -> str:
        """The end of every log, for a test that failed."""
        parts = [
            f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-25:])
            for path in sorted(self.folder.glob("*.log"))
        ]
        return "\n".join(parts)

    # -- asking

    def _all_healthy(self) -> bool:
        items = self.api("/api/v1/nodes")["items"]
        return len(items) == NODES and all(item["verdict"] == "healthy" for item in items)

    def token(self) -> str:
        """The operator's."""
        return (self.places.volume("tokens") / "operator").read_text()

    def api(self, path: str) -> Any:
        """The controller's answer."""
        answer = self._http.get(
            f"{self.urls['sickbay']}{path}", headers={"Authorization": f"Bearer {self.token()}"}
        )
        return answer.raise_for_status().json()

    def post(self, path: str, **body: Any) -> None:
        """What a person tells the controller."""
        answer = self._http.post(
            f"{self.urls['sickbay']}{path}", json=body, headers={"Authorization": f"Bearer {self.token()}"}
        )
        answer.raise_for_status()

    def get(self, service: str, path: str, **parameters: str | list[str]) -> httpx.Response:
        return self._http.get(f"{self.urls[service]}{path}", params=parameters)

    def query(self, expression: str) -> list[Mapping[str, Any]]:
        """An instant query to the real Prometheus; an error of it is an error here."""
        answer = self._http.post(f"{self.urls['prometheus']}/api/v1/query", data={"query": expression}).json()
        if answer["status"] != "success":
            raise AssertionError(f"{answer.get('error')}: {expression}")
        result = answer["data"]["result"]
        return result if answer["data"]["resultType"] != "scalar" else [{"metric": {}, "value": result}]

    def query_range(self, expression: str, seconds: float) -> list[Mapping[str, Any]]:
        """The same over the last ``seconds``, as a graph asks it."""
        now = time.time()
        answer = self._http.post(
            f"{self.urls['prometheus']}/api/v1/query_range",
            data={"query": expression, "start": str(now - seconds), "end": str(now), "step": "1"},
        ).json()
        if answer["status"] != "success":
            raise AssertionError(f"{answer.get('error')}: {expression}")
        return list(answer["data"]["result"])

    def value(self, expression: str) -> float | None:
        """The one value of an instant query, None when it has none."""
        found = self.query(expression)
        return float(found[0]["value"][1]) if len(found) == 1 else None

    def fault(self, kind: str, node: str, *options: str) -> str:
        """Make a fault happen as a person would: by the command."""
        done = subprocess.run(
            [str(SICKBAY), "simulate", "fault", kind, node, *options, "--url", self.urls["fleet"]],
            check=True,
            capture_output=True,
            text=True,
            timeout=30,
        )
        return done.stdout
