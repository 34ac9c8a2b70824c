"""Each shipped metric rule: where it fires, where it does not, and the near misses between."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fleet.findings import Repair, Response
from tests.support.metric_fleet import START, STEP, MetricFleet, uuid

GPU = ("n01", 3)
Values = dict[str, float | None]
BUSY = 0.98
REASONS, UTIL, SM = "gpu_clock_event_reasons", "gpu_utilization_ratio", "gpu_sm_active_ratio"


@pytest.mark.parametrize(
    ("values", "rule", "response", "repair", "kind"),
    [
        ({REASONS: 0x40}, "gpu-thermal-hw-slowdown", "cordon_after_job", "hand_over", "thermal"),
        ({REASONS: 0x48}, "gpu-thermal-hw-slowdown", "cordon_after_job", "hand_over", "thermal"),
        ({REASONS: 0x20}, "gpu-thermal-sw-slowdown", "notify", "none", "thermal"),
        ({REASONS: 0x80}, "gpu-power-brake", "notify", "none", "power_brake"),
        ({"gpu_row_remap_failed": 1}, "gpu-row-remap-failed-flag", "drain", "hand_over", "ecc"),
        ({"gpu_row_remap_pending": 1}, "gpu-row-remap-pending-flag", "reset_when_idle", "reset_gpu", "ecc"),
        ({"gpu_recovery_action": 1}, "gpu-recovery-reset-level", "drain", "reset_gpu", "xid"),
        ({"gpu_recovery_action": 4}, "gpu-recovery-reset-level", "drain", "reset_gpu", "xid"),
        ({"gpu_recovery_action": 2}, "gpu-recovery-reboot-level", "drain", "reboot", "xid"),
        ({"gpu_recovery_action": 7}, "gpu-recovery-reboot-level", "drain", "reboot", "xid"),
        ({"gpu_recovery_action": 3}, "gpu-recovery-p2p-level", "cordon_after_job", "reset_gpu", "nvlink"),
        ({"gpu_recovery_action": 5}, "gpu-recovery-imex-level", "notify", "none", "nvlink"),
    ],
)
def test_a_lasting_fault_is_found_once(
    values: Values, rule: str, response: str, repair: str, kind: str
) -> None:
    fleet = MetricFleet(nodes=("n01", "n02"))
    fleet.ticks(60, {GPU: values})
    assert [found.rule for found in fleet.findings] == [rule]
    found = fleet.findings[0]
    assert (found.node, found.uuid, found.gpu) == ("n01", uuid("n01", 3), "0000:13:00.0")
    assert (found.response, found.repair, found.kind) == (Response(response), Repair(repair), kind)
    assert found.source == "metrics"
    assert found.since == START + STEP
    assert found.sentence.startswith("GPU 3 (GPU-n01-3) on n01 ")
    assert len(found.sentence) <= 220
    json.dumps(dict(found.evidence))
    assert fleet.cleared == []
    assert fleet.seen[-1].standing == (found.id,)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {REASONS: 0x1 | 0x2 | 0x4 | 0x10 | 0x100},
        {REASONS: 0x8},
        {REASONS: 0x40, UTIL: 0.0},
        {REASONS: 0x40, UTIL: 0.1},
        {REASONS: 0x80, UTIL: 0.05, SM: 0.02},
        {REASONS: 0x40, UTIL: None},
        {REASONS: None},
        {REASONS: -1.0},
        {REASONS: float(2**63)},
        {"gpu_row_remap_failed": None},
        {"gpu_recovery_action": 8},
        {"gpu_recovery_action": None},
        {"gpu_ecc_uncorrected_volatile_total": 7},
        {"gpu_row_remap_failed": float("nan"), "gpu_row_remap_pending": float("inf")},
    ],
)
def test_what_is_no_fault_or_not_known_is_not_found(values: Values) -> None:
    fleet = MetricFleet()
    fleet.ticks(60, {GPU: values})
    assert fleet.findings == []


def test_either_busy_signal_is_enough() -> None:
    fleet = MetricFleet()
    fleet.ticks(60, {GPU: {REASONS: 0x40, UTIL: None, SM: 0.4}, ("n01", 2): {REASONS: 0x40, SM: 0.0}})
    assert sorted(found.uuid or "" for found in fleet.findings) == [uuid("n01", 2), uuid("n01", 3)]


@pytest.mark.parametrize(("hot", "found"), [(24, []), (25, ["gpu-thermal-hw-slowdown"])])
def test_share_is_more_than_60_percent_of_ten_busy_minutes(hot: int, found: list[str]) -> None:
    fleet = MetricFleet()
    fleet.ticks(40)
    fleet.ticks(hot, {GPU: {REASONS: 0x40}})
    fleet.ticks(40 - hot)
    assert fleet.rules_found == found


def test_share_counts_busy_time_only() -> None:
    """Hot in every busy sample, each busy phase short: idle minutes between them say nothing."""
    fleet = MetricFleet()
    for _ in range(8):
        fleet.ticks(3, {GPU: {REASONS: 0x40}})
        fleet.ticks(2, {GPU: {REASONS: 0x1, UTIL: 0.0}})
    assert fleet.rules_found == ["gpu-thermal-hw-slowdown"]
    evidence = fleet.findings[0].evidence
    assert (evidence["value"], evidence["samples"], evidence["held_seconds"]) == (1.0, 20, 300.0)
    assert "was slowed by heat (hardware limit) for 100 % of 5 busy minutes" in fleet.findings[0].sentence


def test_less_than_five_busy_minutes_judge_nothing() -> None:
    fleet = MetricFleet()
    fleet.ticks(19, {GPU: {REASONS: 0x40}})
    assert fleet.findings == []
    waiting = fleet.seen[-1].pending
    assert [(p.rule, p.held, p.needed) for p in waiting] == [("gpu-thermal-hw-slowdown", 285.0, 300.0)]
    fleet.ticks(60, {GPU: {REASONS: 0x40, UTIL: 0.0}})
    assert fleet.findings == []


@pytest.mark.parametrize(("bad", "found"), [(4, []), (5, ["gpu-row-remap-failed-flag"])])
def test_a_flag_must_stand_for_a_minute(bad: int, found: list[str]) -> None:
    fleet = MetricFleet()
    fleet.ticks(10)
    fleet.ticks(bad, {GPU: {"gpu_row_remap_failed": 1}})
    fleet.ticks(10)
    assert fleet.rules_found == found


def test_a_flag_that_flickers_begins_again() -> None:
    fleet = MetricFleet()
    for _ in range(10):
        fleet.ticks(4, {GPU: {"gpu_row_remap_failed": 1}})
        fleet.tick()
    assert fleet.findings == []


def test_new_uncorrectable_errors() -> None:
    fleet = MetricFleet()
    fleet.ticks(5, {GPU: {"gpu_ecc_uncorrected_volatile_total": 7}})
    answer = fleet.tick({GPU: {"gpu_ecc_uncorrected_volatile_total": 9}})
    assert [found.rule for found in answer.findings] == ["gpu-ecc-uncorrected-rising"]
    found = answer.findings[0]
    assert "counted uncorrectable memory errors: 2 new within 10 minutes" in found.sentence
    assert (found.since, found.evidence["value"]) == (fleet.now, 2.0)
    fleet.ticks(80, {GPU: {"gpu_ecc_uncorrected_volatile_total": 9}})
    assert len(fleet.findings) == 1
    assert fleet.cleared == [], "only the verification after the reset ends it"


@pytest.mark.parametrize(
    ("counts", "grown"),
    [
        ((5, 5, 0, 0, 0), None),
        ((5, 5, 0, 0, 2), 2.0),
        ((5, 5, 2, 2, 2), 2.0),
        ((5, None, None, 6, 6), 1.0),
        ((None, None, 6, 6, 6), None),
        ((0, 1, 0, 1, 0), 2.0),
    ],
)
def test_counter_resets_and_gaps(counts: tuple[float | None, ...], grown: float | None) -> None:
    fleet = MetricFleet()
    for count in counts:
        fleet.tick({GPU: {"gpu_ecc_uncorrected_volatile_total": count}})
    judged = [found for found in fleet.findings if found.rule == "gpu-ecc-uncorrected-rising"]
    assert bool(judged) is (grown is not None)
    if counts == (5, 5, 2, 2, 2):
        assert judged[0].evidence["value"] == grown


def test_growth_leaves_the_window_unseen() -> None:
    fleet = MetricFleet()
    fleet.tick()
    fleet.ticks(45, {GPU: {"gpu_ecc_uncorrected_volatile_total": None}})
    fleet.ticks(5, {GPU: {"gpu_ecc_uncorrected_volatile_total": 1}})
    assert fleet.findings == [], "no two samples of one window speak of it"


def test_a_vanished_gpu() -> None:
    fleet = MetricFleet(nodes=("n01", "n02"))
    fleet.ticks(10)
    last = fleet.now
    fleet.ticks(8, without=[GPU])
    assert fleet.findings == []
    fleet.tick(without=[GPU])
    (found,) = fleet.findings
    assert (found.rule, found.since, found.gpu) == ("gpu-vanished", last + STEP, "0000:13:00.0")
    assert "vanished from the readings 2.2 minutes ago, while 3 other GPUs report" in found.sentence
    fleet.ticks(60, without=[GPU])
    fleet.ticks(10)
    assert len(fleet.findings) == 1
    assert fleet.cleared == [], "a new boot with all GPUs ends it"


def test_absence_that_is_no_evidence() -> None:
    alone = MetricFleet(gpus=1)
    alone.ticks(5)
    alone.ticks(30, without=[("n01", 0)])
    assert alone.findings == [], "no sibling proves that the exporter works"
    node = MetricFleet()
    node.ticks(5)
    node.ticks(30, silent=["n01"])
    node.ticks(30, without=[("n01", gpu) for gpu in range(4)])
    assert node.findings == [], "a node that is silent, or empty, is unknown"
    torn = MetricFleet()
    torn.ticks(5)
    torn.ticks(30, without=[GPU], damaged=["n01"])
    assert torn.findings == [], "a part of the answer was lost"
    assert "a part of it is lost" in torn.seen[-1].unknown[0].sentence
    never = MetricFleet()
    never.ticks(30, without=[GPU])
    assert never.findings == [], "who was never seen has not vanished"


def test_an_exporter_restart_is_no_loss() -> None:
    """Down for a minute, then back with half of its GPUs for a minute and a half."""
    fleet = MetricFleet()
    fleet.ticks(10)
    fleet.ticks(4, silent=["n01"])
    fleet.ticks(6, without=[("n01", 2), GPU])
    fleet.ticks(20)
    assert fleet.findings == []


def test_blank_values_of_a_gpu_that_is_named_are_no_absence() -> None:
    """Sentinels make no sample: one value left is enough to be there."""
    fleet = MetricFleet()
    fleet.ticks(5)
    blank: Values = dict.fromkeys(("gpu_clock_event_reasons", "gpu_row_remap_failed", "gpu_recovery_action"))
    fleet.ticks(30, {GPU: blank})
    assert fleet.findings == []


def test_a_gpu_keeps_its_past_when_its_index_moves() -> None:
    """After a loss the cards behind it move up; the UUID is what counts."""
    fleet = MetricFleet()
    fleet.ticks(15, {GPU: {REASONS: 0x40}})
    fleet.ticks(
        15, {GPU: {REASONS: 0x40}}, without=[("n01", 0)], indexes={("n01", g): g - 1 for g in (1, 2, 3)}
    )
    assert fleet.rules_found == ["gpu-thermal-hw-slowdown", "gpu-vanished"]
    hot = next(found for found in fleet.findings if found.rule == "gpu-thermal-hw-slowdown")
    assert (hot.uuid, hot.evidence["index"], hot.evidence["samples"]) == (uuid("n01", 3), 2, 20)
    gone = next(found for found in fleet.findings if found.rule == "gpu-vanished")
    assert (gone.uuid, gone.evidence["index"]) == (uuid("n01", 0), 0)


def test_the_evidence_says_how_many_of_the_node_share_it() -> None:
    fleet = MetricFleet()
    fleet.ticks(20, {("n01", gpu): {REASONS: 0x80} for gpu in range(4)})
    assert [found.evidence["alike_on_node"] for found in fleet.findings] == [4, 4, 4, 4]


def test_a_card_that_was_moved_has_not_vanished() -> None:
    from fleet.observations import Reading
    from tests.support.metric_fleet import samples

    fleet = MetricFleet(nodes=("n01",), gpus=2)
    fleet.ticks(5)
    for _ in range(20):
        fleet.now += STEP
        moved = [replace(sample, node="n02") for sample in samples("n01", 1, {}, fleet.now)]
        fleet.take([Reading(samples("n01", 0, {}, fleet.now)), Reading(tuple(moved))])
    assert fleet.findings == []


def test_a_slot_with_another_card_in_it_has_not_lost_one() -> None:
    """Cards exchanged, or the address leads to another machine now: the same slots, other UUIDs."""
    from fleet.observations import Reading
    from tests.support.metric_fleet import samples

    fleet = MetricFleet(nodes=("n01",))
    fleet.ticks(5)
    for _ in range(20):
        fleet.now += STEP
        others = [sample for gpu in range(4) for sample in samples("n02", gpu, {}, fleet.now)]
        fleet.take([Reading(tuple(replace(sample, node="n01") for sample in others))])
    assert fleet.findings == []
