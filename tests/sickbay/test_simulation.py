"""``sickbay simulate``: a simulated cluster over HTTP, faults on request, the real agents in it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from collector.dcgm import read_dcgm
from fleet.clock import ManualClock, SystemClock
from fleet.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError
from fleet.marks import Mark
from fleet.scheduler import NodeState, SchedulerSnapshot
from sickbay.cli import run
from sickbay.simulation.agents import NodeAgents
from sickbay.simulation.orders import read_fault, read_script
from sickbay.simulation.plant import STUCK_SECONDS, Plant
from sickbay.simulation.server import MAX_BODY_BYTES, SimulationServer
from sickbay.tokens import token_node
from simulator.faults import FaultKind
from simulator.fleet import SimulatedFleet
from simulator.wire import RemoteScheduler
from tests.support.processes import free_ports, wait_until

MARK = Mark("i-1", "gpu-fell-off-bus", "GPU 2 fell off the bus.")


@pytest.fixture
def plant() -> Iterator[Plant]:
    running = Plant(SystemClock(), nodes=4, reboot_seconds=0.5)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def url(plant: Plant) -> Iterator[str]:
    server = SimulationServer(plant, "127.0.0.1", 0)
    server.start()
    yield server.url
    server.stop()


@pytest.fixture
def fleet() -> SimulatedFleet:
    return SimulatedFleet(clock=ManualClock(), nodes=4)


class TestServer:
    def test_a_nodes_metrics_are_an_exporters(self, url: str) -> None:
        answer = httpx.get(f"{url}/nodes/n02/metrics")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        reading = read_dcgm(answer.content, node="n02", now=time.time())
        assert reading.ok
        assert len({sample.gpu for sample in reading.samples}) == 8

    def test_an_exporter_that_is_away_gives_no_samples(self, url: str, plant: Plant) -> None:
        order = {"kind": "exporter_away", "node": "n02", "seconds": 60}
        assert httpx.post(f"{url}/faults", json=order).status_code == 200
        assert httpx.get(f"{url}/nodes/n02/metrics").status_code == 503
        assert httpx.get(f"{url}/nodes/n01/metrics").status_code == 200

    @pytest.mark.parametrize("path", ["/nodes/n09/metrics", "/nodes/../metrics", "/", "/metrics"])
    def test_what_is_not_there_is_404(self, url: str, path: str) -> None:
        assert httpx.get(f"{url}{path}").status_code == 404

    def test_faults_are_told_in_order(self, url: str) -> None:
        assert httpx.get(f"{url}/faults").json() == []
        httpx.post(f"{url}/faults", json={"kind": "xid", "node": "n01", "code": 31})
        httpx.post(f"{url}/faults", json={"kind": "heat", "node": "n03", "gpu_index": 5, "seconds": 60})
        told = httpx.get(f"{url}/faults").json()
        assert [fault["what"] for fault in told] == ["xid n01 gpu 0 code 31", "heat n03 gpu 5 for 60 s"]
        assert told[0]["at"] <= told[1]["at"] <= time.time()

    @pytest.mark.parametrize(
        ("body", "status", "words"),
        [
            (b"{", 400, "malformed"),
            (b"[]", 400, "must be a mapping"),
            (b'{"kind":"xid","node":"n77"}', 400, "it has n01 to n04"),
            (b"x" * (MAX_BODY_BYTES + 1), 413, "at most"),
        ],
    )
    def test_a_bad_order_changes_nothing(self, url: str, body: bytes, status: int, words: str) -> None:
        answer = httpx.post(f"{url}/faults", content=body)
        assert answer.status_code == status
        assert words in answer.json()["error"].replace("truncated", "malformed")
        assert httpx.get(f"{url}/faults").json() == []

    def test_health_tells_when_time_stands_still(self) -> None:
        clock = ManualClock()
        plant = Plant(clock, nodes=1)
        server = SimulationServer(plant, "127.0.0.1", 0)
        server.start()
        assert httpx.get(f"{server.url}/-/healthy").status_code == 200
        clock.advance(STUCK_SECONDS + 1)
        assert httpx.get(f"{server.url}/-/healthy").status_code == 503
        server.stop()

    def test_a_taken_port_is_one_clear_line(self, url: str, plant: Plant) -> None:
        port = int(url.rsplit(":", 1)[1])
        with pytest.raises(Exception, match=f"cannot listen on 127.0.0.1:{port}.*--listen"):
            SimulationServer(plant, "127.0.0.1", port)


class TestScheduler:
    """Over a real connection; the whole contract runs in tests/contract ("remote")."""

    def test_reads_and_writes(self, url: str, plant: Plant) -> None:
        remote = RemoteScheduler(url)
        snapshot = remote.observe()
        assert isinstance(snapshot, SchedulerSnapshot)
        assert set(snapshot.nodes) == {"n01", "n02", "n03", "n04"}
        assert remote.cordon("n04", MARK).is_cordoned
        assert plant.cluster.scheduler.our_actions[-1].verb == "cordon"
        with pytest.raises(ConflictError, match="i-1"):
            remote.uncordon("n04", Mark("i-2", "gpu-fell-off-bus"))
        assert not remote.uncordon("n04", MARK).is_cordoned
        with pytest.raises(NotFoundError, match="n99"):
            remote.observe_node("n99")
        remote.close()

    def test_a_write_asks_first_and_a_read_does_not(self, url: str, plant: Plant) -> None:
        def refuse(seconds: float) -> None:
            raise UnavailableError(f"no lease for {seconds:g} s")

        remote = RemoteScheduler(url, action_seconds=9.0, may_act=refuse)
        assert remote.observe_node("n01").name == "n01"
        for act in (
            lambda: remote.cordon("n01", MARK),
            lambda: remote.annotate("n01", "sickbay: i-1 observed"),
            lambda: remote.reboot("n01", MARK, ordered_at=0.0),
        ):
            with pytest.raises(UnavailableError, match="no lease for 9 s"):
                act()
        assert plant.cluster.scheduler.our_actions == []
        remote.close()

    def test_silence_and_nonsense_are_unknown(self, url: str) -> None:
        gone = RemoteScheduler(f"http://127.0.0.1:{free_ports(1)[0]}")
        with pytest.raises(UnavailableError, match="/scheduler/observe"):
            gone.observe()
        wrong = RemoteScheduler(
            "http://cluster",
            client=httpx.Client(
                transport=httpx.MockTransport(lambda _: httpx.Response(200, content=b"<html>"))
            ),
        )
        with pytest.raises(UnavailableError, match="not understood"):
            wrong.observe()

    @pytest.mark.parametrize(
        ("call", "body", "status"),
        [("drop_tables", b"null", 404), ("cordon", b"{}", 400), ("cordon", b"not json", 400)],
    )
    def test_a_malformed_call_is_refused(self, url: str, call: str, body: bytes, status: int) -> None:
        answer = httpx.post(f"{url}/scheduler/{call}", content=body)
        assert answer.status_code == status
        assert answer.json()["error"] == "refused"


class TestOrders:
    def test_the_least_that_is_needed(self, fleet: SimulatedFleet) -> None:
        fault = read_fault({"kind": "gpu_lost", "node": "n02"}, fleet, where="x")
        assert (fault.kind, fault.node, fault.gpu_index, fault.at_seconds) == (
            FaultKind.GPU_LOST,
            "n02",
            0,
            0.0,
        )
        away = read_fault({"kind": "scheduler_away", "seconds": 30}, fleet, where="x")
        assert away.kind is FaultKind.SCHEDULER_AWAY

    @pytest.mark.parametrize(
        ("raw", "words"),
        [
            ("heat", "x: must be a mapping"),
            ({"kind": "melt", "node": "n01"}, "x: Invalid enum value 'melt'"),
            ({"kind": "heat"}, "x: Object missing required field `node`"),
            ({"kind": "heat", "node": "n05"}, "x: no node 'n05' in the simulated fleet; it has n01 to n04"),
            ({"kind": "heat", "node": "n[01-04]"}, "no node"),
            ({"kind": "heat", "node": "n01", "gpu": 3}, "x: unknown key 'gpu'; known are"),
            ({"kind": "heat", "node": "n01", "gpu_index": 8}, "x: gpu_index must be 0 to 7"),
            ({"kind": "heat", "node": "n01", "seconds": -1}, "x: seconds must be 0 to"),
            ({"kind": "heat", "node": "n01", "seconds": float("nan")}, "x: seconds must be 0 to"),
            ({"kind": "xid", "node": "n01", "code": 5000}, "x: code must be 0 to 1000"),
        ],
    )
    def test_a_bad_fault_is_named(self, fleet: SimulatedFleet, raw: Any, words: str) -> None:
        with pytest.raises(InvalidInputError) as caught:
            read_fault(raw, fleet, where="x")
        assert words in str(caught.value)

    @pytest.mark.parametrize(
        ("text", "words"),
        [("{}", "must be a list"), ("- {kind: heat, node: n09}", "item 0: no node"), ("[", "is no YAML")],
    )
    def test_a_bad_script_is_named(
        self, fleet: SimulatedFleet, tmp_path: Path, text: str, words: str
    ) -> None:
        path = tmp_path / "faults.yaml"
        path.write_text(text)
        with pytest.raises(InvalidInputError, match=f"{path}: .*{words}|{path}: {words}"):
            read_script(path, fleet)
        with pytest.raises(InvalidInputError, match="cannot be read"):
            read_script(tmp_path / "none.yaml", fleet)

    def test_a_script_plays_in_its_time(self, tmp_path: Path) -> None:
        path = tmp_path / "faults.yaml"
        path.write_text(
            "- {at_seconds: 60, kind: heat, node: n02}\n- {at_seconds: 10, kind: xid, node: n01}\n"
        )
        clock = ManualClock()
        plant = Plant(clock, nodes=2, script=lambda fleet: read_script(path, fleet))
        plant.tick()
        assert plant.happened() == []
        clock.advance(10)
        plant.tick()
        clock.advance(50)
        plant.tick()
        assert [fault["node"] for fault in plant.happened()] == ["n01", "n02"]


class _Controller(ThreadingHTTPServer):
    """Takes pushes, as the controller does."""

    daemon_threads = True

    def __init__(self) -> None:
        self.pushes: list[tuple[str, dict[str, Any]]] = []
        super().__init__(("127.0.0.1", 0), _Door)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Controller

    def do_POST(self) -> None:
        push = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.pushes.append((self.headers["authorization"], push))
        body = json.dumps({"accepted": len(push["events"]), "duplicates": 0, "rejected": []}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""


def test_each_node_has_the_real_agent(plant: Plant, tmp_path: Path) -> None:
    controller = _Controller()
    serving = threading.Thread(target=controller.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    serving.start()
    secret = b"a secret of sixteen characters"
    agents = NodeAgents(
        plant, controller=controller.url, folder=tmp_path, secret=secret, listen=None, heartbeat_seconds=0.2
    )
    agents.start()
    pushes = controller.pushes

    def by(node: str) -> list[dict[str, Any]]:
        return [push for _, push in list(pushes) if push["agent"]["node"] == node]

    try:
        wait_until(
            lambda: all(by(node) for node in plant.fleet.names), timeout=10, what="every agent to speak"
        )
        for token, push in list(pushes):
            assert token_node(secret, token.removeprefix("Bearer ")) == push["agent"]["node"]
        boot = by("n02")[0]["agent"]["boot_id"]
        assert len(by("n02")[0]["agent"]["gpus"]) == 8

        plant.inject(read_fault({"kind": "gpu_lost", "node": "n02", "gpu_index": 2}, plant.fleet, where="x"))
        event = wait_until(
            lambda: next((e for push in by("n02") for e in push["events"] if e["kind"] == "xid"), None),
            timeout=10,
            what="the XID to be pushed",
        )
        assert (event["code"], event["node"], event["boot_id"]) == (79, "n02", boot)
        assert not any(push["events"] for node in ("n01", "n03", "n04") for push in by(node))
        wait_until(lambda: len(by("n02")[-1]["agent"]["gpus"]) == 7, timeout=10, what="the GPU to be missed")

        plant.fleet.reboot("n02", 0.5)
        wait_until(
            lambda: not plant.fleet.node("n02").up or by("n02")[-1]["agent"]["boot_id"] != boot,
            timeout=5,
            what="the node to go down",
        )
        wait_until(
            lambda: by("n02")[-1]["agent"]["boot_id"] != boot and len(by("n02")[-1]["agent"]["gpus"]) == 8,
            timeout=10,
            what="the new boot with all its GPUs",
        )
    finally:
        agents.stop()
        controller.shutdown()
        controller.server_close()
        serving.join(5)


def test_a_silent_agent_says_nothing(plant: Plant, tmp_path: Path) -> None:
    controller = _Controller()
    serving = threading.Thread(target=controller.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    serving.start()
    plant.fleet.silence_agent("n03", 3600)
    agents = NodeAgents(plant, controller=controller.url, folder=tmp_path, secret=None, listen=None)
    agents.start()
    try:
        wait_until(
            lambda: {push["agent"]["node"] for _, push in list(controller.pushes)} >= {"n01", "n02", "n04"},
            timeout=10,
            what="the others to speak",
        )
        assert not any(push["agent"]["node"] == "n03" for _, push in controller.pushes)
    finally:
        agents.stop()
        controller.shutdown()
        controller.server_close()
        serving.join(5)


class TestCommand:
    def test_a_fault_is_ordered(self, url: str, plant: Plant, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["simulate", "fault", "heat", "n02", "--gpu", "4", "--for", "10m", "--url", url]) == 0
        assert capsys.readouterr().out == "happened: heat n02 gpu 4 for 600 s\n"
        assert [fault["what"] for fault in plant.happened()] == ["heat n02 gpu 4 for 600 s"]

    @pytest.mark.parametrize(
        ("argv", "code", "words"),
        [
            (["heat", "n99"], 1, "no node 'n99'"),
            (["heat", "n01", "--gpu", "9"], 1, "gpu_index must be 0 to 7"),
            (["melt", "n01"], 2, "melt"),
            (["heat", "n01", "--for", "soon"], 1, "is no duration"),
        ],
    )
    def test_a_bad_order_is_one_line(
        self, url: str, capsys: pytest.CaptureFixture[str], argv: list[str], code: int, words: str
    ) -> None:
        assert run(["simulate", "fault", *argv, "--url", url]) == code
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1

    def test_nobody_there(self, capsys: pytest.CaptureFixture[str]) -> None:
        nowhere = f"http://127.0.0.1:{free_ports(1)[0]}"
        assert run(["simulate", "fault", "heat", "n01", "--url", nowhere]) == 1
        assert "is sickbay simulate serve running there?" in capsys.readouterr().err

    def test_serve_refuses_a_bad_address(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["simulate", "serve", "--listen", "nowhere"]) == 2
        assert "is no listen address" in capsys.readouterr().err


def test_the_controller_wants_to_know_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "cluster: a\nscheduler: {kind: simulated}\nmetrics: {source: scrape}\n"
        f'store: {{url: "sqlite:///{tmp_path}/l.db"}}\nhttp: {{allow_anonymous_loopback: true}}\n'
    )
    assert run(["serve", "--config", str(path)]) == 1
    assert "scheduler.simulated.url is missing" in capsys.readouterr().err


def test_a_node_state_survives_the_wire(url: str, plant: Plant) -> None:
    remote = RemoteScheduler(url)
    before = remote.observe_node("n01")
    assert before == plant.cluster.scheduler.observe_node("n01")
    assert isinstance(before.state, NodeState)
    remote.close()
