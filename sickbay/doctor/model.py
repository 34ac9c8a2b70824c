"""The words of a check-up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from fleet.errors import SickbayError

T = TypeVar("T")


class Status(StrEnum):
    """UNKNOWN: it could not be looked at; that is neither good nor bad."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Result:
    """What one look has shown. ``name`` is ``area.thing``; ``next_step`` is empty when there is none."""

    name: str
    status: Status
    sentence: str
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """``run`` may take ``deadline_seconds``; then the answer is unknown, and the others go on.

    A SickbayError that it raises is an unknown with that sentence.
    """

    name: str
    run: Callable[[], Iterable[Result]]
    deadline_seconds: float = 30.0


def ok(name: str, sentence: str) -> Result:
    return Result(name, Status.OK, sentence)


def warn(name: str, sentence: str, next_step: str) -> Result:
    return Result(name, Status.WARN, sentence, next_step)


def fail(name: str, sentence: str, next_step: str) -> Result:
    return Result(name, Status.FAIL, sentence, next_step)


def unknown(name: str, sentence: str, next_step: str) -> Result:
    return Result(name, Status.UNKNOWN, sentence, next_step)


def some(names: Iterable[str], limit: int = 5) -> str:
    """``n01, n02 and 7 more``: a list for a sentence."""
    listed = list(names)
    if len(listed) <= limit:
        return ", ".join(listed)
    return f"{', '.join(listed[:limit])} and {len(listed) - limit} more"


def plural(count: int, thing: str) -> str:
    """``1 node``, ``3 nodes``."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


class Shared(Generic[T]):
    """Something that several checks look at: read once, whoever comes first. An error is shared too."""

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._value: list[T] = []
        self._error: SickbayError | None = None

    def get(self) -> T:
        """The value. Raises the SickbayError that reading it has raised."""
        with self._lock:
            if self._error is not None:
                raise self._error
            if not self._value:
                try:
                    self._value.append(self._read())
                except SickbayError as error:
                    self._error = error
                    raise
            return self._value[0]
