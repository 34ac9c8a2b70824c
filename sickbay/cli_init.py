"""``sickbay init``: a handful of questions, or a look around, and a configuration that only watches."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from fleet.observations import Reading
from sickbay.config import ConfigError, load_config
from sickbay.config.sources import MAX_SCRAPE_TARGETS
from sickbay.setup.detect import KINDS, Look, look
from sickbay.setup.write import Answers, make_secrets, render

LOOK_SECONDS = 10.0
SECRETS = "secrets"
_STORE = "/var/lib/sickbay"


class Kind(StrEnum):
    AUTO = "auto"
    SLURM = "slurm"
    KUBERNETES = "kubernetes"


@dataclass(frozen=True, slots=True)
class _Flags:
    cluster: str | None
    prometheus: str | None
    port: int
    secrets: bool | None
    ask: bool


def register(app: typer.Typer) -> None:
    """Add the ``init`` command."""
    app.command("init", help="Write a commented configuration that observes and touches nothing.")(init)


def init(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file to write.")] = Path(
        "sickbay.yaml"
    ),
    scheduler: Annotated[
        Kind, typer.Option("--scheduler", help="Which scheduler; auto: whichever answers.")
    ] = Kind.AUTO,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="NAME", help="The cluster's name.")
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option("--prometheus", metavar="URL", help="Read metrics from there, scrape nothing."),
    ] = None,
    port: Annotated[
        int, typer.Option("--port", min=1, max=65535, help="dcgm-exporter's port on each node.")
    ] = 9400,
    secrets: Annotated[
        bool | None,
        typer.Option("--secrets/--no-secrets", help=f"Make tokens in {SECRETS}/ beside the file."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: flags, and what is found.")] = False,  # noqa: FBT002
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,  # noqa: FBT002
) -> None:
    """Look around, ask what cannot be seen, write the file, check it, say what comes next."""
    if out.exists() and not force:
        _stop(f"{out} is there already; give --force to replace it, or another --out")
    if not out.absolute().parent.is_dir():
        _stop(f"{out.absolute().parent} is not there; make it first, or give another --out")
    flags = _Flags(cluster, prometheus, port, secrets, ask=not yes and _is_a_person())
    kinds = KINDS if scheduler is Kind.AUTO else (scheduler.value,)
    typer.echo(f"looking for {' or '.join(kinds)} ...", err=True)
    seen = look({kind: READERS[kind] for kind in kinds})
    _tell(seen)
    answers = _answers(seen, flags, scheduler, folder=out.absolute().parent)
    # Checked before anything is written: a file that cannot be used helps nobody.
    draft = out.with_name(f".{out.name}.draft-{os.getpid()}")
    made: list[Path] = []
    try:
        if answers.secrets is not None:
            made = make_secrets(out.absolute().parent / answers.secrets)
        draft.write_text(render(answers), encoding="utf-8")
        load_config(draft)
        draft.replace(out)
    except ConfigError as error:
        _stop(str(error.lines[0]).replace(str(draft), "an answer"))
    except OSError as error:
        _stop(f"{out} cannot be written: {error.strerror or error}", status=1)
    finally:
        draft.unlink(missing_ok=True)
    _next_steps(out, answers, made)


def _is_a_person() -> bool:
    return sys.stdin.isatty()


def _read_slurm() -> Reading:
    from collector.slurm.live import read_live  # noqa: PLC0415 - only where it is looked for

    return read_live(LOOK_SECONDS)


def _read_kubernetes() -> Reading:
    from fleet.observations import Problem, ProblemReason  # noqa: PLC0415

    try:
        from collector.kubernetes.live import read_live  # noqa: PLC0415
    except ModuleNotFoundError as error:
        text = f"{error.name} is not installed; pip install '.[kubernetes]'"
        return Reading(
            (Problem(source="kubernetes", reason=ProblemReason.TOOL_MISSING, message=text),), ok=False
        )
    return read_live(LOOK_SECONDS)


READERS: Mapping[str, Callable[[], Reading]] = {"slurm": _read_slurm, "kubernetes": _read_kubernetes}


def _tell(seen: Look) -> None:
    for kind, why in seen.told.items():
        typer.echo(f"{kind}: {why}", err=True)
    if seen.kind is not None:
        where = f", in {', '.join(seen.partitions)}" if seen.partitions else ""
        typer.echo(f"{seen.kind}: {seen.nodes} nodes, {len(seen.gpu_nodes)} with GPUs{where}", err=True)


def _answers(seen: Look, flags: _Flags, wanted: Kind, *, folder: Path) -> Answers:
    kind = seen.kind or (wanted.value if wanted is not Kind.AUTO else None)
    if kind is None:
        kind = _ask(flags, "Which scheduler, slurm or kubernetes", "slurm", choices=KINDS)
    cluster = flags.cluster or _ask(
        flags, "The cluster's name", socket.gethostname().split(".")[0] or "alpha"
    )
    prometheus = flags.prometheus
    if prometheus is None and flags.ask:
        many = len(seen.gpu_nodes) > MAX_SCRAPE_TARGETS
        hint = "its address" if many else "its address, or empty to scrape the exporters directly"
        prometheus = typer.prompt(f"Prometheus: {hint}", default="", show_default=False).strip() or None
    secrets = flags.secrets
    if secrets is None:
        secrets = (
            typer.confirm(f"Make tokens in {SECRETS}/ beside the file?", default=True) if flags.ask else True
        )
    return Answers(
        cluster=cluster,
        kind=kind,
        store=_store(folder),
        partitions=seen.partitions,
        labelled=seen.kind == "kubernetes" and seen.labelled,
        gpu_nodes=seen.gpu_nodes,
        prometheus=prometheus,
        port=flags.port,
        secrets=SECRETS if secrets else None,
        slurm_conf=os.environ.get("SLURM_CONF") if kind == "slurm" else None,
    )


def _ask(flags: _Flags, question: str, default: str, *, choices: tuple[str, ...] = ()) -> str:
    if not flags.ask:
        return default
    while True:
        answer = str(typer.prompt(question, default=default)).strip()
        if answer and (not choices or answer in choices):
            return answer
        typer.echo(f"one of: {', '.join(choices)}" if choices else "a name, please", err=True)


def _store(folder: Path) -> str:
    """The usual place where this user may write there, else beside the file."""
    usual = Path(_STORE)
    place = usual if usual.exists() else usual.parent
    if os.access(place, os.W_OK):
        return f"sqlite://{_STORE}/sickbay.db"
    del folder
    return "sqlite:///./sickbay.db"


def _next_steps(out: Path, answers: Answers, made: list[Path]) -> None:
    typer.echo(f"wrote {out}" + (f" and {len(made)} secrets in {answers.secrets}/" if made else ""))
    edits = [
        f"  line {number}: {line.split('# EDIT: ', 1)[1]}"
        for number, line in enumerate(out.read_text(encoding="utf-8").splitlines(), 1)
        if "# EDIT: " in line
    ]
    if edits:
        typer.echo("to edit first:\n" + "\n".join(edits))
    steps = (f"config check {out}", f"doctor --config {out}", f"serve --config {out}")
    typer.echo("next:\n" + "\n".join(f"  sickbay {step}" for step in steps))


def _stop(message: str, *, status: int = 2) -> NoReturn:
    typer.echo(f"sickbay: {message}", err=True)
    raise typer.Exit(status)
