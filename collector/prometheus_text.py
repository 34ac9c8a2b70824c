"""A Reading as Prometheus text, for one-shot use (``sickbay collect --format prometheus``)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from prometheus_client import Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

from fleet.observations import Reading, Sample

EVENTS_METRIC = "sickbay_kernel_events"


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def to_prometheus(reading: Reading) -> str:
    """Samples as gauges (``*_total``: counters) named ``sickbay_<signal>``; kernel events as one counter.

    ``sickbay_kernel_events_total{node,kind,code,pci}`` counts what this reading saw. Empty label: unknown.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families([*sample_families(reading), *_event_families(reading)]))
    return generate_latest(registry).decode("utf-8")


def sample_families(reading: Reading) -> list[Metric]:
    """The samples of ``reading`` as metric families; empty label: unknown."""
    families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
    for sample in reading.records:
        if not isinstance(sample, Sample) or not math.isfinite(sample.value):
            continue
        labels = {
            "node": sample.node or "",
            "gpu": "" if sample.index is None else str(sample.index),
            "uuid": sample.gpu or "",
            "pci": sample.pci or "",
            **sample.labels,
        }
        if sample.mig is not None:
            labels["gi"] = str(sample.mig.gi)
            labels["ci"] = "" if sample.mig.ci is None else str(sample.mig.ci)
        family = families.get(sample.signal)
        if family is None:
            make = CounterMetricFamily if sample.signal.endswith("_total") else GaugeMetricFamily
            help_text = f"Signal {sample.signal}, as its source says it."
            family = families[sample.signal] = make(f"sickbay_{sample.signal}", help_text)
        # One family however its samples are labelled (a MIG slice has labels a board lacks): HELP and TYPE
        # may stand once only.
        suffix = "_total" if isinstance(family, CounterMetricFamily) else ""
        family.add_sample(family.name + suffix, labels, sample.value)
    return list(families.values())


def _event_families(reading: Reading) -> list[Metric]:
    counts: dict[tuple[str, str, str, str], int] = {}
    for event in reading.events:
        code = "" if event.code is None else str(event.code)
        key = (event.node or "", event.kind.value, code, event.pci or "")
        counts[key] = counts.get(key, 0) + event.count
    if not counts:
        return []
    family = CounterMetricFamily(
        EVENTS_METRIC,
        "Hardware events in the kernel log, repeats included.",
        labels=["node", "kind", "code", "pci"],
    )
    for labels, count in counts.items():
        family.add_metric(list(labels), count)
    return [family]
