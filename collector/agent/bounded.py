"""A read that may hang, waited for only so long, and never started twice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from fleet.observations import Problem, ProblemReason, Reading


class Bounded:
    """Reads in a thread of its own; one at a time. Not thread-safe: one caller.

    The readers have deadlines, but not for everything: a card whose firmware hangs holds a read of sysfs,
    a name server a look-up, a dead file system the start of a program. Such a call cannot be ended. It is
    left where it is, its answer is dropped, and nothing is started beside it until it has come back.
    """

    def __init__(self, source: str, read: Callable[[], Reading], *, seconds: float) -> None:
        self._source = source
        self._read = read
        self._seconds = seconds
        self._left_behind: Future[Reading] | None = None

    def __call__(self) -> Reading:
        """What the read gives within ``seconds``, else the problem ``timeout``. Raises what it raises."""
        if self._left_behind is not None:
            if not self._left_behind.done():
                return self._late("an earlier read has not come back; none is started beside it")
            self._left_behind = None
        future: Future[Reading] = Future()
        threading.Thread(
            target=_fulfil, args=(future, self._read), name=f"agent-{self._source}-read", daemon=True
        ).start()
        try:
            return future.result(self._seconds)
        except TimeoutError:
            if future.done():
                raise  # the read's own
            self._left_behind = future
            return self._late(f"no answer within {self._seconds:g} s")

    def _late(self, message: str) -> Reading:
        problem = Problem(source=self._source, reason=ProblemReason.TIMEOUT, message=message)
        return Reading((problem,), ok=False)


def _fulfil(future: Future[Reading], read: Callable[[], Reading]) -> None:
    """Boundary of the reading thread: whatever the read raises is the caller's to log and count."""
    try:
        future.set_result(read())
    except BaseException as error:  # noqa: BLE001 - handed on, not swallowed
        future.set_exception(error)
