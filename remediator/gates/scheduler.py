"""Gates about what the scheduler says and how well we can see: ownership, maintenance, freshness, health."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fleet.findings import Finding, GateName, Step
from fleet.scheduler import NodeRecord, NodeState, Owner
from remediator.gates.base import TAKING, WRITING, GateInput, GateResult, blocked, passes
from remediator.situation import owns_cordon

_CLOCK_TOLERANCE_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 60.0


class ForeignOwner:
    """A node somebody else cordoned keeps their mark: we neither add to it nor lift it."""

    name = GateName.FOREIGN_OWNER

    def applies_to(self, step: Step) -> bool:
        return step in WRITING

    def check(self, given: GateInput) -> GateResult:
        node = given.node
        if node is None:
            return blocked(self.name, "who owns the node's cordon is not known")
        if not node.is_cordoned:
            return passes(self.name, "nobody has cordoned the node")
        if owns_cordon(given.incident, node):
            return passes(self.name, "the cordon is ours")
        reason = node.reason
        if node.owner is Owner.SICKBAY:
            who = "an earlier incident of ours"
        else:
            who = (reason.user if reason else None) or "somebody else"
        text = f': "{reason.text}"' if reason and reason.text else ""
        return blocked(self.name, f"{who} cordoned the node{text}; it is left as it is")


_HANDS_OFF_FLAGS = (
    "MAINTENANCE",
    "REBOOT_REQUESTED",
    "REBOOT_ISSUED",
    "POWER_DOWN",
    "POWERED_DOWN",
    "POWERING_DOWN",
    "POWER_UP",
    "POWERING_UP",
    "FUTURE",
)


class Maintenance:
    """Maintenance windows, reboots of others, power saving and others' reservations are not ours to touch."""

    name = GateName.MAINTENANCE

    def applies_to(self, step: Step) -> bool:
        return step in TAKING or step in (Step.RESET_GPU, Step.POWER_CYCLE)

    def check(self, given: GateInput) -> GateResult:
        node = given.node
        if node is None:
            return blocked(self.name, "whether the node is in maintenance is not known")
        flags = [flag for flag in _HANDS_OFF_FLAGS if node.has(flag)]
        if flags:
            return blocked(self.name, f"the scheduler says {'+'.join(flags)}: hands off")
        if node.state in (NodeState.MAINTENANCE, NodeState.RESERVED):
            return blocked(self.name, f"the node is in a reservation ({node.state})")
        return passes(self.name, "no maintenance, no reservation")


class Freshness:
    """The scheduler and the finding's own source must have spoken lately: closed eyes, still hands."""

    name = GateName.FRESHNESS

    def applies_to(self, step: Step) -> bool:
        return step in WRITING

    def check(self, given: GateInput) -> GateResult:
        limit = given.policy.scheduler_stale_seconds
        if given.snapshot_at is None:
            return blocked(self.name, "the scheduler has not answered yet")
        age = given.now - given.snapshot_at
        if age > limit:
            return blocked(self.name, f"the scheduler last answered {age:.0f} s ago (limit {limit:.0f} s)")
        if age < -_CLOCK_TOLERANCE_SECONDS:
            return blocked(self.name, f"the clock went back by {-age:.0f} s since the scheduler answered")
        if given.node is None:
            return blocked(self.name, f"the scheduler does not list {given.incident.node}")
        if _is_blind(given.node):
            return blocked(
                self.name, f"the scheduler itself cannot tell the node's state ({_word(given.node)})"
            )
        return self._source(given, age)

    def _source(self, given: GateInput, scheduler_age: float) -> GateResult:
        """A cordon needs the word of whoever reported the fault; later steps rest on our own cordon.

        Of several reporters one that speaks now is enough: each alone would have been.
        """
        seen = f"the scheduler answered {scheduler_age:.0f} s ago"
        acting = [finding for finding in given.findings if finding.response.acts] or list(given.findings)
        if given.incident.state.holds_node or not acting:
            return passes(self.name, seen)
        silences: list[str] = []
        for source in dict.fromkeys(finding.source for finding in acting):
            of_source = [finding for finding in acting if finding.source == source]
            silence, word = _SOURCES.get(source, _nobody)(given, of_source)
            if silence is None:
                return passes(self.name, f"{seen}, {word}")
            silences.append(silence)
        return blocked(self.name, "; ".join(silences))


def _nobody(given: GateInput, findings: Sequence[Finding]) -> tuple[str | None, str]:
    return f"nobody knows how fresh the word of {findings[0].source!r} is", ""


def _agent_silence(given: GateInput, findings: Sequence[Finding]) -> tuple[str | None, str]:
    """(why its word does not count now, or None; what to say of it if it does)."""
    if given.agent is None:
        return "the node's agent has never spoken", ""
    if given.agent.contested:
        return "two agents with different boots speak for this node: which one is it?", ""
    age = given.now - given.agent.last_seen
    if age < -_CLOCK_TOLERANCE_SECONDS:
        return f"the clock went back by {-age:.0f} s since the node's agent spoke", ""
    limit = given.policy.agent_silence_seconds
    if age > limit:
        return f"the node's agent last spoke {age:.0f} s ago (limit {limit:.0f} s)", ""
    return None, f"the agent {age:.0f} s ago"


def _exporter_silence(given: GateInput, findings: Sequence[Finding]) -> tuple[str | None, str]:
    if given.agent is not None and given.agent.contested:
        return "two agents with different boots speak for this node: whose exporter is it?", ""
    seen_at = given.sight.seen_at(given.incident.node) if given.sight is not None else None
    if given.sight is None or seen_at is None:
        return "the node's exporter has not answered since sickbay began to watch", ""
    age = given.now - seen_at
    if age < -_CLOCK_TOLERANCE_SECONDS:
        return f"the clock went back by {-age:.0f} s since the node's exporter answered", ""
    limit = given.policy.metrics_stale_seconds
    if age > limit:
        return f"the node's exporter last answered {age:.0f} s ago (limit {limit:.0f} s)", ""
    # Half an answer is none for what it lacks: what was found must still be reported, whatever its value.
    reported = [at for f in findings if (at := given.sight.reported.get(f.id)) is not None]
    if not reported:
        return f"the node's exporter does not report what {findings[0].rule} looks at", ""
    since = given.now - max(reported)
    if since > limit:
        return f"what {findings[0].rule} looks at was last reported {since:.0f} s ago", ""
    return None, f"the exporter {age:.0f} s ago"


def _alert_silence(given: GateInput, findings: Sequence[Finding]) -> tuple[str | None, str]:
    """Alertmanager repeats a firing alert only every few hours; that it still speaks at all (the watchdog,
    every minute) and has not resolved this one says that the alert stands.
    """
    if given.alerts_heard_at is None:
        return "Alertmanager has not spoken since sickbay began to listen", ""
    age = given.now - given.alerts_heard_at
    if age < -_CLOCK_TOLERANCE_SECONDS:
        return f"the clock went back by {-age:.0f} s since Alertmanager spoke", ""
    limit = given.policy.alert_silence_seconds
    if age > limit:
        return f"Alertmanager last spoke {age:.0f} s ago (limit {limit:.0f} s; route its watchdog here)", ""
    if all(finding.evidence.get("resolved_at") is not None for finding in findings):
        return "Alertmanager has resolved the alert: nobody sees the fault now", ""
    return None, f"Alertmanager {age:.0f} s ago"


_SOURCES: Mapping[str, Callable[[GateInput, Sequence[Finding]], tuple[str | None, str]]] = {
    "agent": _agent_silence,
    "metrics": _exporter_silence,
    "alertmanager": _alert_silence,
}


def _is_blind(node: NodeRecord) -> bool:
    """UNKNOWN that is not evidence: INVALID_REG is a statement (GPUs missing), silence is none."""
    return node.state is NodeState.UNKNOWN and not node.has("INVALID_REG")


def _word(node: NodeRecord) -> str:
    return "+".join((node.base.upper() or "UNKNOWN", *node.flags))


class Backend:
    """A scheduler that refuses or fails our calls gets a pause, not a hammer."""

    name = GateName.BACKEND

    def applies_to(self, step: Step) -> bool:
        return step in WRITING

    def check(self, given: GateInput) -> GateResult:
        wait_until = given.incident.next_attempt_at
        # Further ahead than any pause of ours: the clock went back meanwhile.
        if wait_until is not None and given.now < wait_until <= given.now + LONGEST_PAUSE_SECONDS:
            return blocked(
                self.name,
                f"the last call did not succeed ({given.incident.last_reason or 'no reason given'}); "
                f"next try in {wait_until - given.now:.1f} s",
            )
        if given.backend.failing_since is not None:
            return blocked(
                self.name,
                f"the scheduler has been failing for {given.now - given.backend.failing_since:.0f} s: "
                f"{given.backend.last_error}",
            )
        return passes(self.name, "the scheduler answers")


class LeaseGate:
    """One executor: only the holder of the lease acts, and only while enough of it is left."""

    name = GateName.LEASE

    def applies_to(self, step: Step) -> bool:
        return True

    def check(self, given: GateInput) -> GateResult:
        if given.lease is None or given.lease.holder != given.holder:
            return blocked(self.name, "another controller holds the lease")
        left = given.lease.expires_at - given.now
        if left <= 0:
            return blocked(self.name, "our lease has run out")
        return passes(self.name, f"we hold the lease for {left:.0f} s more")
