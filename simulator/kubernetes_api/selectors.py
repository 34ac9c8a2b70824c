"""Field and label selectors, as far as Kubernetes supports them for nodes and pods."""

from __future__ import annotations

import re
from typing import Any

from simulator.kubernetes_api.errors import Json, bad_request

_FIELDS = {
    "nodes": {"metadata.name", "spec.unschedulable"},
    "pods": {
        "metadata.name",
        "metadata.namespace",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    },
}
_KEY = r"(?P<key>[A-Za-z0-9._/-]+)"
_TERMS = re.compile(r",(?![^(]*\))")  # not the commas inside of (a,b)
_SET = re.compile(_KEY + r"\s+(?P<not>not)?in\s+\((?P<values>[^()]*)\)")
_EQUAL = re.compile(_KEY + r"\s*(?P<sign>==|=|!=)\s*(?P<value>[A-Za-z0-9._-]*)")
_THERE = re.compile(r"(?P<not>!?)" + _KEY)

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
    """Equality and set based terms (Kubernetes "Labels and Selectors"). A missing label is not equal."""
    labels = found["metadata"].get("labels") or {}
    return all(_meets(labels, term.strip()) for term in _TERMS.split(selector) if term.strip())


def _meets(labels: dict[str, str], term: str) -> bool:
    within = _SET.fullmatch(term)
    if within is not None:
        values = {value.strip() for value in within["values"].split(",")}
        return (labels.get(within["key"]) in values) is (within["not"] is None)
    equal = _EQUAL.fullmatch(term)
    if equal is not None:
        return (labels.get(equal["key"]) == equal["value"]) is (equal["sign"] != "!=")
    there = _THERE.fullmatch(term)
    if there is None:
        raise bad_request(f"unable to parse requirement: {term!r}")
    return (there["key"] in labels) is (there["not"] == "")


def matches_selector(selector: Json | None, labels: dict[str, str]) -> bool:
    """metav1.LabelSelector. Null selects nothing, empty selects all (policy/v1)."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_expressed(labels, one) for one in selector.get("matchExpressions") or ())


def _expressed(labels: dict[str, str], expression: Json) -> bool:
    key, operator, values = expression["key"], expression["operator"], expression.get("values") or []
    if operator in ("In", "NotIn"):
        return (labels.get(key) in values) is (operator == "In")
    return (key in labels) is (operator == "Exists")
