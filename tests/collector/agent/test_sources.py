"""What each source is, and what an agent's page shows of a node that has all of them. In one process."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from collector.agent.board import Board
from collector.agent.node_metrics import NodeCollector
from collector.agent.settings import AgentSettings
from collector.agent.sources import open_sources
from collector.agent.stats import AgentCollector, AgentStats, registry_of
from collector.dcgm import read_dcgm
from collector.nvidia_smi import stuck
from collector.signals import load_signals
from fleet.clock import SystemClock
from fleet.errors import InvalidInputError
from fleet.metric_names import AGENT_METRICS
from fleet.observations import ProblemReason, Reading
from tests.support.fake_exporter import FakeExporter, fake_exporter
from tests.support.node_sources import UUIDS, dcgm_page, fake_smi, smi_xml, sysfs
from tests.support.promtool import tool

CLOCK = SystemClock()


@pytest.fixture
def exporter() -> Iterator[FakeExporter]:
    with fake_exporter(lambda exchange: exchange.answer(dcgm_page())) as running:
        yield running


@pytest.fixture
def settings(tmp_path: Path, exporter: FakeExporter, monkeypatch: pytest.MonkeyPatch) -> AgentSettings:
    fake_smi(tmp_path / "bin", smi_xml())
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=os.pathsep)
    return node(tmp_path, dcgm_url=exporter.url, nic_root=sysfs(tmp_path / "sys"))


def node(path: Path, **more: Any) -> AgentSettings:
    fields: dict[str, Any] = {
        "node": "n01",
        "controller": "http://127.0.0.1:1",
        "spool_dir": path,
        "sources": ("nic", "nvidia-smi", "dcgm"),
        "source_interval_seconds": 3.0,
    }
    return AgentSettings(**(fields | more))


def page_of(settings: AgentSettings) -> str:
    """All sources read once, and what a scrape then shows."""
    sources = open_sources(settings, CLOCK)
    board = Board([source.name for source in sources], clock=CLOCK, interval_seconds=15.0)
    for source in sources:
        board.record(source.name, source.read(), began=CLOCK.monotonic(), next_seconds=15.0)
    agent = AgentCollector(stats=AgentStats(), version="1", spool=lambda: (0, True, 0))
    return generate_latest(registry_of(agent, NodeCollector(board))).decode()


def read(settings: AgentSettings, name: str) -> Reading:
    (source,) = [source for source in open_sources(settings, CLOCK) if source.name == name]
    return source.read()


def test_sources_are_opened_in_the_order_of_precedence(tmp_path: Path) -> None:
    names = ("nic", "nvidia-smi", "nvml", "dcgm", "nic")
    opened = open_sources(node(tmp_path, sources=names), CLOCK)
    assert [source.name for source in opened] == ["dcgm", "nvml", "nvidia-smi", "nic"]
    assert open_sources(node(tmp_path, sources=()), CLOCK) == ()
    usual = open_sources(node(tmp_path, sources=names, source_interval_seconds=15.0), CLOCK)
    assert [source.limit_seconds for source in usual] == [8.0, 13.0, 13.0, 8.0]


def test_a_node_without_anything_is_unknown_and_nothing_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    bare = node(tmp_path, dcgm_url="http://127.0.0.1:1/metrics", nic_root=tmp_path / "none")
    reasons = {name: [p.reason for p in read(bare, name).problems] for name in bare.sources}
    assert reasons == {
        "dcgm": [ProblemReason.QUERY_ERROR],
        "nvidia-smi": [ProblemReason.TOOL_MISSING],
        "nic": [ProblemReason.NO_DEVICES],
    }
    page = page_of(bare)
    assert 'source_up{source="dcgm"} 0.0' in page
    assert 'source_up{source="nvidia-smi"} 0.0' in page
    assert 'source_up{source="nic"} 1.0' in page, "a sound answer: there is no such card"
    assert "sickbay_gpu_" not in page
    assert "sickbay_nic_" not in page


@pytest.mark.services
def test_nvml_is_asked_in_a_child(tmp_path: Path) -> None:
    """No driver here: the answer is a reason, never a sample and never an exception."""
    reading = read(node(tmp_path, sources=("nvml",), source_interval_seconds=15.0), "nvml")
    assert not reading.ok
    assert reading.samples == ()
    assert {p.source for p in reading.problems} == {"nvml"}


def test_a_page_of_all_sources_names_known_signals_and_metrics_only(settings: AgentSettings) -> None:
    page = page_of(settings)
    types = {line.split()[2]: line.split()[3] for line in page.splitlines() if line.startswith("# TYPE")}
    signals = {signal.metric_name: signal for signal in load_signals().values()}
    own = {metric.name.removesuffix("_total"): metric for metric in AGENT_METRICS}
    for name, kind in types.items():
        if name in signals:
            assert kind == ("counter" if name.endswith("_total") else "gauge"), name
        else:
            assert name.removesuffix("_total") in own, name
    sources = {name for name in own if name.startswith("sickbay_agent_source_")}
    assert len(sources) == 5
    assert sources <= {name.removesuffix("_total") for name in types}
    labels = {
        line.partition("{")[0]: line for line in page.splitlines() if line.startswith("sickbay_agent_source_")
    }
    assert all('{source="' in line for line in labels.values())


@pytest.mark.services
def test_promtool_finds_nothing_but_three_names_of_the_contract(
    settings: AgentSettings, tmp_path: Path
) -> None:
    """Its lint wants ``..._count`` for histograms alone; three signals are called so by contract."""
    page = page_of(settings)
    assert page.count("sickbay_gpu_temperature_celsius{") == 4
    version = tool("promtool", "--version")
    done = subprocess.run(
        [version.args[0], "check", "metrics"],
        input=page,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr.splitlines() == [
        'sickbay_node_gpu_count non-histogram and non-summary metrics should not have "_count" suffix'
    ]


def test_the_reader_of_our_own_scraper_understands_the_page_without_a_problem(
    settings: AgentSettings,
) -> None:
    reading = read_dcgm(page_of(settings).encode(), node="n01", now=0.0)
    assert reading.problems == ()
    ports = {
        (s.labels["device"], s.labels["port"]): s.value
        for s in reading.samples
        if s.signal == "nic_link_downed_total"
    }
    assert ports == {("mlx5_0", "1"): 0.0, ("mlx5_1", "1"): 1.0}
    heat = {s.gpu: s.value for s in reading.samples if s.signal == "gpu_temperature_celsius"}
    assert heat == {UUIDS[n]: 50.0 + n for n in range(4)}


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9870/metrics",
        "http://localhost:9870/metrics",
        "http://n01:9870/",
        "http://[::1]:9870/metrics",
    ],
)
def test_an_agent_does_not_read_its_own_page(tmp_path: Path, url: str) -> None:
    """What it showed it would read, and show again: no value would ever grow old."""
    with pytest.raises(InvalidInputError, match=r"agent\.dcgm_url"):
        node(tmp_path, dcgm_url=url, listen="0.0.0.0:9870")
    assert node(tmp_path, dcgm_url=url, listen="0.0.0.0:9871").dcgm_url == url
    assert node(tmp_path, dcgm_url=url, listen="0.0.0.0:9870", sources=("nic",)).dcgm_url == url


@pytest.mark.parametrize(
    "url", ["http://user:secret@127.0.0.1:9400/metrics", "ftp://127.0.0.1/", "http://h:99999/"]
)
def test_an_address_that_can_never_work_is_refused_at_the_start(tmp_path: Path, url: str) -> None:
    with pytest.raises(InvalidInputError, match=r"agent\.dcgm_url") as caught:
        open_sources(node(tmp_path, dcgm_url=url, listen="0.0.0.0:9870"), CLOCK)
    assert "secret" not in str(caught.value)


def test_proc_is_searched_for_stuck_calls_at_the_start_and_after_a_time_out_only(
    settings: AgentSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[str] = []

    def unkillable(name: str) -> tuple[int, ...]:
        searched.append(name)
        return ()

    monkeypatch.setattr(stuck, "unkillable", unkillable)
    (source,) = [s for s in open_sources(settings, CLOCK) if s.name == "nvidia-smi"]
    assert source.read().ok
    assert source.read().ok
    assert searched == ["nvidia-smi"]
    (tmp_path / "bin/hang").touch()
    assert [p.reason for p in source.read().problems] == [ProblemReason.TIMEOUT]
    assert searched == ["nvidia-smi"]
    (tmp_path / "bin/hang").unlink()
    assert source.read().ok
    assert source.read().ok
    assert searched == ["nvidia-smi"] * 2


def test_no_second_call_beside_a_stuck_one(
    settings: AgentSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stuck, "unkillable", lambda _name: (4711,))
    reading = read(settings, "nvidia-smi")
    assert [p.reason for p in reading.problems] == [ProblemReason.TIMEOUT]
    assert "4711" in reading.problems[0].message
    assert not (tmp_path / "bin/calls").exists()


def test_a_scrape_reads_nothing(settings: AgentSettings, exporter: FakeExporter, tmp_path: Path) -> None:
    sources = open_sources(settings, CLOCK)
    board = Board([source.name for source in sources], clock=CLOCK, interval_seconds=15.0)
    for source in sources:
        board.record(source.name, source.read(), began=CLOCK.monotonic(), next_seconds=15.0)
    registry = registry_of(NodeCollector(board))
    threads = threading.active_count()
    pages = {generate_latest(registry) for _ in range(5)}
    assert len(pages) == 1
    assert len(exporter.requests) == 1
    assert (tmp_path / "bin/calls").read_text() == "asked\n"
    assert threading.active_count() <= threads
