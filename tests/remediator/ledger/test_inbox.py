"""The inbox: nothing stored twice, nothing lost, events before alerts, oldest first."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.clock import ManualClock
from remediator.ledger import Ledger, LedgerError, open_ledger
from remediator.records import Added, AgentContact, InboxEvent
from tests.support.ledger_records import event


def test_a_batch_counts_what_is_new_and_what_repeats(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        assert tx.add_events([event(1), event(2), event(1)], 5.0) == Added(2, 1)
    with ledger.transaction() as tx:
        assert tx.add_events([event(2), event(3)], 6.0) == Added(1, 1)
        assert tx.add_events([], 6.0) == Added(0, 0)
        assert tx.pending_inbox_count() == 3
        items = tx.pending_inbox(10)
    assert [item.payload["n"] for item in items] == [1, 2, 3]
    assert [item.received_at for item in items] == [5.0, 5.0, 6.0]
    assert {item.kind for item in items} == {"event"}


@pytest.mark.parametrize(
    "other", [event(1, node="n02"), event(1, boot_id="boot-2"), event(2)], ids=["node", "boot", "sequence"]
)
def test_each_part_of_the_identity_counts(ledger: Ledger, other: InboxEvent) -> None:
    with ledger.transaction() as tx:
        assert tx.add_events([event(1), other], 5.0) == Added(2, 0)


def test_a_large_batch_is_one_batch(ledger: Ledger) -> None:
    batch = [event(number) for number in range(3000)]
    with ledger.transaction() as tx:
        assert tx.add_events([*batch, *batch], 5.0) == Added(3000, 3000)
    with ledger.transaction() as tx:
        ids = [item.id for item in tx.pending_inbox(5000)]
        tx.mark_processed(ids, 6.0)
        assert tx.pending_inbox_count() == 0


def test_alerts_are_stored_once_per_key(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        assert tx.add_alert("fp|t0|firing", {"status": "firing"}, 5.0)
        assert not tx.add_alert("fp|t0|firing", {"status": "changed"}, 6.0)
        assert tx.add_alert("fp|t0|resolved", {"status": "resolved"}, 7.0)
        items = tx.pending_inbox(10)
    assert [(item.kind, item.node, item.payload) for item in items] == [
        ("alert", None, {"status": "firing"}),
        ("alert", None, {"status": "resolved"}),
    ]


def test_processed_items_stay_known_until_pruned(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        tx.add_events([event(1), event(2)], 5.0)
        tx.mark_processed([tx.pending_inbox(1)[0].id], 10.0)
    with ledger.transaction() as tx:
        assert tx.add_events([event(1)], 11.0) == Added(0, 1)
        assert [item.payload["n"] for item in tx.pending_inbox(10)] == [2]
        assert tx.prune(10.0).inbox == 0
        assert tx.prune(10.5).inbox == 1
        assert tx.pending_inbox_count() == 1


def test_an_item_processed_twice_keeps_its_first_time(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        tx.add_events([event(1)], 5.0)
        ids = [tx.pending_inbox(1)[0].id]
        tx.mark_processed(ids, 10.0)
        tx.mark_processed(ids, 99.0)
        assert tx.prune(11.0).inbox == 1


def test_numbers_are_not_used_again_after_pruning(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        tx.add_events([event(1)], 5.0)
        first = tx.pending_inbox(1)[0].id
        tx.mark_processed([first], 6.0)
        tx.prune(7.0)
        tx.add_events([event(2)], 8.0)
        assert tx.pending_inbox(1)[0].id > first


@pytest.mark.parametrize(
    ("payload", "kept"),
    [
        ({"text": "\ud800 \x00 ü \u2028"}, {"text": "\ud800 \x00 ü \u2028"}),
        ({"big": 2**80, "deep": [{"a": [1, None, True]}]}, {"big": 2**80, "deep": [{"a": [1, None, True]}]}),
        ({"value": float("nan"), "other": [float("inf")]}, {"value": None, "other": [None]}),
    ],
)
def test_payloads_come_back_as_they_were(
    ledger: Ledger, payload: dict[str, object], kept: dict[str, object]
) -> None:
    with ledger.transaction() as tx:
        tx.add_events([InboxEvent(node="n", boot_id="b", sequence=1, payload=payload)], 5.0)
        assert tx.pending_inbox(1)[0].payload == kept


def test_what_is_not_json_is_refused_in_one_line(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="not JSON"), ledger.transaction() as tx:
        tx.add_alert("key", {"value": object()}, 5.0)


@pytest.mark.parametrize(
    "bad",
    [
        InboxEvent(node="n", boot_id="b", sequence=2**70, payload={}),
        InboxEvent(node="n\ud800", boot_id="b", sequence=1, payload={}),
    ],
    ids=["number too large", "not a character"],
)
def test_values_no_column_can_hold_are_refused_and_nothing_is_kept(ledger: Ledger, bad: InboxEvent) -> None:
    with pytest.raises(LedgerError, match="does not fit"), ledger.transaction() as tx:
        tx.add_events([event(1), bad], 5.0)
    with ledger.transaction(read_only=True) as tx:
        assert tx.pending_inbox_count() == 0


_IDENTITIES = st.tuples(st.sampled_from(["n1", "n2"]), st.sampled_from(["b1", "b2"]), st.integers(0, 5))
_ACTIONS = st.one_of(
    st.tuples(st.just("push"), st.lists(_IDENTITIES, max_size=6), st.booleans()),
    st.tuples(st.just("process"), st.integers(0, 4), st.booleans()),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_ACTIONS, max_size=12))
def test_any_order_of_pushes_repeats_and_failures_stores_each_event_once(
    actions: list[tuple[str, object, bool]],
) -> None:
    """``fails``: the transaction raises at its end, and the sender pushes the same again later or never."""
    store = open_ledger("sqlite://", ManualClock())
    stored: set[tuple[str, str, int]] = set()
    processed: list[object] = []
    for what, argument, fails in actions:
        try:
            with store.transaction() as tx:
                if what == "push":
                    assert isinstance(argument, list)
                    added = tx.add_events([_event(identity) for identity in argument], 1.0)
                    fresh = set(argument) - stored
                    assert added == Added(len(fresh), len(argument) - len(fresh))
                else:
                    assert isinstance(argument, int)
                    items = tx.pending_inbox(argument)
                    tx.mark_processed([item.id for item in items], 2.0)
                if fails:
                    _lose_the_sender()
        except ConnectionResetError:
            continue
        if what == "push":
            stored |= fresh
        else:
            processed += [tuple(item.payload["identity"]) for item in items]
    with store.transaction(read_only=True) as tx:
        left = [tuple(item.payload["identity"]) for item in tx.pending_inbox(1000)]
    store.close()
    assert Counter([*processed, *left]) == Counter(stored)


def _lose_the_sender() -> None:
    raise ConnectionResetError


def _event(identity: tuple[str, str, int]) -> InboxEvent:
    node, boot_id, sequence = identity
    return InboxEvent(
        node=node, boot_id=boot_id, sequence=sequence, payload={"identity": [node, boot_id, sequence]}
    )


def test_the_last_word_of_an_agent_replaces_the_one_before(ledger: Ledger) -> None:
    first = AgentContact(node="n01", boot_id="b1", last_seen=1.0, first_seen_boot=1.0)
    later = AgentContact(
        node="n01",
        boot_id="b2",
        last_seen=9.0,
        first_seen_boot=8.0,
        version="0.1.0",
        gpu_count=2,
        gpu_uuids=("GPU-a", "GPU-b"),
    )
    with ledger.transaction() as tx:
        assert tx.agent("n01") is None
        tx.put_agent(first)
        assert tx.agent("n01") == first
        tx.put_agent(later)
    with ledger.transaction(read_only=True) as tx:
        assert tx.agents() == {"n01": later}


def test_a_storm_of_alerts_lies_behind_events(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        for number in range(3):
            tx.add_alert(f"fp{number}", {"n": number}, 5.0)
        tx.add_events([event(1), event(2)], 6.0)
        items = tx.pending_inbox(4)
    assert [(item.kind, item.payload["n"]) for item in items] == [
        ("event", 1),
        ("event", 2),
        ("alert", 0),
        ("alert", 1),
    ]
