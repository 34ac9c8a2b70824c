"""Names and addresses, in one normal form each."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PCI = re.compile(
    r"^(?:PCI:)?(?:(?P<domain>[0-9a-fA-F]{4,8}):)?(?P<bus>[0-9a-fA-F]{2}):(?P<device>[0-9a-fA-F]{2})"
    r"(?:\.(?P<function>[0-7]))?$"
)
_NODE_NAME = re.compile(r"^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$")


def normalise_pci(text: str) -> str | None:
    """``PCI:0000:9A:00`` -> ``0000:9a:00.0``; None when ``text`` is no PCI address.

    Lower case; at least four hex digits of domain (more only when they are not zero); function ``.0``
    when absent. NVML and nvidia-smi print eight domain digits, the kernel log four.
    """
    match = _PCI.fullmatch(text.strip())
    if match is None:
        return None
    domain = f"{int(match['domain'] or '0', 16):04x}"
    return f"{domain}:{match['bus'].lower()}:{match['device'].lower()}.{match['function'] or '0'}"


def pci_join_key(pci: str) -> str:
    """The address without its function: what joins a kernel line to a GPU (interfaces.md)."""
    return pci.rsplit(".", 1)[0]


def is_node_name(text: str) -> bool:
    """True for a single plausible host name: letters, digits, ``. _ -``.

    A hostlist such as ``n[1-4]`` or ``n1,n2`` is no name: input never widens a target.
    """
    return _NODE_NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A MIG slice: GPU instance id, compute instance id (or None), profile such as ``1g.10gb`` (or None)."""

    gi: int
    ci: int | None = None
    profile: str | None = None
