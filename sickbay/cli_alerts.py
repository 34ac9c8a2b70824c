"""``sickbay alerts build``: Prometheus rules, their tests and the Alertmanager configuration, as files."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from rules.catalogue import CatalogueError, load_catalogue
from sickbay.cli_dashboards import CheckFlag, OutOption, report


def register(app: typer.Typer) -> None:
    """Add ``alerts build``."""
    group = typer.Typer(help="Prometheus rules and Alertmanager configuration.", no_args_is_help=True)
    group.command("build")(build_alerts)
    app.add_typer(group, name="alerts")


def build_alerts(
    out: OutOption,
    *,
    check: CheckFlag = False,
    rules: Annotated[
        list[Path] | None,
        typer.Option(
            "--rules", metavar="DIR", help="A directory of rule files over the shipped ones; repeatable."
        ),
    ] = None,
    docs_url: Annotated[
        str,
        typer.Option("--docs-url", metavar="URL", help="What goes before the path of every runbook_url."),
    ] = "",
) -> int:
    """Write prometheus/, alertmanager/ and tests/ into DIR."""
    from alerts.build import differences, files, write  # noqa: PLC0415 - only when it is asked for

    try:
        catalogue = load_catalogue(rules or ())
    except CatalogueError as error:
        typer.echo(f"sickbay: {error}", err=True)
        return 2
    wanted = files(catalogue, docs_url=_with_slash(docs_url))
    if check:
        again = ["sickbay", "alerts", "build", "--out", str(out)]
        again += [word for directory in rules or () for word in ("--rules", str(directory))]
        again += ["--docs-url", docs_url] if docs_url else []
        return report(differences(out, wanted), shlex.join(again))
    for path in write(out, wanted):
        typer.echo(path)
    return 0


def _with_slash(url: str) -> str:
    return f"{url}/" if url and not url.endswith("/") else url
