"""Notifications that real senders make, and the ones that are none: what is understood, alert by alert."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.alertmanager import read_captured
from collector.inventory import Inventory, InventoryItem, inventory_from_json
from fleet.observations import AlertRecord, Problem, Reading

HERE = Path(__file__).parents[2] / "data"
NAMES = Inventory(InventoryItem(node=f"n{number:02d}") for number in range(1, 10))


def read(name: str, inventory: Inventory | None = NAMES) -> Reading:
    for folder in ("alertmanager", "http/alertmanager"):
        path = HERE / folder / name
        if path.exists():
            return read_captured(path.read_bytes(), inventory=inventory)
    raise AssertionError(f"no test data {name}")


def alerts(reading: Reading) -> list[AlertRecord]:
    return [record for record in reading.records if isinstance(record, AlertRecord)]


def problems(reading: Reading) -> list[tuple[str, int]]:
    return [(p.reason.value, p.count) for p in reading.records if isinstance(p, Problem)]


def one(**changes: Any) -> bytes:
    alert = {"status": "firing", "labels": {"alertname": "GpuXid", "node": "n01", "gpu": "3"}} | changes
    return json.dumps({"version": "4", "status": "firing", "alerts": [alert]}).encode()


def test_each_alert_has_its_own_state() -> None:
    """Neither the group's status nor a label of that name counts."""
    found = {(a.node, a.index): a.status for a in alerts(read("mixed_firing_resolved.json"))}
    assert found == {("n01", 3): "firing", ("n02", 0): "resolved", ("n03", 1): "resolved"}


def test_whose_node_it_is() -> None:
    inventory = inventory_from_json((HERE / "alertmanager/node_identity.inventory.json").read_bytes())
    found = [a.node or a.unresolved for a in alerts(read("node_identity.json", inventory))]
    gpu, fell = "kestrel-gpu-012", "fell-b3-n04"
    assert found == [gpu, gpu, gpu, gpu, fell, "ambiguous", "unknown", "unknown", gpu, gpu]


def test_without_an_inventory_no_label_names_a_node() -> None:
    assert {a.node for a in alerts(read("node_identity.json", None))} == {None}


@pytest.mark.parametrize("label", ["n[01-09]", "n01,n02", "n01 n02", "../n01", "n*", "$(reboot)"])
def test_a_label_that_is_no_name_is_invalid(label: str) -> None:
    (alert,) = alerts(read_captured(one(labels={"alertname": "GpuXid", "node": label}), inventory=NAMES))
    assert (alert.node, alert.unresolved) == (None, "invalid")


def test_times_are_given_as_they_came_and_the_zero_time_is_none() -> None:
    found = {a.node: (a.status, a.starts_at, a.ends_at) for a in alerts(read("timestamps.json"))}
    assert found["n01"] == ("firing", "2026-02-07T03:15:18.022134567Z", None)
    assert found["n02"] == ("firing", "2026-02-07T04:15:18.1+01:00", None)
    assert found["n04"] == ("resolved", "2026-02-07T03:15:18Z", "2026-02-07T03:15:17Z")
    assert found["n05"] == ("resolved", None, "2026-02-07T03:20:00Z")
    assert found["n06"] == ("firing", "2026-02-07T03:15:18Z", "2026-02-07T03:20:18Z")
    assert len(found) == 7


def test_grafana_says_the_same_and_its_own_faults_are_of_the_monitoring() -> None:
    reading = read("grafana_unified.json")
    assert [(a.name, a.node, a.index) for a in alerts(reading)] == [
        ("GPU Xid", "n01", 3),
        ("TestAlert", None, None),
    ]
    assert problems(reading) == [("query_error", 1), ("query_error", 1)]


def test_odd_labels_cost_only_themselves() -> None:
    reading = read("odd_labels.json")
    found = {a.node or a.name: a.status for a in alerts(reading)}
    assert found == {
        "n01": "firing",
        "n02": "firing",
        "n03": "firing",
        "n04": "suppressed",
        "Watchdog": "firing",
    }
    assert problems(reading) == [("unrecognised_value", 1), ("unreadable", 2)]
    n01 = next(a for a in alerts(reading) if a.node == "n01")
    assert (n01.index, n01.fingerprint) == (3, None)


def test_what_was_cut_is_counted() -> None:
    reading = read_captured(
        json.dumps({"version": "4", "alerts": [], "truncatedAlerts": 37}).encode(), inventory=NAMES
    )
    assert reading.ok
    assert problems(reading) == [("truncated", 37)]


@pytest.mark.parametrize(
    ("name", "ok", "count", "found"),
    [
        ("wrong_or_legacy_a.json", False, 0, [("unreadable", 1)]),
        ("wrong_or_legacy_b.json", True, 1, [("unrecognised_value", 1)]),
        ("wrong_or_legacy_c.json", True, 0, []),
        ("wrong_or_legacy_d.json", False, 0, [("unreadable", 1)]),
        ("wrong_or_legacy_e.json", True, 1, []),
        ("wrong_or_legacy_g.json", False, 0, [("unreadable", 1)]),
        ("wrong_or_legacy_h.json", True, 0, []),
        ("future_fields.json", True, 1, []),
    ],
)
def test_wrong_and_legacy_payloads(name: str, ok: bool, count: int, found: list[tuple[str, int]]) -> None:
    reading = read(name)
    assert (reading.ok, len(alerts(reading)), problems(reading)) == (ok, count, found)


def test_several_notifications_in_one_capture() -> None:
    reading = read("eight_gpus.jsonl")
    assert reading.ok
    assert problems(reading) == []
    assert {a.node for a in alerts(reading)} >= {"n01", "n09"}
    assert sum(a.status == "resolved" for a in alerts(reading)) > 1


def test_a_capture_that_breaks_off_keeps_what_came_before() -> None:
    reading = read_captured(one() + b'\n{"version":"4","alerts":[{"sta', inventory=NAMES)
    assert [a.node for a in alerts(reading)] == ["n01"]
    assert problems(reading) == [("truncated", 1)]


@pytest.mark.parametrize("data", [b"", b"   ", b"payload=%7B%7D", b"\xff\xfe", b"null", b'"x"', b"[1]"])
def test_what_is_no_notification_cannot_be_read(data: bytes) -> None:
    reading = read_captured(data, inventory=NAMES)
    assert not reading.ok
    assert len(reading.problems) == 1


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["alerts", "labels", "status", "node", "gpu", "instance", "startsAt", "alertname"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(_JSON)
def test_any_json_is_answered_and_names_only_known_nodes(document: object) -> None:
    body = json.dumps({"alerts": [document]}).encode()
    reading = read_captured(body, inventory=NAMES)
    assert reading.ok
    for alert in alerts(reading):
        assert alert.node is None or NAMES.get(alert.node) is not None
        assert (alert.node is None) != (alert.unresolved is None)


@given(st.binary(max_size=200))
def test_any_bytes_are_answered(data: bytes) -> None:
    read_captured(data, inventory=NAMES)
