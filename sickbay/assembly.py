"""Puts the parts together: from a configuration (or the demo's settings) to a running service's objects.

The one place that knows every concrete class; everything else gets what it needs by its constructor.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass

from collector.slurm.client import SlurmClient
from fleet.clock import Clock
from fleet.errors import SickbayError
from fleet.findings import Repair
from fleet.scheduler import SchedulerBackend
from remediator.backends.slurm import SlurmBackend
from remediator.commands import ConfiguredCommands
from remediator.controller import Controller
from remediator.evaluate import Evaluator, new_incident_id
from remediator.executor import Hands, Runner
from remediator.intake import Intake
from remediator.ledger import Ledger
from remediator.notify import LogNotifier
from remediator.planning import Planner
from remediator.policy import BurstPolicy, Policy, Pool
from remediator.world import World
from rules.catalogue import load_catalogue
from rules.model import Catalogue
from sickbay import __version__
from sickbay.config import Config
from sickbay.config.hostlist import expand_hostlist
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
) -> Application:
    """Wire one controller. ``runner`` decides whether steps run inline (demo) or on threads (serve)."""
    holder = holder or holder_name()
    world = World(extra_nodes=_configured_nodes(policy))
    with store.transaction(read_only=True) as tx:
        world.load_contacts(tx.agents())
    planner = Planner(policy=policy, world=world, clock=clock, holder=holder)
    notifier = LogNotifier(clock)
    controller = Controller(
        store=store,
        backend=backend,
        world=world,
        evaluator=Evaluator(
            policy=policy, catalogue=catalogue, world=world, clock=clock, incident_id=incident_id
        ),
        planner=planner,
        hands=Hands(backend=backend, commands=ConfiguredCommands()),
        runner=runner,
        notifier=notifier,
        clock=clock,
        holder=holder,
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
    return Application(service, controller, world, store, policy, metrics, notifier, holder)


def holder_name() -> str:
    """Who we are to the lease: unique per process, so that a restarted controller is another holder."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"


def _configured_nodes(policy: Policy) -> frozenset[str]:
    named = [pool.nodes for pool in policy.pools if pool.nodes is not None]
    return frozenset().union(*named) if named else frozenset()


def backend_from(config: Config, clock: Clock) -> SchedulerBackend:
    """The scheduler backend the configuration names."""
    if config.scheduler.kind == "simulated":
        raise SickbayError("scheduler.kind simulated is what sickbay demo runs; sickbay serve needs slurm")
    if config.scheduler.kind == "kubernetes":
        raise SickbayError("scheduler.kind kubernetes is not in this version; it serves slurm")
    slurm = config.scheduler.slurm
    if slurm.transport == "rest":
        raise SickbayError("scheduler.slurm.transport rest is not in this version; write cli")
    client = SlurmClient(
        env=dict(slurm.env),
        timeout_seconds=slurm.timeout_seconds,
        read_rpc_per_second=slurm.read_rpc_per_second,
        action_rpc_per_second=slurm.action_rpc_per_second,
        clock=clock,
    )
    return SlurmBackend(client, clock)


def catalogue_from(config: Config) -> Catalogue:
    """The shipped rules with the operator's own over them."""
    return load_catalogue(tuple(config.rules.directories))


def policy_from(config: Config) -> Policy:
    """What the operator allows, in the remediator's own words."""
    return Policy(
        cluster=config.cluster,
        mode=config.mode,
        pools=tuple(
            Pool(
                name=pool.name,
                partition=pool.match.partition,
                label=pool.match.label,
                nodes=frozenset(expand_hostlist(pool.match.nodes)) if pool.match.nodes is not None else None,
                mode=pool.mode,
                max_in_flight=pool.budget.max_in_flight,
                max_unavailable_percent=pool.budget.max_unavailable_percent,
                max_cordons=pool.rate.max_cordons,
                rate_window_seconds=pool.rate.window_seconds,
            )
            for pool in config.pools
        ),
        rule_modes=dict(config.rules.modes),
        disabled_rules=frozenset(config.rules.disabled),
        domains={name: frozenset(expand_hostlist(nodes)) for name, nodes in config.domains.nodes.items()},
        burst=BurstPolicy(
            min_nodes=config.domains.burst.min_nodes,
            pool_percent=config.domains.burst.pool_percent,
            window_seconds=config.domains.burst.window_seconds,
        ),
        settle_seconds=config.settle_seconds,
        interval_seconds=config.interval_seconds,
        requeue_jobs=config.jobs.requeue,
        exclude_node=config.jobs.exclude_node,
        max_requeues=config.jobs.max_requeues,
        repair_enabled=config.repair.enabled,
        ladder=tuple(config.repair.ladder),
        max_repair_attempts=config.repair.max_attempts,
        repair_commands={Repair(step): tuple(argv) for step, argv in config.repair.commands.items()},
        verify_command=tuple(config.verify.command) if config.verify.command is not None else None,
        verify_timeout_seconds=config.verify.timeout_seconds,
        probation_seconds=config.verify.probation_seconds,
        lease_seconds=config.lease.duration_seconds,
    )
