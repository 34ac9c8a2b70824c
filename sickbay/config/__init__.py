"""The configuration: YAML, strict, checked whole before anything starts (docs/configuration.md).

Here live the models, their checks and the loader. What reads a section lives where it is used.
"""

from sickbay.config.access import Agent, Exporter, Http, Role, Token
from sickbay.config.errors import ConfigError
from sickbay.config.hostlist import expand_hostlist
from sickbay.config.load import load_config, parse_config
from sickbay.config.model import AgentConfig, Config
from sickbay.config.policy import (
    Budget,
    Burst,
    Checkpoint,
    Domains,
    Jobs,
    Match,
    Pool,
    Prices,
    RateLimit,
    RepairSection,
    Rules,
    Slo,
    Verify,
    Webhook,
)
from sickbay.config.sources import (
    Kubernetes,
    Lease,
    Metrics,
    Prometheus,
    Scheduler,
    Scrape,
    Slurm,
    Store,
    Target,
)
from sickbay.config.types import is_loopback, split_listen

__all__ = [
    "Agent",
    "AgentConfig",
    "Budget",
    "Burst",
    "Checkpoint",
    "Config",
    "ConfigError",
    "Domains",
    "Exporter",
    "Http",
    "Jobs",
    "Kubernetes",
    "Lease",
    "Match",
    "Metrics",
    "Pool",
    "Prices",
    "Prometheus",
    "RateLimit",
    "RepairSection",
    "Role",
    "Rules",
    "Scheduler",
    "Scrape",
    "Slo",
    "Slurm",
    "Store",
    "Target",
    "Token",
    "Verify",
    "Webhook",
    "expand_hostlist",
    "is_loopback",
    "load_config",
    "parse_config",
    "split_listen",
]
