"""From the configuration file to the objects it describes: policy, scheduler backend, catalogue."""

from __future__ import annotations

from collector.scrape import Scraper, ScrapeTarget
from collector.slurm.client import SlurmClient
from fleet.clock import Clock
from fleet.errors import SickbayError
from fleet.findings import Repair
from fleet.scheduler import SchedulerBackend
from remediator.backends.slurm import SlurmBackend
from remediator.lease import RemainingLease
from remediator.policy import BurstPolicy, Policy, Pool
from rules.catalogue import load_catalogue
from rules.metrics.conditions import signals_of
from rules.model import Catalogue
from sickbay.config import Config
from sickbay.config.hostlist import expand_hostlist
from sickbay.metric_path import Exporters

# A write is begun only while more of the lease is left than the call may take: where the lease is short, the
# call gets less time, since otherwise nothing could ever be begun.
_KUBERNETES_SECONDS, _SHARE_OF_LEASE = 10.0, 0.6
# One exporter's deadline, and the part of the interval in which a pass over all of them ends.
_SCRAPE_SECONDS, _SHARE_OF_INTERVAL = 5.0, 0.8


def backend_from(config: Config, clock: Clock, remaining: RemainingLease) -> SchedulerBackend:
    """The scheduler backend the configuration names. It asks ``remaining`` before each write."""
    if config.scheduler.kind == "simulated":
        return _simulated(config, remaining)
    if config.scheduler.kind == "kubernetes":
        return _kubernetes(config, clock, remaining)
    slurm = config.scheduler.slurm
    if slurm.transport == "rest":
        raise SickbayError("scheduler.slurm.transport rest is not in this version; write cli")
    client = SlurmClient(
        env=dict(slurm.env),
        timeout_seconds=slurm.timeout_seconds,
        action_timeout_seconds=min(slurm.timeout_seconds, config.lease.duration_seconds * _SHARE_OF_LEASE),
        read_rpc_per_second=slurm.read_rpc_per_second,
        action_rpc_per_second=slurm.action_rpc_per_second,
        clock=clock,
        may_act=remaining.require,
    )
    return SlurmBackend(client, clock)


def _simulated(config: Config, remaining: RemainingLease) -> SchedulerBackend:
    # Imported here: no real deployment loads the simulator.
    from simulator.wire import RemoteScheduler  # noqa: PLC0415

    settings = config.scheduler.simulated
    if settings.url is None:
        raise SickbayError(
            "scheduler.kind is simulated, but scheduler.simulated.url is missing; write the address of "
            "sickbay simulate serve, or run sickbay demo, which needs no configuration"
        )
    return RemoteScheduler(
        settings.url,
        timeout_seconds=settings.timeout_seconds,
        action_seconds=min(settings.timeout_seconds, config.lease.duration_seconds * _SHARE_OF_LEASE),
        may_act=remaining.require,
    )


def _kubernetes(config: Config, clock: Clock, remaining: RemainingLease) -> SchedulerBackend:
    # Imported here: a Slurm site has no Kubernetes client installed and needs none.
    from collector.kubernetes.auth import load_credentials  # noqa: PLC0415
    from collector.kubernetes.client import KubernetesClient  # noqa: PLC0415
    from remediator.backends.kubernetes import KubernetesBackend  # noqa: PLC0415

    settings = config.scheduler.kubernetes
    credentials = load_credentials(settings.kubeconfig, settings.context)
    client = KubernetesClient(
        credentials,
        clock=clock,
        timeout_seconds=min(_KUBERNETES_SECONDS, config.lease.duration_seconds * _SHARE_OF_LEASE),
        max_qps=settings.max_qps,
        may_act=remaining.require,
    )
    return KubernetesBackend(client, clock)


def catalogue_from(config: Config) -> Catalogue:
    """The shipped rules with the operator's own over them."""
    return load_catalogue(tuple(config.rules.directories))


def exporters_from(config: Config, clock: Clock, catalogue: Catalogue) -> Exporters | None:
    """Where the metric path reads; None where the configuration names nothing to read."""
    if config.metrics.source == "prometheus":
        return _prometheus(config, clock, catalogue)
    targets = config.metrics.scrape.targets
    if not targets:
        return None
    interval = config.metrics.scrape.interval_seconds
    scraper = Scraper(
        [ScrapeTarget(target.node, target.url) for target in targets],
        timeout_seconds=min(_SCRAPE_SECONDS, interval * _SHARE_OF_INTERVAL / 2),
        pass_seconds=interval * _SHARE_OF_INTERVAL,
        clock=clock,
    )
    return Exporters(scraper.scrape_all, frozenset(target.node for target in targets), scraper.close)


def _prometheus(config: Config, clock: Clock, catalogue: Catalogue) -> Exporters:
    # Imported here: a fleet that is scraped directly needs no client of Prometheus.
    try:
        from collector.prometheus.client import PrometheusClient  # noqa: PLC0415
        from collector.prometheus.reader import PrometheusReader  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise SickbayError(
            f"metrics.source is prometheus, but {error.name} is not installed; pip install '.[prometheus]'"
        ) from error

    settings = config.metrics.prometheus
    client = PrometheusClient(settings.url, timeout_seconds=settings.timeout_seconds)
    reader = PrometheusReader(
        client,
        signals_of(rule.when for rule in catalogue.metric_rules if rule.when is not None),
        cluster=config.cluster,
        clock=clock,
        pass_seconds=config.metrics.scrape.interval_seconds * _SHARE_OF_INTERVAL,
    )
    return Exporters(reader.read, None, client.close)


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
        metrics_interval_seconds=config.metrics.scrape.interval_seconds,
    )
