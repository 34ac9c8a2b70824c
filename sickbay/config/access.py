"""Sections about who speaks to whom: the node's agent, the HTTP API and its tokens."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import Field

from sickbay.config import types as t
from sickbay.config.base import Section


class Agent(Section):
    """The node's agent. `sickbay agent` accepts a file with this section alone."""

    node: t.NodeName | None = Field(
        default=None,
        description="This node's name in the scheduler; null: the host name up to the first dot.",
    )
    controller: t.Url = Field(
        default="http://127.0.0.1:8470",
        description="The controller's address.",
        json_schema_extra={"unit": "URL"},
    )
    token_file: t.FilePath | None = Field(
        default=None, description="File with this node's token (`sickbay agent-token NODE`)."
    )
    kernel_log: t.FilePath = Field(
        default=Path("/dev/kmsg"),
        description="/dev/kmsg, or a log file in any known shape, followed from its end through rotation.",
    )
    boot_id_file: t.FilePath = Field(
        default=Path("/proc/sys/kernel/random/boot_id"),
        description="Where the epoch is read, before each push.",
    )
    sources: tuple[Literal["dcgm", "nvml", "nvidia-smi", "nic"], ...] = Field(
        default=("dcgm", "nvidia-smi", "nic"),
        description="What the exporter reads on this node, every 15 s: `dcgm`, `nvml`, `nvidia-smi`, `nic`.",
    )
    dcgm_url: t.Url = Field(
        default="http://127.0.0.1:9400/metrics",
        description="dcgm-exporter's metrics.",
        json_schema_extra={"unit": "URL"},
    )
    listen: t.Listen | None = Field(
        default="0.0.0.0:9870",
        description="Where the agent serves /metrics (read-only, no token); null: nowhere.",
        json_schema_extra={"unit": "host:port"},
    )
    spool_dir: t.FilePath = Field(
        default=Path("/var/lib/sickbay/spool"), description="Events wait here while the controller is away."
    )


class Exporter(Section):
    """`sickbay exporter`: the scheduler's state as metrics."""

    listen: t.Listen = Field(
        default="127.0.0.1:8471",
        description="Where it serves /metrics; `--listen` wins. Port 0 is any free port.",
        json_schema_extra={"unit": "host:port"},
    )
    interval_seconds: t.PositiveSeconds = Field(
        default=30, description="Time between two reads of the scheduler; `--interval` wins."
    )


class Role(StrEnum):
    """What a token may do. OPERATOR includes VIEWER."""

    VIEWER = "viewer"
    AGENT = "agent"
    ALERTMANAGER = "alertmanager"
    OPERATOR = "operator"


class Token(Section):
    """A bearer token of the HTTP API; the file holds it, this file never does."""

    name: t.Name = Field(
        description="Who it belongs to: the author of what is done with it. With role `agent` it is the one "
        "node the token may speak for."
    )
    role: Role = Field(
        description="`viewer`, `agent`, `alertmanager` or `operator` (includes viewer). Agents better use "
        "`agent_secret_file`: one secret, a token per node."
    )
    token_file: t.FilePath = Field(description="File with the token, 16 characters at least.")


class Http(Section):
    """The API and the console."""

    listen: t.Listen = Field(
        default="127.0.0.1:8470",
        description="Where the API is served; port 0 is any free port.",
        json_schema_extra={"unit": "host:port"},
    )
    allow_anonymous_loopback: t.Flag = Field(
        default=False,
        description="Lab use: everyone on this machine is operator and may push for any node. Only with a "
        "loopback `listen`.",
    )
    agent_secret_file: t.FilePath | None = Field(
        default=None,
        description="File with the secret that agents' tokens are derived from, 16 characters at least.",
    )
    tokens: tuple[Token, ...] = Field(default=(), description="`{name, role, token_file}` each.")
