"""Telling people. One page per cause: the same key is told again only after a while."""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from fleet.clock import Clock

log = logging.getLogger(__name__)
REPEAT_SECONDS = 3600.0


class Notifier(Protocol):
    def notice(self, key: str, text: str) -> None:
        """Tell a person some time today. Never raises; the same ``key`` within an hour is one notice."""
        ...

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
        if self._is_new(key):
            with self._lock:
                self.count += 1
                self.pages = [*self.pages[-99:], (self._clock.now(), key, text)]
            log.error("page: %s", text)

    def notice(self, key: str, text: str) -> None:
        if self._is_new(key):
            log.warning("notice: %s", text)

    def _is_new(self, key: str) -> bool:
        now = self._clock.now()
        with self._lock:
            last = self._told.get(key)
            if last is not None and now - last < REPEAT_SECONDS:
                return False
            self._told = {k: at for k, at in self._told.items() if now - at < REPEAT_SECONDS} | {key: now}
            return True
