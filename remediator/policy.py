"""What the operator allows: modes, pools with their budgets, repair, verification. Plain values, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleet.findings import Mode, Repair, most_cautious
from fleet.scheduler import NodeRecord, NodeState

DEFAULT_POOL = "default"
UNMANAGED_POOL = "unmanaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A set of nodes with one budget. Exactly one of ``partition``, ``label``, ``nodes`` selects; none: all.

    ``max_in_flight`` counts our incidents between cordon and verification; ``max_unavailable_percent``
    counts nodes out of service for any cause but planned maintenance and powered down.
    """

    name: str
    partition: str | None = None
    label: str | None = None
    nodes: frozenset[str] | None = None
    mode: Mode | None = None
    max_in_flight: int = 2
    max_unavailable_percent: float = 10.0
    max_cordons: int = 3
    rate_window_seconds: float = 600.0

    def matches(self, node: NodeRecord) -> bool:
        if self.nodes is not None:
            return node.name in self.nodes
        if self.partition is not None:
            return self.partition in node.partitions
        if self.label is not None:
            key, _, value = self.label.partition("=")
            return node.labels.get(key) == value
        return True

    def unavailable_limit(self, size: int) -> int:
        """max(1, floor(percent x N)): one node may always be repaired."""
        return max(1, int(self.max_unavailable_percent * size / 100.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstPolicy:
    """Freeze when one cause hits max(min_nodes, pool_percent) nodes, or half a domain, in the window."""

    min_nodes: int = 3
    pool_percent: float = 2.0
    window_seconds: float = 300.0

    def threshold(self, pool_size: int) -> int:
        return max(self.min_nodes, -(-int(self.pool_percent * pool_size) // 100))


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Everything the planner and the gates need to know of the configuration. Durations in seconds."""

    cluster: str
    mode: Mode = Mode.OBSERVE
    pools: tuple[Pool, ...] = ()
    rule_modes: Mapping[str, Mode] = field(default_factory=dict)
    disabled_rules: frozenset[str] = frozenset()
    domains: Mapping[str, frozenset[str]] = field(default_factory=dict)
    burst: BurstPolicy = BurstPolicy()
    settle_seconds: float = 2.0
    interval_seconds: float = 15.0
    requeue_jobs: bool = True
    exclude_node: bool = True
    max_requeues: int = 3
    repair_enabled: bool = True
    ladder: tuple[Repair, ...] = (Repair.RESET_GPU, Repair.REBOOT)
    max_repair_attempts: int = 2
    repair_commands: Mapping[Repair, tuple[str, ...]] = field(default_factory=dict)
    verify_command: tuple[str, ...] | None = None
    verify_timeout_seconds: float = 1800.0
    probation_seconds: float = 3600.0
    cooldown_seconds: float = 3600.0
    agent_silence_seconds: float = 60.0
    metrics_interval_seconds: float = 15.0
    alert_silence_seconds: float = 300.0
    lease_seconds: float = 15.0

    @property
    def scheduler_stale_seconds(self) -> float:
        """Older than this, what we know of the scheduler is no ground to act on."""
        return max(30.0, 4 * self.interval_seconds)

    @property
    def metrics_stale_seconds(self) -> float:
        """An exporter that has not answered for so long shows nothing of its node."""
        return max(45.0, 3 * self.metrics_interval_seconds)

    def pool_of(self, node: NodeRecord) -> Pool:
        """The first pool that matches. Without pools everything is one; outside all pools: observe only."""
        if not self.pools:
            return Pool(name=DEFAULT_POOL)
        for pool in self.pools:
            if pool.matches(node):
                return pool
        return Pool(name=UNMANAGED_POOL, mode=Mode.OBSERVE)

    def pool_named(self, name: str) -> Pool:
        for pool in self.pools:
            if pool.name == name:
                return pool
        return Pool(name=name, mode=Mode.OBSERVE if self.pools else None)

    def mode_for(self, pool: Pool, rule: str, rule_mode: Mode) -> tuple[Mode, str]:
        """The ceiling for a rule in a pool, and who set it: the most cautious of the three."""
        configured = self.rule_modes.get(rule, rule_mode)
        mode = most_cautious(self.mode, pool.mode, configured)
        if mode is self.mode:
            return mode, f"cluster {self.cluster!r}"
        if mode is pool.mode:
            return mode, f"pool {pool.name!r}"
        return mode, f"rule {rule!r}"


def counts_as_unavailable(node: NodeRecord) -> bool:
    """Out of service for any cause but planned maintenance and powered down; unknown counts."""
    if node.state in (NodeState.MAINTENANCE, NodeState.POWERED_DOWN, NodeState.RESERVED):
        return False
    if node.has("MAINTENANCE"):
        return False
    return node.state in (
        NodeState.DRAINING,
        NodeState.DRAINED,
        NodeState.DOWN,
        NodeState.REBOOTING,
        NodeState.UNKNOWN,
    )


def next_rung(current: Repair, ladder: Sequence[Repair]) -> Repair:
    """The next stronger repair the operator allows; HAND_OVER when there is none."""
    stronger = [rung for rung in ladder if rung.rank > current.rank]
    return min(stronger, key=lambda rung: rung.rank, default=Repair.HAND_OVER)
