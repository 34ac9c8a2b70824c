"""Events from DCGM's XID gauges, for nodes whose kernel log nobody reads.

``gpu_xid_last_code`` is latched: the last code since the exporter started, for ever; only a change says that
something happened, and the same code twice says nothing. ``gpu_xid_window_count`` is a sliding window: a
rise says how many came, a fall or a vanished series only that the window moved on.
"""

from __future__ import annotations

from collections.abc import Iterable

from fleet.observations import Event, EventKind, Reading, Sample, TimeSource

LAST_CODE = "gpu_xid_last_code"
WINDOW_COUNT = "gpu_xid_window_count"

_Gpu = tuple[str | None, str | int | None]


class XidWatch:
    """Compares each reading of a fleet with the one before. Not thread-safe.

    Events have ``time_source`` RECEIVED: they happened between two scrapes. A GPU that is read for the first
    time has a past of its own: its latched code is no event, its window (minutes) is. A fall to 0 is a
    restarted exporter, no recovery; after it a code counts as new.
    """

    def __init__(self) -> None:
        self._last: dict[_Gpu, float] = {}
        self._counts: dict[_Gpu, dict[str, float]] = {}

    def observe(self, reading: Reading) -> tuple[Event, ...]:
        """The XIDs that ``reading`` shows for the first time, in its order."""
        samples = [r for r in reading.records if isinstance(r, Sample)]
        return (*self._changed(samples), *self._risen(samples))

    def forget(self, node: str) -> None:
        """The node was re-imaged or left: what is read next is its first reading."""
        for table in (self._last, self._counts):
            for gpu in [gpu for gpu in table if gpu[0] == node]:
                del table[gpu]

    def _changed(self, samples: Iterable[Sample]) -> Iterable[Event]:
        for sample in samples:
            if sample.signal != LAST_CODE:
                continue
            before = self._last.get(_gpu(sample))
            self._last[_gpu(sample)] = sample.value
            if before is not None and sample.value not in (before, 0.0):
                yield _event(sample, int(sample.value), 1)

    def _risen(self, samples: list[Sample]) -> Iterable[Event]:
        now: dict[_Gpu, dict[str, float]] = {}
        for sample in samples:
            code = sample.labels.get("xid", "")
            if sample.signal != WINDOW_COUNT or not code.isdecimal() or not code.isascii():
                continue
            now.setdefault(_gpu(sample), {})[code] = sample.value
            more = int(sample.value - self._counts.get(_gpu(sample), {}).get(code, 0.0))
            if more > 0 and int(code[:9]) > 0:
                yield _event(sample, int(code[:9]), more)
        # Windows of the nodes in this reading only: a node that was not read keeps what it had.
        read = {sample.node for sample in samples}
        for gpu in [gpu for gpu in self._counts if gpu[0] in read]:
            del self._counts[gpu]
        self._counts.update(now)


def _gpu(sample: Sample) -> _Gpu:
    return sample.node, sample.gpu if sample.gpu is not None else sample.index


def _event(sample: Sample, code: int, count: int) -> Event:
    return Event(
        kind=EventKind.XID,
        node=sample.node,
        time=sample.time,
        time_source=TimeSource.RECEIVED,
        code=code,
        gpu=sample.gpu,
        pci=sample.pci,
        mig=sample.mig,
        count=count,
        message=f"DCGM: {sample.signal} shows XID {code}",
    )
