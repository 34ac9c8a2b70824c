"""A scraped body becomes a Reading: lines, then nodes and GPUs by their lasting names, then records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from collector.dcgm.body import Body, Workloads, settle
from collector.dcgm.capture import unwrap
from collector.dcgm.exposition import is_openmetrics, looks_like_openmetrics
from collector.dcgm.fields import FREE_MEMORY, RESERVED_MEMORY
from collector.dcgm.hosts import place
from collector.dcgm.labels import Identity
from collector.dcgm.tally import SOURCE, GpuRef, Tally
from collector.dcgm.values import Blank
from collector.inventory import Inventory
from collector.signals import SignalTarget
from fleet.identity import MigInstance
from fleet.observations import Allocation, ProblemReason, Reading, Sample

_TOTAL = "gpu_memory_total_bytes"
_USED = "gpu_memory_used_bytes"
_INFO = "gpu_info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What one body covered, to tell "was 0" from "is no longer said" between two scrapes.

    ``metrics``: names with at least one value, as printed. ``blanks``: names that DCGM has no value for, and
    why; ``blank_count`` counts the lines. ``gpus``: GPUs with at least one line. ``bad_lines``: malformed.
    """

    sample_lines: int
    bad_lines: int
    blank_count: int
    gpus: int
    metrics: frozenset[str]
    blanks: Mapping[str, Blank]


@dataclass(frozen=True, slots=True)
class DcgmRead:
    """A reading, and what it covered."""

    reading: Reading
    coverage: Coverage


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a sample belongs, resolved: the node, and the GPU by UUID where anything in the body says it."""

    node: str | None
    gpu: str | None
    index: int | None
    pci: str | None
    mig: MigInstance | None
    series: tuple[tuple[str, str], ...]


def read_dcgm(
    data: bytes,
    *,
    node: str | None,
    now: float,
    inventory: Inventory | None = None,
    openmetrics: bool | None = None,
    neighbours: Iterable[str] = (),
) -> Reading:
    """Read one exposition body of dcgm-exporter (1.x to 4.x, federated or not) or of our own exporters.

    ``node``: the scrape target's node; it wins over the body's host label. ``now`` (epoch seconds) dates
    samples without a timestamp. ``openmetrics``: what the content type says; None looks at the body. ``data``
    may be compressed with gzip, or UTF-16.
    ``neighbours``: other nodes that have exporters of their own; a body that names one is not ``node``'s.

    Samples (base units), then allocations (GPUs that a job or pod holds), then problems. ``ok`` is False when
    the body holds nothing of the format at all; a sound body without a GPU is ok, with the problem
    ``no_devices``. Never raises, whatever the bytes.
    """
    return read_dcgm_in_full(
        data, node=node, now=now, inventory=inventory, openmetrics=openmetrics, neighbours=neighbours
    ).reading


def read_dcgm_in_full(
    data: bytes,
    *,
    node: str | None,
    now: float,
    inventory: Inventory | None = None,
    openmetrics: bool | None = None,
    neighbours: Iterable[str] = (),
) -> DcgmRead:
    """As ``read_dcgm``, with what was covered."""
    tally = Tally(node)
    data = unwrap(data, tally)
    if data[:64].lstrip()[:1] == b"<":
        tally.add(ProblemReason.UNREADABLE, "this is a web page, not metrics: check the address", count=1)
        return DcgmRead(
            Reading(tally.problems(node), ok=False), _coverage(Body(openmetrics=False, tally=tally), 0)
        )
    complete = is_openmetrics(data)
    if openmetrics is None and not complete and looks_like_openmetrics(data):
        openmetrics = True
    body = Body(openmetrics=complete if openmetrics is None else openmetrics, tally=tally)
    body.read(data)
    if openmetrics and not complete:
        tally.add(ProblemReason.TRUNCATED, "OpenMetrics without '# EOF': the rest is missing", count=1)
    return _Assembly(body, tally, node=node, now=now, inventory=inventory, neighbours=neighbours).finish()


class _Assembly:
    """From a body's own labels to records."""

    def __init__(
        self,
        body: Body,
        tally: Tally,
        *,
        node: str | None,
        now: float,
        inventory: Inventory | None,
        neighbours: Iterable[str],
    ) -> None:
        self._body = body
        self._tally = tally
        self._now = now
        self._inventory = inventory
        hosts: dict[str | None, int] = {}
        for number, count in body.lines_of.items():
            host = body.identities[number].host
            hosts[host] = hosts.get(host, 0) + count
        self._nodes = place(hosts, node=node, inventory=inventory, tally=tally, neighbours=neighbours).nodes
        self._is_foreign = bool(hosts) and not self._nodes
        self._by_uuid: dict[tuple[str | None, str], tuple[int | None, str | None]] = {}
        self._by_index: dict[tuple[str | None, int], set[str]] = {}
        self._by_pci: dict[tuple[str | None, str], set[str]] = {}
        self._learn_gpus()

    def finish(self) -> DcgmRead:
        self._check_indexes()
        samples = [*self._samples(), *self._infos()]
        allocations = list(self._allocations())
        gpus: dict[str | None, set[str | int]] = {}
        for number in self._body.lines_of:
            place_ = self._place(number)
            if place_ is not None and self._body.identities[number].names_gpu:
                names = (place_.gpu, place_.index, place_.pci)
                gpus.setdefault(place_.node, set()).add(next(name for name in names if name is not None))
        self._judge(samples, gpus)
        nodes = {node for node in self._nodes.values() if node is not None}
        problems = self._tally.problems(next(iter(nodes)) if len(nodes) == 1 else None)
        ok = self._body.sample_lines + self._body.header_lines > 0
        reading = Reading((*samples, *allocations, *problems), ok=ok)
        return DcgmRead(reading, _coverage(self._body, sum(len(seen) for seen in gpus.values())))

    # -- who is who

    def _learn_gpus(self) -> None:
        """A line that lacks a GPU's UUID, index or address gets it from one that has it."""
        for identity in self._body.identities:
            if identity.host not in self._nodes or identity.uuid is None:
                continue
            node = self._nodes[identity.host]
            index, pci = self._by_uuid.get((node, identity.uuid), (None, None))
            self._check(identity, index, pci)
            index = identity.index if index is None else index
            pci = identity.pci if pci is None else pci
            self._by_uuid[node, identity.uuid] = (index, pci)
            if index is not None:
                self._by_index.setdefault((node, index), set()).add(identity.uuid)
            if pci is not None:
                self._by_pci.setdefault((node, pci), set()).add(identity.uuid)

    def _check(self, identity: Identity, index: int | None, pci: str | None) -> None:
        moved = None not in (index, identity.index) and index != identity.index
        if moved or (None not in (pci, identity.pci) and pci != identity.pci):
            gpu = GpuRef(uuid=identity.uuid, index=index, pci=pci)
            message = "one GPU has two indexes or two addresses in one body: the first is kept"
            self._tally.add(ProblemReason.INCONSISTENT, message, count=1, gpu=gpu)

    def _check_indexes(self) -> None:
        """Two GPUs of one index at one time: two machines under one name. A history may have them."""
        if any(key.time is not None for key in self._body.values):
            return
        for (_, index), uuids in self._by_index.items():
            if len(uuids) > 1:
                message = f"{len(uuids)} GPUs have the index {index}: two machines under one name?"
                self._tally.add(ProblemReason.INCONSISTENT, message, count=1, gpu=GpuRef(index=index))

    def _place(self, number: int) -> _Place | None:
        """None for a line of another host than the target's."""
        said = self._body.identities[number]
        if said.host not in self._nodes:
            return None
        node = self._nodes[said.host]
        uuid = said.uuid
        if uuid is None and said.index is not None:
            uuid = _only(self._by_index.get((node, said.index), set()))
        if uuid is None and said.pci is not None:
            uuid = _only(self._by_pci.get((node, said.pci), set()))
        if uuid is None:
            return _Place(node, None, said.index, said.pci, said.mig, said.series)
        index, pci = self._by_uuid[node, uuid]
        return _Place(node, uuid, index, pci, said.mig, said.series)

    # -- records

    def _samples(self) -> Iterator[Sample]:
        found: dict[tuple[_Place, float], dict[str, float]] = {}
        places = [self._place(number) for number in range(len(self._body.identities))]
        for key, value in self._body.values.items():
            place_ = places[key.identity]
            if place_ is None:
                continue
            time = self._now if key.time is None else key.time
            values = found.setdefault((place_, time), {})
            first = values.setdefault(key.signal, value)
            if first != value:
                values[key.signal], told = settle(key.signal, first, value)
                if told:
                    gpu = GpuRef(uuid=place_.gpu, index=place_.index, pci=place_.pci)
                    message = f"{key.signal} stands there twice with different values: the first is kept"
                    self._tally.add(ProblemReason.INCONSISTENT, message, count=1, gpu=gpu)
        for (place_, time), values in found.items():
            _add_total_memory(values)
            labels = dict(place_.series)
            for signal, value in values.items():
                if not signal.startswith("_"):
                    yield self._sample(place_, signal, value, time, labels)

    def _sample(
        self, place_: _Place, signal: str, value: float, time: float, labels: dict[str, str]
    ) -> Sample:
        known = self._body.fields.get(signal)
        if known is not None and known.target is SignalTarget.NODE:
            return Sample(node=place_.node, signal=signal, value=value, time=time, labels=labels)
        return Sample(
            node=place_.node,
            signal=signal,
            value=value,
            time=time,
            gpu=place_.gpu,
            index=place_.index,
            pci=place_.pci,
            mig=place_.mig,
            labels=labels,
        )

    def _infos(self) -> Iterator[Sample]:
        infos: dict[tuple[str | None, str | None, int | None, str | None], dict[str, str]] = {}
        for number, labels in self._body.infos.items():
            place_ = self._place(number)
            if place_ is not None and "model" in labels:
                infos.setdefault((place_.node, place_.gpu, place_.index, place_.pci), {}).update(labels)
        for (node, gpu, index, pci), labels in infos.items():
            yield Sample(
                node=node,
                signal=_INFO,
                value=1.0,
                time=self._now,
                gpu=gpu,
                index=index,
                pci=pci,
                labels=labels,
            )

    def _allocations(self) -> Iterator[Allocation]:
        held: dict[tuple[str | None, str | None, int | None, MigInstance | None], Workloads] = {}
        for number, said in self._body.workloads.items():
            place_ = self._place(number)
            if place_ is None or not self._body.identities[number].names_gpu:
                continue
            at = held.setdefault((place_.node, place_.gpu, place_.index, place_.mig), Workloads())
            at.jobs.update(said.jobs)
            # Where Prometheus renamed the exporter's labels, a plain ``pod`` is the exporter's own.
            at.exported_pods.update(said.exported_pods if self._body.federated else said.direct_pods)
        for (node, gpu, index, mig), at in held.items():
            if at.jobs or at.exported_pods:
                yield Allocation(
                    node=node,
                    gpu=gpu,
                    index=index,
                    mig=mig,
                    jobs=tuple(at.jobs),
                    pods=tuple(at.exported_pods),
                )

    # -- what is missing

    def _judge(self, samples: list[Sample], gpus: Mapping[str | None, set[str | int]]) -> None:
        body, tally = self._body, self._tally
        if not body.sample_lines + body.header_lines + body.bad_lines:
            tally.add(ProblemReason.NO_DEVICES, "the answer is empty: no GPU is visible", count=1)
        elif self._is_foreign:
            pass  # told already: whether this node has GPUs, it does not say
        elif not samples and not gpus and body.sample_lines + body.header_lines:
            what = (
                f", {body.foreign_metrics} of DCGM's, none of which is known" if body.foreign_metrics else ""
            )
            message = f"{body.sample_lines} samples{what}: no GPU is visible"
            tally.add(ProblemReason.NO_DEVICES, message, count=1)
        for node, seen in gpus.items():
            item = None if self._inventory is None or node is None else self._inventory.get(node)
            if item is not None and item.expected_gpus is not None and len(seen) < item.expected_gpus:
                message = f"{len(seen)} of {item.expected_gpus} expected GPUs are visible"
                tally.add(ProblemReason.PARTIAL, message, count=item.expected_gpus - len(seen))


def _add_total_memory(values: dict[str, float]) -> None:
    """Where the exporter does not say the total: used, free and reserved, and only if all three are there."""
    if _TOTAL not in values and values.keys() >= {_USED, FREE_MEMORY, RESERVED_MEMORY}:
        values[_TOTAL] = values[_USED] + values[FREE_MEMORY] + values[RESERVED_MEMORY]


def _only(found: set[str]) -> str | None:
    return next(iter(found)) if len(found) == 1 else None


def _coverage(body: Body, gpus: int) -> Coverage:
    return Coverage(
        sample_lines=body.sample_lines,
        bad_lines=body.bad_lines,
        blank_count=body.blank_count,
        gpus=gpus,
        metrics=frozenset(body.metrics),
        blanks=MappingProxyType(dict(body.blanks)),
    )


__all__ = ["SOURCE", "Coverage", "DcgmRead", "read_dcgm", "read_dcgm_in_full"]
