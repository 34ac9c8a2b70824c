"""Which rights each role needs, and which of them are missing: asked of the API server, nothing is tried.

The manifests in deploy/kubernetes grant exactly these (a test compares them).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """OBSERVER reads. REPORTER also writes node conditions. ACTOR also cordons and evicts."""

    OBSERVER = "observer"
    REPORTER = "reporter"
    ACTOR = "actor"


@dataclass(frozen=True, slots=True)
class Right:
    verb: str
    resource: str
    group: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        name = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return f"{self.verb} {name}" + (f".{self.group}" if self.group else "")


_OBSERVER = (
    Right("get", "nodes"),
    Right("list", "nodes"),
    Right("get", "pods"),
    Right("list", "pods"),
    Right("get", "daemonsets", "apps"),
    Right("list", "daemonsets", "apps"),
)
RIGHTS: dict[Role, tuple[Right, ...]] = {
    Role.OBSERVER: _OBSERVER,
    Role.REPORTER: (*_OBSERVER, Right("patch", "nodes", subresource="status")),
    Role.ACTOR: (
        *_OBSERVER,
        Right("patch", "nodes"),
        Right("create", "pods", subresource="eviction"),
        Right("list", "poddisruptionbudgets", "policy"),
    ),
}


def missing_rights(role: Role, may: Callable[[Right], bool]) -> tuple[Right, ...]:
    """What ``role`` lacks. ``may`` asks the server (KubernetesClient.may); its errors pass through."""
    return tuple(right for right in RIGHTS[role] if not may(right))
