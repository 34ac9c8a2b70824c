"""The control loop: one thread decides, woken by every push; APScheduler does what has a rhythm.

APScheduler's traps and what is done about each: a hung job never runs again silently (the watchdog, and a
deadline inside every scheduler call), overlapping runs (max_instances 1), a backlog after a pause
(coalesce), a late run dropped (no misfire limit), a first run only after one interval (an explicit one).
"""

from __future__ import annotations

import logging
import threading
import time
from datetime import UTC, datetime

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from fleet.errors import SickbayError
from sickbay.assembly import Application
from sickbay.metric_path import MetricPath

log = logging.getLogger(__name__)

#: While a node is in our hands the scheduler is read more often, so that a drain does not wait for a rhythm.
BUSY_READ_SECONDS = 2.0
OBSERVE_TICK_SECONDS = 0.5
#: The longest sleep of the deciding thread: countdowns (settle, retries, probation) end while nobody pushes.
IDLE_PASS_SECONDS = 1.0
RESTLESS_PASS_SECONDS = 0.2
WATCHDOG_SECONDS = 10.0
STUCK_AFTER_SECONDS = 60.0
RETENTION_SECONDS = 90 * 86_400.0
ERROR_PAUSE_SECONDS = 1.0


class ControlLoop:
    """Runs an Application until ``stop``."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._decide, name="decide", daemon=True)
        self._holding = False
        self._last_read = 0.0
        self._last_pass = time.monotonic()
        self._scheduler = BackgroundScheduler(
            timezone=UTC,
            executors={"default": ThreadPoolExecutor(4)},
            job_defaults={"max_instances": 1, "coalesce": True, "misfire_grace_time": None},
        )

    def wake(self) -> None:
        self._wake.set()

    def start(self) -> None:
        """Read the scheduler once (so that the first decision is not blind), then decide and observe."""
        self._observe()
        self._app.service.wake = self.wake
        now = datetime.now(UTC)
        self._scheduler.add_job(
            self._observe_if_due, "interval", seconds=OBSERVE_TICK_SECONDS, next_run_time=now
        )
        path = self._app.metric_path
        if path is not None:
            self._scheduler.add_job(
                self._run_metrics, "interval", seconds=path.interval_seconds, args=[path], next_run_time=now
            )
        self._scheduler.add_job(self._watch, "interval", seconds=WATCHDOG_SECONDS)
        self._scheduler.add_job(self._keep_house, "interval", hours=6)
        self._scheduler.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop deciding, let go of the lease. What runs is finished by its own deadline, under our lease:
        until it has run out nobody else acts.
        """
        self._stopping.set()
        self._wake.set()
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)
        if self._thread.is_alive() or not self._app.controller.idle:
            log.warning("a call is still on its way: the lease is kept and runs out by itself")
            return
        try:
            with self._app.store.transaction() as tx:
                tx.release_lease(self._app.holder)
        except SickbayError as error:
            log.warning("the lease could not be released (%s); it runs out by itself", error)

    # -- deciding

    def _decide(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait(RESTLESS_PASS_SECONDS if self._holding else IDLE_PASS_SECONDS)
            self._wake.clear()
            if self._stopping.is_set():
                return
            self._pass()

    def _pass(self) -> None:
        metrics = self._app.metrics
        started = time.perf_counter()
        try:
            done = self._app.controller.step()
        except SickbayError as error:
            metrics.pass_failures.inc()
            log.error("a pass failed: %s", error)  # noqa: TRY400  # one clear line; nothing unexpected
            self._stopping.wait(ERROR_PAUSE_SECONDS)
            return
        except Exception:  # boundary: the loop outlives any defect; each is logged and counted
            metrics.pass_failures.inc()
            log.exception("a pass ended in an unexpected error")
            self._stopping.wait(ERROR_PAUSE_SECONDS)
            return
        self._holding = done.holding > 0
        self._last_pass = time.monotonic()
        metrics.passes.inc()
        metrics.pass_seconds.observe(time.perf_counter() - started)
        metrics.last_pass.set(time.time())
        metrics.leading.set(1 if done.leading else 0)
        metrics.pages.set(self._app.notifier.count)
        self._app.service.notify_changed()

    # -- observing

    def _observe_if_due(self) -> None:
        interval = self._app.policy.interval_seconds
        due = min(BUSY_READ_SECONDS, interval) if self._holding else interval
        if time.monotonic() - self._last_read >= due:
            self._observe()
            self.wake()

    def _observe(self) -> None:
        self._last_read = time.monotonic()
        self._app.metrics.reads.inc()
        if self._app.controller.observe():
            self._app.metrics.last_read.set(time.time())
        else:
            self._app.metrics.read_failures.inc()
        self._hear_of_agents()

    def _hear_of_agents(self) -> None:
        """Agents may push to the standby: what it stored is our knowledge too."""
        try:
            with self._app.store.transaction(read_only=True) as tx:
                self._app.world.load_contacts(tx.agents())
        except SickbayError as error:
            log.warning("the agents' last words could not be read from the store: %s", error)

    def _run_metrics(self, path: MetricPath) -> None:
        try:
            found = path.run()
        except SickbayError as error:
            self._app.metrics.evaluation_failures.inc()
            log.warning("the metric rules could not be evaluated: %s", error)
            return
        except Exception:  # boundary: the path outlives any defect; each is logged and counted
            self._app.metrics.evaluation_failures.inc()
            log.exception("a pass of the metric path ended in an unexpected error")
            return
        if found:
            self.wake()

    def _watch(self) -> None:
        age = time.monotonic() - self._last_pass
        if age > STUCK_AFTER_SECONDS:
            self._app.notifier.page(
                "loop-stuck", f"the control loop has not completed a pass for {age:.0f} s"
            )

    def _keep_house(self) -> None:
        try:
            with self._app.store.transaction() as tx:
                pruned = tx.prune(self._app.service.clock.now() - RETENTION_SECONDS)
        except SickbayError as error:
            log.warning("retention could not run: %s", error)
            return
        log.info("retention removed %d inbox rows and %d ledger lines", pruned.inbox, pruned.steps)
