"""The whole agent: real log file, real parser, real spool, real HTTP."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.agent.agent import WATCHDOG_SECONDS, Agent, Watchdog
from collector.agent.build import build_agent
from collector.agent.metrics_http import MetricsServer
from collector.agent.settings import AgentSettings
from collector.agent.stats import AgentCollector, AgentStats, registry_of
from fleet.clock import ManualClock
from tests.support.processes import free_ports, wait_until
from tests.support.recording_controller import RecordingController, Reply

XID_79 = (
    "4,{n},{n}000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, "
    "GPU has fallen off the bus."
)


class Node:
    """A node's files, and the agents that run on it one after the other."""

    def __init__(self, path: Path, controller: RecordingController) -> None:
        self.kernel_log = path / "kern.log"
        self.kernel_log.write_text("an old line that is never read\n" + XID_79.format(n=1) + "\n")
        self.boot_id_file = path / "boot_id"
        self.boot_id_file.write_text("boot-a\n")
        self.spool_dir = path / "spool"
        self.controller = controller
        self._running: list[tuple[Agent, threading.Thread]] = []

    def settings(self, **more: Any) -> AgentSettings:
        fields: dict[str, Any] = {
            "node": "n01",
            "controller": self.controller.url,
            "spool_dir": self.spool_dir,
            "kernel_log": self.kernel_log,
            "boot_id_file": self.boot_id_file,
            "read_wait_seconds": 0.05,
            "heartbeat_seconds": 15.0,
        }
        return AgentSettings(**(fields | more))

    def start(self, **more: Any) -> None:
        """Run an agent; returns with its first push, when it is watching the log."""
        before = len(self.controller.pushes)
        agent = build_agent(self.settings(**more), uniform=lambda: 0.0)
        thread = threading.Thread(target=agent.run, daemon=True)
        thread.start()
        self._running.append((agent, thread))
        self.controller.wait_for(lambda: len(self.controller.pushes) > before)

    def stop(self) -> None:
        while self._running:
            agent, thread = self._running.pop()
            agent.stop()
            thread.join(10)
            assert not thread.is_alive(), "the agent does not stop"

    def write(self, text: str) -> None:
        with self.kernel_log.open("a") as file:
            file.write(text + "\n")


@pytest.fixture
def controller() -> Iterator[RecordingController]:
    with RecordingController() as running:
        yield running


@pytest.fixture
def node(tmp_path: Path, controller: RecordingController) -> Iterator[Node]:
    made = Node(tmp_path, controller)
    yield made
    made.stop()


def codes(controller: RecordingController) -> list[int | None]:
    return [event["code"] for event in controller.events]


def test_it_says_that_it_is_there_at_once_and_pushes_what_comes(
    node: Node, controller: RecordingController
) -> None:
    node.start()
    assert controller.pushes[0]["events"] == []
    written = time.monotonic()
    node.write(XID_79.format(n=2))
    controller.wait_for(lambda: controller.events)
    elapsed = time.monotonic() - written
    assert elapsed < 0.25, f"line to push took {1000 * elapsed:.0f} ms"
    (event,) = controller.events
    assert (event["kind"], event["code"], event["pci"]) == ("xid", 79, "0000:3b:00.0")
    assert (event["node"], event["boot_id"], event["uncertain"]) == ("n01", "boot-a", False)
    assert abs(event["time"] - time.time()) < 5, "an uptime stamp in a plain file is not to be believed"


def test_heartbeats_go_on_without_events_and_notice_a_reboot(
    node: Node, controller: RecordingController
) -> None:
    node.start(heartbeat_seconds=0.1)
    controller.wait_for(lambda: len(controller.pushes) >= 3)
    node.boot_id_file.write_text("boot-b\n")
    controller.wait_for(lambda: controller.pushes[-1]["agent"]["boot_id"] == "boot-b")
    node.write(XID_79.format(n=2))
    controller.wait_for(lambda: controller.events)
    assert controller.events[0]["boot_id"] == "boot-b"


def test_what_was_not_answered_is_sent_after_a_restart_under_the_same_sequence(
    node: Node, controller: RecordingController
) -> None:
    controller.script = lambda push: Reply(503) if push["events"] else None
    node.start()
    node.write(XID_79.format(n=2))
    controller.wait_for(lambda: any(push["events"] for push in controller.pushes))
    sent = next(push["events"] for push in controller.pushes if push["events"])
    node.stop()
    controller.script = lambda _push: None
    node.boot_id_file.write_text("boot-b\n")
    node.start()
    controller.wait_for(lambda: controller.events)
    assert [event | {"count": 1} for event in controller.events] == sent
    assert controller.events[0]["boot_id"] == "boot-a"
    node.write(XID_79.format(n=3))
    controller.wait_for(lambda: len(controller.events) == 2)
    first, second = controller.events
    assert second["sequence"] > first["sequence"]
    assert second["boot_id"] == "boot-b"


def test_a_hanging_controller_does_not_keep_lines_from_the_disk(
    node: Node, controller: RecordingController
) -> None:
    release = threading.Event()
    controller.script = lambda _push: Reply(503) if release.wait(20) else None
    node.start()
    journal = node.settings().node_spool_dir / "events.jsonl"
    node.write(XID_79.format(n=2))
    wait_until(lambda: b'"code":79' in journal.read_bytes(), timeout=5, what="the event on the disk")
    assert not release.is_set()
    release.set()


def test_a_kernel_log_that_appears_later_is_read(node: Node, controller: RecordingController) -> None:
    node.kernel_log.unlink()
    node.start()
    node.write(XID_79.format(n=2))
    controller.wait_for(lambda: controller.events)
    assert codes(controller) == [79]


def test_forged_lines_are_counted_and_not_pushed(node: Node, controller: RecordingController) -> None:
    (port,) = free_ports(1)
    node.start(listen=f"127.0.0.1:{port}")
    node.write("12,5,5000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.")
    node.write("4,6,6000,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=python, MMU Fault")
    controller.wait_for(lambda: controller.events)
    assert codes(controller) == [31]
    text = get(port, "/metrics")[1]
    assert 'sickbay_agent_problems_total{reason="untrusted",source="kernel-log"} 1.0' in text
    assert 'sickbay_agent_events_total{kind="xid"} 1.0' in text


def test_a_burst_is_pushed_whole(node: Node, controller: RecordingController) -> None:
    node.start()
    for n in range(500):
        node.write(f"4,{n},{n}000,-;NVRM: Xid (PCI:0000:{n // 32:02x}:{n % 32:02x}): 79, pid=1, gone")
    controller.wait_for(lambda: len(controller.events) == 500)
    sequences = [event["sequence"] for event in controller.events]
    assert sequences == sorted(sequences)


def test_once_reports_and_ends(node: Node, controller: RecordingController) -> None:
    assert build_agent(node.settings()).once() is True
    assert len(controller.pushes) == 1
    controller.script = lambda _push: Reply(503)
    assert build_agent(node.settings()).once() is False


# -- what others can see


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_metrics_and_health_over_http(node: Node, controller: RecordingController) -> None:
    (port,) = free_ports(1)
    node.start(listen=f"127.0.0.1:{port}", version="1.2.3")
    node.write(XID_79.format(n=2))
    controller.wait_for(lambda: controller.events)
    assert get(port, "/-/healthy") == (200, "ok\n")
    assert get(port, "/other")[0] == 404
    wait_until(
        lambda: "line_to_push_seconds_count 1.0" in get(port, "/metrics")[1], timeout=5, what="the latency"
    )
    text = get(port, "/metrics")[1]
    assert 'sickbay_agent_build_info{version="1.2.3"} 1.0' in text
    assert "sickbay_agent_spool_events 0.0" in text
    assert "sickbay_agent_spool_durable 1.0" in text
    assert 'sickbay_agent_push_failures_total{reason="busy"} 0.0' in text
    assert "sickbay_agent_last_push_timestamp_seconds 1." in text
    assert "_created" not in text
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert all(name.startswith("sickbay_agent_") for name in names)


def test_a_taken_port_does_not_stop_the_agent(
    node: Node, controller: RecordingController, caplog: pytest.LogCaptureFixture
) -> None:
    taken = controller.url.rpartition(":")[2]
    node.start(listen=f"127.0.0.1:{taken}")
    assert "agent.listen" in caplog.text


def test_before_the_first_push_there_is_no_time_of_a_last_one() -> None:
    registry = registry_of(AgentCollector(stats=AgentStats(), version="1", spool=lambda: (0, True, 0)))
    assert registry.get_sample_value("sickbay_agent_last_push_timestamp_seconds") is None


def test_a_loop_that_hangs_is_not_healthy() -> None:
    clock = ManualClock()
    watchdog = Watchdog(clock)
    clock.advance(WATCHDOG_SECONDS)
    watchdog.alive("pushing")
    assert watchdog.healthy() == (True, "ok")
    clock.advance(1.0)
    healthy, why = watchdog.healthy()
    assert not healthy
    assert why.startswith("reading hangs")
    (port,) = free_ports(1)
    registry = registry_of(AgentCollector(stats=AgentStats(), version="1", spool=lambda: (0, True, 0)))
    server = MetricsServer(("127.0.0.1", port), registry, watchdog.healthy)
    server.start()
    status, text = get(port, "/-/healthy")
    server.stop()
    assert (status, text) == (503, f"{why}\n")


def test_the_spool_is_owned_by_its_node(node: Node) -> None:
    first = node.settings(node="n01").node_spool_dir
    second = node.settings(node="n02").node_spool_dir
    assert first != second
    assert first.parent == second.parent == node.spool_dir


def test_waiting_events_are_readable_by_people(node: Node, controller: RecordingController) -> None:
    controller.script = lambda _push: Reply(503)
    node.start()
    node.write(XID_79.format(n=2))
    controller.wait_for(lambda: any(push["events"] for push in controller.pushes))
    journal = node.settings().node_spool_dir / "events.jsonl"
    assert json.loads(journal.read_text().splitlines()[-1])["event"]["code"] == 79
    assert journal.stat().st_mode & 0o007 == 0
