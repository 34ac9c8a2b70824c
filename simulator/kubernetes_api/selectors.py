"""Field and label selectors, as far as Kubernetes supports them for nodes and pods."""

from __future__ import annotations

from typing import Any

from simulator.kubernetes_api.errors import Json, bad_request

_FIELDS = {
    "nodes": {"metadata.name", "spec.unschedulable"},
    "pods": {"metadata.name", "metadata.namespace", "spec.nodeName", "status.phase"},
}


Term = tuple[str, str, bool]


def parse_fields(resource: str, selector: str) -> list[Term]:
    """(field, value, wanted equal?) of each term; an unknown field is refused, whatever there is."""
    allowed = _FIELDS.get(resource, {"metadata.name", "metadata.namespace"})
    terms = []
    for term in filter(None, selector.split(",")):
        equal = "!=" not in term
        name, _, value = term.partition("=" if equal else "!=")
        if name not in allowed:
            raise bad_request(f'field label not supported: "{name}"')
        terms.append((name, value.removeprefix("="), equal))
    return terms


def matches_fields(found: Json, terms: list[Term]) -> bool:
    return all((_shown(found, name) == value) is equal for name, value, equal in terms)


def _shown(found: Json, name: str) -> str:
    value: Any = found
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def matches_query_labels(found: Json, selector: str) -> bool:
    labels = found["metadata"].get("labels") or {}
    for term in filter(None, selector.split(",")):
        name, equals, wanted = term.partition("=")
        if not equals or name.endswith("!"):
            raise bad_request(f"this server knows key=value label selectors only, not {term!r}")
        if labels.get(name) != wanted.removeprefix("="):
            return False
    return True


def matches_selector(selector: Json | None, labels: dict[str, str]) -> bool:
    """metav1.LabelSelector. Null selects nothing, empty selects all (policy/v1)."""
    if selector is None:
        return False
    if selector.keys() - {"matchLabels"}:
        raise bad_request("this server knows matchLabels only")
    return all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
