"""Checks side by side: a hanging one, a failing one and a broken one cost their own answers only."""

from __future__ import annotations

import threading
import time

import pytest

from fleet.clock import SystemClock
from fleet.errors import UnavailableError
from sickbay.doctor.model import Check, Shared, Status, fail, ok, some
from sickbay.doctor.run import examine


def test_one_that_hangs_is_unknown_and_blocks_nobody() -> None:
    release = threading.Event()

    def hang() -> tuple[()]:
        release.wait(30)
        return ()

    started = time.monotonic()
    results = examine(
        [
            Check("hangs", hang, 0.2),
            Check("good", lambda: [ok("good", "fine")], 5.0),
            Check("bad", lambda: [fail("bad", "broken", "mend it")], 5.0),
        ],
        SystemClock(),
    )
    took = time.monotonic() - started
    release.set()
    assert [(one.name, one.status) for one in results] == [
        ("hangs", Status.UNKNOWN),
        ("good", Status.OK),
        ("bad", Status.FAIL),
    ]
    assert "0.2 s" in results[0].sentence
    assert took < 3


def test_errors_are_unknown_with_their_sentence(caplog: pytest.LogCaptureFixture) -> None:
    def refuses() -> list[object]:
        raise UnavailableError("slurmctld\ndoes not answer")

    def cannot_read() -> list[object]:
        raise PermissionError(13, "Permission denied", "/etc/x")

    def is_broken() -> list[object]:
        raise ZeroDivisionError

    results = examine(
        [
            Check("refuses", refuses),  # type: ignore[arg-type]
            Check("cannot", cannot_read),  # type: ignore[arg-type]
            Check("broken", is_broken),  # type: ignore[arg-type]
            Check("silent", list),
        ],
        SystemClock(),
    )
    assert [one.status for one in results] == [Status.UNKNOWN] * 4
    assert results[0].sentence == "slurmctld does not answer"
    assert results[1].sentence == "/etc/x: Permission denied"
    assert "ZeroDivisionError" in results[2].sentence
    assert "ZeroDivisionError" in caplog.text
    assert all(one.next_step for one in results)


def test_one_cause_is_told_once() -> None:
    reads: list[int] = []

    def read() -> int:
        reads.append(1)
        raise UnavailableError("nobody there")

    shared: Shared[int] = Shared(read)
    results = examine(
        [Check(name, lambda: [ok("x", str(shared.get()))]) for name in ("first", "second")], SystemClock()
    )
    assert len(reads) == 1
    assert results[1].next_step == "the same cause as first"
    assert results[0].next_step != results[1].next_step


def test_shared_reads_once() -> None:
    reads: list[int] = []
    shared = Shared(lambda: reads.append(1) or "value")
    assert (shared.get(), shared.get(), len(reads)) == ("value", "value", 1)


@pytest.mark.parametrize(
    ("names", "said"),
    [([], ""), (["a"], "a"), (["a", "b", "c"], "a, b and 1 more")],
)
def test_a_list_for_a_sentence(names: list[str], said: str) -> None:
    assert some(names, 2) == said
