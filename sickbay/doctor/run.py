"""Run checks side by side; one that hangs costs its own answer and nobody else's."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace

from fleet.clock import Clock
from fleet.errors import SickbayError
from sickbay.doctor.model import Check, Result, Status, unknown

log = logging.getLogger(__name__)

#: Names of the threads that checks run on.
THREAD_PREFIX = "doctor-"


class _Running:
    """A check on a thread of its own. The thread is a daemon: a hung one does not keep the process."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._done = threading.Event()
        self._results: tuple[Result, ...] = ()
        self._thread = threading.Thread(target=self._work, name=f"{THREAD_PREFIX}{check.name}", daemon=True)
        self._thread.start()

    def results(self, started: float, clock: Clock) -> tuple[Result, ...]:
        seconds = self._check.deadline_seconds
        left = started + seconds - clock.monotonic()
        if self._done.wait(max(0.0, left)):
            return self._results
        return (
            unknown(
                self._check.name,
                f"not answered within {seconds:g} s",
                "find out what hangs there; the other checks were not held up",
            ),
        )

    def _work(self) -> None:
        self._results = _run(self._check)
        self._done.set()


def examine(checks: Sequence[Check], clock: Clock) -> tuple[Result, ...]:
    """The results of all checks, in their order. Never raises; ends within the longest deadline.

    ``clock`` must move with real time.
    """
    started = clock.monotonic()
    running = [_Running(check) for check in checks]
    return _told_once([result for one in running for result in one.results(started, clock)])


def _told_once(results: Sequence[Result]) -> tuple[Result, ...]:
    """What several checks could not see for one cause has its next step at the first of them."""
    first: dict[str, str] = {}
    told: list[Result] = []
    for one in results:
        same = first.setdefault(one.sentence, one.name) if one.status is Status.UNKNOWN else one.name
        told.append(one if same == one.name else replace(one, next_step=f"the same cause as {same}"))
    return tuple(told)


def _run(check: Check) -> tuple[Result, ...]:
    try:
        results = tuple(check.run())
    except SickbayError as error:
        return (unknown(check.name, _one_line(error), "mend that, then run the doctor again"),)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return (unknown(check.name, f"{where}{error.strerror or error}", "check the path and its rights"),)
    except Exception as error:  # the boundary of a check: a fault of ours in one must not hide the others
        log.exception("check %s failed in a way nobody foresaw", check.name)
        said = f"the check itself failed ({type(error).__name__})"
        return (unknown(check.name, said, "please report it with what stands on stderr"),)
    if not results:
        return (unknown(check.name, "the check gave no answer", "please report it"),)
    return results


def _one_line(error: SickbayError) -> str:
    return " ".join(str(error).split())[:300]
