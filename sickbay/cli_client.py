"""Commands that talk to a running controller: why, nodes, incidents, and the human words."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType

from fleet.errors import InvalidInputError
from fleet.findings import IncidentState
from sickbay import cli_views as views
from sickbay.api_client import Answer, ApiClient
from sickbay.duration import format_duration, parse_duration

DEFAULT_URL = "http://127.0.0.1:8470"

Url = Annotated[str, typer.Option("--url", envvar="SICKBAY_URL", help="Where the controller is.")]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", envvar="SICKBAY_TOKEN_FILE", help="File with your token.")
]
AsJson = Annotated[bool, typer.Option("--json", help="The API's answer as it is.")]
Node = Annotated[str, typer.Argument(help="The node's name.", metavar="NODE")]
Incident = Annotated[str, typer.Argument(help="The incident's id.", metavar="ID")]
Reason = Annotated[str, typer.Option("--reason", help="Why, in one sentence; everyone reads it.")]
OptionalReason = Annotated[str | None, typer.Option("--reason", help="Why, in one sentence.")]
Pool = Annotated[str | None, typer.Option("--pool", help="One pool only; without it the whole fleet.")]
For = Annotated[
    str | None,
    typer.Option("--for", metavar="DURATION", help="Until then, such as 10m or 2h; else for good."),
]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    for name, command, text in (
        ("why", why, "Why a node is as it is: verdict, findings, incident, next step, every gate."),
        ("nodes", nodes, "The fleet, one line per node."),
        ("incidents", incidents, "Incidents, newest first; with an ID, that incident's full history."),
        ("approve", approve, "Let an incident that awaits approval go on."),
        ("cancel", cancel, "End an incident: nothing more is done about it."),
        ("hold", hold, "Keep our hands off a node until it is released."),
        ("release", release, "End a hold."),
        ("pause", pause, "The red button: all action stops, in the fleet or in one pool."),
        ("resume", resume, "End a pause."),
    ):
        app.command(name, help=text)(command)


def why(
    node: Node,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    with ApiClient(url, token_file) as api:
        answer = api.get("nodes", node, "why")
    _show(answer, as_json=as_json, view=lambda: views.why(answer.value, answer.now))


def nodes(url: Url = DEFAULT_URL, token_file: TokenFile = None, as_json: AsJson = False) -> None:  # noqa: FBT002
    with ApiClient(url, token_file) as api:
        answer = api.get_all("nodes", cursor="after")
    _show(answer, as_json=as_json, view=lambda: views.nodes(answer.value))


def incidents(
    incident: Annotated[str | None, typer.Argument(help="One incident's id.", metavar="[ID]")] = None,
    state: Annotated[IncidentState | None, typer.Option("--state", help="Only in this state.")] = None,
    node: Annotated[str | None, typer.Option("--node", help="Only of this node.")] = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    if incident is not None and (state is not None or node is not None):
        raise typer.BadParameter("an ID names one incident; leave --state and --node out", param_hint="ID")
    with ApiClient(url, token_file) as api:
        if incident is not None:
            answer = api.get("incidents", incident)
            _show(answer, as_json=as_json, view=lambda: views.incident(answer.value, answer.now))
            return
        query = {"state": state.value if state is not None else None, "node": node}
        answer = api.get_all(
            "incidents",
            cursor="before",
            query={key: value for key, value in query.items() if value is not None},
        )
    _show(answer, as_json=as_json, view=lambda: views.incidents(answer.value, answer.now))


def approve(
    incident: Incident,
    reason: OptionalReason = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    _act(
        Call(url, token_file, as_json),
        ("incidents", incident, "approve"),
        f"approved {incident}",
        reason=reason,
    )


def cancel(
    incident: Incident,
    reason: Reason,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    _act(
        Call(url, token_file, as_json),
        ("incidents", incident, "cancel"),
        f"cancelled {incident}",
        reason=reason,
    )


def hold(
    node: Node,
    reason: Reason,
    duration: For = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    seconds = _seconds(duration)
    done = f"holding {node}{_until(seconds, 'sickbay release ' + node)}"
    _act(Call(url, token_file, as_json), ("nodes", node, "hold"), done, reason=reason, seconds=seconds)


def release(
    node: Node,
    reason: OptionalReason = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    _act(Call(url, token_file, as_json), ("nodes", node, "release"), f"released {node}", reason=reason)


def pause(
    reason: Reason,
    pool: Pool = None,
    duration: For = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    seconds = _seconds(duration)
    end = "sickbay resume" + (f" --pool {pool}" if pool else "")
    done = f"paused {_scope(pool)}: no action is taken{_until(seconds, end)}"
    _act(Call(url, token_file, as_json), ("pause",), done, reason=reason, seconds=seconds, pool=pool)


def resume(
    pool: Pool = None,
    reason: OptionalReason = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    _act(Call(url, token_file, as_json), ("resume",), f"resumed {_scope(pool)}", reason=reason, pool=pool)


@dataclass(frozen=True, slots=True)
class Call:
    """What every command of a person carries."""

    url: str
    token_file: Path | None
    as_json: bool


def _act(
    call: Call,
    path: tuple[str, ...],
    done: str,
    *,
    reason: str | None = None,
    seconds: float | None = None,
    pool: str | None = None,
) -> None:
    """Send a human word; say what is in force now."""
    with ApiClient(call.url, call.token_file) as api:
        answer = api.post(*path, body={"reason": reason, "expires_in_seconds": seconds, "pool": pool})
    _show(answer, as_json=call.as_json, view=lambda: views.plain(done))


def _show(answer: Answer, *, as_json: bool, view: Callable[[], RenderableType]) -> None:
    if as_json:
        sys.stdout.write(answer.text.rstrip("\n") + "\n")
    else:
        views.console().print(view())


def _seconds(duration: str | None) -> float | None:
    if duration is None:
        return None
    try:
        return parse_duration(duration)
    except InvalidInputError as error:
        raise typer.BadParameter(str(error), param_hint="--for") from None


def _until(seconds: float | None, end: str) -> str:
    return f" for {format_duration(seconds)}" if seconds is not None else f" until '{end}'"


def _scope(pool: str | None) -> str:
    return f"pool {pool}" if pool is not None else "the fleet"
