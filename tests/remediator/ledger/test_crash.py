"""kill -9 at any instant: what was acknowledged is there, and nothing is there twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.clock import ManualClock
from remediator.ledger import Ledger, open_ledger
from remediator.records import Phase

pytestmark = pytest.mark.slow

# Imports once, then forks a writer for each number it reads: a round costs no start of Python.
_WRITERS = """
import itertools, os, sys
from fleet.clock import SystemClock
from remediator.ledger import DuplicateIntentError, open_ledger
from remediator.records import InboxEvent, Phase, StepRecord

def say(text):
    os.write(1, f"{text}\\n".encode())  # at once and in one piece

def write_for_ever(url, start):
    ledger = open_ledger(url, SystemClock())
    for number in itertools.count(start):
        event = InboxEvent(node="n", boot_id="b", sequence=number, payload={"n": number, "pad": "x" * 500})
        with ledger.transaction() as tx:
            tx.add_events([event], 1.0)
            try:
                tx.append(StepRecord(at=1.0, phase=Phase.INTENT, reason="r", node="n", key=str(number)))
            except DuplicateIntentError:
                pass  # written before the kill, not acknowledged
        say(number)

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        say(f"pid {os.getpid()}")
        write_for_ever(sys.argv[1], int(line))
    os.waitpid(child, 0)
    say("dead")
"""

ROUNDS = 20


@pytest.fixture
def writers(path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", _WRITERS, f"sqlite:///{path}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


def test_nothing_acknowledged_is_lost_and_nothing_doubled(path: Path, writers: subprocess.Popen[str]) -> None:
    chance = random.Random(79)  # noqa: S311 -- moments to kill at, not secrets
    acknowledged: set[int] = set()
    for _ in range(ROUNDS):
        # As a sender does: go on from the first that was not acknowledged.
        start = max(acknowledged, default=-1) + 1
        acknowledged |= _write_until_killed(writers, start, chance.uniform(0.0, 0.1))
        ledger = open_ledger(f"sqlite:///{path}", ManualClock())
        _check(ledger, acknowledged)
        ledger.close()
    assert len(acknowledged) > ROUNDS


def _write_until_killed(writers: subprocess.Popen[str], start: int, seconds: float) -> set[int]:
    assert writers.stdin is not None
    assert writers.stdout is not None
    writers.stdin.write(f"{start}\n")
    writers.stdin.flush()
    pid = int(writers.stdout.readline().removeprefix("pid "))
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    seen = set()
    while (text := writers.stdout.readline()) != "dead\n":
        seen.add(int(text))
    return seen


def _check(ledger: Ledger, acknowledged: set[int]) -> None:
    with ledger.transaction(read_only=True) as tx:
        events = Counter(item.payload["n"] for item in tx.pending_inbox(1_000_000))
        intents = Counter(int(step.key or "-1") for step in tx.steps(limit=1_000_000))
        assert {step.phase for step in tx.steps()} <= {Phase.INTENT}
    in_flight = {max(acknowledged, default=-1) + 1}
    assert acknowledged <= set(events) <= acknowledged | in_flight
    assert events == intents, "both or neither: they were written together"
    assert set(events.values()) <= {1}
