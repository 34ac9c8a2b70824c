"""Several sources about the same GPUs, as one: one name for each GPU, one source for each of its signals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fleet.identity import pci_join_key
from fleet.observations import Sample

_INFO = "gpu_info"
_Names = tuple[str | None, str | None, int | None]


@dataclass(slots=True, eq=False)
class _Gpu:
    """One GPU under all the names it was given; of two indexes the better source's is kept."""

    uuid: str | None = None
    pci: str | None = None
    index: int | None = None


def merge(sources: Sequence[Sequence[Sample]]) -> tuple[Sample, ...]:
    """The samples of ``sources`` (best first) without two of one series. Pure.

    Decided for each signal of each GPU: the first source that gives it gives all of it (its links, its XID
    codes), and the others' word on it is not used. A MIG GPU counts twice, as the board and as its slices,
    for DCGM gives some signals of slices only. Signals of the node are decided likewise.
    Labels of ``gpu_info`` are no values: there each source adds those that the better ones lack.
    """
    gpus = _name_gpus(sources)
    infos = _info_labels(sources, gpus)
    owner: dict[tuple[_Gpu | None, str, bool], int] = {}
    series: dict[tuple[object, ...], Sample] = {}
    for rank, samples in enumerate(sources):
        for sample in samples:
            names = _names(sample)
            gpu = gpus.get((rank, names))
            if owner.setdefault((gpu, sample.signal, sample.mig is not None), rank) != rank:
                continue
            named = sample
            if gpu is not None and names != (gpu.uuid, gpu.pci, gpu.index):
                named = replace(sample, gpu=gpu.uuid, pci=gpu.pci, index=gpu.index)
            if gpu is not None and sample.signal == _INFO:
                named = replace(named, labels=infos[gpu])
            series.setdefault(_series(named), named)
    return tuple(series.values())


def _info_labels(
    sources: Sequence[Sequence[Sample]], gpus: dict[tuple[int, _Names], _Gpu]
) -> dict[_Gpu, dict[str, str]]:
    found: dict[_Gpu, dict[str, str]] = {}
    for rank, samples in enumerate(sources):
        for sample in samples:
            gpu = gpus.get((rank, _names(sample)))
            if gpu is not None and sample.signal == _INFO:
                found[gpu] = {**sample.labels, **found.get(gpu, {})}
    return found


def _series(sample: Sample) -> tuple[object, ...]:
    """What tells one series from another on the page."""
    slice_ = None if sample.mig is None else (sample.mig.gi, sample.mig.ci)
    labels = tuple(sorted(sample.labels.items()))
    return sample.signal, sample.node, sample.gpu, sample.pci, sample.index, slice_, labels


def _names(sample: Sample) -> _Names:
    return sample.gpu, sample.pci, sample.index


def _name_gpus(sources: Sequence[Sequence[Sample]]) -> dict[tuple[int, _Names], _Gpu]:
    """Which GPU is meant by the names a source uses."""
    said = {(rank, _names(sample)): None for rank, samples in enumerate(sources) for sample in samples}
    known = _KnownGpus()
    found: dict[tuple[int, _Names], _Gpu] = {}
    # The fullest names first: they say which short ones belong together.
    for rank, names in sorted(said, key=lambda key: (sum(name is None for name in key[1]), key[0])):
        if any(name is not None for name in names):
            found[rank, names] = known.learn(names)
    _settle_indexes(found)
    return found


def _settle_indexes(found: dict[tuple[int, _Names], _Gpu]) -> None:
    """Each GPU gets the index that its best source says, so that its series keep their labels."""
    settled: set[_Gpu] = set()
    for (_rank, names), gpu in sorted(found.items(), key=lambda item: item[0][0]):
        if names[2] is not None and gpu not in settled:
            gpu.index = names[2]
            settled.add(gpu)


class _KnownGpus:
    """A GPU is its UUID; else its PCI address. An index moves after a loss, so it only joins what has no
    other name.
    """

    def __init__(self) -> None:
        self._by_uuid: dict[str, _Gpu] = {}
        self._by_pci: dict[str, _Gpu] = {}
        self._by_index: dict[int, list[_Gpu]] = {}

    def learn(self, names: _Names) -> _Gpu:
        uuid, pci, index = names
        gpu = self._find(uuid, pci, index) or _Gpu()
        if gpu.uuid is None and uuid is not None:
            gpu.uuid = uuid
            self._by_uuid[uuid] = gpu
        if gpu.pci is None and pci is not None:
            gpu.pci = pci
            self._by_pci[pci_join_key(pci)] = gpu
        if gpu.index is None and index is not None:
            gpu.index = index
            self._by_index.setdefault(index, []).append(gpu)
        return gpu

    def _find(self, uuid: str | None, pci: str | None, index: int | None) -> _Gpu | None:
        if uuid is not None and uuid in self._by_uuid:
            return self._by_uuid[uuid]
        if pci is not None:
            at = self._by_pci.get(pci_join_key(pci))
            if at is not None and (at.uuid is None or uuid is None):
                return at
        if index is None:
            return None
        nameless = uuid is None and pci is None
        return _only(gpu for gpu in self._by_index.get(index, ()) if nameless or _has_index_only(gpu))


def _has_index_only(gpu: _Gpu) -> bool:
    return gpu.uuid is None and gpu.pci is None


def _only(found: Iterable[_Gpu]) -> _Gpu | None:
    gpus = list(found)
    return gpus[0] if len(gpus) == 1 else None
