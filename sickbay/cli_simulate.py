"""``sickbay simulate``: a simulated cluster in a process of its own, and faults in it on request."""

from __future__ import annotations

import logging
import queue
import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import httpx
import typer

from fleet.clock import SystemClock
from fleet.errors import SickbayError
from sickbay.cli_serve import configure_logging, wait_for_signal
from sickbay.config.types import split_listen
from sickbay.duration import parse_duration
from sickbay.simulation.agents import NodeAgents
from sickbay.simulation.orders import read_script
from sickbay.simulation.plant import Plant
from sickbay.simulation.server import SimulationServer
from sickbay.tokens import read_secret
from simulator.faults import FaultKind

log = logging.getLogger("sickbay")

DEFAULT_LISTEN = "127.0.0.1:9400"
MAX_NODES = 300
_ANSWER_SECONDS = 10.0


def register(app: typer.Typer) -> None:
    """Add ``simulate serve`` and ``simulate fault``."""
    group = typer.Typer(help="A simulated cluster for a real controller to look after.", no_args_is_help=True)
    group.command("serve")(serve)
    group.command("fault")(fault)
    app.add_typer(group, name="simulate")


def serve(
    *,
    nodes: Annotated[int, typer.Option("--nodes", min=1, max=MAX_NODES, help="Size of the fleet.")] = 8,
    seed: Annotated[int, typer.Option("--seed", help="Equal seeds, equal fleets.")] = 1,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Exporters, scheduler and faults.")
    ] = DEFAULT_LISTEN,
    script: Annotated[
        Path | None, typer.Option("--script", metavar="FILE", help="Faults that play by themselves (YAML).")
    ] = None,
    reboot: Annotated[
        str, typer.Option("--reboot", metavar="DURATION", help="How long a reboot takes.")
    ] = "1m",
    controller: Annotated[
        str | None, typer.Option("--controller", metavar="URL", help="Run each node's agent, pushing there.")
    ] = None,
    agent_secret_file: Annotated[
        Path | None, typer.Option("--agent-secret-file", help="The controller's http.agent_secret_file.")
    ] = None,
    agents_listen: Annotated[
        str | None,
        typer.Option(
            "--agents-listen",
            metavar="HOST:PORT",
            help="Metrics of the first node's agent; the others follow.",
        ),
    ] = None,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
) -> None:
    """Run a simulated cluster until SIGTERM or SIGINT."""
    host, port = _address(listen, "--listen")
    agents_at = None if agents_listen is None else _address(agents_listen, "--agents-listen")
    configure_logging(log_level)
    stopping: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: stopping.put(received))
    plant = Plant(
        SystemClock(),
        nodes=nodes,
        seed=seed,
        reboot_seconds=parse_duration(reboot),
        script=lambda fleet: () if script is None else read_script(script, fleet),
    )
    with ExitStack() as running:
        server = SimulationServer(plant, host, port)
        plant.start()
        running.callback(plant.stop)
        server.start()
        running.callback(server.stop)
        if controller is not None:
            folder = running.enter_context(tempfile.TemporaryDirectory(prefix="sickbay-simulation-"))
            secret = None if agent_secret_file is None else read_secret(agent_secret_file)
            agents = NodeAgents(
                plant, controller=controller, folder=Path(folder), secret=secret, listen=agents_at
            )
            agents.start()
            running.callback(agents.stop)
        log.info(
            "%d simulated nodes (%s to %s) on %s",
            nodes,
            plant.fleet.names[0],
            plant.fleet.names[-1],
            server.url,
        )
        log.info("%s: stopping", signal.Signals(wait_for_signal(stopping)).name)


def fault(
    kind: Annotated[FaultKind, typer.Argument(help="What happens.")],
    node: Annotated[str, typer.Argument(metavar="NODE", help="Where.")],
    *,
    gpu: Annotated[int, typer.Option("--gpu", min=0, help="Index of the GPU.")] = 0,
    code: Annotated[int, typer.Option("--code", min=0, help="XID, for xid and app_xid.")] = 79,
    lasting: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="How long, for faults that end by themselves.")
    ] = "15m",
    url: Annotated[
        str, typer.Option("--url", envvar="SICKBAY_SIMULATION_URL", help="The simulated cluster.")
    ] = f"http://{DEFAULT_LISTEN}",
) -> None:
    """Make one fault happen now."""
    order = {
        "kind": kind.value,
        "node": node,
        "gpu_index": gpu,
        "code": code,
        "seconds": parse_duration(lasting),
        "reason": "drained by an admin, in a simulation",
    }
    where = f"{url.rstrip('/')}/faults"
    try:
        answer = httpx.post(where, json=order, timeout=_ANSWER_SECONDS, trust_env=False)
        said = answer.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise SickbayError(
            f"{where}: {str(error) or type(error).__name__}; is sickbay simulate serve running there?"
        ) from error
    if answer.status_code != httpx.codes.OK:
        raise SickbayError(str(said.get("error", f"{where}: HTTP {answer.status_code}")))
    typer.echo(f"happened: {said['what']}")


def _address(text: str, option: str) -> tuple[str, int]:
    try:
        return split_listen(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
