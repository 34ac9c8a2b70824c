"""One body, line by line: what it says of each GPU, in base units and still under its own labels.

Memory grows with the number of GPUs and signals a body names, not with its lines: repeats and label churn
(a pod label per line) are folded as they come.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from collector.dcgm.exposition import BadLineError, Line, parse_labels, parse_line, split_lines
from collector.dcgm.fields import Field, find_field, load_fields
from collector.dcgm.labels import Identity, Subject, read_labels
from collector.dcgm.tally import GpuRef, Tally
from collector.dcgm.values import Blank, Verdict, blank_kind, convert
from collector.signals import SignalTarget
from fleet.observations import ProblemReason

MAX_WORKLOADS_PER_GPU = 256
_MAX_CACHED_LABELS = 4096
_QUOTED_CHARS = 120
AGENT_GPUS_COMPLETE = "sickbay_agent_gpus_complete"
_TYPE_WORDS = 4  # "# TYPE name type"
_UNTYPED = frozenset({"untyped", "unknown"})
_XID = "gpu_xid_last_code"
_XID_COUNTS = frozenset({"gpu_xid_window_count", "gpu_xid_errors_total"})


@dataclass(slots=True)
class Workloads:
    """Who holds one GPU or GPU instance; dictionaries keep the order and drop repeats."""

    jobs: dict[str, None] = field(default_factory=dict)
    exported_pods: dict[str, None] = field(default_factory=dict)
    direct_pods: dict[str, None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.jobs) + len(self.exported_pods) + len(self.direct_pods)


@dataclass(slots=True)
class _Entry:
    """A label set that was seen: its GPU (instance) and its board, as places in ``Body.identities``."""

    subject: Subject
    own: int
    board: int


@dataclass(frozen=True, slots=True)
class Key:
    """One value's place: whose (in ``Body.identities``), which signal, and when, if the line says so."""

    identity: int
    signal: str
    time: float | None


class Body:
    """Everything one body says. ``read`` once, then look."""

    def __init__(self, *, openmetrics: bool, tally: Tally) -> None:
        self.identities: list[Identity] = []
        self.values: dict[Key, float] = {}
        self.fields: dict[str, Field] = {}
        self.workloads: dict[int, Workloads] = {}
        self.infos: dict[int, dict[str, str]] = {}
        self.lines_of: dict[int, int] = {}
        self.metrics: set[str] = set()
        self.blanks: dict[str, Blank] = {}
        self.federated = False
        self.sample_lines = self.header_lines = self.bad_lines = self.foreign_metrics = self.blank_count = 0
        self._openmetrics = openmetrics
        self._tally = tally
        self._ranks: dict[Key, int] = {}
        self._numbers: dict[Identity, int] = {}
        self._entries: dict[str, _Entry] = {}
        self._all_fields: Mapping[str, Field] = load_fields()
        self._known: dict[str, Field | None] = {}
        self._types: dict[str, str] = {}
        self._type_told: set[str] = set()

    def read(self, data: bytes) -> None:
        """Take all lines. A last line without its line feed is torn: whatever it says is not believed."""
        torn = not data.endswith(b"\n")
        previous: str | None = None
        for line in split_lines(data):
            if previous is not None:
                self._take(previous)
            previous = line
        if previous is None:
            return
        if not torn:
            self._take(previous)
        elif previous and previous != "# EOF":
            self.bad_lines += 1
            self._tally.add(
                ProblemReason.TRUNCATED, f"the last line has no end: {_quote(previous)} is skipped", count=1
            )

    def _take(self, text: str) -> None:
        if not text:
            return
        if text[0] == "#":
            self.header_lines += text.startswith(("# TYPE ", "# HELP ", "# UNIT ", "# EOF"))
            if text.startswith("# TYPE "):
                self._note_type(text)
            return
        try:
            line = parse_line(text, openmetrics=self._openmetrics)
            metric = self._field(line.name)
            if metric is None:
                self.sample_lines += 1
                self._note_foreign(line)
                return
            entry = self._entry(line.labels)
        except BadLineError as error:
            self._bad(text, error)
            return
        self.sample_lines += 1
        self._take_value(metric, entry, line)

    def _note_type(self, text: str) -> None:
        """Two types of one metric contradict each other; what we make of it does not depend on either."""
        words = text.split()
        if len(words) != _TYPE_WORDS or words[3] in _UNTYPED or self._field(words[2]) is None:
            return
        known = self._types.setdefault(words[2], words[3])
        if known != words[3] and words[2] not in self._type_told:
            self._type_told.add(words[2])
            message = f"{words[2]} is declared as {known} and as {words[3][:40]}"
            self._tally.add(ProblemReason.INCONSISTENT, message, count=1)

    def _note_foreign(self, line: Line) -> None:
        """A metric no signal needs: only that it is DCGM's, and blank, is worth a count.

        But our own agent says so when it cannot list all GPUs: one that is missing may still be there.
        """
        if line.name == AGENT_GPUS_COMPLETE and line.value == 0:
            message = "a source of the agent cannot tell now: a GPU that is missing here may still be there"
            self._tally.add(ProblemReason.QUERY_ERROR, message, count=1)
        if line.name.startswith(("DCGM_", "dcgm_")):
            self.foreign_metrics += 1
            self._note_blank(line)

    def _note_blank(self, line: Line) -> Blank | None:
        blank = blank_kind(line.value, line.value_text) if math.isfinite(line.value) else None
        if blank is not None:
            self.blank_count += 1
            self.blanks[line.name] = blank
        return blank

    def _bad(self, text: str, error: BadLineError) -> None:
        self.bad_lines += 1
        reason = ProblemReason.TOO_LARGE if "too long" in str(error) else ProblemReason.UNREADABLE
        self._tally.add(reason, f"{error}: {_quote(text)} is skipped", count=1)

    def _field(self, name: str) -> Field | None:
        try:
            return self._known[name]
        except KeyError:
            if len(self._known) > _MAX_CACHED_LABELS:
                self._known.clear()
            found = self._known[name] = find_field(self._all_fields, name)
            return found

    def _entry(self, labels: str) -> _Entry:
        entry = self._entries.get(labels)
        if entry is not None:
            return entry
        subject = read_labels(parse_labels(labels))
        own = self._number(subject.identity)
        board = own if subject.identity.mig is None else self._number(replace(subject.identity, mig=None))
        entry = _Entry(subject, own, board)
        self.federated = self.federated or subject.federated
        self._note_workload(subject, own)
        if subject.identity.names_gpu:
            self._note_info(subject, board)
        if len(self._entries) >= _MAX_CACHED_LABELS:
            self._entries.clear()
        self._entries[labels] = entry
        return entry

    def _number(self, identity: Identity) -> int:
        number = self._numbers.get(identity)
        if number is None:
            number = self._numbers[identity] = len(self.identities)
            self.identities.append(identity)
        return number

    def _note_workload(self, subject: Subject, own: int) -> None:
        said = subject.workload
        if said.nameless_pod:
            self._tally.add(
                ProblemReason.PARTIAL, "a pod stands without its namespace: not attributed", count=1
            )
        if not (said.job or said.exported_pod or said.direct_pod):
            return
        held = self.workloads.setdefault(own, Workloads())
        if len(held) >= MAX_WORKLOADS_PER_GPU:
            message = f"more than {MAX_WORKLOADS_PER_GPU} jobs and pods on one GPU: the rest is not kept"
            self._tally.add(ProblemReason.PARTIAL, message, count=1)
            return
        if said.job:
            held.jobs[said.job] = None
        if said.exported_pod:
            held.exported_pods[said.exported_pod] = None
        if said.direct_pod:
            held.direct_pods[said.direct_pod] = None

    def _note_info(self, subject: Subject, board: int) -> None:
        said = dict(subject.info)
        if subject.model:
            said.setdefault("model", subject.model)
        if subject.driver:
            said.setdefault("driver", subject.driver)
        if len(said) > len(self.infos.get(board, {})):
            self.infos[board] = said

    def _take_value(self, metric: Field, entry: _Entry, line: Line) -> None:
        subject = entry.subject
        if metric.target is SignalTarget.GPU and not subject.identity.names_gpu:
            if not subject.other_entity:
                message = f"{line.name} names no GPU: {_quote(line.labels)} is skipped"
                self._tally.add(ProblemReason.PARTIAL, message, count=1)
            return
        number = entry.own if metric.per_instance else entry.board
        self.lines_of[number] = self.lines_of.get(number, 0) + 1
        if metric.info:
            return
        if line.other_unit:
            unit = "milliseconds" if self._openmetrics else "seconds"
            message = (
                f"the timestamp of {line.name} stands in {unit}, which its format does not do: read as such"
            )
            self._tally.add(ProblemReason.INCONSISTENT, message, count=1)
        of_instance = metric.per_instance and subject.identity.mig is not None
        value = self._value(metric, line, subject.identity, of_instance=of_instance)
        if value is not None:
            self.metrics.add(line.name)
            self.fields[metric.signal] = metric
            self._put(Key(number, metric.signal, line.timestamp), metric.rank, value, subject.identity)

    def _value(self, metric: Field, line: Line, who: Identity, *, of_instance: bool) -> float | None:
        if not math.isfinite(line.value):
            self._refuse(ProblemReason.UNRECOGNISED_VALUE, f"{line.name} is {line.value_text}", who)
            return None
        blank = self._note_blank(line)
        if blank is not None:
            if blank is Blank.NOT_PERMISSIONED:
                message = (
                    f"DCGM may not read {line.name}: give its exporter the right (SYS_ADMIN for profiling)"
                )
                self._refuse(ProblemReason.PERMISSION_DENIED, message, who)
            return None
        value = convert(metric, line.value, of_instance=of_instance)
        if not isinstance(value, Verdict):
            return value
        if value is Verdict.OUT_OF_RANGE:
            message = f"{line.name} is {line.value_text[:40]}: no such value can be"
            self._refuse(ProblemReason.UNRECOGNISED_VALUE, message, who)
        elif value is Verdict.IMPLAUSIBLE:
            message = f"{line.name} is 0: a powered GPU is warmer, the sensor was not read"
            self._refuse(ProblemReason.INCONSISTENT, message, who)
        return None

    def _refuse(self, reason: ProblemReason, message: str, who: Identity) -> None:
        self._tally.add(reason, message, count=1, gpu=GpuRef(uuid=who.uuid, index=who.index, pci=who.pci))

    def _put(self, key: Key, rank: int, value: float, who: Identity) -> None:
        """The better source wins, then the first, as in Prometheus; a contradiction is told."""
        known_rank = self._ranks.get(key)
        if known_rank is None or rank < known_rank:
            self._ranks[key] = rank
            self.values[key] = value
        elif rank == known_rank and self.values[key] != value:
            self.values[key], told = settle(key.signal, self.values[key], value)
            if told:
                message = f"{key.signal} stands there twice with different values: the first is kept"
                self._refuse(ProblemReason.INCONSISTENT, message, who)


def settle(signal: str, first: float, second: float) -> tuple[float, bool]:
    """Of two different values the one to keep, and whether they contradict each other.

    An XID lands on one instance of a MIG GPU and leaves 0 on the others: code and counts are the board's.
    """
    if signal in _XID_COUNTS or (signal == _XID and 0.0 in (first, second)):
        return max(first, second), False
    return first, True


def _quote(text: str) -> str:
    return repr(text[:_QUOTED_CHARS])
