"""Sentences: one per decision, alike ones as one, cause before answer."""

from __future__ import annotations

import pytest

from fleet.findings import Step
from remediator.records import Actor, Outcome, Phase, StepRecord
from sickbay.demo.story import Kind, Sentence, Story, tell_faults, tell_lines, tell_verdicts
from sickbay.demo.view import take_view
from simulator.faults import Fault, FaultKind


def line(number: int, phase: Phase, reason: str, **more: object) -> StepRecord:
    return StepRecord(**{"at": 10.0, "node": "n03", "id": number, "phase": phase, "reason": reason, **more})


def xid(number: int, pci: str, incident: str | None = None) -> StepRecord:
    event = {"kind": "xid", "code": 31, "pci": pci}
    text = f"XID 31 on {pci}: MMU fault"
    return line(number, Phase.DECISION, text, incident=incident, payload={"event": event})


class TestLines:
    def tell(self, *lines: StepRecord) -> list[tuple[str, Kind, str]]:
        return [(s.who, s.kind, s.text) for s in tell_lines(lines, 0.0)]

    def test_an_intent_and_its_effect_of_one_moment_are_one(self):
        told = self.tell(
            line(1, Phase.INTENT, "it is broken", step=Step.CORDON, key="k"),
            line(2, Phase.EFFECT, "drained now", step=Step.CORDON, key="k", outcome=Outcome.DONE),
        )
        assert told == [("n03", Kind.DONE, "cordoned: drained now")]

    def test_an_effect_that_takes_time_is_told_apart(self):
        told = self.tell(
            line(1, Phase.INTENT, "job 7 runs here", step=Step.REQUEUE, key="k"),
            line(2, Phase.EFFECT, "gone", step=Step.REQUEUE, key="k", outcome=Outcome.DONE, at=11.0),
        )
        assert told == [
            ("n03", Kind.MOVED, "requeue: job 7 runs here"),
            ("n03", Kind.DONE, "requeued: gone"),
        ]

    def test_one_code_on_many_gpus_is_one_sentence(self):
        told = self.tell(xid(1, "0000:1a:00.0"), xid(2, "0000:3b:00.0"), xid(3, "0000:4c:00.0"))
        assert told == [("n03", Kind.NOTED, "XID 31 on 3 GPUs: MMU fault")]

    def test_kinds(self):
        refused = line(1, Phase.DECISION, "cordon refused: x", step=Step.CORDON, outcome=Outcome.REFUSED)
        failed = line(2, Phase.EFFECT, "no answer", step=Step.REBOOT, key="k", outcome=Outcome.FAILED)
        person = line(3, Phase.DECISION, "pause by ada", actor=Actor.PERSON, node="-")
        moved = line(4, Phase.DECISION, "a -> b", payload={"state": "confirmed"})
        assert self.tell(refused, failed, person, moved, xid(5, "0000:1a:00.0", "i-1")) == [
            ("n03", Kind.REFUSED, "cordon refused: x"),
            ("n03", Kind.REFUSED, "reboot: no answer"),
            ("", Kind.PERSON, "pause by ada"),
            ("n03", Kind.MOVED, "a -> b"),
            ("n03", Kind.FOUND, "XID 31 on 0000:1a:00.0: MMU fault"),
        ]


def test_faults_of_a_scene_are_one_sentence():
    silent = [
        Fault(at_seconds=1, node=f"n{i}", scene="s", kind=FaultKind.AGENT_SILENT, seconds=60) for i in (1, 2)
    ]
    lost = Fault(at_seconds=1, node="n3", scene="g", kind=FaultKind.GPU_LOST, gpu_index=4)
    assert tell_faults([(1.0, silent[0]), (1.0, silent[1]), (1.0, lost)]) == [
        Sentence(1.0, "2 nodes", Kind.FAULT, "their agents fall silent for 60 s"),
        Sentence(1.0, "n3", Kind.FAULT, "GPU 4 falls off the bus"),
    ]


def test_all_that_befalls_one_node_at_a_time_is_one_sentence():
    faults = [
        Fault(at_seconds=1, node="n4", scene="m", kind=FaultKind.ECC_UNCORRECTED, gpu_index=6),
        Fault(at_seconds=1, node="n4", scene="m", kind=FaultKind.XID, code=48),
    ]
    text = "GPU 6 counts an uncorrected memory error; the driver prints XID 48"
    assert tell_faults([(1.0, fault) for fault in faults]) == [Sentence(1.0, "n4", Kind.FAULT, text)]


@pytest.mark.parametrize(
    ("kind", "seconds", "text"),
    [
        (FaultKind.HEAT, 86_400, "heat slows GPU 2 down"),
        (FaultKind.HEAT, 600, "heat slows GPU 2 down for 600 s"),
        (FaultKind.POWER_BRAKE, 60, "the power supply brakes GPU 2 for 60 s"),
        (FaultKind.ROW_REMAP_FAILED, 0, "a row remap of GPU 2 fails: no spare is left"),
        (FaultKind.EXPORTER_AWAY, 240, "its exporter does not answer for 240 s"),
    ],
)
def test_faults_that_metrics_show(kind, seconds, text):
    fault = Fault(at_seconds=1, node="n4", scene="s", kind=kind, gpu_index=2, seconds=seconds)
    assert [sentence.text for sentence in tell_faults([(1.0, fault)])] == [text]


class TestVerdicts:
    def test_a_node_never_heard_of_is_not_missed(self):
        assert tell_verdicts(1.0, {}, {"n1": "unknown"}, ()) == []
        assert tell_verdicts(1.0, {"n1": "unknown"}, {"n1": "healthy"}, ()) == []

    def test_lost_and_heard_again(self):
        [lost] = tell_verdicts(1.0, {"n1": "healthy"}, {"n1": "unknown"}, ())
        assert (lost.nodes, lost.lost) == (("n1",), True)
        [back] = tell_verdicts(2.0, {"n1": "unknown"}, {"n1": "unhealthy"}, {"n1"})
        assert (back.nodes, back.lost) == (("n1",), False)


def test_silence_of_many_nodes_is_one_sentence_and_their_return_another(clockwork, only):
    script = only("silent-agents", ends_at=560.0)
    work = clockwork(script)
    story = Story(work)
    while not work.finished:
        work.tick()
        if work.elapsed > 280:
            story.look(take_view(work).verdicts)
    told = [(s.who, s.text) for s in story.sentences if s.at > 280]
    assert told == [
        ("6 nodes", "their agents fall silent for 180 s"),
        ("6 nodes", "unknown: silence is no evidence, nothing is done"),
        ("6 nodes", "heard again"),
    ]


def test_the_first_minute_reads_in_order(clockwork, only):
    work = clockwork(only("xid-79", ends_at=60.0))
    story = Story(work)
    while not work.finished:
        work.tick()
        story.look(take_view(work).verdicts)
    assert [(s.who, s.kind) for s in story.sentences] == [
        ("n03", Kind.FAULT),
        ("n03", Kind.FOUND),
        ("n03", Kind.MOVED),
        ("n03", Kind.DONE),  # cordoned
        ("n03", Kind.MOVED),  # requeue
        ("n03", Kind.DONE),  # requeued
        ("n03", Kind.MOVED),  # drained
        ("n03", Kind.DONE),  # reboot ordered
    ]
    assert [s.at for s in story.sentences] == sorted(s.at for s in story.sentences)
