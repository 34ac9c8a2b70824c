"""Puts the parts together: from a configuration (or the demo's settings) to a running service's objects.

The one place that knows every concrete class; everything else gets what it needs by its constructor.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass

from fleet.clock import Clock
from fleet.scheduler import SchedulerBackend
from remediator.casebook import Casebook, new_incident_id
from remediator.commands import CommandRunner, ConfiguredCommands
from remediator.controller import Controller
from remediator.evaluate import Evaluator
from remediator.executor import Hands, Runner
from remediator.intake import Intake
from remediator.lease import RemainingLease
from remediator.ledger import Ledger
from remediator.notify import LogNotifier
from remediator.planning import Planner
from remediator.policy import Policy
from remediator.sight import MetricInbox
from remediator.world import World
from rules.model import Catalogue
from sickbay import __version__
from sickbay.metric_path import Exporters, MetricPath
from sickbay.metrics import ControllerMetrics
from sickbay.service import ControllerService


@dataclass(frozen=True, slots=True)
class Application:
    """The objects of one running controller."""

    service: ControllerService
    controller: Controller
    world: World
    store: Ledger
    policy: Policy
    metrics: ControllerMetrics
    notifier: LogNotifier
    holder: str
    metric_path: MetricPath | None = None


def assemble(
    *,
    policy: Policy,
    store: Ledger,
    backend: SchedulerBackend,
    catalogue: Catalogue,
    clock: Clock,
    runner: Runner,
    incident_id: Callable[[], str] = new_incident_id,
    holder: str | None = None,
    remaining: RemainingLease | None = None,
    exporters: Exporters | None = None,
    commands: CommandRunner | None = None,
) -> Application:
    """Wire one controller. ``runner`` decides whether steps run inline (demo) or on threads (serve);
    ``remaining`` is the lease that the backend asks before each write; ``exporters`` feed the metric path;
    ``commands`` run the operator's own programs, as processes by default.
    """
    holder = holder or holder_name()
    world = World(extra_nodes=_configured_nodes(policy))
    with store.transaction(read_only=True) as tx:
        world.load_contacts(tx.agents())
    planner = Planner(policy=policy, world=world, clock=clock, holder=holder)
    notifier = LogNotifier(clock)
    casebook = Casebook(policy=policy, world=world, clock=clock, incident_id=incident_id)
    inbox = MetricInbox()
    controller = Controller(
        store=store,
        backend=backend,
        world=world,
        evaluator=Evaluator(policy=policy, catalogue=catalogue, world=world, clock=clock, casebook=casebook),
        casebook=casebook,
        metrics=inbox,
        planner=planner,
        hands=Hands(backend=backend, commands=commands or ConfiguredCommands()),
        runner=runner,
        notifier=notifier,
        clock=clock,
        holder=holder,
        remaining=remaining,
    )
    metrics = ControllerMetrics(__version__)
    service = ControllerService(
        version=__version__,
        store=store,
        world=world,
        planner=planner,
        controller=controller,
        intake=Intake(store=store, world=world, clock=clock),
        metrics=metrics,
        clock=clock,
    )
    path = None
    if exporters is not None:
        path = MetricPath(
            exporters,
            catalogue=catalogue,
            policy=policy,
            world=world,
            store=store,
            inbox=inbox,
            metrics=metrics,
            clock=clock,
        )
    return Application(service, controller, world, store, policy, metrics, notifier, holder, path)


def holder_name() -> str:
    """Who we are to the lease: unique per process, so that a restarted controller is another holder."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"


def _configured_nodes(policy: Policy) -> frozenset[str]:
    named = [pool.nodes for pool in policy.pools if pool.nodes is not None]
    return frozenset().union(*named) if named else frozenset()
