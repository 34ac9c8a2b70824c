"""The metric path on a real Slurm cluster: exporters over HTTP, the real service, and what must never happen.

The shipped rules wait a minute or two; a directory of rules over them, as a site has one, shortens that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.deployment import Deployment
from tests.support.fake_exporter import Exchange, FakeExporter, fake_exporter
from tests.support.minislurm import MiniSlurm
from tests.support.processes import wait_until
from tests.support.requirements import require_slurm

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]

QUICK_RULES = """
rules:
  - id: gpu-vanished
    kind: gpu_lost
    severity: critical
    response: drain
    repair: reboot
    mode: auto
    clear_on: new_epoch_and_gpu_count
    summary: A GPU no longer reports while its siblings on the node do
    says: vanished from the readings
    why: As shipped, within seconds.
    when:
      absence: {for_seconds: 3, min_siblings: 1}
  - id: gpu-row-remap-failed-flag
    kind: ecc
    severity: critical
    response: drain
    repair: hand_over
    mode: auto
    clear_on: operator
    summary: The row-remap failure flag is set
    says: could not take bad memory out of service
    why: As shipped, within seconds.
    when:
      threshold: {signal: gpu_row_remap_failed, op: ">", value: 0, for_seconds: 2}
"""


@dataclass
class Card:
    """One node's exporter: eight GPUs, which of them are gone, which failed to remap, whether it answers."""

    node: str
    gone: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    away: bool = False

    def respond(self, exchange: Exchange) -> None:
        if self.away:
            exchange.answer(b"the collector is starting\n", status=503)
            return
        lines = []
        for name, value in (
            ("DCGM_FI_DEV_GPU_TEMP", lambda _: 41),
            ("DCGM_FI_DEV_ROW_REMAP_FAILURE", lambda gpu: int(gpu in self.failed)),
        ):
            lines.append(f"# TYPE {name} gauge")
            for gpu in sorted(set(range(8)) - self.gone):
                labels = f'gpu="{gpu}",UUID="GPU-{self.node}-{gpu}",Hostname="{self.node}"'
                lines.append(f"{name}{{{labels}}} {value(gpu)}")
        exchange.answer(("\n".join(lines) + "\n").encode())


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniSlurm]:
    require_slurm()
    with MiniSlurm() as made, made.serve_reboots(downtime_seconds=0.3):
        yield made


@pytest.fixture
def cards(cluster: MiniSlurm) -> dict[str, Card]:
    return {node: Card(node) for node in cluster.names}


@pytest.fixture
def sickbay(cluster: MiniSlurm, cards: dict[str, Card], tmp_path: Path) -> Iterator[Deployment]:
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "quick.yaml").write_text(QUICK_RULES)
    with ExitStack() as stack:
        servers: dict[str, FakeExporter] = {
            node: stack.enter_context(fake_exporter(card.respond)) for node, card in cards.items()
        }
        targets = [{"node": node, "url": server.url} for node, server in servers.items()]
        made = Deployment(
            cluster,
            tmp_path / "d",
            metrics={"source": "scrape", "scrape": {"interval_seconds": 1, "targets": targets}},
            rules={"directories": [str(rules)]},
        )
        yield stack.enter_context(made)


def verdict(sickbay: Deployment, node: str) -> str:
    return str(sickbay.get(f"/api/v1/nodes/{node}/why")["verdict"])


def all_healthy(sickbay: Deployment) -> bool:
    return all(verdict(sickbay, node) == "healthy" for node in sickbay.nodes)


def done_steps(incident: Any) -> list[str]:
    return [step["step"] for step in incident["steps"] if step["phase"] == "effect"]


def test_a_vanished_gpu_is_rebooted_away_and_verified_by_the_exporter(
    cluster: MiniSlurm, cards: dict[str, Card], sickbay: Deployment
) -> None:
    wait_until(lambda: all_healthy(sickbay), timeout=20, what="every exporter to have answered")
    cards["n1"].gone = {3}
    draining = wait_until(lambda: cluster.node_reason("n1"), timeout=30, what="n1 to be drained")
    assert ":gpu-vanished GPU 3 (GPU-n1-3)" in draining
    cards["n1"].gone = set()
    incident = sickbay.wait_for_state("n1", "returned", timeout=90)
    assert done_steps(incident) == ["cordon", "reboot", "verify", "uncordon"]
    assert [finding["uuid"] for finding in incident["findings"]] == ["GPU-n1-3"]
    assert cluster.node_reason("n1") == ""
    assert {i["node"] for node in sickbay.nodes for i in sickbay.incidents(node)} == {"n1"}


def test_a_failed_remap_requeues_the_job_and_is_handed_over(
    cluster: MiniSlurm, cards: dict[str, Card], sickbay: Deployment
) -> None:
    wait_until(lambda: all_healthy(sickbay), timeout=20, what="every exporter to have answered")
    job = cluster.sbatch("-J", "train", "-N1", "--gres=gpu:8", "--requeue")
    cluster.wait(lambda: cluster.job(job)[0] == "RUNNING", timeout=20, what="the job to run")
    sick = cluster.job(job)[2]
    cards[sick].failed = {5}
    incident = sickbay.wait_for_state(sick, "handed_over", timeout=60)
    assert done_steps(incident) == ["cordon", "requeue", "hand_over"]
    cluster.wait(lambda: cluster.job(job)[0] == "RUNNING", timeout=30, what="the job to run elsewhere")
    assert cluster.job(job)[2] != sick
    assert cluster.node_reason(sick).startswith("sickbay:")
    cluster.run("scancel", job)
    cluster.run("scontrol", "update", f"NodeName={sick}", "State=UNDRAIN")


def test_exporters_that_are_away_are_unknown_and_nothing_is_done(
    cluster: MiniSlurm, cards: dict[str, Card], sickbay: Deployment
) -> None:
    wait_until(lambda: all_healthy(sickbay), timeout=20, what="every exporter to have answered")
    for node in ("n2", "n3"):
        cards[node].away = True
    text = wait_until(
        lambda: (t := sickbay.api.get("/metrics").text).count("sickbay_scrape_target_up") and t,
        timeout=10,
        what="the targets' health",
    )
    assert 'sickbay_scrape_target_up{node="n1"} 1.0' in text
    wait_until(
        lambda: 'sickbay_scrape_target_up{node="n2"} 0.0' in sickbay.api.get("/metrics").text,
        timeout=10,
        what="n2's exporter to be noticed",
    )
    sickbay.wait_for_no_incident(seconds=6)
    assert all(cluster.node_reason(node) == "" for node in sickbay.nodes)
    why = sickbay.get("/api/v1/nodes/n2/why")
    assert why["metrics"]["age_seconds"] > 5
    assert why["findings"] == []
