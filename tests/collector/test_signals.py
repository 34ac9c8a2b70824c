"""The shipped signal table."""

from __future__ import annotations

import re

from collector.signals import SignalKind, SignalTarget, load_signals


def test_names_say_their_unit() -> None:
    suffixes = {
        "celsius": "_celsius",
        "watts": "_watts",
        "joules": "_joules_total",
        "hertz": "_hertz",
        "ratio": "_ratio",
        "bytes": "_bytes",
        "bytes/s": "_bytes_per_second",
        "seconds": "_seconds_total",
    }
    for signal in load_signals().values():
        assert re.fullmatch(r"(gpu|node|nic)_[a-z0-9_]+", signal.name)
        assert signal.name.endswith(suffixes.get(signal.unit, ""))
        assert signal.name.endswith("_total") is (signal.kind is SignalKind.COUNTER)
        assert (signal.target is SignalTarget.GPU) is signal.name.startswith("gpu_")


def test_no_metric_of_dcgm_stands_for_two_signals() -> None:
    names = [name for signal in load_signals().values() for name in signal.dcgm_names]
    assert len(names) == len(set(names))
