"""``sickbay serve``: the controller as a process."""

from __future__ import annotations

import logging
import queue
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Annotated

import typer

from fleet.clock import SystemClock
from remediator.executor import ThreadRunner
from remediator.lease import RemainingLease
from remediator.ledger import open_ledger
from sickbay.assembly import assemble
from sickbay.config import load_config
from sickbay.config.types import split_listen
from sickbay.config_rules import unknown_rules
from sickbay.configured import backend_from, catalogue_from, exporters_from, policy_from
from sickbay.http import HttpServer, access_from_book, create_app
from sickbay.loop import ControlLoop
from sickbay.tokens import TokenBook

log = logging.getLogger("sickbay")

SIGNAL_POLL_SECONDS = 0.5


def register(app: typer.Typer) -> None:
    @app.command("serve", help="Run the controller.")
    def serve(
        config: Annotated[Path, typer.Option("--config", help="Configuration file (YAML).")],
        log_level: Annotated[
            str, typer.Option("--log-level", help="debug, info, warning or error.")
        ] = "info",
    ) -> None:
        run(config, log_level)


def configure_logging(level: str) -> None:
    """One line a record on stderr, UTC."""
    logging.Formatter.converter = time.gmtime
    logging.basicConfig(
        level=level.upper(),
        stream=sys.stderr,
        format="%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
    )
    for noisy in ("apscheduler", "httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def wait_for_signal(stopping: queue.SimpleQueue[int]) -> int:
    """The number of the first signal put into ``stopping`` by a handler.

    A queue whose ``put`` is re-entrant, not an Event: a handler runs between any two bytecodes of the main
    thread, perhaps while that holds the Event's own lock. And in short waits: Python runs handlers in the
    main thread only, which an endless wait never wakes when the kernel gave the signal to another thread.
    """
    while True:
        try:
            return stopping.get(timeout=SIGNAL_POLL_SECONDS)
        except queue.Empty:
            continue


def run(path: Path, log_level: str) -> None:
    """Serve until SIGTERM or SIGINT."""
    configure_logging(log_level)
    config = load_config(path)
    catalogue = catalogue_from(config)
    for warning in (*config.warnings, *unknown_rules(config, catalogue)):
        log.warning("%s", warning)
    clock = SystemClock()
    store = open_ledger(config.store.url, clock)
    wake = threading.Event()
    loop_box: list[ControlLoop] = []
    runner = ThreadRunner(wake=lambda: loop_box[0].wake() if loop_box else wake.set())
    remaining = RemainingLease(clock)
    exporters = exporters_from(config, clock, catalogue)
    application = assemble(
        policy=policy_from(config),
        store=store,
        backend=backend_from(config, clock, remaining),
        catalogue=catalogue,
        clock=clock,
        runner=runner,
        remaining=remaining,
        exporters=exporters,
    )
    loop = ControlLoop(application)
    loop_box.append(loop)
    host, port = split_listen(config.http.listen)
    access = access_from_book(
        TokenBook(config.http), allow_anonymous_loopback=config.http.allow_anonymous_loopback
    )
    server = HttpServer(create_app(application.service, access), host, port)
    stopping: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: stopping.put(received))
    loop.start()
    server.start()
    if exporters is None:
        log.warning("metrics.scrape.targets is empty: rules on metrics reach this service as alerts only")
    log.info(
        "cluster %s: serving on %s in %s mode, pools: %s",
        config.cluster,
        server.url,
        config.mode,
        ", ".join(pool.name for pool in config.pools) or "one for all nodes",
    )
    log.info("%s: stopping", signal.Signals(wait_for_signal(stopping)).name)
    server.stop()
    loop.stop()
    if exporters is not None:
        exporters.close()
    runner.close()
    store.close()
