"""``sickbay doctor``: a live self-check of everything around the controller (docs/doctor.md). Read-only."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fleet.clock import SystemClock
from rules.catalogue import load_catalogue
from rules.errors import CatalogueError
from sickbay.config import ConfigError, load_config
from sickbay.doctor.assemble import checks_for
from sickbay.doctor.model import Result, Status
from sickbay.doctor.run import THREAD_PREFIX, examine

_STYLES = {Status.OK: "green", Status.WARN: "yellow", Status.FAIL: "bold red", Status.UNKNOWN: "magenta"}
_EXIT_FAILED = 1
# What the clients tell of their calls is for a service's log.
_CHATTY = ("httpx", "httpcore", "collector", "kubernetes", "urllib3")


def register(app: typer.Typer) -> None:
    """Add ``doctor`` to ``app``."""
    app.command("doctor")(doctor)


def doctor(
    config_file: Annotated[Path, typer.Option("--config", help="The controller's configuration file.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    problems: Annotated[bool, typer.Option("--problems", help="Show only what is not ok.")] = False,
) -> None:
    """Check rights, reachability, clocks, versions and hurtful settings, live; change nothing.

    Run it as the user and on the machine of the controller: rights and addresses are theirs.

    Exit 0: nothing fails. 1: something does. 2: the configuration cannot be used.
    """
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s"
    )
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.ERROR)
    config = load_config(config_file)
    try:
        catalogue = load_catalogue(tuple(config.rules.directories))
    except CatalogueError as error:
        raise ConfigError([str(problem) for problem in error.problems] or [str(error)]) from None
    clock = SystemClock()
    results = examine(checks_for(config, catalogue, clock), clock)
    failed = any(result.status is Status.FAIL for result in results)
    if as_json:
        typer.echo(as_document(results))
    else:
        _show([one for one in results if not problems or one.status is not Status.OK], results)
    if any(thread.name.startswith(THREAD_PREFIX) for thread in threading.enumerate()):
        # A thread that hangs in a call of the C library would hold up the interpreter's end.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_EXIT_FAILED if failed else 0)
    if failed:
        raise typer.Exit(_EXIT_FAILED)


def as_document(results: Sequence[Result]) -> str:
    """One JSON object: ``checks`` in order, ``ok`` true when nothing fails."""
    return json.dumps(
        {
            "checks": [
                {
                    "name": one.name,
                    "status": one.status.value,
                    "sentence": one.sentence,
                    "next_step": one.next_step or None,
                }
                for one in results
            ],
            "ok": not any(one.status is Status.FAIL for one in results),
        },
        ensure_ascii=False,
    )


def _show(shown: Sequence[Result], results: Sequence[Result]) -> None:
    from rich.console import Console  # noqa: PLC0415 - tables are for people only
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    table.add_column("check", no_wrap=True)
    table.add_column("what was seen", overflow="fold")
    for one in shown:
        said = Text(one.sentence)
        if one.next_step:
            said.append(f"\n-> {one.next_step}", style="bold")
        table.add_row(Text(one.status.value, style=_STYLES[one.status]), Text(one.name), said)
    console = Console(highlight=False, markup=False, emoji=False)
    if shown:
        console.print(table)
    counted = Counter(one.status for one in results)
    console.print(", ".join(f"{counted[status]} {status.value}" for status in Status))
