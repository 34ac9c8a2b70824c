"""Keeps the log off a screen that is drawn on."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

PAGES = "remediator.notify"


@contextlib.contextmanager
def quiet_logging() -> Iterator[list[str]]:
    """Keeps the log off the screen; the list holds its errors at the end. Pages are in the story already."""
    errors: list[str] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.ERROR and record.name != PAGES:
                errors.append(self.format(record))

    root = logging.getLogger()
    keeper = Keeper(logging.WARNING)
    keeper.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    others, root.handlers = root.handlers, [keeper]
    try:
        yield errors
    finally:
        root.handlers = others
