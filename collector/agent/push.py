"""The pusher: heartbeat and waiting events to the controller, until it has answered for each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from collector.agent.backoff import Backoff
from collector.agent.boot import BootId
from collector.agent.inventory import GpuInventory
from collector.agent.settings import AgentSettings, read_token
from collector.agent.spool import Entry, Spool
from collector.agent.stats import AgentStats, PushFailure
from collector.agent.transport import Answer, PushError, Transport
from fleet.clock import Clock
from fleet.errors import InvalidInputError

log = logging.getLogger(__name__)

REJECTIONS_LOGGED = 5


@dataclass(frozen=True, slots=True)
class PushOutcome:
    """How one push ended and how long to rest (s). ``refused``: a new event is no reason to hurry."""

    ok: bool
    wait_seconds: float
    refused: bool = False


class Pusher:
    """Sends what waits in the spool. Called by one thread."""

    def __init__(
        self,
        *,
        settings: AgentSettings,
        clock: Clock,
        spool: Spool,
        transport: Transport,
        boot_id: BootId,
        inventory: GpuInventory,
        stats: AgentStats,
        uniform: Callable[[], float],
    ) -> None:
        """``uniform``: a random number in [0, 1), for the jitter."""
        self._settings = settings
        self._clock = clock
        self._spool = spool
        self._transport = transport
        self._boot_id = boot_id
        self._inventory = inventory
        self._stats = stats
        self._backoff = Backoff(uniform)
        self._token = settings.token
        self._batch = settings.batch_events
        self._complaint: tuple[PushFailure, str] | None = None

    def push(self) -> PushOutcome:
        """One heartbeat with everything that waits. Never raises for what the network does."""
        try:
            self._deliver(self._spool.peek(self._batch))
            while waiting := self._spool.peek(self._batch):
                self._deliver(waiting)
        except PushError as error:
            return self._failed(error)
        if self._complaint is not None:
            log.info("the controller answers again (events waiting: %d)", self._spool.depth)
            self._complaint = None
        self._backoff.reset()
        return PushOutcome(ok=True, wait_seconds=self._settings.heartbeat_seconds)

    def close(self) -> None:
        self._transport.close()

    # -- one batch

    def _deliver(self, entries: Sequence[Entry]) -> None:
        try:
            self._settle(entries, self._post(entries))
        except PushError as error:
            if error.failure not in (PushFailure.BAD_REQUEST, PushFailure.TOO_LARGE) or not entries:
                raise
            # Is it an event that it cannot take, or everything we say? Only a heartbeat that passes proves
            # the former: a controller of another version must not cost us the whole spool.
            self._post([])
            self._isolate(entries, error)
            return
        self._batch = min(self._settings.batch_events, 2 * self._batch)

    def _isolate(self, entries: Sequence[Entry], error: PushError) -> None:
        """Halve a refused batch until the one event that is at fault stands alone; give that one up."""
        if len(entries) == 1:
            self._give_up(entries[0], str(error))
            return
        middle = len(entries) // 2
        if error.failure is PushFailure.TOO_LARGE:
            self._batch = max(1, middle)
        for half in (entries[:middle], entries[middle:]):
            try:
                self._settle(half, self._post(half))
            except PushError as again:
                if again.failure not in (PushFailure.BAD_REQUEST, PushFailure.TOO_LARGE):
                    raise
                self._isolate(half, again)

    def _post(self, entries: Sequence[Entry]) -> Answer:
        self._stats.push_attempt()
        boot_id = self._boot_id.read()
        if boot_id is None:
            raise PushError(
                PushFailure.NO_BOOT_ID,
                f"cannot read a boot ID from {self._settings.boot_id_file}: nothing is sent, "
                "because the controller could not tell this boot from an earlier one",
            )
        answer = self._transport.post(self._payload(boot_id, entries), self._token)
        self._stats.push_succeeded(self._clock.now())
        return answer

    def _payload(self, boot_id: str, entries: Sequence[Entry]) -> dict[str, Any]:
        gpus = self._inventory.current(boot_id)
        return {
            "agent": {
                "node": self._settings.node,
                "version": self._settings.version,
                "boot_id": boot_id,
                "gpus": None
                if gpus is None
                else [{"uuid": gpu.uuid, "index": gpu.index, "pci": gpu.pci} for gpu in gpus],
            },
            "events": [
                {**entry.event, "boot_id": entry.boot_id, "sequence": entry.sequence} for entry in entries
            ],
        }

    # -- what came of it

    def _settle(self, entries: Sequence[Entry], answer: Answer) -> None:
        now = self._clock.monotonic()
        reasons = {index: reason for index, reason in answer.rejected if 0 <= index < len(entries)}
        for index, entry in enumerate(entries):
            if index not in reasons and entry.read_at is not None:
                self._stats.latency(now - entry.read_at)
        self._spool.settle([entry.sequence for entry in entries])
        if not reasons:
            return
        self._stats.rejected(len(reasons))
        for index, reason in list(reasons.items())[:REJECTIONS_LOGGED]:
            log.warning("the controller rejected %s: %s", _name(entries[index]), reason)
        if len(reasons) > REJECTIONS_LOGGED:
            log.warning("... and %d more of the same push", len(reasons) - REJECTIONS_LOGGED)

    def _give_up(self, entry: Entry, reason: str) -> None:
        log.warning("given up: %s: %s", _name(entry), reason)
        self._stats.rejected(1)
        self._spool.settle([entry.sequence])

    def _failed(self, error: PushError) -> PushOutcome:
        self._stats.push_failed(error.failure)
        complaint = (error.failure, error.detail)
        # Once a change, not once a try: an outage of a night is two lines.
        if self._complaint is None or self._complaint != complaint:
            log.warning("%s (events waiting: %d)", error, self._spool.depth)
        self._complaint = complaint
        if error.refused and self._new_token():
            return PushOutcome(ok=False, wait_seconds=0.0)
        refused = error.refused or error.failure is PushFailure.BAD_REQUEST
        wait = self._backoff.refused() if refused else self._backoff.failed()
        return PushOutcome(
            ok=False, wait_seconds=max(wait, error.retry_after_seconds or 0.0), refused=refused
        )

    def _new_token(self) -> bool:
        """True when the token file holds another token than the refused one."""
        if self._settings.token_file is None:
            return False
        try:
            token = read_token(self._settings.token_file)
        except InvalidInputError as error:
            log.warning("%s", error)
            return False
        changed, self._token = token != self._token, token
        return changed


def _name(entry: Entry) -> str:
    event = entry.event
    kind, code = event.get("kind"), event.get("code")
    return f"event {entry.sequence} ({kind}{'' if code is None else f' {code}'}, boot {entry.boot_id})"
