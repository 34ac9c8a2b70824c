"""The demo's right side: one sentence per decision, made from the ledger, with what happened in between.

Sentences about decisions are the ledger's own. What the script did to the fleet, pages and nodes that fell
silent stand between them, so that cause and answer are read in order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby

from fleet.findings import Step, Verdict
from remediator.records import Actor, Outcome, Phase, StepRecord
from sickbay.demo.clockwork import Clockwork
from simulator.faults import Fault, FaultKind

LINES_A_LOOK = 500
SENTENCES_KEPT = 1000
#: Agents speak every 15 s, each in its own second: what is noticed within that is one sentence.
HEARD_TOGETHER_SECONDS = 20.0
LASTING_SECONDS = 3600.0
LOST_TEXT = "unknown: silence is no evidence, nothing is done"
_DONE_WORDS = {
    Step.CORDON: "cordoned",
    Step.REQUEUE: "requeued",
    Step.REBOOT: "reboot ordered",
    Step.VERIFY: "verified",
    Step.UNCORDON: "returned to service",
    Step.HAND_OVER: "handed over",
}


class Kind(StrEnum):
    """What a sentence is about; its colour."""

    FAULT = "fault"
    FOUND = "found"
    NOTED = "noted"
    MOVED = "moved"
    DONE = "done"
    REFUSED = "refused"
    PERSON = "person"
    PAGE = "page"


@dataclass(frozen=True, slots=True)
class Sentence:
    """``at``: simulated seconds since the start. ``who``: the node, ``6 nodes``, or empty: the fleet."""

    at: float
    who: str
    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class Heard:
    """Nodes that became unknown (``lost``), or were heard again."""

    at: float
    nodes: tuple[str, ...]
    lost: bool

    @property
    def sentence(self) -> Sentence:
        text = LOST_TEXT if self.lost else "heard again"
        return Sentence(self.at, _names(self.nodes), Kind.NOTED, text)


class Story:
    """Collects sentences; ``look`` adds what has come since the last look."""

    def __init__(self, work: Clockwork) -> None:
        self._work = work
        self._faults_told = 0
        self._last_line = 0
        self._pages_told = 0
        self._verdicts: Mapping[str, str] = {}
        self._missed: frozenset[str] = frozenset()
        self._last_heard: dict[bool, Heard] = {}
        self.sentences: list[Sentence] = []

    def look(self, verdicts: Mapping[str, str]) -> None:
        """``verdicts``: every node's, now."""
        start = self._work.started_at
        happened = self._work.happened[self._faults_told :]
        self._faults_told += len(happened)
        with self._work.store.transaction(read_only=True) as tx:
            lines = tx.steps_since(self._last_line, limit=LINES_A_LOOK)
        if lines:
            self._last_line = lines[-1].id
        notifier = self._work.app.notifier
        fresh_pages = notifier.count - self._pages_told
        pages = notifier.pages[-fresh_pages:] if fresh_pages else []
        self._pages_told += fresh_pages
        new = [
            *tell_faults([(at - start, fault) for at, fault in happened]),
            *tell_lines(lines, start),
            *(Sentence(at - start, "", Kind.PAGE, f"page: {text}") for at, _, text in pages),
        ]
        new.sort(key=lambda sentence: sentence.at)
        self.sentences = [*self.sentences, *new][-SENTENCES_KEPT:]
        for heard in tell_verdicts(self._work.elapsed, self._verdicts, verdicts, self._missed):
            self._tell_heard(heard)
        self._verdicts = verdicts

    def _tell_heard(self, heard: Heard) -> None:
        """Joined with what told the same a moment ago, in its place."""
        self._missed = self._missed | set(heard.nodes) if heard.lost else self._missed - set(heard.nodes)
        last = self._last_heard.get(heard.lost)
        if last is None or heard.at - last.at > HEARD_TOGETHER_SECONDS or last.sentence not in self.sentences:
            self._last_heard[heard.lost] = heard
            self.sentences.append(heard.sentence)
            return
        joined = replace(heard, at=last.at, nodes=(*last.nodes, *heard.nodes))
        self.sentences[self.sentences.index(last.sentence)] = joined.sentence
        self._last_heard[heard.lost] = joined


def tell_faults(happened: Iterable[tuple[float, Fault]]) -> list[Sentence]:
    """One sentence per scene and time: many nodes with the same, or one node with all that befalls it."""
    told: list[Sentence] = []
    for (at, _), group in groupby(happened, key=lambda pair: (pair[0], pair[1].scene)):
        faults = [fault for _, fault in group]
        nodes = list(dict.fromkeys(fault.node for fault in faults))
        texts = dict.fromkeys(_fault_text(fault, many=len(nodes) > 1) for fault in faults)
        told.append(Sentence(at, _names(nodes), Kind.FAULT, "; ".join(texts)))
    return told


def _fault_text(fault: Fault, *, many: bool) -> str:
    match fault.kind:
        case FaultKind.GPU_LOST:
            return f"GPU {fault.gpu_index} falls off the bus"
        case FaultKind.APP_XID:
            return "a job's own bug faults on every GPU it holds"
        case FaultKind.XID:
            return f"the driver prints XID {fault.code}"
        case FaultKind.AGENT_SILENT:
            whose = "their agents fall" if many else "its agent falls"
            return f"{whose} silent for {fault.seconds:.0f} s"
        case FaultKind.ADMIN_DRAIN:
            return f'{fault.user} drains it: "{fault.reason}"'
        case FaultKind.SCHEDULER_AWAY:
            return f"the scheduler does not answer for {fault.seconds:.0f} s"
        case FaultKind.HEAT:
            return f"heat slows GPU {fault.gpu_index} down{_for(fault.seconds)}"
        case FaultKind.POWER_BRAKE:
            return f"the power supply brakes GPU {fault.gpu_index}{_for(fault.seconds)}"
        case FaultKind.ECC_UNCORRECTED:
            return f"GPU {fault.gpu_index} counts an uncorrected memory error"
        case FaultKind.ROW_REMAP_FAILED:
            return f"a row remap of GPU {fault.gpu_index} fails: no spare is left"
        case FaultKind.EXPORTER_AWAY:
            whose = "their exporters do" if many else "its exporter does"
            return f"{whose} not answer for {fault.seconds:.0f} s"


def _for(seconds: float) -> str:
    """Nothing where it does not end within this story."""
    return f" for {seconds:.0f} s" if seconds < LASTING_SECONDS else ""


def tell_verdicts(
    at: float, before: Mapping[str, str], now: Mapping[str, str], missed: Collection[str]
) -> list[Heard]:
    """Who became unknown, and who of the ``missed`` is heard again.

    The first look has nothing to compare with: a node that was never heard of is not missed.
    """
    lost = [n for n, verdict in now.items() if verdict == Verdict.UNKNOWN != before.get(n, verdict)]
    back = [n for n, verdict in now.items() if verdict != Verdict.UNKNOWN and n in missed]
    told = (Heard(at, tuple(lost), lost=True), Heard(at, tuple(back), lost=False))
    return [heard for heard in told if heard.nodes]


def _names(nodes: Sequence[str]) -> str:
    return nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes"


def tell_lines(lines: Sequence[StepRecord], start: float) -> list[Sentence]:
    """The ledger's lines as sentences: alike ones of one moment are one, an intent and its effect too."""
    effects = {(line.key, line.at) for line in lines if line.phase is Phase.EFFECT}
    told: list[Sentence] = []
    for _, group in groupby(lines, key=_alike):
        alike = list(group)
        line = alike[0]
        if line.phase is Phase.INTENT and (line.key, line.at) in effects:
            continue
        kind, text = _sentence(line)
        who = "" if line.node == "-" else line.node
        told.append(Sentence(line.at - start, who, kind, _of_many(alike, text)))
    return told


def _alike(line: StepRecord) -> tuple[object, ...]:
    """XIDs of one code on several GPUs of a node at one time are one story."""
    event = line.payload.get("event")
    if not isinstance(event, Mapping) or event.get("pci") is None:
        return (line.id,)
    return (line.node, line.at, event.get("kind"), event.get("code"), line.incident)


def _of_many(alike: Sequence[StepRecord], text: str) -> str:
    if len(alike) == 1:
        return text
    event = alike[0].payload["event"]
    pci = event.get("pci") if isinstance(event, Mapping) else None
    return text.replace(f"on {pci}", f"on {len(alike)} GPUs", 1)


def _sentence(line: StepRecord) -> tuple[Kind, str]:
    if line.actor == Actor.PERSON:
        return Kind.PERSON, line.reason
    if line.phase is Phase.INTENT:
        return Kind.MOVED, f"{line.step}: {line.reason}"
    if line.outcome in (Outcome.REFUSED, Outcome.FAILED, Outcome.UNKNOWN, Outcome.ABANDONED):
        return Kind.REFUSED, line.reason if line.phase is Phase.DECISION else f"{line.step}: {line.reason}"
    if line.phase is Phase.EFFECT and line.step is not None:
        return Kind.DONE, f"{_DONE_WORDS.get(line.step, str(line.step))}: {line.reason}"
    if line.outcome is Outcome.DONE:
        return Kind.DONE, line.reason
    if "event" in line.payload:
        return (Kind.FOUND if line.incident is not None else Kind.NOTED), line.reason
    return (Kind.MOVED if "state" in line.payload else Kind.NOTED), line.reason
