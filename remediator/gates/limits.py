"""Gates that keep us from making an outage worse: settle, burst, budget, rate.

They stop taking nodes out of service, never returning them.
"""

from __future__ import annotations

from fleet.findings import GateName, IncidentState, Step
from remediator.gates.base import TAKING, GateInput, GateResult, blocked, passes
from remediator.policy import counts_as_unavailable
from remediator.records import IncidentRecord


class Settle:
    """A fatal event waits a moment, so that a burst is seen as one."""

    name = GateName.SETTLE

    def applies_to(self, step: Step) -> bool:
        return step in TAKING

    def check(self, given: GateInput) -> GateResult:
        left = given.incident.opened_at + given.policy.settle_seconds - given.now
        if left > 0:
            return blocked(self.name, f"{left:.1f} s of {given.policy.settle_seconds:g} s are left")
        return passes(self.name, f"settled for {given.policy.settle_seconds:g} s")


def same_cause(given: GateInput) -> tuple[set[str], set[str]]:
    """Nodes with an incident of the same rule opened within the burst window, this one too: those of the
    pool, and those of the fleet (a domain may span pools). What was cancelled meanwhile counts as well, and
    what was frozen and nobody has decided on since: time alone makes no common cause go away.
    """
    since = given.now - given.policy.burst.window_seconds
    same = [
        other
        for other in (*given.incidents, *given.recent)
        if other.rule == given.incident.rule and (other.opened_at >= since or _frozen_together(given, other))
    ]
    mine = given.incident.opened_at >= since or GateName.BURST in given.incident.blocked_by
    this = {given.incident.node} if mine else set()
    return {o.node for o in same if given.in_pool(o)} | this, {o.node for o in same} | this


def _frozen_together(given: GateInput, other: IncidentRecord) -> bool:
    """Frozen by a burst that the given incident is part of, and not decided on."""
    return (
        GateName.BURST in other.blocked_by
        and other.approved_by is None
        and not other.state.is_closed
        and abs(other.opened_at - given.incident.opened_at) <= given.policy.burst.window_seconds
    )


class Burst:
    """Many nodes at once is not many sick nodes: freeze, page once, let a person look."""

    name = GateName.BURST

    def applies_to(self, step: Step) -> bool:
        return step in TAKING

    def check(self, given: GateInput) -> GateResult:
        if given.incident.approved_by is not None:
            return passes(self.name, f"{given.incident.approved_by} approved this node")
        burst = given.policy.burst
        nodes, everywhere = same_cause(given)
        threshold = burst.threshold(len(given.pool_nodes))
        window = f"within {burst.window_seconds:.0f} s"
        if len(nodes) >= threshold:
            return blocked(
                self.name,
                f"{given.incident.rule} on {len(nodes)} nodes {window} (limit {threshold - 1}): a common "
                "cause is likelier than that many sick nodes; frozen until a person approves or cancels",
            )
        for name, members in given.policy.domains.items():
            hit = everywhere & members
            if given.incident.node in members and len(members) > 1 and 2 * len(hit) >= len(members) > 2:  # noqa: PLR2004
                return blocked(
                    self.name,
                    f"{given.incident.rule} on {len(hit)} of {len(members)} nodes of domain {name!r} "
                    f"{window}: look at what they share",
                )
        if GateName.BURST in given.incident.blocked_by:
            # Others of it may have been decided on since; this one was not.
            return blocked(
                self.name,
                f"{given.incident.rule} was found on many nodes at once and nobody has decided on this one: "
                "frozen until a person approves or cancels",
            )
        return passes(self.name, f"{len(nodes)} node(s) with this cause {window}")


def _unavailable(given: GateInput) -> frozenset[str]:
    if given.pool_unavailable is not None:
        return given.pool_unavailable
    return frozenset(node.name for node in given.pool_nodes if counts_as_unavailable(node))


class Budget:
    """Never more out of service than the pool allows. Rebuilt from ledger and scheduler, never remembered."""

    name = GateName.BUDGET

    def applies_to(self, step: Step) -> bool:
        return step in TAKING

    def check(self, given: GateInput) -> GateResult:
        if given.node is not None and given.node.is_cordoned and given.incident.state.holds_node:
            return passes(self.name, "the node is out of service already")
        pool = given.pool
        in_flight = {
            other.node
            for other in given.incidents
            if given.in_pool(other) and other.state.holds_node and other.id != given.incident.id
        }
        if len(in_flight) >= pool.max_in_flight:
            return blocked(
                self.name,
                f"{len(in_flight)} of {pool.max_in_flight} repairs are under way in pool {pool.name!r}",
            )
        if not given.pool_nodes:
            return blocked(self.name, "the pool's nodes are not known")
        size = len(given.pool_nodes)
        limit = pool.unavailable_limit(size)
        # Nodes whose cordon is announced but not yet seen in the scheduler's answer count as well.
        out = (_unavailable(given) | in_flight) - {given.incident.node}
        if len(out) >= limit:
            return blocked(
                self.name,
                f"{len(out)} of {size} nodes of pool {pool.name!r} are out of service, the limit is {limit}",
            )
        return passes(
            self.name,
            f"{len(out)} of {limit} nodes out of service, {len(in_flight)} repairs under way",
        )


class Rate:
    """Not too many cordons in a short time, whatever the budget says."""

    name = GateName.RATE

    def applies_to(self, step: Step) -> bool:
        return step in TAKING

    def check(self, given: GateInput) -> GateResult:
        pool = given.pool
        done = given.cordons_in_window
        started = sum(
            1
            for other in given.incidents
            if given.in_pool(other)
            and other.state is IncidentState.CORDONING
            and other.id != given.incident.id
        )
        total = done + started
        if total >= pool.max_cordons:
            return blocked(
                self.name,
                f"{total} cordons in {pool.rate_window_seconds:.0f} s, the limit is {pool.max_cordons}",
            )
        return passes(
            self.name,
            f"{total} of {pool.max_cordons} cordons in the last {pool.rate_window_seconds:.0f} s",
        )
