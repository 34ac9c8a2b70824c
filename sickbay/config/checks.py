"""What no single key can know: pools against each other, addresses against rights, files against the disk."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fleet.identity import is_node_name
from sickbay.config.access import Http, Role
from sickbay.config.hostlist import expand_hostlist
from sickbay.config.model import AgentConfig
from sickbay.config.policy import Pool
from sickbay.config.source import Loc
from sickbay.config.sources import MAX_SCRAPE_TARGETS, Metrics, Scheduler
from sickbay.config.types import is_loopback, split_listen


@dataclass(frozen=True, slots=True)
class Remark:
    """A problem or a warning at a place in the file."""

    loc: Loc
    text: str


def find_problems(config: AgentConfig) -> list[Remark]:
    """Contradictions: the configuration must not be used."""
    problems = [*_pool_problems(config.pools), *_http_problems(config.http)]
    if config.metrics is not None:
        problems += _metrics_problems(config.metrics)
    if config.scheduler is not None:
        problems += _match_problems(config.pools, config.scheduler)
    return problems


def _pool_problems(pools: tuple[Pool, ...]) -> Iterator[Remark]:
    names: dict[str, int] = {}
    matches: dict[tuple[str | None, ...], int] = {}
    for index, pool in enumerate(pools):
        if pool.name in names:
            yield Remark(
                ("pools", index, "name"),
                f"{pool.name!r} is also the name of pools[{names[pool.name]}]; every pool needs its own",
            )
        match = (pool.match.partition, pool.match.label, pool.match.nodes)
        if match in matches:
            yield Remark(
                ("pools", index, "match"),
                f"is the same as that of pools[{matches[match]}]; the first one gets every node, remove one",
            )
        names.setdefault(pool.name, index)
        matches.setdefault(match, index)


def _match_problems(pools: tuple[Pool, ...], scheduler: Scheduler) -> Iterator[Remark]:
    foreign = {"slurm": "label", "kubernetes": "partition"}.get(scheduler.kind)
    for index, pool in enumerate(pools):
        if foreign is not None and getattr(pool.match, foreign) is not None:
            yield Remark(
                ("pools", index, "match", foreign),
                f"a {scheduler.kind} cluster has no {foreign}s; match by "
                f"{'partition' if foreign == 'label' else 'label'} or by nodes",
            )


def _metrics_problems(metrics: Metrics) -> Iterator[Remark]:
    targets = metrics.scrape.targets
    if metrics.source == "scrape" and len(targets) > MAX_SCRAPE_TARGETS:
        yield Remark(
            ("metrics", "scrape", "targets"),
            f"has {len(targets)} targets, and direct scraping is made for {MAX_SCRAPE_TARGETS} at most; "
            "let Prometheus scrape them and set metrics.source: prometheus",
        )
    seen: dict[str, int] = {}
    for index, target in enumerate(targets):
        first = seen.setdefault(target.url, index)
        if first != index:
            yield Remark(
                ("metrics", "scrape", "targets", index),
                f"is the same address as targets[{first}]; remove one",
            )


def _http_problems(http: Http) -> Iterator[Remark]:
    host, _ = split_listen(http.listen)
    if http.allow_anonymous_loopback and not is_loopback(host):
        yield Remark(
            ("http", "allow_anonymous_loopback"),
            f"is true, but http.listen ({http.listen}) can be reached from other machines; "
            "listen on 127.0.0.1, or set it to false and use tokens",
        )
    names: dict[str, int] = {}
    for index, token in enumerate(http.tokens):
        first = names.setdefault(token.name, index)
        if first != index:
            yield Remark(
                ("http", "tokens", index, "name"),
                f"{token.name!r} is also the name of tokens[{first}]; every token needs its own",
            )
        if token.role is Role.AGENT and not is_node_name(token.name):
            yield Remark(
                ("http", "tokens", index, "name"),
                f"{token.name!r} is no host name; a token with role agent is named after the one node it "
                "speaks for",
            )


def find_warnings(config: AgentConfig) -> list[Remark]:
    """What is allowed but unwise."""
    warnings = [*_secret_warnings(config), *_overlap_warnings(config.pools)]
    scheduler = config.scheduler
    if scheduler is None:
        return warnings
    if scheduler.kind == "slurm" and config.lease.duration_seconds <= scheduler.slurm.timeout_seconds:
        warnings.append(
            Remark(
                ("lease", "duration_seconds"),
                f"{config.lease.duration_seconds:g} s is not longer than scheduler.slurm.timeout_seconds "
                f"({scheduler.slurm.timeout_seconds:g} s), so a write gets only part of that; make it longer",
            )
        )
    http = config.http
    if not http.allow_anonymous_loopback and not http.tokens:
        warnings.append(
            Remark(
                ("http",), "has no tokens, so nobody can use the API or the console; add one to http.tokens"
            )
        )
    return warnings


def _secret_files(config: AgentConfig) -> Iterator[tuple[Loc, Path]]:
    for index, token in enumerate(config.http.tokens):
        yield ("http", "tokens", index, "token_file"), token.token_file
    if config.http.agent_secret_file is not None:
        yield ("http", "agent_secret_file"), config.http.agent_secret_file
    if config.agent.token_file is not None:
        yield ("agent", "token_file"), config.agent.token_file
    scheduler = config.scheduler
    if scheduler is not None and scheduler.slurm.token_file is not None:
        yield ("scheduler", "slurm", "token_file"), scheduler.slurm.token_file


def _secret_warnings(config: AgentConfig) -> Iterator[Remark]:
    for loc, path in _secret_files(config):
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            yield Remark(loc, f"{path} does not exist; create it before the service starts")
        except OSError as error:
            yield Remark(loc, f"{path} cannot be looked at ({error.strerror}); check its rights")
        else:
            if mode & stat.S_IROTH:
                yield Remark(loc, f"{path} can be read by everyone on this machine; chmod o-r {path}")


def _overlap_warnings(pools: tuple[Pool, ...]) -> Iterator[Remark]:
    owner: dict[str, str] = {}
    for index, pool in enumerate(pools):
        if pool.match.nodes is None:
            continue
        shared = None
        for node in expand_hostlist(pool.match.nodes):
            if owner.setdefault(node, pool.name) != pool.name and shared is None:
                shared = node
        if shared is not None:
            yield Remark(
                ("pools", index, "match", "nodes"),
                f"{shared} is in pool {owner[shared]!r} already, and the first match counts; check both",
            )
