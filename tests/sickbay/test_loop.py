"""What the loop learns from the store it shares with another controller."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.clock import ManualClock
from remediator.executor import InlineRunner
from remediator.ledger import open_ledger
from remediator.policy import Policy
from remediator.records import AgentContact
from remediator.world import World
from rules.catalogue import load_catalogue
from sickbay.assembly import Application, assemble
from sickbay.loop import ControlLoop
from simulator.cluster import SimulatedCluster

HEARTBEAT_SECONDS = 15


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[ManualClock, Application, Application]]:
    """Two controllers over one ledger and one cluster."""
    clock = ManualClock()
    cluster = SimulatedCluster(clock=clock, nodes=2, seed=1, busy_share=0.0)
    stores = [open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}", clock) for _ in range(2)]
    ours, theirs = (
        assemble(
            policy=Policy(cluster="test"),
            store=store,
            backend=cluster.scheduler,
            catalogue=load_catalogue(),
            clock=clock,
            runner=InlineRunner(),
        )
        for store in stores
    )
    yield clock, ours, theirs
    for store in stores:
        store.close()


def test_the_leader_hears_of_agents_that_push_to_the_standby(
    pair: tuple[ManualClock, Application, Application],
) -> None:
    clock, leader, standby = pair
    loop = ControlLoop(leader)
    standby.controller.observe()
    for _ in range(12):
        standby.service.ingest_events("n01", {"node": "n01", "boot_id": "boot-a"}, [])
        loop._observe()
        contact = leader.world.contact("n01")
        assert contact is not None
        assert clock.now() - contact.last_seen < leader.policy.agent_silence_seconds / 2 + HEARTBEAT_SECONDS
        assert leader.service.why("n01")["verdict"] == "healthy"
        clock.advance(HEARTBEAT_SECONDS)
    standby.service.ingest_events("n01", {"node": "n01", "boot_id": "boot-b"}, [])
    loop._observe()
    contact = leader.world.contact("n01")
    assert contact is not None
    assert contact.boot_id == "boot-b"


def test_an_older_word_does_not_replace_a_newer_one() -> None:
    world = World()
    first = AgentContact(node="n01", boot_id="boot-a", last_seen=10.0, first_seen_boot=5.0)
    world.heard(replace(first, boot_id="boot-b", last_seen=20.0, first_seen_boot=20.0))
    world.load_contacts({"n01": first})
    contact = world.contact("n01")
    assert contact is not None
    assert (contact.boot_id, contact.contested) == ("boot-b", False)
