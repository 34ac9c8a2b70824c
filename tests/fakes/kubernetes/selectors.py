"""Field and label selectors, as far as Kubernetes supports them for nodes and pods."""

from __future__ import annotations

from typing import Any

from tests.fakes.kubernetes.errors import Json, bad_request

_FIELDS = {
    "nodes": {"metadata.name", "spec.unschedulable"},
    "pods": {"metadata.name", "metadata.namespace", "spec.nodeName", "status.phase"},
}


def matches_fields(resource: str, found: Json, selector: str) -> bool:
    return all(_field(resource, found, term) for term in selector.split(",") if term)


def _field(resource: str, found: Json, term: str) -> bool:
    negative = "!=" in term
    name, _, wanted = term.partition("!=" if negative else "=")
    wanted = wanted.removeprefix("=")
    allowed = _FIELDS.get(resource, {"metadata.name", "metadata.namespace"})
    if name not in allowed:
        raise bad_request(f'field label not supported: "{name}"')
    value: Any = found
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    shown = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return (shown != wanted) if negative else (shown == wanted)


def matches_query_labels(found: Json, selector: str) -> bool:
    labels = found["metadata"].get("labels") or {}
    for term in filter(None, selector.split(",")):
        name, equals, wanted = term.partition("=")
        if not equals or name.endswith("!"):
            raise bad_request(f"this fake knows key=value label selectors only, not {term!r}")
        if labels.get(name) != wanted.removeprefix("="):
            return False
    return True


def matches_selector(selector: Json | None, labels: dict[str, str]) -> bool:
    """metav1.LabelSelector. Null selects nothing, empty selects all (policy/v1)."""
    if selector is None:
        return False
    if selector.keys() - {"matchLabels"}:
        raise AssertionError("this fake knows matchLabels only")
    return all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
