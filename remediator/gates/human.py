"""Gates of human word: modes, the red button, holds, and the cool-off after somebody overruled us."""

from __future__ import annotations

from datetime import UTC, datetime

from fleet.findings import GateName, Mode, Step
from remediator.gates.base import TAKING, WRITING, GateInput, GateResult, blocked, passes
from remediator.records import Word, WordKind


class ModeGate:
    """Observe writes nothing; approve waits for a person."""

    name = GateName.MODE

    def applies_to(self, step: Step) -> bool:
        return step in WRITING

    def check(self, given: GateInput) -> GateResult:
        if given.mode is Mode.OBSERVE:
            return blocked(self.name, f"{given.mode_source} is in observe mode: nothing is touched")
        if given.mode is Mode.APPROVE and given.incident.approved_by is None:
            return blocked(
                self.name,
                f"{given.mode_source} is in approve mode: waits for sickbay approve {given.incident.id}",
            )
        return passes(self.name, f"{given.mode_source} allows {given.mode}")


def _until(word: Word) -> str:
    return "until it is lifted" if word.expires_at is None else f"until {_clock(word.expires_at)}"


def _clock(epoch: float) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


class Pause:
    """The red button: all action stops, for a pool or the fleet, over restarts too."""

    name = GateName.PAUSE

    def applies_to(self, step: Step) -> bool:
        return step in WRITING or step is Step.VERIFY

    def check(self, given: GateInput) -> GateResult:
        for word in given.words:
            if (
                word.kind is WordKind.PAUSE
                and word.active(given.now)
                and word.target in (None, given.pool.name)
            ):
                what = "the fleet" if word.target is None else f"pool {word.target!r}"
                return blocked(self.name, f"{word.author} paused {what} {_until(word)}: {word.reason}")
        return passes(self.name, "nobody has pressed the red button")


class Hold:
    """Somebody asked us to keep our hands off this node."""

    name = GateName.HOLD

    def applies_to(self, step: Step) -> bool:
        return step in WRITING

    def check(self, given: GateInput) -> GateResult:
        for word in given.words:
            if word.kind is WordKind.HOLD and word.active(given.now) and word.target == given.incident.node:
                return blocked(self.name, f"{word.author} holds {word.target} {_until(word)}: {word.reason}")
        return passes(self.name, "nobody holds this node")


class Cooldown:
    """After somebody lifted our cordon by hand the node is left alone for a while."""

    name = GateName.COOLDOWN

    def applies_to(self, step: Step) -> bool:
        return step in TAKING

    def check(self, given: GateInput) -> GateResult:
        for word in given.words:
            if (
                word.kind is WordKind.COOLDOWN
                and word.active(given.now)
                and word.target == given.incident.node
            ):
                return blocked(self.name, f"cooling off {_until(word)}: {word.reason}")
        return passes(self.name, "no cool-off is running")
