"""How findings live: gaps, hysteresis, restarts, boots, and what the ledger says."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from fleet.errors import InvalidInputError
from fleet.findings import Mode
from rules.metrics.conditions import Clearing, Guard, MetricCondition, Op, Threshold
from rules.metrics.evaluate import evaluate
from rules.metrics.state import MetricState
from rules.metrics.windows import SampleWindows
from tests.support.metric_fleet import RULES, STEP, MetricFleet, uuid

GPU = ("n01", 3)
REASONS, UTIL = "gpu_clock_event_reasons", "gpu_utilization_ratio"
HOT = {GPU: {REASONS: 64.0}}
PENDING = {GPU: {"gpu_row_remap_pending": 1.0}}
RESET = {GPU: {"gpu_recovery_action": 1.0}}


def hot_fleet() -> MetricFleet:
    fleet = MetricFleet()
    fleet.ticks(30, HOT)
    assert fleet.rules_found == ["gpu-thermal-hw-slowdown"]
    return fleet


def pending_fleet() -> MetricFleet:
    fleet = MetricFleet()
    fleet.ticks(6, PENDING)
    assert fleet.rules_found == ["gpu-row-remap-pending-flag"]
    return fleet


# -- endings


def test_a_finding_ends_after_observed_calm() -> None:
    fleet = pending_fleet()
    fleet.ticks(4)
    assert fleet.cleared == []
    fleet.tick()
    (cleared,) = fleet.cleared
    assert cleared[0] == fleet.findings[0].id
    assert (
        cleared[1]
        == "gpu-row-remap-pending-flag on GPU 3 (GPU-n01-3) on n01 is over: calm for 60 s, the value is 0"
    )
    assert fleet.state.episodes == ()


def test_one_bad_sample_starts_the_calm_again() -> None:
    fleet = pending_fleet()
    for _ in range(5):
        fleet.ticks(4)
        fleet.tick(PENDING)
    assert fleet.cleared == []
    assert len(fleet.findings) == 1


def test_between_the_levels_a_finding_neither_ends_nor_begins() -> None:
    """Fires above 60 %, ends at 10 %: at 30 % it stays what it was."""
    fleet = hot_fleet()
    other = MetricFleet()
    for tick in range(120):
        changes = HOT if tick % 10 < 3 else {}
        fleet.tick(changes)
        other.tick(changes)
    assert (len(fleet.findings), fleet.cleared) == (1, [])
    assert other.findings == []
    fleet.ticks(90)
    assert len(fleet.cleared) == 1
    assert "the share is 0 %" in fleet.cleared[0][1]


def test_idle_time_ends_nothing() -> None:
    fleet = hot_fleet()
    fleet.ticks(200, {GPU: {REASONS: 1.0, UTIL: 0.0}})
    assert fleet.cleared == []
    assert "not busy" in fleet.seen[-1].unknown[0].sentence


def test_the_drivers_word_ends_at_once() -> None:
    fleet = MetricFleet()
    fleet.ticks(5, RESET)
    fleet.tick({GPU: {"gpu_recovery_action": 2.0}})
    assert [finding for finding, _ in fleet.cleared] == [fleet.findings[0].id]
    fleet.ticks(3, {GPU: {"gpu_recovery_action": 2.0}})
    assert fleet.rules_found == ["gpu-recovery-reboot-level", "gpu-recovery-reset-level"]


def test_the_same_fault_again_is_a_new_finding() -> None:
    fleet = pending_fleet()
    fleet.ticks(10)
    fleet.ticks(10, PENDING)
    assert len({found.id for found in fleet.findings}) == 2


# -- gaps


@pytest.mark.parametrize("gap", [3, 20, 200])
def test_silence_never_begins_and_never_ends_a_finding(gap: int) -> None:
    for fleet in (hot_fleet(), pending_fleet()):
        found = len(fleet.findings)
        fleet.ticks(gap, silent=["n01"])
        assert (len(fleet.findings), fleet.cleared) == (found, [])
        held = [unknown for unknown in fleet.seen[-1].unknown if unknown.finding_id]
        assert [unknown.finding_id for unknown in held] == [fleet.findings[0].id]
        assert "held as unknown" in held[0].sentence


def test_silence_does_not_ripen_a_timer() -> None:
    fleet = MetricFleet()
    fleet.ticks(3, PENDING)
    fleet.ticks(20, silent=["n01"])
    fleet.tick(PENDING)
    assert fleet.findings == [], "30 s were observed before the gap, the gap counts nothing"
    assert [pending.held for pending in fleet.seen[-1].pending] == [30.0]
    fleet.ticks(2, PENDING)
    assert fleet.rules_found == ["gpu-row-remap-pending-flag"]


def test_one_lost_scrape_is_no_gap() -> None:
    fleet = MetricFleet()
    fleet.ticks(3, PENDING)
    fleet.tick(silent=["n01"])
    fleet.tick(PENDING)
    assert fleet.rules_found == ["gpu-row-remap-pending-flag"]


def test_calm_is_counted_between_observations_only() -> None:
    fleet = pending_fleet()
    for _ in range(3):
        fleet.tick()
        fleet.ticks(10, silent=["n01"])
    assert fleet.cleared == []
    fleet.ticks(5)
    assert len(fleet.cleared) == 1


def test_a_share_that_grows_because_healthy_samples_age_is_not_news() -> None:
    """Half hot, then silence: the healthy half leaves the window first, and nobody has seen anything new."""
    fleet = MetricFleet()
    fleet.ticks(21)
    fleet.ticks(19, HOT)
    fleet.ticks(15, silent=["n01"])
    assert fleet.findings == []


def test_without_fresh_ticks_all_is_held() -> None:
    fleet = pending_fleet()
    later = evaluate(fleet.windows, RULES, fleet.now + 3600, fleet.state)
    assert (later.findings, later.cleared, later.standing) == ((), (), ())
    assert later.unknown[-1].sentence == "no samples have come lately: nothing is judged"
    assert [episode.finding_id for episode in later.state.episodes] == [fleet.findings[0].id]


def test_asking_twice_counts_nothing_twice() -> None:
    fleet = pending_fleet()
    fleet.tick()
    for _ in range(50):
        answer = evaluate(fleet.windows, RULES, fleet.now + 1, fleet.state)
        fleet.state = answer.state
        assert answer.cleared == ()


# -- restarts, boots, the ledger


def test_a_restart_loses_no_finding_and_repeats_none() -> None:
    fleet = hot_fleet()
    stored = json.dumps(fleet.state.to_dict())
    fleet.restart()
    fleet.state = MetricState.from_dict(json.loads(stored))
    fleet.ticks(30, HOT)
    assert len(fleet.findings) == 1
    assert fleet.cleared == []


def test_after_a_restart_timers_begin_again_and_say_so() -> None:
    fleet = MetricFleet()
    fleet.ticks(4, PENDING)
    fleet.restart()
    fleet.ticks(4, PENDING)
    assert fleet.findings == []
    assert fleet.seen[-1].pending[0].sentence.endswith("the timer began when sickbay began to watch")
    fleet.tick(PENDING)
    assert fleet.findings[0].evidence["timer_restarted"] is True
    sound = MetricFleet()
    sound.ticks(3)
    sound.ticks(6, PENDING)
    assert sound.findings[0].evidence["timer_restarted"] is False


def test_the_ledger_has_the_last_word() -> None:
    fleet = hot_fleet()
    (found,) = fleet.findings
    adopted = MetricState().reconciled([found, replace(found, id="f-other", source="agent")])
    assert [episode.finding_id for episode in adopted.episodes] == [found.id]
    assert adopted.episodes[0].target == fleet.state.episodes[0].target
    fleet.state = fleet.state.reconciled([])
    fleet.tick(HOT)
    assert len({finding.id for finding in fleet.findings}) == 2, "it still holds, so it is a finding again"


def test_state_of_another_shape_is_refused() -> None:
    for wrong in ({}, {"episodes": 3}, {"episodes": [{"rule": "x"}]}, {"episodes": [1]}):
        with pytest.raises(InvalidInputError, match="drop it"):
            MetricState.from_dict(wrong)


def test_nothing_before_a_boot_speaks_against_the_node_after_it() -> None:
    fleet = MetricFleet(boots={"n01": "b1"})
    fleet.ticks(4, PENDING)
    fleet.tick(without=[GPU])
    fleet.boots["n01"] = "b2"
    fleet.ticks(30, without=[GPU])
    assert fleet.findings == [], "the GPU was never seen in this boot, and the timer belonged to the last"
    fleet.ticks(6, PENDING)
    assert [found.boot_id for found in fleet.findings] == ["b2"]


def test_findings_across_a_boot() -> None:
    """One that its own repair ends is not ours any more; one that metrics end goes on until calm is seen."""
    fleet = MetricFleet(boots={"n01": "b1"})
    fleet.tick()
    both = {GPU: {"gpu_ecc_uncorrected_volatile_total": 1.0, "gpu_row_remap_pending": 1.0}}
    fleet.ticks(6, both)
    fleet.boots["n01"] = "b2"
    fleet.tick()
    assert [episode.rule for episode in fleet.state.episodes] == ["gpu-row-remap-pending-flag"]
    fleet.ticks(5)
    assert [fid for fid, _ in fleet.cleared] == [
        found.id for found in fleet.findings if found.rule == "gpu-row-remap-pending-flag"
    ]


def test_a_fault_that_is_back_after_a_boot_is_a_finding_of_that_boot() -> None:
    fleet = MetricFleet(boots={"n01": "b1"})
    fleet.ticks(6, PENDING)
    fleet.boots["n01"] = "b2"
    fleet.ticks(6, PENDING)
    assert [found.boot_id for found in fleet.findings] == ["b1", "b2"]
    assert [fid for fid, _ in fleet.cleared] == [fleet.findings[0].id]
    assert fleet.findings[1].id in fleet.cleared[0][1]


def test_modes_and_disabled_rules() -> None:
    fleet = pending_fleet()
    name = "gpu-row-remap-pending-flag"
    again = evaluate(fleet.windows, RULES, fleet.now, MetricState(), modes={name: Mode.OBSERVE})
    assert [found.mode for found in again.findings] == [Mode.OBSERVE]
    off = evaluate(fleet.windows, RULES, fleet.now, fleet.state, disabled=frozenset({name}))
    assert off.findings == off.cleared == ()
    assert "its rule is not in force" in off.unknown[0].sentence
    assert [episode.rule for episode in off.state.episodes] == [name]


def test_coverage_tells_a_signal_that_nobody_reports() -> None:
    fleet = MetricFleet()
    fleet.ticks(3, {("n01", gpu): {"gpu_recovery_action": None} for gpu in range(4)})
    covered = {item.rule: (item.judged, item.targets) for item in fleet.seen[-1].coverage}
    assert covered["gpu-recovery-reset-level"] == (0, 4)
    assert covered["gpu-row-remap-failed-flag"] == (4, 4)


# -- guards of a threshold


def condition(**more: object) -> MetricCondition:
    test = Threshold(signal="gpu_temperature_celsius", op=Op.GT, values=(85.0,), for_seconds=60)
    clear = Clearing(seconds=30, level=80.0)
    return MetricCondition(test=test, clear=clear, **more)  # type: ignore[arg-type]


BUSY = Guard(signals=(UTIL,), op=Op.GT, value=0.5)


@pytest.mark.parametrize(
    ("guards", "values", "found"),
    [
        ({}, {}, 1),
        ({"only_while": BUSY}, {}, 1),
        ({"only_while": BUSY}, {UTIL: 0.1}, 0),
        ({"only_while": BUSY}, {UTIL: None}, 0),
        ({"unless": BUSY}, {}, 0),
        ({"unless": BUSY}, {UTIL: 0.1}, 1),
        ({"unless": BUSY}, {UTIL: None}, 0),
    ],
)
def test_guards(guards: dict[str, Guard], values: dict[str, float | None], found: int) -> None:
    base = next(rule for rule in RULES if rule.id == "gpu-row-remap-pending-flag")
    fleet = MetricFleet(rules=[replace(base, id="hot", when=condition(**guards))])
    fleet.ticks(10, {GPU: {"gpu_temperature_celsius": 86.0, **values}})
    assert len(fleet.findings) == found
    fleet.ticks(10, {GPU: {"gpu_temperature_celsius": 82.0}})
    assert fleet.cleared == []
    if found and not guards:
        fleet.ticks(3, {GPU: {"gpu_temperature_celsius": 80.0}})
        assert len(fleet.cleared) == 1


def test_a_node_level_finding_names_the_part() -> None:
    from fleet.observations import Reading, Sample

    base = next(rule for rule in RULES if rule.id == "gpu-row-remap-pending-flag")
    down = Threshold(signal="nic_port_state", op=Op.LT, values=(4.0,), for_seconds=15)
    rule = replace(base, id="port-down", when=MetricCondition(test=down, clear=Clearing(seconds=0)))
    fleet = MetricFleet(rules=[rule])
    for _ in range(3):
        fleet.now += STEP
        ports = [
            Sample(node="n01", signal="nic_port_state", value=value, time=fleet.now, labels={"port": port})
            for port, value in (("1", 4.0), ("2", 1.0))
        ]
        fleet.take([Reading(tuple(ports))])
    (found,) = fleet.findings
    assert (found.uuid, found.evidence["part"]) == (None, "port=2")
    assert found.sentence.startswith("port=2 of n01 ")


def test_the_rules_load_without_numpy() -> None:
    """An agent and ``sickbay xid`` have no NumPy."""
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "from rules.catalogue import load_catalogue\n"
        "import rules.xid, rules.docs, rules.metrics.parse, rules.metrics.state, rules.metrics.say\n"
        "assert load_catalogue().metric_rules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_windows_for_rules_look_back_far_enough() -> None:
    windows = SampleWindows.for_rules(RULES, step_seconds=STEP)
    assert windows.horizon_seconds >= 600
    assert "gpu_sm_active_ratio" in windows.signals
    assert uuid("n01", 1) == "GPU-n01-1"
