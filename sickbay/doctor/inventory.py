"""What any scheduler has, held against the configuration: pools, GPUs, drains, agents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fleet.clock import Clock
from fleet.errors import SickbayError
from fleet.marks import parse_mark
from fleet.scheduler import NodeRecord, Owner, SchedulerSnapshot
from remediator.policy import Policy
from sickbay.config import Config, Pool, expand_hostlist
from sickbay.configured import policy_from
from sickbay.doctor.ledger import LedgerSight
from sickbay.doctor.model import Check, Result, Shared, fail, ok, plural, some, unknown, warn

_KUBERNETES = "kubernetes"
# Four heartbeats of an agent.
_SILENT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class InventoryChecks:
    """``snapshot`` is one look as the service takes it; ``ledger`` what the ledger says."""

    config: Config
    snapshot: Shared[SchedulerSnapshot]
    ledger: Shared[LedgerSight]
    clock: Clock
    deadline_seconds: float

    def checks(self) -> tuple[Check, ...]:
        return (
            Check("scheduler.nodes", self.nodes, self.deadline_seconds),
            Check("scheduler.pools", self.pools, self.deadline_seconds),
            Check("scheduler.gpus", self.gpus, self.deadline_seconds),
            Check("scheduler.drains", self.drains, self.deadline_seconds),
            Check("agents.heard", self.agents, self.deadline_seconds),
        )

    def nodes(self) -> Iterator[Result]:
        name = "scheduler.nodes"
        snapshot = self.snapshot.get()
        if not snapshot.nodes:
            yield fail(name, "the scheduler shows no nodes at all", "check whom this machine speaks to")
            return
        yield ok(
            name,
            f"{plural(len(snapshot.nodes), 'node')} and {plural(len(snapshot.jobs), 'job')} can be read",
        )
        if snapshot.problems:
            yield warn(
                "scheduler.reading",
                f"{plural(len(snapshot.problems), 'record')} could not be understood whole: "
                f"{some(snapshot.problems, 2)}",
                "see them all with `sickbay collect`; what is not understood is unknown, never healthy",
            )

    def pools(self) -> Iterator[Result]:
        """Each pool must have nodes, and GPU nodes at that; GPU nodes should be in a pool."""
        nodes = self.snapshot.get().nodes
        policy = policy_from(self.config)
        listed = tuple(nodes.values())
        members = pool_members(policy, nodes.values())
        for section in self.config.pools:
            taken = (
                pool.matches(node) for pool in policy.pools if pool.name == section.name for node in listed
            )
            yield self._pool(section, members.get(section.name, ()), nodes, taken)
        yield from self._missing(nodes)
        named = {pool.name for pool in self.config.pools}
        outside = [
            node.name
            for pool, found in members.items()
            if self.config.pools and pool not in named
            for node in found
            if node.gpus_total
        ]
        if outside:
            yield warn(
                "scheduler.outside",
                f"{plural(len(outside), 'GPU node')} in no pool ({some(outside)}): observed, never acted on",
                "add a pool that matches, or leave it so on purpose",
            )
        if not self.config.pools:
            yield ok(
                "scheduler.pools", f"no pools: all {plural(len(nodes), 'node')} are one, with one budget"
            )

    def _pool(
        self,
        section: Pool,
        members: Sequence[NodeRecord],
        nodes: Mapping[str, NodeRecord],
        taken: Iterable[bool],
    ) -> Result:
        name = f"scheduler.pool.{section.name}"
        with_gpus = [node for node in members if node.gpus_total != 0]
        if not members and any(taken):
            return fail(
                name,
                "every node that it matches is in an earlier pool already, and the first match counts",
                f"put pool {section.name} before the wider one, or remove it",
            )
        if not members:
            return fail(
                name,
                f"matches no node; {self._offered(nodes)}",
                f"correct the match of pool {section.name}",
            )
        if not with_gpus:
            return warn(
                name,
                f"has {plural(len(members), 'node')}, and none of them has a GPU",
                f"correct the match of pool {section.name}, or the scheduler's GPU configuration",
            )
        return ok(name, f"{plural(len(members), 'node')}, {len(with_gpus)} with GPUs")

    def _offered(self, nodes: Mapping[str, NodeRecord]) -> str:
        if self.config.scheduler.kind == _KUBERNETES:
            labels = {
                f"{key}={value}" for n in nodes.values() if n.gpus_total for key, value in n.labels.items()
            }
            return f"labels of GPU nodes: {some(sorted(labels)) or 'none'}"
        found = {partition for node in nodes.values() for partition in node.partitions}
        return f"partitions with nodes: {some(sorted(found), 12) or 'none'}"

    def _missing(self, nodes: Mapping[str, NodeRecord]) -> Iterator[Result]:
        """Nodes that the configuration names and the scheduler does not know."""
        lists = {
            f"pool {pool.name}": pool.match.nodes
            for pool in self.config.pools
            if pool.match.nodes is not None
        }
        lists |= {f"domain {domain}": text for domain, text in self.config.domains.nodes.items()}
        for owner, text in lists.items():
            absent = [node for node in expand_hostlist(text) if node not in nodes]
            if absent:
                yield warn(
                    "scheduler.unknown_nodes",
                    f"{owner} names {plural(len(absent), 'node')} that the scheduler does not know: "
                    f"{some(absent)}",
                    f"correct the nodes of {owner}",
                )

    def gpus(self) -> Iterator[Result]:
        name = "scheduler.gpus"
        nodes = self.snapshot.get().nodes.values()
        total = sum(node.gpus_total or 0 for node in nodes)
        untold = [node.name for node in nodes if node.gpus_total is None]
        kubernetes = self.config.scheduler.kind == _KUBERNETES
        if total:
            having = sum(1 for node in nodes if node.gpus_total)
            yield ok(name, f"{plural(total, 'GPU')} on {plural(having, 'node')}")
        elif not untold:
            yield fail(
                name,
                "no node has a GPU in the scheduler",
                "check that the device plugin runs (kubectl describe node)"
                if kubernetes
                else "set GresTypes=gpu and Gres=gpu:... in slurm.conf, and gres.conf on the nodes",
            )
        if untold:
            yield unknown(
                "scheduler.gpus_unknown",
                f"how many GPUs {plural(len(untold), 'node')} ({some(untold)}) have is not said",
                "on MIG or shared GPUs that is so; elsewhere look at the device plugin"
                if kubernetes
                else "look at their Gres in `scontrol show node`",
            )
        short = [node.name for node in nodes if node.has("INVALID_REG")]
        if short:
            yield warn(
                "scheduler.invalid_registration",
                f"{some(short)} registered with less than is configured, which a lost GPU does",
                "look at the reason in `scontrol show node`; Slurm refuses to resume it until it is whole",
            )

    def drains(self) -> Iterator[Result]:
        """Ours without an open incident is a left-over (a restored ledger, say): a person decides."""
        name = "scheduler.drains"
        cordoned = [node for node in self.snapshot.get().nodes.values() if node.owner is not Owner.NONE]
        foreign = [_drain(node) for node in cordoned if node.owner is Owner.FOREIGN]
        ours = [node for node in cordoned if node.owner is Owner.SICKBAY]
        yield ok(
            name,
            f"{plural(len(ours), 'node')} out of service by sickbay, {len(foreign)} by others"
            + (f", which are theirs: {some(foreign, 4)}" if foreign else ""),
        )
        if not ours:
            return
        try:
            standing = self.ledger.get().open_incidents
        except SickbayError as error:
            yield unknown(
                "scheduler.left_overs",
                f"whether our drains still have an incident is not known: {error}",
                "run the doctor where the ledger can be read",
            )
            return
        left = [node.name for node in ours if _incident(node) not in standing]
        if left:
            yield warn(
                "scheduler.left_overs",
                f"{some(left)} carry our mark, but no open incident is behind it",
                "sickbay leaves such a node to you: look at it, then undrain it by hand",
            )

    def agents(self) -> Iterator[Result]:
        """Which GPU nodes were heard, by the ledger. An agent pushes every 15 s."""
        name = "agents.heard"
        sight = self.ledger.get()
        heard = sight.agents
        if heard is None and sight.version is not None:
            yield unknown(name, "the ledger is a newer sickbay's", "see store.schema")
            return
        if heard is None:
            yield ok(name, "no ledger yet, so no agent was heard; that is so before the first start")
            return
        wanted = [node.name for node in self.snapshot.get().nodes.values() if node.gpus_total]
        never = [node for node in wanted if node not in heard]
        now = self.clock.now()
        silent = [node for node in wanted if node in heard and now - heard[node].last_seen > _SILENT_SECONDS]
        if never:
            yield warn(
                "agents.never",
                f"{len(never)} of {plural(len(wanted), 'GPU node')} never pushed: {some(never)}",
                "start `sickbay agent` there; without it no kernel log is read, so no XID is seen",
            )
        if silent:
            yield warn(
                "agents.silent",
                f"{plural(len(silent), 'agent')} not heard for {_SILENT_SECONDS:g} s: {some(silent)}",
                "look at the agent's own log on the node, and whether it reaches the controller",
            )
        if wanted and not never and not silent:
            yield ok(name, f"all {plural(len(wanted), 'GPU node')} pushed within {_SILENT_SECONDS:g} s")
        elif not wanted:
            yield unknown(name, "no node with GPUs is known", "see scheduler.gpus")


def pool_members(policy: Policy, nodes: Iterable[NodeRecord]) -> dict[str, list[NodeRecord]]:
    """Pool name to its nodes, by the service's own rule: the first match counts."""
    members: dict[str, list[NodeRecord]] = {}
    for node in nodes:
        members.setdefault(policy.pool_of(node).name, []).append(node)
    return members


def _drain(node: NodeRecord) -> str:
    if node.reason is None or not node.reason.text:
        return node.name
    text = " ".join(node.reason.text.split())[:40]
    return f"{node.name} ({text!r} by {node.reason.user or 'somebody'})"


def _incident(node: NodeRecord) -> str | None:
    mark = parse_mark(node.reason.text if node.reason else None)
    return mark.incident if mark else None
