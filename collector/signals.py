"""The canonical signals: names, units and where each source gives them (``data/signals.csv``)."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from types import MappingProxyType


class SignalTarget(StrEnum):
    """What a signal is about."""

    GPU = "gpu"
    NODE = "node"


class SignalKind(StrEnum):
    """How a signal moves. BITMASK, ENUM and INFO are gauges whose number means something else."""

    GAUGE = "gauge"
    COUNTER = "counter"
    BITMASK = "bitmask"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One signal in base units. ``unit``: celsius, watts, ratio, ``1`` (a count), bool, enum, bitmask ...

    ``dcgm_names``: dcgm-exporter's metrics that carry it, the preferred one first.
    ``nvidia_smi_xml``, ``nvidia_smi_query``: those of ``nvidia-smi -q -x`` and ``--query-gpu``, likewise.
    """

    name: str
    unit: str
    target: SignalTarget
    kind: SignalKind
    dcgm_names: tuple[str, ...]
    nvidia_smi_xml: tuple[str, ...]
    nvidia_smi_query: tuple[str, ...]
    notes: str

    @property
    def metric_name(self) -> str:
        """The name our own exporters give it."""
        return f"sickbay_{self.name}"


@cache
def load_signals() -> Mapping[str, Signal]:
    """All signals by name, in the order of the table. A broken table raises ValueError (it is ours)."""
    text = (resources.files("collector.data") / "signals.csv").read_text("utf-8")
    signals: dict[str, Signal] = {}
    for row in csv.DictReader(text.splitlines()):
        name = row["signal"]
        if name in signals:
            raise ValueError(f"signals.csv: {name} stands there twice")
        signals[name] = Signal(
            name=name,
            unit=row["unit"],
            target=SignalTarget(row["target"]),
            kind=SignalKind(row["type"]),
            dcgm_names=_alternatives(row["dcgm_exporter_name"]),
            nvidia_smi_xml=_alternatives(row["nvidia_smi_xml"]),
            nvidia_smi_query=_alternatives(row["nvidia_smi_query"]),
            notes=row["notes"],
        )
    return MappingProxyType(signals)


def _alternatives(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split("|") if part.strip())
