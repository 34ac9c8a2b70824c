"""Pools, GPUs, drains and agents against what a scheduler shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from fleet.clock import ManualClock, SystemClock
from fleet.errors import UnavailableError
from fleet.scheduler import NodeRecord, NodeState, Owner, Reason, SchedulerSnapshot
from sickbay.config import parse_config
from sickbay.doctor.inventory import InventoryChecks
from sickbay.doctor.ledger import Heard, LedgerSight
from sickbay.doctor.model import Shared, Status
from sickbay.doctor.run import examine

NOW = ManualClock().now()
NO_LEDGER = LedgerSight(None, None, frozenset())


def node(name: str, *partitions: str, gpus: int | None = 8, **more: Any) -> NodeRecord:
    more.setdefault("state", NodeState.IDLE)
    return NodeRecord(name=name, partitions=partitions, gpus_total=gpus, **more)


def drained(name: str, text: str, owner: Owner) -> NodeRecord:
    return node(name, "gpu", state=NodeState.DRAINED, owner=owner, reason=Reason(text, "root", NOW))


def look(
    *nodes: NodeRecord, ledger: LedgerSight | None = NO_LEDGER, problems: tuple[str, ...] = (), **more: Any
) -> Mapping[str, tuple[Status, str]]:
    def read() -> LedgerSight:
        if ledger is None:
            raise UnavailableError("the ledger cannot be read")
        return ledger

    config = parse_config(
        {"cluster": "a", "scheduler": {"kind": "slurm"}, "metrics": {"source": "scrape"}, **more}
    )
    snapshot = SchedulerSnapshot(NOW, {one.name: one for one in nodes}, (), problems)
    checks = InventoryChecks(config, Shared(lambda: snapshot), Shared(read), ManualClock(), 5.0)
    return {one.name: (one.status, one.sentence) for one in examine(checks.checks(), SystemClock())}


def pool(name: str, **match: str) -> dict[str, Any]:
    return {"name": name, "match": match}


def test_all_is_well() -> None:
    sight = LedgerSight(1, {"n1": Heard("0.1.0", NOW - 5), "n2": Heard("0.1.0", NOW)}, frozenset())
    found = look(node("n1", "gpu"), node("n2", "gpu"), ledger=sight, pools=[pool("g", partition="gpu")])
    assert {status for status, _ in found.values()} == {Status.OK}
    assert found["scheduler.gpus"][1] == "16 GPUs on 2 nodes"


def test_a_pool_that_matches_nothing_names_what_there_is() -> None:
    found = look(node("n1", "gpu"), node("n2", "big"), pools=[pool("g", partition="gpuu")])
    status, said = found["scheduler.pool.g"]
    assert status is Status.FAIL
    assert "big, gpu" in said
    assert found["scheduler.outside"][0] is Status.WARN


def test_a_pool_whose_nodes_an_earlier_one_has() -> None:
    found = look(
        node("n1", "gpu", "all"), pools=[pool("wide", partition="all"), pool("narrow", partition="gpu")]
    )
    assert found["scheduler.pool.wide"][0] is Status.OK
    assert found["scheduler.pool.narrow"][0] is Status.FAIL
    assert "earlier pool" in found["scheduler.pool.narrow"][1]


def test_a_pool_without_gpus() -> None:
    found = look(node("n1", "cpu", gpus=0), node("n2", "gpu"), pools=[pool("c", partition="cpu")])
    assert found["scheduler.pool.c"][0] is Status.WARN
    assert "n2" in found["scheduler.outside"][1]


def test_nodes_that_nobody_knows() -> None:
    found = look(
        node("n01", "gpu"),
        pools=[pool("g", nodes="n[01-02]")],
        domains={"nodes": {"rack": "n[01-01]"}},
    )
    assert found["scheduler.unknown_nodes"][0] is Status.WARN
    assert "pool g" in found["scheduler.unknown_nodes"][1]
    assert "n02" in found["scheduler.unknown_nodes"][1]


@pytest.mark.parametrize(
    ("nodes", "name", "status"),
    [
        ([node("n1", gpus=0)], "scheduler.gpus", Status.FAIL),
        ([node("n1", gpus=None)], "scheduler.gpus_unknown", Status.UNKNOWN),
        ([node("n1", flags=("INVALID_REG",))], "scheduler.invalid_registration", Status.WARN),
        ([], "scheduler.nodes", Status.FAIL),
    ],
)
def test_gpus(nodes: list[NodeRecord], name: str, status: Status) -> None:
    assert look(*nodes)[name][0] is status


def test_records_that_were_not_understood_are_told() -> None:
    found = look(node("n1"), problems=("n2: odd state",))
    assert found["scheduler.reading"][0] is Status.WARN
    assert "n2: odd state" in found["scheduler.reading"][1]


OURS = "sickbay:i-1:gpu-fell-off-bus XID 79"


def test_drains_are_told_by_owner() -> None:
    sight = LedgerSight(1, {}, frozenset({"i-1"}))
    found = look(drained("n1", OURS, Owner.SICKBAY), drained("n2", "bad dimm", Owner.FOREIGN), ledger=sight)
    assert found["scheduler.drains"][0] is Status.OK
    assert "1 node out of service by sickbay, 1 by others" in found["scheduler.drains"][1]
    assert "bad dimm" in found["scheduler.drains"][1]
    assert "scheduler.left_overs" not in found


@pytest.mark.parametrize(
    ("ledger", "status"),
    [(LedgerSight(1, {}, frozenset({"i-2"})), Status.WARN), (NO_LEDGER, Status.WARN), (None, Status.UNKNOWN)],
)
def test_our_mark_without_an_incident(ledger: LedgerSight | None, status: Status) -> None:
    found = look(drained("n1", OURS, Owner.SICKBAY), ledger=ledger)
    assert found["scheduler.left_overs"][0] is status


def test_agents_that_never_spoke_and_that_fell_silent() -> None:
    sight = LedgerSight(1, {"n1": Heard("0.1.0", NOW - 600)}, frozenset())
    found = look(node("n1"), node("n2"), node("cpu", gpus=0), ledger=sight)
    assert found["agents.never"] == (Status.WARN, "1 of 2 GPU nodes never pushed: n2")
    assert found["agents.silent"][0] is Status.WARN
    assert "n1" in found["agents.silent"][1]
    assert "agents.heard" not in found


@pytest.mark.parametrize(
    ("ledger", "status"),
    [(NO_LEDGER, Status.OK), (LedgerSight(9, None, frozenset()), Status.UNKNOWN), (None, Status.UNKNOWN)],
)
def test_agents_where_the_ledger_says_nothing(ledger: LedgerSight | None, status: Status) -> None:
    assert look(node("n1"), ledger=ledger)["agents.heard"][0] is status
