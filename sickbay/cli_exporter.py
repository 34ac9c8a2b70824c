"""``sickbay exporter``: a scheduler's nodes, GPUs and queue as Prometheus metrics (docs/exporters.md).

Loaded only when that command runs; needs neither the controller's store nor its HTTP server.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from prometheus_client import CollectorRegistry, generate_latest

from collector.exporters.families import ExporterCollector
from collector.exporters.http import ExporterServer
from collector.exporters.model import Source
from collector.exporters.poller import Poller
from collector.exporters.summary import Names, PoolOf
from fleet.clock import Clock, SystemClock
from fleet.errors import InvalidInputError, SickbayError
from sickbay import __version__
from sickbay.config import AgentConfig, ConfigError, Exporter, Kubernetes, Slurm, load_config, split_listen
from sickbay.config import Pool as PoolSection
from sickbay.config.hostlist import expand_hostlist
from sickbay.duration import parse_duration

log = logging.getLogger(__name__)

#: Beside the controller's 8470; clear of the agent (9870), dcgm-exporter (9400) and other Slurm exporters.
DEFAULT_LISTEN = Exporter().listen
# A Slurm controller is asked by many already; below this a scrape's answer would not be fresher in practice.
_LEAST_INTERVAL_SECONDS = 1.0
_KUBERNETES_SECONDS = 10.0
# One read: the version, all nodes, all jobs; each may wait for a token as long as for its answer.
_CALLS_OF_A_READ, _WAIT_AND_ANSWER = 3, 2
# What a read under way gets when we are told to end. It changes nothing, so it need not be waited for.
_LAST_READ_SECONDS = 0.5
# Where the cluster is, and who we are there: the same variables that `sickbay collect slurm` keeps.
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")


class SchedulerKind(StrEnum):
    SLURM = "slurm"
    KUBERNETES = "kubernetes"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the configuration says of the scheduler and the pools, or the defaults."""

    slurm: Slurm
    kubernetes: Kubernetes
    exporter: Exporter
    pools: tuple[PoolSection, ...] = ()


def register(app: typer.Typer) -> None:
    """Add the ``exporter`` command to ``app``."""
    app.command("exporter")(exporter)


def exporter(
    scheduler: Annotated[SchedulerKind, typer.Argument(help="whose state to export")],
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            help="The configuration: how to reach the scheduler, and the pools.", show_default=False
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help=f"Where /metrics is served.  [default: {DEFAULT_LISTEN}]"),
    ] = None,
    interval: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Time between two reads of the scheduler.  [default: 30s]"),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Read once, print the metrics, and end.")] = False,
) -> None:
    """Serve a scheduler's nodes, GPUs and queue as Prometheus metrics, until SIGTERM or SIGINT.

    The scheduler is read once per interval, however many scrapes come.

    Without --config: SLURM_CONF, the usual kubeconfig or the service account.

    Exit 0: ended as told. 1: cannot serve, or cannot read (--once). 2: bad usage or configuration.
    """
    logging.basicConfig(
        # One look says itself what went wrong.
        level=logging.ERROR if once else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    for chatty in ("httpx", "httpcore", "collector.slurm.client", "collector.kubernetes.client"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    settings = _settings(config, scheduler)
    address = _address(settings.exporter.listen if listen is None else listen)
    seconds = settings.exporter.interval_seconds if interval is None else _interval(interval)
    clock = SystemClock()
    poller = Poller(
        _source(scheduler, settings, clock, config),
        Names.fresh(pool_of(settings.pools)),
        clock=clock,
        interval_seconds=seconds,
        slowest_read_seconds=_slowest_read(scheduler, settings),
    )
    registry = CollectorRegistry()
    registry.register(
        ExporterCollector(
            poller.state, scheduler=scheduler.value, version=__version__, interval_seconds=seconds
        )
    )
    if once:
        _once(poller, registry)
    _serve(poller, registry, address)


def _once(poller: Poller, registry: CollectorRegistry) -> NoReturn:
    state = poller.poll()
    sys.stdout.write(generate_latest(registry).decode())
    if state.error is not None:
        typer.echo(f"sickbay exporter: {poller.kind} could not be read: {state.error}", err=True)
    raise typer.Exit(0 if state.up else 1)


def _serve(poller: Poller, registry: CollectorRegistry, address: tuple[str, int]) -> None:
    try:
        server = ExporterServer(address, registry, poller)
    except OSError as error:
        raise SickbayError(_cannot_listen(address, error)) from error
    ended = threading.Event()
    _on_signals(ended.set)
    reading = threading.Thread(target=poller.run, name="exporter-poller", daemon=True)
    server.start()
    reading.start()
    log.info("serving %s at http://%s/metrics", poller.kind, _shown(server.address))
    ended.wait()
    poller.stop()
    server.stop()
    reading.join(_LAST_READ_SECONDS)


def _cannot_listen(address: tuple[str, int], error: OSError) -> str:
    where = _shown(address)
    if error.errno == errno.EADDRINUSE:
        return f"{where} is in use by another program; end that one, or choose another port with --listen"
    if error.errno == errno.EACCES:
        return f"{where} may not be used by this user; choose a port above 1023 with --listen"
    return (
        f"cannot listen on {where} ({error.strerror or error}); give an address of this machine to --listen"
    )


def _shown(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _on_signals(stop: Callable[[], None]) -> None:
    """Have SIGTERM and SIGINT call ``stop``. Before other threads start, so that all of them block these.

    A thread waits for them: a handler would run in the middle of whatever the main thread does.
    """
    ending = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)

    def wait() -> None:
        number = signal.sigwait(ending)
        log.info("%s: ending", signal.Signals(number).name)
        stop()

    threading.Thread(target=wait, name="signals", daemon=True).start()


# -- what the command line and the configuration say


def _address(listen: str) -> tuple[str, int]:
    try:
        return split_listen(listen)
    except ValueError as error:
        _usage(f"--listen: {error}")


def _interval(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except InvalidInputError as error:
        _usage(f"--interval: {error}")
    if seconds < _LEAST_INTERVAL_SECONDS:
        _usage(
            f"--interval: {text} is too often for any scheduler; write {_LEAST_INTERVAL_SECONDS:g}s or more"
        )
    return seconds


def _usage(text: str) -> NoReturn:
    typer.echo(f"sickbay exporter: {text}", err=True)
    raise typer.Exit(2)


def _settings(path: Path | None, scheduler: SchedulerKind) -> Settings:
    """The sections the exporter reads; a file with ``scheduler`` alone will do. Raises ConfigError."""
    if path is None:
        env = {name: os.environ[name] for name in _KEPT if name in os.environ}
        return Settings(Slurm(env=env), Kubernetes(), Exporter())
    loaded: AgentConfig = load_config(path, "agent")
    section = loaded.scheduler
    if section is None:
        raise ConfigError(
            [f"{path}: has no scheduler section, which is needed here; add scheduler: {{kind: {scheduler}}}"]
        )
    if section.kind != scheduler.value:
        raise ConfigError(
            [f"{path}: scheduler.kind is {section.kind}, not {scheduler} as asked for; name the same twice"]
        )
    if scheduler is SchedulerKind.SLURM and section.slurm.transport == "rest":
        raise ConfigError([f"{path}: scheduler.slurm.transport rest is not in this version; write cli"])
    return Settings(section.slurm, section.kubernetes, loaded.exporter, loaded.pools)


def pool_of(pools: tuple[PoolSection, ...]) -> PoolOf:
    """The controller's own rule and words: the first pool that matches, ``default``, ``unmanaged``."""
    from remediator.policy import Policy, Pool  # noqa: PLC0415 - only where an exporter really runs

    policy = Policy(
        cluster="",
        pools=tuple(
            Pool(
                name=pool.name,
                partition=pool.match.partition,
                label=pool.match.label,
                nodes=frozenset(expand_hostlist(pool.match.nodes)) if pool.match.nodes is not None else None,
            )
            for pool in pools
        ),
    )
    return lambda node: policy.pool_of(node).name


def _source(scheduler: SchedulerKind, settings: Settings, clock: Clock, config: Path | None) -> Source:
    if scheduler is SchedulerKind.SLURM:
        return _slurm(settings.slurm, clock)
    return _kubernetes(settings.kubernetes, clock, config)


def _slurm(settings: Slurm, clock: Clock) -> Source:
    from collector.exporters.slurm import SlurmSource  # noqa: PLC0415 - one scheduler's code is loaded
    from collector.slurm.client import SlurmClient  # noqa: PLC0415

    client = SlurmClient(
        env=dict(settings.env),
        clock=clock,
        timeout_seconds=settings.timeout_seconds,
        read_rpc_per_second=settings.read_rpc_per_second,
    )
    return SlurmSource(client, clock)


def _kubernetes(settings: Kubernetes, clock: Clock, config: Path | None) -> Source:
    from collector.exporters.kubernetes import KubernetesSource  # noqa: PLC0415 - a Slurm site has no client
    from collector.kubernetes.auth import CredentialsError, load_credentials  # noqa: PLC0415
    from collector.kubernetes.client import KubernetesClient  # noqa: PLC0415

    try:
        credentials = load_credentials(settings.kubeconfig, settings.context)
    except CredentialsError as error:
        if config is not None and settings.kubeconfig is not None:
            raise ConfigError([f"{config}: scheduler.kubernetes: {error}"]) from error
        raise
    client = KubernetesClient(
        credentials, clock=clock, timeout_seconds=_KUBERNETES_SECONDS, max_qps=settings.max_qps
    )
    return KubernetesSource(client, clock)


def _slowest_read(scheduler: SchedulerKind, settings: Settings) -> float:
    one = settings.slurm.timeout_seconds if scheduler is SchedulerKind.SLURM else _KUBERNETES_SECONDS
    return one * _CALLS_OF_A_READ * _WAIT_AND_ANSWER
