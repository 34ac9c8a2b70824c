"""The truth table: what was expected, what was seen, and whether anything else was touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fleet.findings import GateName, IncidentState, Step
from remediator.records import Outcome, Phase, StepRecord
from sickbay.demo.bill import Bill, bill_of
from sickbay.demo.clockwork import Clockwork
from sickbay.demo.meter import Assumptions
from sickbay.demo.scenes import Expect, Scene

RETURN_STEPS = (Step.CORDON, Step.REBOOT, Step.VERIFY, Step.UNCORDON)
#: What we may do to a node, by the scene it plays in; anything else, or elsewhere, is unexpected.
_REQUEUE = frozenset({"requeue", "exclude", "release"})
_REPAIR = _REQUEUE | {"cordon", "reboot", "uncordon"}
_ALLOWED = {
    Expect.RETURNED: _REPAIR,
    Expect.PAUSED: _REPAIR,
    Expect.BUDGET: _REPAIR,
    Expect.HANDED_OVER: _REQUEUE | {"cordon"},
    Expect.AFTER_JOB: frozenset({"cordon"}),
    Expect.UNTOUCHED: frozenset({"annotate"}),
}


#: What held a scene's node back at first: the gate, and the word for it.
_TOLD = (IncidentState.HANDED_OVER,)
_HELD_BY = {Expect.PAUSED: ("pause", "paused"), Expect.BUDGET: ("budget", "refused")}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the truth table; ``others``: how many more nodes it is about.

    Times are simulated seconds after the fault, None where there is none.
    """

    scene: str
    title: str
    node: str
    expected: str
    seen: str
    ok: bool
    detected_after_seconds: float | None
    returned_after_seconds: float | None
    others: int = 0

    def json(self) -> dict[str, Any]:
        return {
            "scene": self.scene,
            "node": f"{self.node} and {self.others} more" if self.others else self.node,
            "expected": self.expected,
            "seen": self.seen,
            "ok": self.ok,
            "detected_after_seconds": self.detected_after_seconds,
            "returned_after_seconds": self.returned_after_seconds,
        }


@dataclass(frozen=True, slots=True)
class Truth:
    """``people``: what persons did through the API meanwhile; then a difference need not be ours."""

    rows: tuple[Row, ...]
    unexpected: tuple[str, ...]
    bill: Bill
    people: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Every expected outcome happened, and nothing else was touched."""
        return all(row.ok for row in self.rows) and not self.unexpected

    @property
    def failed(self) -> bool:
        """The service did not do what it should; nobody knows that once a person has intervened."""
        return not self.ok and not self.people

    def json(self) -> dict[str, Any]:
        return {
            "scenes": [row.json() for row in self.rows],
            "unexpected_actions": len(self.unexpected),
            "ok": self.ok,
            "bill": self.bill.json(),
        }


def truth_of(work: Clockwork, people: Sequence[str] = ()) -> Truth:
    """Compare the run so far with the script, from the ledger and the simulated scheduler's own record."""
    rows = tuple(_row(work, scene) for scene in work.script.scenes)
    with work.store.transaction(read_only=True) as tx:
        told = {i.node for i in tx.incidents() if not i.state.is_closed or i.state in _TOLD}
    bill = bill_of(
        work.meter,
        work.script,
        scheduler=work.scheduler,
        nodes=work.nodes,
        seed=work.seed,
        told=told,
        assumed=Assumptions(),
    )
    return Truth(rows, unexpected_actions(work), bill, tuple(people))


def unexpected_actions(work: Clockwork) -> tuple[str, ...]:
    """Every write of ours the script does not ask for, from the simulated scheduler's own record."""
    allowed: dict[str, frozenset[str]] = {}
    for scene in work.script.scenes:
        for node in scene.nodes:
            allowed[node] = allowed.get(node, frozenset()) | _ALLOWED.get(scene.expect, frozenset())
    found: list[str] = []
    for action in work.cluster.scheduler.our_actions:
        node = action.node or "-"
        if action.verb not in allowed.get(node, frozenset()):
            found.append(f"{action.verb} {node} {action.detail}".strip())
    return tuple(found)


def _row(work: Clockwork, scene: Scene) -> Row:
    node = scene.nodes[0]
    fault_at = work.started_at + scene.at
    with work.store.transaction(read_only=True) as tx:
        steps = [s for s in tx.steps(node=node) if s.at >= fault_at]
    effects = [
        s.step for s in steps if s.phase is Phase.EFFECT and s.outcome in (Outcome.DONE, Outcome.ALREADY)
    ]
    detected = next((s.at - fault_at for s in steps), None)
    returned = next(
        (s.at - fault_at for s in steps if s.phase is Phase.EFFECT and s.step is Step.UNCORDON), None
    )
    seen, ok = _judge(work, scene, steps, effects)
    return Row(
        scene=scene.name,
        title=scene.title,
        node=node,
        expected=str(scene.expect),
        seen=seen,
        ok=ok,
        detected_after_seconds=detected if scene.expect not in (Expect.SILENCE, Expect.UNSEEN) else None,
        returned_after_seconds=returned,
        others=len(scene.nodes) - 1,
    )


def _judge(
    work: Clockwork, scene: Scene, steps: list[StepRecord], effects: list[Step | None]
) -> tuple[str, bool]:
    if scene.expect in (Expect.RETURNED, Expect.PAUSED, Expect.BUDGET):
        return _judge_returned(scene, steps, effects)
    if scene.expect in (Expect.AFTER_JOB, Expect.HANDED_OVER):
        return _judge_handed_over(work, scene, effects)
    touched = {a.verb for a in work.cluster.scheduler.our_actions if a.node in scene.nodes}
    if scene.expect is Expect.UNTOUCHED:
        record = work.cluster.scheduler.observe_node(scene.nodes[0])
        noted = bool(record.comment and record.comment.startswith("sickbay:"))
        kept = record.reason is not None and record.reason.text.startswith("ADMIN:")
        seen = f"reason {'kept' if kept else 'LOST'}, {'noted' if noted else 'NOT noted'}"
        return seen, kept and noted and touched <= {"annotate"}
    if touched:
        return f"TOUCHED: {', '.join(sorted(touched))}", False
    if scene.expect is Expect.FROZEN:
        return _judge_frozen(work, scene)
    if scene.expect in (Expect.SILENCE, Expect.UNSEEN):
        silent = scene.expect is Expect.SILENCE
        seen_unknown = work.unknown_while_silent if silent else work.unknown_while_unscraped
        unknown = seen_unknown & set(scene.nodes)
        seen = f"{len(unknown)} of {len(scene.nodes)} nodes unknown for a while, none touched"
        return seen, len(unknown) == len(scene.nodes) and not effects
    told = sum(s.phase is Phase.DECISION and "event" in s.payload for s in steps)
    if not told:
        return "NOT SEEN", False
    return f"{told} XID{'s' if told > 1 else ''} observed, nothing done", not effects


def _judge_returned(scene: Scene, steps: list[StepRecord], effects: list[Step | None]) -> tuple[str, bool]:
    words = {Step.CORDON: "drained", Step.REBOOT: "rebooted", Step.UNCORDON: "returned"}
    requeued = sum(step is Step.REQUEUE for step in effects)
    done = [words[step] for step in (Step.CORDON, Step.REBOOT, Step.UNCORDON) if step in effects]
    if requeued:
        done.insert(1, f"{requeued} job{'s' if requeued > 1 else ''} requeued")
    complete = all(effects.count(step) == 1 for step in RETURN_STEPS)
    gate, word = _HELD_BY.get(scene.expect, ("", ""))
    if gate:
        held = any(s.outcome is Outcome.REFUSED and gate in _gates(s) for s in steps)
        done.insert(0, word if held else f"NOT {word}")
        complete = complete and held
    return ", ".join(done) or "nothing", complete


def _judge_handed_over(work: Clockwork, scene: Scene, effects: list[Step | None]) -> tuple[str, bool]:
    """The node stays out of service for hands; the job on it was requeued, or allowed to end."""
    requeued = sum(step is Step.REQUEUE for step in effects)
    node = work.cluster.scheduler.observe_node(scene.nodes[0])
    out = node.is_cordoned and Step.UNCORDON not in effects and Step.REBOOT not in effects
    handed = effects.count(Step.HAND_OVER) == 1
    wanted = requeued == 0 if scene.expect is Expect.AFTER_JOB else requeued > 0
    words = ["drained" if effects.count(Step.CORDON) == 1 else "NOT drained"]
    words.append(
        f"{requeued} job{'s' if requeued > 1 else ''} requeued" if requeued else "its job left to end"
    )
    words.append("handed over" if handed and out else "NOT handed over")
    return ", ".join(words), wanted and handed and out and effects.count(Step.CORDON) == 1


def _judge_frozen(work: Clockwork, scene: Scene) -> tuple[str, bool]:
    """Each node has its incident, each incident is frozen, and one page told it."""
    with work.store.transaction(read_only=True) as tx:
        frozen = {i.node for i in tx.open_incidents() if GateName.BURST in i.blocked_by}
    pages = sum(key.startswith("burst/") for _, key, _ in work.app.notifier.pages)
    of_scene = frozen & set(scene.nodes)
    seen = f"{len(of_scene)} of {len(scene.nodes)} frozen, {pages} page{'s' if pages != 1 else ''}, no cordon"
    return seen, len(of_scene) == len(scene.nodes) and pages == 1


def _gates(step: StepRecord) -> tuple[str, ...]:
    gates = step.payload.get("gates")
    return tuple(str(gate) for gate in gates) if isinstance(gates, list) else ()
