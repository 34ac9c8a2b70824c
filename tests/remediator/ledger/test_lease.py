"""The lease, and the fence that keeps a late leader from writing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fleet.clock import ManualClock
from remediator.ledger import Ledger, LostLeaseError, open_ledger
from remediator.records import Lease, Phase
from tests.support.ledger_records import line

pytestmark = pytest.mark.slow


def _acquire(ledger: Ledger, holder: str, now: float) -> Lease | None:
    with ledger.transaction() as tx:
        return tx.acquire_lease(holder, now, 15.0)


def test_the_first_takes_it_and_renews_it(ledger: Ledger) -> None:
    assert _acquire(ledger, "a", 100.0) == Lease("a", 115.0, 1)
    assert _acquire(ledger, "a", 110.0) == Lease("a", 125.0, 1)
    assert _acquire(ledger, "a", 900.0) == Lease("a", 915.0, 1), "late, but nobody took it"
    with ledger.transaction(read_only=True) as tx:
        assert tx.lease() == Lease("a", 915.0, 1)


@pytest.mark.parametrize(("now", "taken"), [(114.9, None), (115.0, Lease("b", 130.0, 2))])
def test_another_waits_until_it_expires(ledger: Ledger, now: float, taken: Lease | None) -> None:
    _acquire(ledger, "a", 100.0)
    assert _acquire(ledger, "b", now) == taken


def test_a_take_over_ends_the_other_term(ledger: Ledger) -> None:
    _acquire(ledger, "a", 100.0)
    _acquire(ledger, "b", 120.0)
    assert _acquire(ledger, "a", 121.0) is None
    assert _acquire(ledger, "a", 135.0) == Lease("a", 150.0, 3)


def test_a_release_frees_it_at_once_and_the_epoch_goes_on(ledger: Ledger) -> None:
    _acquire(ledger, "a", 100.0)
    with ledger.transaction() as tx:
        tx.release_lease("b")
        assert tx.lease() == Lease("a", 115.0, 1)
        tx.release_lease("a")
        assert tx.lease() is None
    assert _acquire(ledger, "b", 101.0) == Lease("b", 116.0, 2)
    with ledger.transaction() as tx:
        tx.release_lease("b")
    assert _acquire(ledger, "b", 102.0) == Lease("b", 117.0, 3)


def test_the_leader_writes_under_its_fence(ledger: Ledger) -> None:
    lease = _acquire(ledger, "a", 100.0)
    _acquire(ledger, "a", 110.0)
    with ledger.transaction(fence=lease) as tx:
        tx.append(line(Phase.INTENT, "k"))
        tx.release_lease("a")
    with ledger.transaction(read_only=True) as tx:
        assert len(tx.steps()) == 1


def _taken_over(ledger: Ledger) -> None:
    _acquire(ledger, "b", 200.0)


def _taken_over_and_back(ledger: Ledger) -> None:
    _acquire(ledger, "b", 200.0)
    _acquire(ledger, "a", 300.0)


def _released(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        tx.release_lease("a")


@pytest.mark.parametrize("happens", [_taken_over, _taken_over_and_back, _released])
def test_the_store_refuses_a_late_leader(ledger: Ledger, happens: object) -> None:
    lease = _acquire(ledger, "a", 100.0)
    assert callable(happens)
    happens(ledger)
    with pytest.raises(LostLeaseError, match="nothing was written"), ledger.transaction(fence=lease) as tx:
        tx.append(line(Phase.INTENT, "k"))
    with ledger.transaction(read_only=True) as tx:
        assert tx.steps() == []


def test_a_fence_without_any_lease_is_refused(ledger: Ledger) -> None:
    with pytest.raises(LostLeaseError), ledger.transaction(fence=Lease("a", 1.0, 1)):
        pass


_CONTENDER = """
import sys
from fleet.clock import SystemClock
from fleet.findings import Step
from remediator.ledger import LostLeaseError, open_ledger
from remediator.records import Phase, StepRecord

url, name = sys.argv[1:]
ledger = open_ledger(url, SystemClock())
clock = SystemClock()
held = None
print("ready", flush=True)
sys.stdin.readline()
for turn in range(150):
    with ledger.transaction() as tx:
        taken = tx.acquire_lease(name, clock.now(), 0.004)
    held = taken or held  # never lets go by itself: only the fence stops it
    if held is None:
        continue
    if turn % 3 == 0:
        clock.sleep(0.005)  # outlives its own lease
    try:
        with ledger.transaction(fence=held) as tx:
            tx.append(StepRecord(at=clock.now(), phase=Phase.DECISION, reason=name, node="n",
                                 payload={"epoch": held.epoch}))
    except LostLeaseError:
        held = None
        print("lost", flush=True)
"""


def test_two_processes_never_write_in_one_epoch_nor_out_of_order(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    contenders = [
        subprocess.Popen(
            [sys.executable, "-c", _CONTENDER, url, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b")
    ]
    for contender in contenders:
        assert contender.stdout is not None
        assert contender.stdout.readline() == "ready\n"
    for contender in contenders:
        assert contender.stdin is not None
        contender.stdin.write("go\n")
        contender.stdin.flush()
    said = [contender.communicate(timeout=60)[0] for contender in contenders]
    assert [contender.returncode for contender in contenders] == [0, 0]

    ledger = open_ledger(url, ManualClock())
    with ledger.transaction(read_only=True) as tx:
        lines = [(step.payload["epoch"], step.reason) for step in tx.steps(limit=1000)]
    ledger.close()
    epochs = [epoch for epoch, _ in lines]
    assert epochs == sorted(epochs), "a late leader's line would carry an older epoch"
    assert len(set(lines)) == len(set(epochs)), "one holder per epoch"
    assert len({name for _, name in lines}) == 2, "both led at some time"
    assert "lost" in "".join(said), "the fence was put to the test"
