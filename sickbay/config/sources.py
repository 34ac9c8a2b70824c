"""Sections about the world outside: the store, the lease on it, the scheduler, the source of signals."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from fleet.identity import is_node_name
from sickbay.config import types as t
from sickbay.config.base import Section

MAX_SCRAPE_TARGETS = 300
_MAX_PORT = 65_535


class Store(Section):
    """Where the ledger is kept."""

    url: t.Text = Field(
        default="sqlite:///var/lib/sickbay/sickbay.db",
        description="`sqlite:///` and the file's path from the root (a fourth slash changes nothing; "
        "`sqlite:///./x.db` is relative to this file), or `postgresql+psycopg://user@host/database` "
        "where a standby shares the ledger.",
        json_schema_extra={"unit": "URL"},
    )

    @field_validator("url")
    @classmethod
    def _normal_url(cls, url: str, info: ValidationInfo) -> str:
        """SQLAlchemy reads three slashes as a relative path; the contract's default means /var/lib."""
        advice = "write sqlite:///path/to/file.db or postgresql+psycopg://user@host/database"
        if url.startswith("postgresql+psycopg://"):
            return url
        if not url.startswith("sqlite:///"):
            raise ValueError(f"is no store this service knows; {advice}")
        path = url.removeprefix("sqlite:///")
        if not path.strip("/") or path == ":memory:":
            raise ValueError(f"names no file, and a ledger in memory is lost at a restart; {advice}")
        if "?" in path:
            raise ValueError(f"carries options; the service sets its own, {advice}")
        if path.startswith(("./", "../")):
            return f"sqlite:///{(t.base_folder(info) or Path.cwd()) / path}"
        return f"sqlite:////{path.lstrip('/')}"


class Lease(Section):
    """One executor: only the holder of the lease acts."""

    duration_seconds: t.PositiveSeconds = Field(
        default=15,
        description="How long the leader's claim lasts without renewal: the longest pause of action after "
        "a crash. Should be longer than a scheduler call's time-out.",
    )


class Slurm(Section):
    """How Slurm is spoken to."""

    transport: Literal["cli", "rest"] = Field(
        default="cli", description="`cli`: sinfo, squeue, scontrol on PATH. `rest`: slurmrestd, needs `url`."
    )
    url: t.Url | None = Field(
        default=None, description="slurmrestd's address, for `rest` only.", json_schema_extra={"unit": "URL"}
    )
    token_file: t.FilePath | None = Field(
        default=None, description="File with slurmrestd's JWT, re-read when it changes."
    )
    env: Mapping[t.EnvName, t.Text] = Field(
        default_factory=dict,
        description="Variables set for Slurm's commands, such as `SLURM_CONF`.",
    )
    timeout_seconds: t.PositiveSeconds = Field(
        default=10, description="Deadline of one call. After it the outcome is unknown and is read back."
    )
    read_rpc_per_second: t.Rate = Field(
        default=2,
        description="Ceiling on reads: slurmctld exempts root and SlurmUser from its own rate limit, so "
        "the limit is ours.",
        json_schema_extra={"unit": "calls/s"},
    )
    action_rpc_per_second: t.Rate = Field(
        default=20,
        description="Ceiling on actions, apart from reads so that polling never delays a drain.",
        json_schema_extra={"unit": "calls/s"},
    )

    @model_validator(mode="after")
    def _rest_needs_url(self) -> Slurm:
        if self.transport == "rest" and self.url is None:
            raise ValueError("transport is rest, but url is missing; write slurmrestd's address")
        return self


class Kubernetes(Section):
    """How Kubernetes is spoken to."""

    kubeconfig: t.FilePath | None = Field(
        default=None,
        description="Path of a kubeconfig; null: the pod's service account, else ~/.kube/config.",
    )
    context: t.Text | None = Field(
        default=None, description="Context of the kubeconfig; null: its current one."
    )
    namespace: t.Name = Field(default="sickbay", description="Where our own Lease and Events live.")
    max_qps: t.Rate = Field(
        default=10, description="Ceiling on API calls.", json_schema_extra={"unit": "calls/s"}
    )


class Simulated(Section):
    """A simulated cluster in a process of its own: `sickbay simulate serve`."""

    url: t.Url | None = Field(
        default=None,
        description="Base address of that process; a controller whose scheduler is simulated needs it.",
        json_schema_extra={"unit": "URL"},
    )
    timeout_seconds: t.PositiveSeconds = Field(
        default=10, description="Deadline of one call. After it the outcome is unknown and is read back."
    )


class Scheduler(Section):
    """Which scheduler owns the nodes. Only the section of `kind` is used, all are checked."""

    kind: Literal["slurm", "kubernetes", "simulated"] = Field(
        default="slurm", description="`simulated` is for looking around and for tests."
    )
    slurm: Slurm = Field(default_factory=Slurm)
    kubernetes: Kubernetes = Field(default_factory=Kubernetes)
    simulated: Simulated = Field(default_factory=Simulated)

    @model_validator(mode="after")
    def _kind_is_said(self) -> Scheduler:
        given = self.model_fields_set
        if "kind" not in given and "kubernetes" in given and "slurm" not in given:
            raise ValueError("describes kubernetes, but kind is missing and slurm is its default; add kind")
        return self


class Target(Section):
    """One exporter to scrape."""

    node: t.NodeName = Field(description="The node's name in the scheduler.")
    url: t.Url = Field(description="Address of its metrics.", json_schema_extra={"unit": "URL"})

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        """``n01:9400`` is node n01, scraped at http://n01:9400/metrics."""
        if not isinstance(value, str):
            return value
        advice = 'write "host:port", or {node: NAME, url: "http://host:port/metrics"}'
        host, colon, port = value.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) <= _MAX_PORT:
            raise ValueError(f"{value[:80]!r} is no target; {advice}")
        if not is_node_name(host):
            raise ValueError(f"{value[:80]!r} does not begin with one host name; {advice}")
        return {"node": host, "url": f"http://{host}:{port}/metrics"}


class Scrape(Section):
    """Direct scraping, for small fleets without Prometheus."""

    interval_seconds: t.PositiveSeconds = Field(
        default=15, description="Time between two scrapes of a target."
    )
    targets: tuple[Target, ...] = Field(
        default=(),
        description=f'`"host:port"` (host is the node) or `{{node, url}}`; at most {MAX_SCRAPE_TARGETS}.',
    )


class Prometheus(Section):
    """Any Prometheus-compatible store (Thanos, Mimir, VictoriaMetrics)."""

    url: t.Url = Field(
        default="http://127.0.0.1:9090",
        description="Base address of the query API.",
        json_schema_extra={"unit": "URL"},
    )
    timeout_seconds: t.PositiveSeconds = Field(
        default=10, description="Deadline of one query. After it the signal is unknown, never healthy."
    )


class Metrics(Section):
    """Where signals come from."""

    source: Literal["scrape", "prometheus"] = Field(
        default="scrape", description=f"`scrape` up to {MAX_SCRAPE_TARGETS} nodes, `prometheus` beyond."
    )
    scrape: Scrape = Field(default_factory=Scrape)
    prometheus: Prometheus = Field(default_factory=Prometheus)

    @model_validator(mode="after")
    def _source_is_said(self) -> Metrics:
        given = self.model_fields_set
        if "source" not in given and "prometheus" in given and "scrape" not in given:
            raise ValueError(
                "describes prometheus, but source is missing and scrape is its default; add source"
            )
        return self
