"""Recording rules that give dcgm-exporter's metrics our names, base units and labels.

Generated from the same table that the scrape reader uses (``collector.dcgm.fields``): a metric means the
same on both ways. What comes out has the labels ``cluster``, ``node``, ``gpu`` (index), ``uuid``, for an
instance of a MIG GPU ``gi``, for a link ``nvlink``; nothing of the exporter's pod or driver, so that a
restart of the exporter or a new driver is no new series.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from alerts.model import Group, Recording
from collector.dcgm.fields import Field, Zero, load_fields
from collector.signals import Signal, SignalTarget, load_signals

INTERVAL_SECONDS = 15.0
GPU_LABELS = ("cluster", "node", "gpu", "uuid")
# Bounds of our own that differ from the table's: the reader knows blank codes one by one, PromQL compares.
_INT32_BLANK = 2147483632  # 0x7ffffff0, dcgm_structs.h
_INT64_BLANK = 9.2233720368547e18
_COUNTED = frozenset({"1", "bool", "enum", "bitmask"})


def group() -> Group:
    """All signals of GPUs that dcgm-exporter can give."""
    fields = load_fields()
    rules = tuple(
        Recording(record=signal.metric_name, expr=expression(signal, fields))
        for signal in load_signals().values()
        if signal.target is SignalTarget.GPU and any(_by_rank(signal, fields).values())
    )
    return Group(name="sickbay-normalise-dcgm", interval_seconds=INTERVAL_SECONDS, rules=rules)


def expression(signal: Signal, fields: Mapping[str, Field]) -> str:
    """PromQL for one signal; where several metrics carry it, the preferred one that is there."""
    parts = [
        _one(names, next(fields[name] for name in names), signal)
        for _, names in sorted(_by_rank(signal, fields).items())
    ]
    return "\nor\n".join(parts)


def _by_rank(signal: Signal, fields: Mapping[str, Field]) -> dict[int, list[str]]:
    ranks: dict[int, list[str]] = {}
    for name, spec in fields.items():
        if spec.signal == signal.name and name != signal.metric_name and not spec.info:
            ranks.setdefault(spec.rank, []).append(name)
    return ranks


def _one(names: list[str], spec: Field, signal: Signal) -> str:
    labels = [*GPU_LABELS, *(("gi",) if spec.per_instance else ()), *_series_labels(signal)]
    selector = names[0] if len(names) == 1 else '{__name__=~"' + "|".join(names) + '"}'
    for condition in _plausible(spec, signal):
        selector = f"{selector} {condition}"
    text = f"max by ({', '.join(labels)}) (\n{_indent(_identified(f'({selector})', spec))}\n)"
    return f"{text}{_scaled(spec.scale)}"


def _scaled(scale: float) -> str:
    """Multiplied or divided, whichever is exact: 1e9 is a float, 1e-9 is not."""
    if scale == 1.0:
        return ""
    return f" * {scale:.10g}" if scale > 1.0 else f" / {1 / scale:.10g}"


def _series_labels(signal: Signal) -> tuple[str, ...]:
    return ("nvlink",) if signal.name.startswith("gpu_nvlink_") and signal.name.endswith("_total") else ()


def _plausible(spec: Field, signal: Signal) -> Iterator[str]:
    """Comparisons in the exporter's unit: blank codes and nonsense are absent, never a number."""
    blank = _INT32_BLANK if signal.unit in _COUNTED else _INT64_BLANK
    highest = spec.high / spec.scale
    yield f"< {blank:.15g}" if highest >= blank else f"<= {highest:.10g}"
    yield "> 0" if spec.zero is not Zero.VALUE else f">= {spec.low / spec.scale:.10g}"


def _identified(vector: str, spec: Field) -> str:
    """Our labels. ``node``: the scrape's own word first, then the exporter's, by its old and new name."""
    steps = [("node", ("node", "Hostname", "hostname")), ("uuid", ("UUID", "gpu_uuid"))]
    if spec.per_instance:
        steps.append(("gi", ("GPU_I_ID",)))
    for label, sources in steps:
        listed = ", ".join(f'"{source}"' for source in sources)
        vector = (
            f'label_replace(label_join({vector}, "{label}", ";", {listed}),'
            f' "{label}", "$1", "{label}", ";*([^;]*).*")'
        )
    return vector


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
