"""The ``sickbay`` command: a table of commands, each loaded from its module only when it is called.

``sickbay agent`` runs on every node, so it must not load the controller, the database or the HTTP server;
and ``sickbay --help`` must list everything even where an extra is not installed.

Exit codes: 0 done and good, 1 done and found something wrong (or could not do it), 2 bad usage or bad
configuration, the last two with one clear line on stderr; 130 after Ctrl-C.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from fleet.errors import SickbayError
from sickbay import __version__

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

_RUN = "Run"
_LOOK = "Look"
_DECIDE = "Decide"
_SET_UP = "Set up"
_EXTRAS: Mapping[str, str] = {
    "apscheduler": "controller",
    "fastapi": "controller",
    "sqlalchemy": "controller",
    "starlette": "controller",
    "uvicorn": "controller",
    "psycopg": "postgresql",
    "kubernetes": "kubernetes",
}
_OURS = ("fleet", "collector", "rules", "remediator", "simulator", "dashboards", "alerts", "sickbay")


@dataclass(frozen=True, slots=True)
class Lazy:
    """A command that ``module.register(app)`` adds. ``help`` and ``panel`` are what ``--help`` shows."""

    module: str
    panel: str
    help: str


COMMANDS: Mapping[str, Lazy] = {
    "serve": Lazy("sickbay.cli_serve", _RUN, "The controller: decides, acts, explains."),
    "agent": Lazy("sickbay.cli_agent", _RUN, "This node's agent: kernel log to events, pushed at once."),
    "exporter": Lazy("sickbay.cli_exporter", _RUN, "A scheduler's nodes, GPUs and queue as metrics."),
    "demo": Lazy("sickbay.cli_demo", _RUN, "The real service on a simulated fleet, with scripted faults."),
    "simulate": Lazy(
        "sickbay.cli_simulate", _RUN, "A simulated cluster for a real controller; faults in it."
    ),
    "why": Lazy("sickbay.cli_client", _LOOK, "Why a node is as it is, what comes next, what holds it back."),
    "nodes": Lazy("sickbay.cli_client", _LOOK, "The fleet, one line per node."),
    "incidents": Lazy("sickbay.cli_client", _LOOK, "Incidents, or one incident's full history."),
    "collect": Lazy("sickbay.cli_collect", _LOOK, "Read one source once and print what was understood."),
    "xid": Lazy("sickbay.cli_rules", _LOOK, "What an XID means, what we do about it and why."),
    "rules": Lazy("sickbay.cli_rules", _LOOK, "The catalogue of rules."),
    "approve": Lazy("sickbay.cli_client", _DECIDE, "Let an incident that awaits approval go on."),
    "cancel": Lazy("sickbay.cli_client", _DECIDE, "End an incident: nothing more is done about it."),
    "hold": Lazy("sickbay.cli_client", _DECIDE, "Keep our hands off a node."),
    "release": Lazy("sickbay.cli_client", _DECIDE, "End a hold."),
    "pause": Lazy("sickbay.cli_client", _DECIDE, "The red button: all action stops, fleet or pool."),
    "resume": Lazy("sickbay.cli_client", _DECIDE, "End a pause."),
    "dashboards": Lazy(
        "sickbay.cli_dashboards", _SET_UP, "Grafana dashboards: build, or check what is there."
    ),
    "alerts": Lazy("sickbay.cli_alerts", _SET_UP, "Prometheus rules and Alertmanager configuration: build."),
    "config": Lazy("sickbay.cli_config", _SET_UP, "Check a configuration file."),
    "init": Lazy("sickbay.cli_init", _SET_UP, "A few questions, or detection: a commented configuration."),
    "doctor": Lazy("sickbay.cli_doctor", _SET_UP, "Live self-check: rights, clocks, settings; read-only."),
    "agent-token": Lazy("sickbay.cli_config", _SET_UP, "Print a node's token."),
}


class LazyGroup(TyperGroup):
    """Lists the commands of the table; the one that is called is loaded first."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in COMMANDS:
            self.commands[args[0]] = load_command(args[0])
        return super().resolve_command(ctx, args)


def load_command(name: str) -> Any:
    """The real command behind ``name``."""
    app = typer.Typer()
    importlib.import_module(COMMANDS[name].module).register(app)
    return get_group(app).commands[name]


def build_app() -> TyperGroup:
    """The group of all commands, none of them loaded."""
    app = typer.Typer(
        cls=LazyGroup,
        help="Observability and auto-remediation for GPU clusters, on Slurm and Kubernetes alike.",
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_root)
    for name, lazy in COMMANDS.items():
        app.command(name, help=lazy.help, rich_help_panel=lazy.panel)(_listed)
    return get_group(app)


def _listed() -> None:
    """Stands in ``--help`` for a command that is not loaded."""


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - Typer's signature of an option's callback
    if wanted:
        typer.echo(f"sickbay {__version__}")
        raise typer.Exit


def _root(
    context: typer.Context,
    version: Annotated[  # noqa: FBT002 - a flag
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        typer.echo("sickbay: no command given; choose one of those above", err=True)
        raise typer.Exit(EXIT_USAGE)


def run(args: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code. Every known failure ends here, as a line on stderr."""
    try:
        result = build_app().main(args=args, prog_name="sickbay", standalone_mode=False)
        sys.stdout.flush()
    except typer.TyperException as error:
        _say(_usage_line(error))
        return error.exit_code
    except typer.Abort:
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader has left (`| head`). What is still buffered must not be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except SickbayError as error:
        return _explain(error)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in _OURS:
            raise
        extra = _EXTRAS.get((error.name or "").split(".")[0], "all")
        _say(f"sickbay: this needs {error.name}, which is not installed; pip install 'sickbay[{extra}]'")
        return EXIT_FAILED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _say(f"sickbay: {where}{error.strerror or error}; check the path and its rights")
        return EXIT_FAILED
    return result if isinstance(result, int) else EXIT_OK


def main() -> None:
    """The entry point."""
    for stream in (sys.stdout, sys.stderr):
        # A message about a strange name must not fail because a terminal cannot show it.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    sys.exit(run())


def _explain(error: SickbayError) -> int:
    from sickbay.config.errors import ConfigError  # noqa: PLC0415 - only where something went wrong

    if isinstance(error, ConfigError):
        _say(str(error))  # each line begins with file and line: editors jump there
        return EXIT_USAGE
    _say(f"sickbay: {error}")
    return EXIT_FAILED


def _usage_line(error: typer.TyperException) -> str:
    message = error.format_message().replace("Value error, ", "")  # pydantic's prefix says nothing
    if "\n" in message:  # a group without a command says its whole help
        return message
    if not message.strip():  # its help is printed already
        return f"{_path_of(error)}: no command given; choose one of those above"
    path = _path_of(error)
    hint = "" if message.endswith("?") else f"; see '{path} --help'"
    return f"{path}: {message.rstrip('.')}{hint}"


def _path_of(error: typer.TyperException) -> str:
    context: typer.Context | None = getattr(error, "ctx", None)
    return context.command_path if context is not None else "sickbay"


def _say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
