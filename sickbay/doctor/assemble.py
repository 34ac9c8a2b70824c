"""Which checks a configuration needs."""

from __future__ import annotations

from collections.abc import Sequence

from collector.scrape import TargetReading
from fleet.clock import Clock
from fleet.scheduler import SchedulerSnapshot
from remediator.lease import RemainingLease
from rules.model import Catalogue
from sickbay.config import Config
from sickbay.configured import backend_from, exporters_from
from sickbay.doctor import kubernetes, ledger
from sickbay.doctor.doors import DoorChecks
from sickbay.doctor.exporters import ExporterChecks, prometheus_ages
from sickbay.doctor.house import house
from sickbay.doctor.inventory import InventoryChecks
from sickbay.doctor.model import Check, Shared
from sickbay.doctor.slurm import SlurmChecks

_KUBERNETES_SECONDS = 60.0


def checks_for(config: Config, catalogue: Catalogue, clock: Clock) -> tuple[Check, ...]:
    """All checks, in the order in which a person reads them."""
    snapshot = Shared(lambda: _observe(config, clock))
    sight = Shared(lambda: ledger.look(config.store.url))
    scheduler: tuple[Check, ...] = ()
    seconds = _KUBERNETES_SECONDS
    if config.scheduler.kind == "slurm":
        slurm = SlurmChecks(config, clock)
        scheduler = slurm.checks()
        seconds = 6 * config.scheduler.slurm.timeout_seconds + 5
    elif config.scheduler.kind == "kubernetes":
        scheduler = kubernetes.KubernetesChecks(config, clock).checks()
    inventory = InventoryChecks(config, snapshot, sight, clock, seconds)
    exporters = ExporterChecks(
        config,
        catalogue,
        Shared(lambda: _read(config, clock, catalogue)),
        snapshot,
        prometheus_ages(config, clock),
        max(seconds, _metric_seconds(config)),
    )
    return (
        Check("house", lambda: house(config, catalogue), 15.0),
        *ledger.LedgerChecks(config.store.url, sight, clock).checks(),
        *scheduler,
        *inventory.checks(),
        *exporters.checks(),
        *DoorChecks(config, clock).checks(),
    )


def _observe(config: Config, clock: Clock) -> SchedulerSnapshot:
    """As the service looks. The lease was never won, so the backend refuses every write."""
    if config.scheduler.kind == "kubernetes":
        return kubernetes.observe(config, clock)
    return backend_from(config, clock, RemainingLease(clock)).observe()


def _read(config: Config, clock: Clock, catalogue: Catalogue) -> Sequence[TargetReading] | None:
    exporters = exporters_from(config, clock, catalogue)
    if exporters is None:
        return None
    try:
        return exporters.read()
    finally:
        exporters.close()


def _metric_seconds(config: Config) -> float:
    interval = config.metrics.scrape.interval_seconds
    return interval + config.metrics.prometheus.timeout_seconds + 5
