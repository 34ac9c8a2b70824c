"""A real agent on a node with dcgm-exporter, nvidia-smi and network cards, each of which may hang."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from collector.agent.merge import merge
from collector.dcgm import read_dcgm
from collector.nic import read_tree
from collector.nvidia_smi import read_nvidia_smi
from collector.scrape import scrape_once
from fleet.clock import SystemClock
from fleet.observations import Reading, Sample
from tests.support.fake_exporter import Exchange, FakeExporter, fake_exporter
from tests.support.node_sources import PCIS, UUIDS, dcgm_page, fake_smi, smi_xml, sysfs
from tests.support.processes import free_ports, wait_until
from tests.support.recording_controller import RecordingController

pytestmark = [pytest.mark.slow, pytest.mark.services]

ROOT = Path(__file__).parents[3]
INTERVAL = 1.5
SHOWN = 3 * INTERVAL
# Far below what a hanging source takes to be given up (s), with room for a busy machine.
PROMPT = 3.0
# The command, with a shorter rhythm and the test's cards in place of this machine's; what it had loaded and
# needed is told at the end.
SCRIPT = """
import atexit, dataclasses, json, pathlib, sys
from sickbay import cli_agent
build = cli_agent.build_agent
cards, interval, report, config = sys.argv[1:]
cli_agent.build_agent = lambda settings: build(
    dataclasses.replace(settings, nic_root=pathlib.Path(cards), source_interval_seconds=float(interval))
)
status = pathlib.Path("/proc/self/status")
tell = lambda: pathlib.Path(report).write_text(json.dumps([sorted(sys.modules), status.read_text()]))
atexit.register(tell)
sys.argv[1:] = ["agent", "--config", config]
from sickbay.cli import main
main()
"""
XID_79 = "Jan  1 00:00:00 n01 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"
HEAT, LIMIT, SM = "gpu_temperature_celsius", "gpu_power_limit_watts", "gpu_sm_active_ratio"
GPUS = [{"uuid": UUIDS[n], "index": n, "pci": PCIS[n]} for n in range(4)]


@dataclass
class Node:
    path: Path
    controller: RecordingController
    exporter: FakeExporter
    port: int
    cards: Path
    dcgm_hangs: threading.Event = field(default_factory=threading.Event)
    process: subprocess.Popen[str] | None = None

    def start(self, *sources: str, interval: float = INTERVAL) -> None:
        agent: dict[str, Any] = {
            "node": "n01",
            "controller": self.controller.url,
            "kernel_log": str(self.path / "kern.log"),
            "boot_id_file": str(self.path / "boot_id"),
            "sources": list(sources),
            "dcgm_url": self.exporter.url,
            "listen": f"127.0.0.1:{self.port}",
            "spool_dir": str(self.path / "spool"),
        }
        config = self.path / "sickbay.yaml"
        config.write_text(yaml.safe_dump({"agent": agent}))
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                SCRIPT,
                str(self.cards),
                str(interval),
                str(self.path / "report"),
                str(config),
            ],
            cwd=ROOT,
            env={**os.environ, "PATH": f"{self.path}/bin:{os.environ['PATH']}"},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.controller.wait_for(lambda: self.controller.pushes, timeout=30)

    def stop(self) -> str:
        """What the agent logged; it must end by itself, whatever hangs."""
        assert self.process is not None
        self.process.terminate()
        try:
            _, stderr = self.process.communicate(timeout=15)
        finally:
            self.process.kill()
        assert self.process.returncode == 0, stderr
        return stderr

    def scrape(self) -> Reading:
        return scrape_once(
            f"http://127.0.0.1:{self.port}/metrics", node="n01", timeout_seconds=5, clock=SystemClock()
        )

    def page(self) -> dict[str, float]:
        """The agent's own numbers, and the node's, by the text before the value."""

        with urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[:1] != "#"}

    def up(self, source: str) -> float | None:
        return self.page().get(f'sickbay_agent_source_up{{source="{source}"}}')

    def all_up(self, *sources: str) -> bool:
        return all(self.up(source) == 1.0 for source in sources)

    def values(self, signal: str) -> dict[Any, float]:
        return {s.gpu or s.labels.get("device"): s.value for s in self.scrape().samples if s.signal == signal}

    def until(self, what: str, condition: Any, seconds: float = 15.0) -> None:
        wait_until(condition, timeout=seconds, what=what, interval=0.1)

    def kernel_line_takes(self) -> float:
        """Seconds from a line in the kernel log to its event at the controller."""
        before = len(self.controller.events)
        written = time.monotonic()
        with (self.path / "kern.log").open("a") as log:
            log.write(XID_79.replace(" 79,", f" {100 + before},"))
        self.controller.wait_for(lambda: len(self.controller.events) > before)
        return time.monotonic() - written


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    (tmp_path / "kern.log").touch()
    (tmp_path / "boot_id").write_text("boot-a\n")
    fake_smi(tmp_path / "bin", smi_xml())
    (port,) = free_ports(1)

    def respond(exchange: Exchange) -> None:
        if made.dcgm_hangs.is_set():
            exchange.server.stopped.wait(60)
        else:
            exchange.answer(dcgm_page())

    with RecordingController() as controller, fake_exporter(respond) as exporter:
        made = Node(tmp_path, controller, exporter, port, sysfs(tmp_path / "sys"))
        try:
            yield made
        finally:
            if made.process is not None and made.process.poll() is None:
                made.process.kill()
                made.process.communicate(timeout=15)


def expected(node: Node) -> set[tuple[Any, ...]]:
    """What the sources say themselves, merged."""
    smi = read_nvidia_smi(smi_xml().encode(), node="n01", now=0.0, own_time=False)
    cards = read_tree(node.cards, node="n01", now=0.0)
    return known(merge([read_dcgm(dcgm_page(), node="n01", now=0.0).samples, smi.samples, cards.samples]))


def known(samples: tuple[Sample, ...]) -> set[tuple[Any, ...]]:
    """Samples without their times; of the labels of ``gpu_info`` those that every reader keeps."""
    found = set()
    for one in samples:
        kept = {
            k: v
            for k, v in one.labels.items()
            if one.signal != "gpu_info" or k in ("model", "driver", "vbios")
        }
        same = replace(one, time=0.0)
        found.add(
            (
                same.node,
                same.signal,
                same.value,
                same.gpu,
                same.index,
                same.pci,
                same.mig,
                *sorted(kept.items()),
            )
        )
    return found


def test_a_scrape_of_the_agent_is_what_the_node_s_sources_say(node: Node) -> None:
    node.start("dcgm", "nvidia-smi", "nic")
    sources = ("dcgm", "nvidia-smi", "nic")
    node.until("all sources", lambda: node.all_up(*sources))
    reading = node.scrape()
    assert reading.ok
    assert reading.problems == ()
    assert known(reading.samples) == expected(node)
    assert len(reading.samples) > 150
    node.until(
        "the node's GPUs at the controller", lambda: node.controller.pushes[-1]["agent"]["gpus"] == GPUS
    )
    asked = len(node.exporter.requests)
    for _ in range(20):
        node.scrape()
    assert len(node.exporter.requests) - asked < 10, "a scrape is no reason to read"
    log = node.stop()
    assert "Traceback" not in log
    first = log.splitlines()[0]
    assert first[10] == "T"
    assert first.split()[0].endswith("Z"), "times are UTC"


def test_each_source_may_hang_alone(node: Node) -> None:
    """The others are read, kernel events travel, and what nobody says any more is absent."""
    node.start("dcgm", "nvidia-smi", "nic")
    node.until("all sources", lambda: node.all_up("dcgm", "nvidia-smi", "nic"))
    of_dcgm, of_smi = {UUIDS[n]: 50.0 + n for n in range(4)}, smi_values(HEAT)
    assert of_dcgm != of_smi
    node.until("dcgm's word", lambda: node.values(HEAT) == of_dcgm)

    node.dcgm_hangs.set()
    node.until("dcgm down", lambda: node.up("dcgm") == 0.0)
    assert node.kernel_line_takes() < PROMPT
    node.until("nvidia-smi's word in place of dcgm's", lambda: node.values(HEAT) == of_smi, SHOWN + 5)
    assert node.values(SM) == {}, "what only dcgm says is absent, not old and not 0"
    node.until("the others", lambda: node.all_up("nvidia-smi", "nic"))
    (node.cards / "mlx5_1/ports/1/state").write_text("1: DOWN\n")
    node.until("the card's news", lambda: node.values("nic_port_state") == {"mlx5_0": 4.0, "mlx5_1": 1.0})

    node.dcgm_hangs.clear()
    node.until("dcgm again", lambda: node.values(HEAT) == of_dcgm, 30)
    (node.path / "bin/hang").touch()
    node.until("nvidia-smi down", lambda: node.up("nvidia-smi") == 0.0)
    node.until("what only nvidia-smi says to be absent", lambda: node.values(LIMIT) == {}, SHOWN + 5)
    assert node.kernel_line_takes() < PROMPT
    node.until("dcgm's word", lambda: node.values(HEAT) == of_dcgm)
    node.until("the others", lambda: node.all_up("dcgm", "nic"))
    node.controller.wait_for(lambda: node.controller.pushes[-1]["agent"]["gpus"] is None)
    interval = 'sickbay_agent_source_interval_seconds{source="nvidia-smi"}'
    node.until("nvidia-smi backing off", lambda: node.page()[interval] >= 4 * INTERVAL, 30)
    assert node.page()['sickbay_agent_source_timeouts_total{source="nvidia-smi"}'] >= 3

    counter = node.cards / "mlx5_0/ports/1/counters/symbol_error"
    counter.unlink()
    os.mkfifo(counter)  # an open for reading that never returns
    node.until("nic down", lambda: node.up("nic") == 0.0, 20)
    node.until("its cards to be absent", lambda: node.values("nic_port_state") == {}, SHOWN + 5)
    assert node.kernel_line_takes() < PROMPT
    node.until("dcgm's word", lambda: node.values(HEAT) == of_dcgm)
    threads = thread_count(node)
    wait_until(
        lambda: node.page()['sickbay_agent_source_timeouts_total{source="nic"}'] >= 3,
        timeout=30,
        what="three",
    )
    assert thread_count(node) <= threads, "a hanging read is one thread, however often it is due"
    log = node.stop()
    assert "Traceback" not in log


def smi_values(signal: str) -> dict[Any, float]:
    reading = read_nvidia_smi(smi_xml().encode(), node="n01", now=0.0)
    return {sample.gpu: sample.value for sample in reading.samples if sample.signal == signal}


def thread_count(node: Node) -> int:
    """The threads that stay: the fewest in half a second, for reads and scrapes come and go."""
    assert node.process is not None
    tasks = Path(f"/proc/{node.process.pid}/task")
    counts = []
    for _ in range(25):
        counts.append(len(list(tasks.iterdir())))
        time.sleep(0.02)
    return min(counts)


@pytest.mark.parametrize("sources", [(), ("nic",), ("dcgm",), ("nvidia-smi",), ("dcgm", "nvidia-smi", "nic")])
def test_an_agent_loads_what_it_reads_and_no_more(node: Node, sources: tuple[str, ...]) -> None:
    (node.path / "bin/answer.xml").write_text(smi_xml(8))
    node.start(*sources)
    node.until("all sources", lambda: node.all_up(*sources))
    for _ in range(5):
        node.scrape()
    node.stop()
    modules, status = json.loads((node.path / "report").read_text())
    loaded = {name.split(".")[1] for name in modules if name.startswith("collector.")}
    packages = {"dcgm": "dcgm", "nvidia-smi": "nvidia_smi", "nic": "nic", "nvml": "nvml"}
    assert loaded & set(packages.values()) == {packages[source] for source in sources}
    assert "pynvml" not in modules
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    assert int(peak.split()[1]) < 60 * 1024, peak


def test_a_missing_source_costs_only_itself(node: Node) -> None:
    shutil.rmtree(node.path / "bin")
    node.start("dcgm", "nvidia-smi")
    node.until("dcgm", lambda: node.up("dcgm") == 1.0)
    node.until("nvidia-smi", lambda: node.up("nvidia-smi") == 0.0)
    problems = 'sickbay_agent_problems_total{reason="tool_missing",source="nvidia-smi"}'
    node.until("problems", lambda: node.page()[problems] >= 2.0)
    assert set(node.values(HEAT)) == set(UUIDS[:4])
    log = node.stop()
    assert log.count("nvidia-smi is not installed") == 1
