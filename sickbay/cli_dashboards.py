"""``sickbay dashboards build``: the Grafana dashboards as files, or: are the files that are there current?"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

OutOption = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the files are, or go.")]
CheckFlag = Annotated[
    bool, typer.Option("--check", help="Write nothing; exit 1 when a file is missing or not current.")
]


def register(app: typer.Typer) -> None:
    """Add ``dashboards build``."""
    group = typer.Typer(help="Grafana dashboards.", no_args_is_help=True)
    group.command("build")(build_dashboards)
    app.add_typer(group, name="dashboards")


def build_dashboards(out: OutOption, *, check: CheckFlag = False) -> int:
    """Write every dashboard as JSON into DIR, for Grafana's file provisioning."""
    from dashboards.build import differences, write  # noqa: PLC0415 - grafanalib is an extra

    if check:
        return report(differences(out), shlex.join(["sickbay", "dashboards", "build", "--out", str(out)]))
    for path in write(out):
        typer.echo(path)
    return 0


def report(lines: tuple[str, ...], command: str) -> int:
    """The differences on stderr with what to do; the exit code."""
    for line in lines:
        typer.echo(line, err=True)
    if lines:
        typer.echo(f"sickbay: not current; run: {command} (and delete what is to be deleted)", err=True)
        return 1
    return 0
