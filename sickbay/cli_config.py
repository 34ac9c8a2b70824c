"""``sickbay config check FILE`` and ``sickbay agent-token NODE``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sickbay.config import AgentConfig, Config, ConfigError, load_config
from sickbay.tokens import agent_token, read_secret

_UNSET = "-"


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    config = typer.Typer(help="Check a configuration file.")
    config.callback()(_config)
    config.command("check", help="Validate a file; exit 0 when it can be used, 2 with every problem.")(check)
    app.add_typer(config, name="config")
    app.command("agent-token", help="Print a node's token, made from http.agent_secret_file.")(print_token)


def _config() -> None:
    """Check a configuration file."""


def check(
    file: Annotated[Path, typer.Argument(help="The configuration file.")],
    agent: Annotated[  # noqa: FBT002 - a flag
        bool, typer.Option("--agent", help="For an agent: cluster, scheduler and metrics may be missing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,  # noqa: FBT002 - a flag
) -> None:
    """Validate a configuration file, and the rule files that it names."""
    try:
        config = _load(file, agent=agent)
        warnings = [*config.warnings, *_rule_warnings(config)]
    except ConfigError as error:
        if as_json:
            typer.echo(json.dumps({"ok": False, "problems": list(error.lines), "warnings": []}))
        raise
    if as_json:
        typer.echo(json.dumps({"ok": True, "problems": [], "warnings": warnings}))
        return
    _summary(config, file)
    for line in warnings:
        typer.echo(f"warning: {line}", err=True)


def _load(file: Path, *, agent: bool) -> AgentConfig:
    if agent:
        return load_config(file, "agent")
    try:
        return load_config(file)
    except ConfigError as error:
        raise ConfigError([*error.lines, *_hint_for_an_agent(file)]) from None


def _hint_for_an_agent(file: Path) -> list[str]:
    """A node's file with the agent section alone is no controller's, and fine."""
    try:
        alone = load_config(file, "agent")
    except ConfigError:
        return []
    if alone.cluster or alone.scheduler is not None or alone.metrics is not None:
        return []
    return [f"{file}: as an agent's file it is fine: check those with --agent"]


def _rule_warnings(config: AgentConfig) -> Sequence[str]:
    if not isinstance(config, Config):
        return ()
    from rules.catalogue import load_catalogue  # noqa: PLC0415 - an agent's file needs no rules
    from rules.errors import CatalogueError  # noqa: PLC0415
    from sickbay.config_rules import unknown_rules  # noqa: PLC0415

    try:
        catalogue = load_catalogue(tuple(config.rules.directories))
    except CatalogueError as error:
        raise ConfigError([str(problem) for problem in error.problems] or [str(error)]) from None
    return unknown_rules(config, catalogue)


def print_token(
    node: Annotated[str, typer.Argument(help="The node's name in the scheduler.")],
    config_file: Annotated[Path, typer.Option("--config", help="The controller's configuration file.")],
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,  # noqa: FBT002 - a flag
) -> None:
    """Print the token with which ``node``'s agent pushes."""
    config = load_config(config_file, "agent")
    path = config.http.agent_secret_file
    if path is None:
        raise ConfigError(
            [f"{config_file}: http.agent_secret_file: is not set; name a file with a long random text in it"]
        )
    token = agent_token(read_secret(path), node)
    typer.echo(json.dumps({"node": node, "token": token}) if as_json else token)


def _summary(config: AgentConfig, file: Path) -> None:
    from rich.console import Console  # noqa: PLC0415 - tables are for people only
    from rich.table import Table  # noqa: PLC0415

    table = Table.grid(padding=(0, 2))
    for key, value in _facts(config):
        table.add_row(key, value)
    console = Console(highlight=False, markup=False, emoji=False)
    console.print(f"OK {file}", style="green", soft_wrap=True)
    console.print(table)


def _facts(config: AgentConfig) -> list[tuple[str, str]]:
    scheduler, metrics = config.scheduler, config.metrics
    rows = [
        ("cluster", config.cluster or _UNSET),
        ("mode", config.mode.value),
        ("scheduler", scheduler.kind if scheduler is not None else _UNSET),
    ]
    if metrics is not None and metrics.source == "scrape":
        rows.append(("metrics", f"scrape, {len(metrics.scrape.targets)} targets"))
    elif metrics is not None:
        rows.append(("metrics", f"prometheus at {metrics.prometheus.url}"))
    for pool in config.pools:
        match = pool.match.partition or pool.match.label or pool.match.nodes or _UNSET
        mode = (pool.mode or config.mode).value
        budget = f"{pool.budget.max_in_flight} nodes in flight, {pool.budget.max_unavailable_percent:g} % out"
        rows.append((f"pool {pool.name}", f"{match}, {mode}, {budget}"))
    rows.append(("http", f"{config.http.listen}, {len(config.http.tokens)} tokens"))
    return rows
