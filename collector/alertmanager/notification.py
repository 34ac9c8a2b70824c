"""The envelope: is this body a notification at all, and which alerts does it carry?

Sources: Alertmanager's webhook documentation (version 4) and ``template.Data``; Grafana's
``receivers/webhook/v1`` (version "1", the same shape of alerts).
"""

from __future__ import annotations

from typing import Any

from fleet.errors import InvalidInputError

# Alertmanager has sent "4" since 0.6; Grafana's Alertmanager sends the same shape under "1".
_KNOWN_VERSIONS = frozenset({"4", "1"})
# Fields of Grafana's webhook before unified alerting (8.x): it names no alerts, so no node can be derived.
_LEGACY_FIELDS = frozenset({"evalMatches", "ruleId", "ruleName"})


def parse_notification(body: object) -> tuple[dict[str, Any], list[str]]:
    """(notification, warnings) of a decoded webhook body; ``alerts`` is a list afterwards.

    Accepted: anything with a list of alerts, whatever its version says (an unexpected one is a warning:
    the shape of an alert has not changed since version 3, and a fault must not be lost over a digit).
    InvalidInputError: bodies that carry no such list.
    """
    if isinstance(body, list):
        raise InvalidInputError(
            "$ is a list: that is what Alertmanager's own API takes; a webhook sends an object with alerts"
        )
    if not isinstance(body, dict):
        raise InvalidInputError(f"$ must be an object, not {kind_of(body)}")
    if "alerts" not in body:
        if _LEGACY_FIELDS & body.keys():
            raise InvalidInputError(
                "legacy format not supported: this is Grafana's old webhook; use unified alerting's webhook"
            )
        raise InvalidInputError("$.alerts is missing: this is not an Alertmanager webhook notification")
    alerts = [] if body["alerts"] is None else body["alerts"]
    if not isinstance(alerts, list):
        raise InvalidInputError(f"$.alerts must be a list, not {kind_of(alerts)}")
    warnings = []
    version = body.get("version")
    if str(version) not in _KNOWN_VERSIONS:
        said = "missing" if version is None else f"{str(version)[:20]!r}"
        warnings.append(f"version is {said}; read as version 4")
    return {**body, "alerts": alerts}, warnings


def hidden_alerts(notification: dict[str, Any]) -> int:
    """How many alerts were cut from the notification (``truncatedAlerts``; ``max_alerts`` of a receiver)."""
    count = notification.get("truncatedAlerts")
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 0


def kind_of(value: object) -> str:
    """What JSON calls it."""
    names = {type(None): "null", bool: "a boolean", str: "a text", list: "a list", dict: "an object"}
    return names.get(type(value), "a number")
