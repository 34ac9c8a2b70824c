"""``sickbay agent``: the node's exporter and event pusher.

Loaded only when that command runs; imports nothing of the controller, its store or its HTTP server.
"""

from __future__ import annotations

import logging
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from collector.agent.build import build_agent
from collector.agent.settings import AgentSettings, read_token
from fleet.errors import InvalidInputError
from sickbay import __version__
from sickbay.config import AgentConfig, ConfigError, load_config

log = logging.getLogger(__name__)

ConfigOption = Annotated[
    Path, typer.Option("--config", help="The configuration; a file with the agent section alone will do.")
]
OnceOption = Annotated[
    bool, typer.Option("--once", help="Read what there is, push it, and end: 0 when the controller has it.")
]


def register(app: typer.Typer) -> None:
    """Add the ``agent`` command to ``app``."""
    app.command("agent")(agent)


def agent(*, config: ConfigOption, once: OnceOption = False) -> None:
    """Follow the kernel log of this node and push its GPU events to the controller.

    Runs until SIGTERM or SIGINT.
    """
    _set_up_logging()
    loaded = load_config(config, "agent")
    try:
        running = build_agent(settings_from(loaded))
    except InvalidInputError as error:
        raise ConfigError([f"{config}: {error}"]) from error
    for warning in loaded.warnings:
        log.warning("%s", warning)
    if once:
        raise typer.Exit(0 if running.once() else 1)
    _stop_on_signals(running.stop)
    running.run()


def settings_from(config: AgentConfig) -> AgentSettings:
    """The agent's settings of a configuration. InvalidInputError when they cannot be used on this node."""
    section = config.agent
    return AgentSettings(
        node=section.node or socket.gethostname().partition(".")[0],
        controller=section.controller,
        token=read_token(section.token_file) if section.token_file is not None else None,
        token_file=section.token_file,
        kernel_log=section.kernel_log,
        boot_id_file=section.boot_id_file,
        sources=tuple(section.sources),
        dcgm_url=section.dcgm_url,
        listen=section.listen or None,
        spool_dir=section.spool_dir,
        version=__version__,
    )


def _stop_on_signals(stop: Callable[[], None]) -> None:
    """Have SIGTERM and SIGINT end the loops.

    A thread waits for them: a handler would run in the middle of the read loop, perhaps inside the very
    lock that ``stop`` needs. Called before any other thread starts, so that all of them block these signals.
    """
    ending = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)

    def wait() -> None:
        number = signal.sigwait(ending)
        log.info("%s: stopping", signal.Signals(number).name)
        stop()

    threading.Thread(target=wait, name="signals", daemon=True).start()


def _set_up_logging() -> None:
    """One line a record on stderr, UTC, as the controller's."""
    logging.Formatter.converter = time.gmtime
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
    )
    # A request line for every heartbeat is noise; failures are told of by the pusher.
    for noisy in ("httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
