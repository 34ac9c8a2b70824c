"""Hostlists in the configuration: ClusterShell's syntax without its groups, bounded before expansion."""

from __future__ import annotations

from fleet.errors import InvalidInputError

_ADVICE = "write names and ranges such as n[01-16],m1 (no groups, no wildcards)"


def expand_hostlist(text: str) -> tuple[str, ...]:
    """``n[01-03],m1`` -> the node names, each once. Raises ValueError: ``what; what to do``."""
    # Here, not above: agents and clients have no hostlists, and no need to load ClusterShell.
    from collector.slurm.hostlist import expand  # noqa: PLC0415

    try:
        names = expand(text)
    except InvalidInputError as error:
        raise ValueError(f"{error}; {_ADVICE}") from None
    if not names:
        raise ValueError(f"the host list {text[:60]!r} names no node; {_ADVICE}")
    return names
