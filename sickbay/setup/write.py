"""The configuration that ``sickbay init`` writes: commented, in observe mode, valid whatever was answered."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from sickbay.config.sources import MAX_SCRAPE_TARGETS
from sickbay.setup.detect import GPU_LABEL

TOKENS = {"operator": "you", "alertmanager": "Alertmanager", "viewer": "Grafana"}
AGENT_SECRET = "agent.secret"  # noqa: S105 - a file's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the configuration is made of. ``prometheus`` None: exporters are scraped directly, on ``port``.

    ``partitions`` or ``labelled`` make pools; neither: one pool for all nodes. ``secrets``: files beside the
    configuration are named in it.
    """

    cluster: str
    kind: str
    store: str
    partitions: tuple[str, ...] = ()
    labelled: bool = False
    gpu_nodes: tuple[str, ...] = ()
    prometheus: str | None = None
    port: int = 9400
    secrets: str | None = None
    slurm_conf: str | None = None


def render(answers: Answers) -> str:
    """The file's text (YAML)."""
    parts = (_head, _scheduler, _metrics, _pools, _http, _agent)
    return "\n".join("\n".join(part(answers)) + "\n" for part in parts)


def make_secrets(folder: Path) -> list[Path]:
    """A secret for agents' tokens and one token per role, for their owner's eyes; what is there stays."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    made: list[Path] = []
    for name in (AGENT_SECRET, *(f"{role}.token" for role in TOKENS)):
        path = folder / name
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            continue
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
        made.append(path)
    return made


def _text(value: str) -> str:
    """A YAML scalar for any text, on one line."""
    return str(yaml.safe_dump(value, default_style='"', allow_unicode=True, width=1_000_000)).strip()


def _head(a: Answers) -> Iterator[str]:
    yield "# sickbay, watching only: it decides and explains everything, and does nothing."
    yield "# Check it with `sickbay config check FILE`; every key is in docs/configuration.md."
    yield "#"
    yield "# To go on, after some weeks of reading what it would have done: mode approve (a person says"
    yield "# yes to every incident), then auto, first for one pool."
    yield f"cluster: {_text(a.cluster)}"
    yield "mode: observe"
    yield ""
    yield "store:"
    yield f"  url: {_text(a.store)}   # the ledger: what was found, decided, done, and why"


def _scheduler(a: Answers) -> Iterator[str]:
    yield "scheduler:"
    yield f"  kind: {a.kind}"
    if a.kind == "slurm":
        yield "  slurm:"
        yield "    transport: cli               # sinfo, squeue and scontrol on PATH"
        if a.slurm_conf is not None:
            yield f"    env: {{SLURM_CONF: {_text(a.slurm_conf)}}}"
    else:
        yield "  kubernetes:"
        yield "    kubeconfig: null             # the pod's service account, else ~/.kube/config"


def _metrics(a: Answers) -> Iterator[str]:
    if a.prometheus is not None:
        yield "# Load alerts/prometheus/normalise-dcgm.yml there: it gives dcgm-exporter's metrics our names."
        yield "metrics:"
        yield "  source: prometheus"
        yield f"  prometheus: {{url: {_text(a.prometheus)}}}"
        return
    yield "# Each target is one node's dcgm-exporter. Beyond 300 nodes let Prometheus scrape."
    yield "metrics:"
    yield "  source: scrape"
    yield "  scrape:"
    yield "    interval_seconds: 15"
    if not a.gpu_nodes:
        yield '    targets: []                  # EDIT: such as ["n01:9400", "n02:9400"]'
    elif len(a.gpu_nodes) > MAX_SCRAPE_TARGETS:
        yield f"    targets: []                  # EDIT: {len(a.gpu_nodes)} are too many; use Prometheus"
    else:
        yield "    targets:"
        for node in a.gpu_nodes:
            yield f"      - {_text(f'{node}:{a.port}')}"


def _pools(a: Answers) -> Iterator[str]:
    matches = [f"{{partition: {_text(name)}}}" for name in a.partitions]
    names = _pool_names(a.partitions)
    if a.labelled:
        matches, names = [f"{{label: {_text('='.join(GPU_LABEL))}}}"], ["gpu"]
    if not matches:
        yield "# Without pools all nodes are one. Nodes outside every pool are only observed."
        yield "# EDIT: pools such as"
        yield "#   - name: gpu"
        example = "{partition: gpu}" if a.kind == "slurm" else '{label: "nvidia.com/gpu.present=true"}'
        yield f"#     match: {example}"
        yield "#     budget: {max_in_flight: 2, max_unavailable_percent: 10}"
        return
    yield "# What is managed, and how much of it may be out of service. Nodes outside are only observed."
    yield "pools:"
    for name, match in zip(names, matches, strict=True):
        yield f"  - name: {_text(name)}"
        yield f"    match: {match}"
        yield "    budget:"
        yield "      max_in_flight: 2             # nodes out because of us at once"
        yield "      max_unavailable_percent: 10  # nodes out for any cause, planned maintenance apart"
        yield "    rate: {max_cordons: 3, window_seconds: 600}"


def _pool_names(partitions: tuple[str, ...]) -> list[str]:
    """A name for each partition's pool: its own, cut to what a pool may be called, and no name twice."""
    names: list[str] = []
    for partition in partitions:
        plain = re.sub(r"[^A-Za-z0-9_.-]", "-", partition).lstrip("_.-")[:50] or "pool"
        name, number = plain, 2
        while name in names:
            name, number = f"{plain}-{number}", number + 1
        names.append(name)
    return names


def _http(a: Answers) -> Iterator[str]:
    yield "# The API and the console, for this machine; others reach it through a proxy of yours."
    yield "http:"
    yield '  listen: "127.0.0.1:8470"'
    if a.secrets is None:
        yield "  # EDIT: without tokens nobody can use the API (openssl rand -hex 32 > FILE; chmod 600 FILE)"
        yield "  tokens: []"
        return
    yield "  # sickbay agent-token NODE derives each node's token from it."
    yield f"  agent_secret_file: {_text(f'{a.secrets}/{AGENT_SECRET}')}"
    yield "  tokens:"
    for role, whose in TOKENS.items():
        path = _text(f"{a.secrets}/{role}.token")
        yield f"    - {{name: {_text(role)}, role: {role}, token_file: {path}}}   # {whose}"


def _agent(a: Answers) -> Iterator[str]:
    del a
    yield "# Each node's agent needs a file with this section alone, and a token of its own."
    yield "#agent:"
    yield '#  controller: "http://CONTROLLER:8470"'
    yield "#  token_file: /etc/sickbay/agent.token"
