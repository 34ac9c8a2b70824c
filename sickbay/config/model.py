"""The whole configuration: what the controller needs, and what an agent's file may leave out."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, PrivateAttr

from fleet.findings import Mode
from sickbay.config import access, policy, sources
from sickbay.config import types as t
from sickbay.config.base import Section


class AgentConfig(Section):
    """An agent's configuration: the controller's file, or one with the agent section alone."""

    cluster: t.Name | None = Field(
        default=None, description="This cluster's name, in metrics and messages. Required by the controller."
    )
    mode: Mode = Field(
        default=Mode.OBSERVE,
        description="`observe`, `approve` or `auto`: a ceiling over pools and rules. Observe decides and "
        "explains everything and does nothing.",
    )
    store: sources.Store = Field(default_factory=sources.Store)
    lease: sources.Lease = Field(default_factory=sources.Lease)
    scheduler: sources.Scheduler | None = Field(
        default=None, description="Who owns the nodes. Required by the controller."
    )
    metrics: sources.Metrics | None = Field(
        default=None, description="Where signals come from. Required by the controller."
    )
    interval_seconds: t.PositiveSeconds = Field(
        default=15, description="Time between two passes of the loop."
    )
    settle_seconds: t.Seconds = Field(
        default=2,
        description="How long a fatal event settles before a cordon, so that a burst is seen as one.",
    )
    pools: tuple[policy.Pool, ...] = Field(
        default=(),
        description="Node groups with limits of their own. Without any the whole cluster is one pool; with "
        "some, a node outside all of them is only observed.",
    )
    domains: policy.Domains = Field(default_factory=policy.Domains)
    rules: policy.Rules = Field(default_factory=policy.Rules)
    jobs: policy.Jobs = Field(default_factory=policy.Jobs)
    repair: policy.RepairSection = Field(default_factory=policy.RepairSection)
    verify: policy.Verify = Field(default_factory=policy.Verify)
    handover: policy.Webhook = Field(
        default_factory=policy.Webhook, description="Who hears of a node that needs hands: a ticket system."
    )
    notify: policy.Webhook = Field(
        default_factory=policy.Webhook, description="Who hears of pages: a pager or a chat."
    )
    prices: policy.Prices = Field(default_factory=policy.Prices)
    slo: policy.Slo = Field(default_factory=policy.Slo)
    agent: access.Agent = Field(default_factory=access.Agent)
    exporter: access.Exporter = Field(default_factory=access.Exporter)
    http: access.Http = Field(default_factory=access.Http)

    _warnings: tuple[str, ...] = PrivateAttr(default=())
    _path: Path | None = PrivateAttr(default=None)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is allowed but unwise, one line each: log them at start."""
        return self._warnings

    @property
    def path(self) -> Path | None:
        """The file this came from."""
        return self._path

    def loaded_from(self, path: Path | None, warnings: tuple[str, ...]) -> None:
        """The loader's note on where this came from; nobody else calls it."""
        self._path = path
        self._warnings = warnings


class Config(AgentConfig):
    """A controller's configuration."""

    cluster: t.Name = Field(description="This cluster's name, in metrics and messages.")
    scheduler: sources.Scheduler
    metrics: sources.Metrics
