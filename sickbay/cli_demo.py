"""``sickbay demo``: the main job on a simulated fleet, with a picture on a terminal and without elsewhere."""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sickbay.demo.clusters_kind import SchedulerKind

PLAIN_COLUMNS = 100
DEFAULT_SPEED = 40.0
MIN_NODES, MAX_NODES = 16, 512


def register(app: typer.Typer) -> None:
    @app.command("demo", help="The real service on a simulated fleet; a truth table at the end.")
    def demo(
        nodes: Annotated[
            int, typer.Option("--nodes", min=MIN_NODES, max=MAX_NODES, help="Size of the fleet.")
        ] = 16,
        seed: Annotated[int, typer.Option("--seed", help="Equal seeds, equal runs.")] = 1,
        scheduler: Annotated[
            SchedulerKind, typer.Option("--scheduler", help="Whose semantics the simulated scheduler has.")
        ] = SchedulerKind.SLURM,
        speed: Annotated[
            float, typer.Option("--speed", help="Simulated seconds per second, on a terminal.")
        ] = DEFAULT_SPEED,
        port: Annotated[
            int, typer.Option("--port", min=0, max=65535, help="Where the API and the console listen.")
        ] = 8470,
        rules: Annotated[
            list[Path] | None,
            typer.Option(
                "--rules",
                metavar="DIR",
                help="Rules of your own over the shipped ones; may be given more than once.",
                exists=True,
                file_okay=False,
            ),
        ] = None,
        headless: Annotated[  # noqa: FBT002 - a flag
            bool, typer.Option("--headless", help="To the end as fast as possible, without a picture.")
        ] = False,
        as_json: Annotated[  # noqa: FBT002 - a flag
            bool, typer.Option("--json", help="Headless, and the truth table as JSON.")
        ] = False,
    ) -> int:
        if not (math.isfinite(speed) and speed > 0):
            raise typer.BadParameter(
                "must be a number above 0, such as 20 (simulated seconds per second)", param_hint="--speed"
            )
        if headless or as_json or not _is_a_screen():
            return _headless(nodes=nodes, seed=seed, scheduler=scheduler, rules=rules or (), as_json=as_json)
        return _on_screen(
            nodes=nodes, seed=seed, scheduler=scheduler, rules=rules or (), speed=speed, port=port
        )


def _is_a_screen() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")


def _headless(
    *, nodes: int, seed: int, scheduler: SchedulerKind, rules: Sequence[Path], as_json: bool
) -> int:
    from rich.console import Console  # noqa: PLC0415 - --help stays fast

    from rules.catalogue import load_catalogue  # noqa: PLC0415
    from sickbay.demo.headless import play  # noqa: PLC0415
    from sickbay.demo.table import truth_report  # noqa: PLC0415

    truth = play(nodes=nodes, seed=seed, scheduler=scheduler, catalogue=load_catalogue(rules))
    if as_json:
        print(json.dumps(truth.json()))
    else:
        piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
        Console(width=PLAIN_COLUMNS if piped else None, emoji=False).print(truth_report(truth))
    return 1 if truth.failed else 0


def _on_screen(
    *, nodes: int, seed: int, scheduler: SchedulerKind, rules: Sequence[Path], speed: float, port: int
) -> int:
    from rich.console import Console  # noqa: PLC0415 - the same

    from rules.catalogue import load_catalogue  # noqa: PLC0415
    from sickbay.demo.console import Settings, run  # noqa: PLC0415

    settings = Settings(
        nodes=nodes,
        seed=seed,
        speed=speed,
        port=port,
        command=_own_name(),
        scheduler=scheduler,
        catalogue=load_catalogue(rules),
    )
    return run(settings, Console(emoji=False))


def _own_name() -> str:
    """How the reader calls us from another terminal in the same folder: ``sickbay``, if that is we."""
    us = Path(sys.argv[0])
    found = shutil.which("sickbay")
    if found is not None and us.exists() and Path(found).samefile(us):
        return "sickbay"
    if us.name != "sickbay":
        return "sickbay"
    near = Path(os.path.relpath(us))
    return shlex.quote(str(near if len(near.parts) > 1 and ".." not in near.parts else us))
