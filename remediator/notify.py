"""Telling people. One page per cause: the same key is told again only after a while."""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from fleet.clock import Clock

log = logging.getLogger(__name__)
REPEAT_SECONDS = 3600.0


class Notifier(Protocol):
    def page(self, key: str, text: str) -> None:
        """Tell a person now. Never raises; the same ``key`` within an hour is one page."""
        ...


class LogNotifier:
    """Writes pages to the log at error level and counts them; what reads the log does the rest."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._told: dict[str, float] = {}
        self.pages: list[tuple[float, str, str]] = []
        self.count = 0

    def page(self, key: str, text: str) -> None:
        now = self._clock.now()
        with self._lock:
            last = self._told.get(key)
            if last is not None and now - last < REPEAT_SECONDS:
                return
            self._told[key] = now
            self.count += 1
            self.pages = [*self.pages[-99:], (now, key, text)]
        log.error("page: %s", text)
