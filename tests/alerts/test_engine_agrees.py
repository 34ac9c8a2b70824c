"""The alert of a rule and the engine say the same, tick by tick, on the same random samples.

Prometheus is promtool's rule manager in virtual time. Left out are what docs/alerts.md names as different:
``keep_firing_for``, and windows closed on both sides in Prometheus 2 (10 min hold one
sample more, at their edge).
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import yaml

from alerts.build import files
from rules.catalogue import load_catalogue
from rules.metrics.conditions import Absence
from rules.metrics.intake import Target
from rules.metrics.kernels import judge
from rules.metrics.windows import SampleWindows
from rules.model import Rule
from tests.support.promtool import tool

pytestmark = pytest.mark.services
STEP, TICKS = 15.0, 120
CATALOGUE = load_catalogue()
#: One fleet in the suite, five with SICKBAY_THOROUGH=1.
SEEDS = range(5 if os.environ.get("SICKBAY_THOROUGH") else 1)
GPUS = [Target("n01", f"GPU-{number}") for number in range(6)]
Values = Mapping[str, list[list[float]]]  # signal -> GPU -> tick; NaN: no sample


def held(rng: random.Random, choices: list[float], mean: int) -> list[float]:
    """A level that is kept for about ``mean`` ticks at a time."""
    values: list[float] = []
    while len(values) < TICKS:
        values += [rng.choice(choices)] * rng.randint(1, 2 * mean)
    return values[:TICKS]


def away(rng: random.Random) -> list[float]:
    """There, and away for less than the engine remembers a GPU, by turns."""
    values: list[float] = []
    while len(values) < TICKS:
        values += [60.0] * rng.randint(1, 40) + [float("nan")] * rng.randint(1, 35)
    return values


def counter(rng: random.Random) -> list[float]:
    """Grows seldom, and is reset once in a while."""
    values, now = [], float(rng.randint(0, 3))
    for _ in range(TICKS):
        draw = rng.random()
        now = 0.0 if draw < 0.01 else now + (draw > 0.98)
        values.append(now)
    return values


def fleet(seed: int) -> Values:
    rng = random.Random(seed)  # noqa: S311 - repeatable samples
    # The first tick has them all, and one is always there.
    there = [[60.0, *away(rng)][:TICKS] for _ in GPUS]
    there[0] = [60.0] * TICKS
    heat = [[0.0, 1.0, 0x20, 0x40, 0x48, 0x80, 0xE8] for _ in GPUS]
    return {
        "gpu_temperature_celsius": there,
        "gpu_clock_event_reasons": [held(rng, choices, 20) for choices in heat],
        "gpu_utilization_ratio": [held(rng, [0.0, 0.1, 0.11, 0.9, 0.9, 0.9], 15) for _ in GPUS],
        "gpu_recovery_action": [held(rng, [0, 0, 0, 1, 2, 3, 4, 5, 6, 7], 3) for _ in GPUS],
        "gpu_row_remap_failed": [held(rng, [0.0, 0.0, 1.0], 5) for _ in GPUS],
        "gpu_row_remap_pending": [held(rng, [0.0, 0.0, 1.0], 5) for _ in GPUS],
        "gpu_ecc_uncorrected_volatile_total": [counter(rng) for _ in GPUS],
    }


def by_engine(rules: tuple[Rule, ...], values: Values) -> list[set[tuple[str, str]]]:
    """At every tick the (rule, GPU) that violate."""
    windows = SampleWindows.for_rules(CATALOGUE.metric_rules, step_seconds=STEP)
    found = []
    for tick in range(TICKS):
        present = [i for i in range(len(GPUS)) if not np.isnan(values["gpu_temperature_celsius"][i][tick])]
        columns = {
            signal: np.array([rows[i][tick] for i in present], dtype=np.float64)
            for signal, rows in values.items()
        }
        now = tick * STEP
        windows.append_columns(now, [GPUS[i] for i in present], columns)
        newest = windows.newest(now)
        assert newest is not None
        violating = set()
        for rule in rules:
            assert rule.when is not None
            judged = judge(windows, rule.when, now, newest)
            for row in np.flatnonzero(judged.violating).tolist():
                target = windows.targets[row]
                assert target is not None
                assert target.gpu is not None
                violating.add((rule.id, target.gpu))
        found.append(violating)
    return found


def written(values: list[float]) -> str:
    return " ".join("stale" if np.isnan(value) else f"{value:g}" for value in values)


def story(values: Values, expected: list[set[tuple[str, str]]]) -> dict[str, object]:
    there = values["gpu_temperature_celsius"]
    series = [
        {
            "series": f'sickbay_{signal}{{node="n01", gpu="{i}", uuid="{GPUS[i].gpu}"}}',
            "values": written([v if not np.isnan(t) else np.nan for v, t in zip(row, there[i], strict=True)]),
        }
        for signal, rows in values.items()
        for i, row in enumerate(rows)
    ]
    checks = [
        {
            "expr": 'group by (rule, uuid) (ALERTS{alertstate="firing"})',
            "eval_time": f"{tick * STEP:.0f}s",
            "exp_samples": [
                {"labels": f'{{rule="{rule}", uuid="{uuid}"}}', "value": 1} for rule, uuid in sorted(firing)
            ],
        }
        for tick, firing in enumerate(expected)
    ]
    test = {"interval": f"{STEP:.0f}s", "input_series": series, "promql_expr_test": checks}
    return {"rule_files": ["fleet.yml"], "evaluation_interval": f"{STEP:.0f}s", "tests": [test]}


def run(folder: Path, values: Values, expected: list[set[tuple[str, str]]]) -> str:
    """promtool's complaint, empty if there is none."""
    text = files(CATALOGUE)["prometheus/fleet.yml"]
    text = re.sub(r"\n +keep_firing_for: \w+", "", text).replace("[10m]", "[595s]")
    (folder / "fleet.yml").write_text(text)
    (folder / "test.yml").write_text(yaml.safe_dump(story(values, expected)))
    answer = tool("promtool", "test", "rules", "test.yml", cwd=folder)
    return "" if answer.returncode == 0 else (answer.stdout + answer.stderr)[:3000]


@pytest.mark.parametrize("seed", SEEDS)
def test_prometheus_fires_when_the_engine_finds(seed: int, tmp_path: Path) -> None:
    values = fleet(seed)
    # A GPU that goes away interrupts every other condition, where the two differ by their nature.
    whole = {**values, "gpu_temperature_celsius": [[60.0] * TICKS for _ in GPUS]}
    lasting = tuple(rule for rule in CATALOGUE.metric_rules if not isinstance(_test(rule), Absence))
    expected = by_engine(lasting, whole)
    assert len({rule for firing in expected for rule, _ in firing}) > 6, "most rules have their moment"
    assert run(tmp_path, whole, expected) == ""


@pytest.mark.parametrize("seed", SEEDS)
def test_they_agree_on_what_has_vanished(seed: int, tmp_path: Path) -> None:
    values = {"gpu_temperature_celsius": fleet(seed)["gpu_temperature_celsius"]}
    absent = tuple(rule for rule in CATALOGUE.metric_rules if isinstance(_test(rule), Absence))
    expected = by_engine(absent, values)
    assert any(expected)
    assert run(tmp_path, values, expected) == ""


def test_the_comparison_can_fail(tmp_path: Path) -> None:
    values = {"gpu_row_remap_failed": [[1.0] * TICKS for _ in GPUS]}
    values["gpu_temperature_celsius"] = [[60.0] * TICKS for _ in GPUS]
    rules = tuple(rule for rule in CATALOGUE.metric_rules if rule.id == "gpu-row-remap-failed-flag")
    expected = by_engine(rules, values)
    assert run(tmp_path, values, expected) == ""
    expected[-1] = set()
    assert "FAILED" in run(tmp_path, values, expected)


def _test(rule: Rule) -> object:
    assert rule.when is not None
    return rule.when.test
