"""Put an agent together from its settings: the one place that names the real parts."""

from __future__ import annotations

import random
import stat
import time
from collections.abc import Callable
from pathlib import Path

from collector.agent.agent import Agent, Bell, Companion, Watchdog
from collector.agent.board import INTERVALS_SHOWN, Board
from collector.agent.boot import BootId
from collector.agent.bounded import Bounded
from collector.agent.complaints import ProblemLog
from collector.agent.inventory import INVENTORY_SOURCES, GpuInventory, ReadInventory, UnknownInventory
from collector.agent.metrics_http import MetricsServer
from collector.agent.node_metrics import NodeCollector
from collector.agent.poller import SourcePoller
from collector.agent.push import Pusher
from collector.agent.reader import KernelLogReader, LineParser, LineSource
from collector.agent.settings import AgentSettings
from collector.agent.sources import open_sources
from collector.agent.spool import Spool
from collector.agent.stats import AgentCollector, AgentStats, registry_of
from collector.agent.transport import HttpTransport, Transport
from collector.encode import to_dict
from collector.kernel_log import KernelLogParser, LogContext
from collector.kernel_log.follow import open_source
from fleet.clock import Clock, SystemClock
from fleet.observations import Reading


def build_agent(
    settings: AgentSettings,
    *,
    clock: Clock | None = None,
    uniform: Callable[[], float] = random.random,
    source: Callable[[], LineSource] | None = None,
    transport: Transport | None = None,
    inventory: GpuInventory | None = None,
) -> Agent:
    """The agent of ``settings``; parts given here replace the real ones.

    Raises SpoolBusyError when another agent works from the same folder, InvalidInputError when the
    controller's URL cannot be used.
    """
    clock = clock or SystemClock()
    bell = Bell()
    stats = AgentStats()
    boot_id = BootId(settings.boot_id_file)
    transport = transport or HttpTransport(settings, clock)
    problems = ProblemLog(stats, clock)
    spool = Spool(settings.node_spool_dir, clock=clock, report=problems.tell, limit=settings.spool_events)
    board, pollers, gpus = _sources(settings, clock, stats, boot_id, bell)
    reader = KernelLogReader(
        node=settings.node,
        open_source=source or (lambda: open_source(settings.kernel_log)),
        parser_for=lambda epoch: _parser(settings, clock, epoch),
        encode=to_dict,
        boot_id=boot_id,
        spool=spool,
        stats=stats,
        problems=problems,
        clock=clock,
        uniform=uniform,
        wake=bell.ring,
        pause=bell.pause,
        wait_seconds=settings.read_wait_seconds,
    )
    pusher = Pusher(
        settings=settings,
        clock=clock,
        spool=spool,
        transport=transport,
        boot_id=boot_id,
        inventory=inventory or gpus,
        stats=stats,
        uniform=uniform,
    )
    watchdog = Watchdog(clock)
    return Agent(
        settings=settings,
        clock=clock,
        reader=reader,
        spool=spool,
        pusher=pusher,
        stats=stats,
        bell=bell,
        watchdog=watchdog,
        companions=(*pollers, *_metrics(settings, stats, spool, watchdog, board)),
    )


def _metrics(
    settings: AgentSettings, stats: AgentStats, spool: Spool, watchdog: Watchdog, board: Board
) -> list[MetricsServer]:
    address = settings.listen_address()
    if address is None:
        return []
    collector = AgentCollector(
        stats=stats,
        version=settings.version,
        spool=lambda: (spool.depth, spool.durable, spool.dropped),
    )
    return [MetricsServer(address, registry_of(collector, NodeCollector(board)), watchdog.healthy)]


def _sources(
    settings: AgentSettings, clock: Clock, stats: AgentStats, boot_id: BootId, bell: Bell
) -> tuple[Board, list[Companion], GpuInventory]:
    """Each source with a thread of its own, the board they write on, and the GPUs they see."""
    interval = settings.source_interval_seconds
    sources = open_sources(settings, clock)
    board = Board([source.name for source in sources], clock=clock, interval_seconds=interval)
    inventory = ReadInventory(
        clock=clock, boot_id=boot_id.read, changed=bell.ring, shown_seconds=INTERVALS_SHOWN * interval
    )
    pollers: list[Companion] = []
    knows = False
    for source in sources:
        read: Callable[[], Reading] = Bounded(source.name, source.read, seconds=source.limit_seconds)
        if source.name in INVENTORY_SOURCES:
            read, knows = inventory.watching(source.name, read), True
        pollers.append(
            SourcePoller(source.name, read, board=board, stats=stats, clock=clock, interval_seconds=interval)
        )
    return board, pollers, inventory if knows else UnknownInventory()


def _parser(settings: AgentSettings, clock: Clock, epoch: Callable[[], str | None]) -> LineParser:
    return KernelLogParser(
        lambda: LogContext(
            node=settings.node,
            now=clock.now(),
            boot_time=_boot_time(settings.kernel_log, clock),
            boot_id=epoch(),
        )
    )


def _boot_time(path: Path, clock: Clock) -> float | None:
    """When uptime 0 was (epoch s), for the stamps of this machine's own /dev/kmsg.

    Its stamps run with CLOCK_MONOTONIC (printk's local_clock). Uptime stamps in a plain file may be of
    another boot: there the time of receipt, a moment later, is the truth we have.
    """
    try:
        if not stat.S_ISCHR(path.stat().st_mode):
            return None
    except OSError:
        return None
    return clock.now() - time.clock_gettime(time.CLOCK_MONOTONIC)
