"""The metric rules over a whole fleet: one evaluation of 10,000 nodes x 8 GPUs x 20 signals.

``python -m benchmarks.metric_rules [NODES]``: fills the windows from arrays, gives 1 GPU in 2,000 a fault,
and prints what one step costs: appending a tick (from arrays, and from the samples of 300 scraped nodes)
and evaluating every shipped metric rule. Text parsing and queries are not in it.
"""

from __future__ import annotations

import resource
import statistics
import sys
import time

import numpy as np

from collector.signals import SignalTarget, load_signals
from fleet.observations import Reading, Sample
from rules.catalogue import load_catalogue
from rules.metrics.evaluate import evaluate
from rules.metrics.intake import Target
from rules.metrics.state import MetricState
from rules.metrics.windows import Floats, SampleWindows

GPUS = 8
SIGNALS = 20
STEP = 15.0
SCRAPED_NODES = 300
REPEATS = 9


def chosen_signals(used: set[str]) -> list[str]:
    """The signals the rules read, filled up to ``SIGNALS`` with others of a GPU."""
    others = [s.name for s in load_signals().values() if s.target is SignalTarget.GPU and s.name not in used]
    return [*sorted(used), *others[: SIGNALS - len(used)]]


def tick_values(signals: list[str], rows: int, tick: int, noise: np.random.Generator) -> dict[str, Floats]:
    values = {signal: noise.random(rows) for signal in signals}
    values["gpu_utilization_ratio"] = np.where(noise.random(rows) < 0.9, 0.98, 0.0)
    values["gpu_clock_event_reasons"] = np.where(np.arange(rows) % 2000 == 7, 64.0, 4.0)
    values["gpu_row_remap_failed"] = (np.arange(rows) % 20_000 == 11).astype(np.float64)
    values["gpu_row_remap_pending"] = np.zeros(rows)
    values["gpu_recovery_action"] = np.zeros(rows)
    values["gpu_ecc_uncorrected_volatile_total"] = np.where(
        np.arange(rows) % 20_000 == 13, float(tick // 20), 0.0
    )
    return values


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    rules = load_catalogue().metric_rules
    signals = chosen_signals({s for rule in rules if rule.when is not None for s in rule.when.signals})
    targets = [
        Target(f"n{node:05d}", f"GPU-{node:05d}-{gpu}") for node in range(nodes) for gpu in range(GPUS)
    ]
    base = peak_mib()
    longest = SampleWindows.for_rules(rules, step_seconds=STEP)
    windows = SampleWindows(signals, horizon_seconds=longest.horizon_seconds, step_seconds=STEP)
    noise = np.random.default_rng(1)
    appends, evaluations = [], []
    state, now, found = MetricState(), 0.0, 0
    filled = int(windows.horizon_seconds / STEP) + 5
    gone = {row for row in range(len(targets)) if row % 20_000 == 17}
    for tick in range(filled + REPEATS):
        now += STEP
        values = tick_values(signals, len(targets), tick, noise)
        here, columns = targets, values
        if tick > filled - 15:
            keep = np.array([row not in gone for row in range(len(targets))])
            here = [target for target, kept in zip(targets, keep, strict=True) if kept]
            columns = {signal: column[keep] for signal, column in values.items()}
        began = time.perf_counter()
        windows.append_columns(now, here, columns)
        appended = time.perf_counter()
        answer = evaluate(windows, rules, now, state)
        ended = time.perf_counter()
        state, found = answer.state, found + len(answer.findings)
        if tick >= filled:
            appends.append(appended - began)
            evaluations.append(ended - appended)
    print(f"{nodes} nodes x {GPUS} GPUs x {len(signals)} signals, {len(rules)} rules, {STEP:.0f} s steps")
    print(f"windows of {windows.horizon_seconds:.0f} s: {windows.nbytes / 2**20:.0f} MiB of arrays")
    print(f"process: {base:.0f} MiB before, {peak_mib():.0f} MiB at its peak")
    for name, times in (("append a tick from arrays", appends), ("evaluate all rules", evaluations)):
        print(f"{name}: median {statistics.median(times):.3f} s, worst {max(times):.3f} s of {len(times)}")
    print(f"findings: {found}, open episodes: {len(state.episodes)}")
    print(f"append {SCRAPED_NODES} scraped nodes from samples: {_scraped(signals):.3f} s")


def _scraped(signals: list[str]) -> float:
    """Median seconds to append the samples of the largest fleet that is scraped directly."""
    windows = SampleWindows(signals, horizon_seconds=600, step_seconds=STEP)
    times = []
    for tick in range(5):
        at = tick * STEP
        readings = [
            Reading(
                tuple(
                    Sample(
                        node=f"n{node}", signal=signal, value=1.0, time=at, gpu=f"GPU-{node}-{gpu}", index=gpu
                    )
                    for gpu in range(GPUS)
                    for signal in signals
                )
            )
            for node in range(SCRAPED_NODES)
        ]
        began = time.perf_counter()
        windows.append(readings, at)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


if __name__ == "__main__":
    main()
