"""Whatever a source makes of a line: the engine answers, and keeps its promises."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from fleet.findings import Response
from fleet.identity import MigInstance
from fleet.observations import Event, EventKind, RecoveryAction
from rules.catalogue import load_catalogue
from rules.events import EventContext, PastEvent, weigh

CATALOGUE = load_catalogue()

any_text = st.text(st.characters(), max_size=400)  # lone surrogates too
codes = st.one_of(st.none(), st.integers(0, 200), st.integers())
addresses = st.one_of(st.none(), st.sampled_from(["0000:3b:00.0", "0000:5a:00.0"]), any_text)
boots = st.sampled_from(["b0", "b1", None])
nodes = st.one_of(st.sampled_from(["n01", "n02", None]), any_text)
jobs = st.lists(st.one_of(st.sampled_from(["1", "2", "3"]), any_text), max_size=4).map(tuple)

events = st.builds(
    Event,
    kind=st.sampled_from(EventKind),
    node=nodes,
    time=st.floats(),
    code=codes,
    gpu=st.one_of(st.none(), any_text),
    pci=addresses,
    mig=st.one_of(st.none(), st.builds(MigInstance, gi=st.integers())),
    pid=st.one_of(st.none(), st.integers()),
    process=st.one_of(st.none(), any_text),
    cause=codes,
    link=st.one_of(st.none(), st.integers()),
    unit=st.one_of(st.none(), st.sampled_from(["NETIR_LINK_EVT", "RLW"]), any_text),
    registers=st.lists(st.one_of(st.from_regex(r"0x[0-9a-f]{1,8}", fullmatch=True), any_text)).map(tuple),
    fatal=st.sampled_from([True, False, None]),
    recovery_action=st.one_of(st.none(), st.sampled_from(RecoveryAction)),
    uncertain=st.booleans(),
    count=st.integers(),
    message=any_text,
    boot_id=boots,
)
contexts = st.builds(
    EventContext,
    node=st.sampled_from(["n01", ""]),
    current_boot_id=boots,
    jobs=jobs,
    history=st.lists(st.builds(PastEvent, event=events, jobs=jobs), max_size=4),
    disabled=st.sampled_from([frozenset(), frozenset({"gpu-fell-off-bus"})]),
)


@given(events, contexts)
def test_any_event_is_answered(event: Event, context: EventContext) -> None:
    weighed = weigh(event, context, CATALOGUE)
    assert weighed == weigh(event, context, CATALOGUE)
    assert weighed.sentence.isprintable()
    assert 0 < len(weighed.sentence) <= 220
    weighed.sentence.encode("utf-8")
    finding = weighed.finding
    if finding is None:
        return
    json.dumps(dict(finding.evidence))
    assert finding.rule in CATALOGUE.by_id
    assert finding.rule not in context.disabled
    assert finding.node == context.node
    assert finding.response is not Response.OBSERVE
    assert not event.uncertain
    assert context.current_boot_id is None or event.boot_id == context.current_boot_id
    assert event.node is None or event.node == context.node
    message = finding.evidence["message"]
    assert isinstance(message, str)
    assert len(message) <= 300


@given(events, contexts, st.integers().filter(lambda code: code not in CATALOGUE.facts))
def test_an_unknown_code_never_finds(event: Event, context: EventContext, code: int) -> None:
    unknown = Event(kind=EventKind.XID, node=event.node, time=event.time, code=code, boot_id=event.boot_id)
    assert weigh(unknown, context, CATALOGUE).finding is None
