"""What an Alertmanager alert says, and what it is worth: whose node it names, whether it is one of our rules.

Anybody who may post to the webhook can post any text. So a label names one node of the inventory or none,
the rule's own words count (never the alert's severity or response), and what sickbay watches itself is
decided by its own eyes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from collector.alertmanager.reader import MONITORING_FAULTS
from fleet.findings import Finding, Mode
from rules.events import finding_id
from rules.model import Catalogue

SOURCE = "alertmanager"
"""``Finding.source`` of what an alert of ours found."""
MAX_TEXT_CHARS = 200
BOOT_TOLERANCE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertWord:
    """One alert of a notification. ``key`` is the same in each repeat of one firing; ``since``: startsAt."""

    name: str
    status: str
    labels: Mapping[str, Any]
    key: str
    since: float | None

    @property
    def firing(self) -> bool:
        return self.status == "firing"

    @property
    def resolved(self) -> bool:
        return self.status == "resolved"


def read_alert(payload: Mapping[str, Any]) -> AlertWord:
    """An alert as it was stored; nothing in it is believed to have the right type."""
    labels = payload.get("labels")
    labels = labels if isinstance(labels, Mapping) else {}
    name = str(labels.get("alertname") or "(unnamed alert)")[:100]
    status = str(payload.get("status") or "status missing").lower()[:20]
    starts = payload.get("startsAt")
    mark = payload.get("fingerprint")
    if not isinstance(mark, str) or not mark:
        mark = "|".join(f"{key}={labels[key]}" for key in sorted(map(str, labels)) if key in labels)
    return AlertWord(
        name=name,
        status=status,
        labels=labels,
        key=f"{mark[:MAX_TEXT_CHARS]}|{str(starts)[:40]}",
        since=_epoch(starts),
    )


def weigh_alert(
    alert: AlertWord,
    node: str,
    catalogue: Catalogue,
    *,
    boot_id: str | None,
    boot_time: float | None,
    watched: bool,
    modes: Mapping[str, Mode],
    disabled: Collection[str],
    received_at: float,
) -> Finding | str:
    """A finding, or the sentence why this alert is only a hint.

    ``boot_time``: when the node booted, as its scheduler says; an alert that began before is about another
    epoch. ``watched``: we scrape the node ourselves.
    """
    hint = f"alert {alert.name} ({alert.status}) is a hint: what sickbay itself sees of {node} decides"
    if alert.name in MONITORING_FAULTS:
        # Grafana lends such an alert all labels of the rule that it could not evaluate.
        return f"alert {alert.name} is about the monitoring of {node}, which is unknown then: not used"
    rule = catalogue.by_id.get(str(alert.labels.get("rule")))
    if rule is None or rule.when is None or not rule.finds or rule.id in disabled:
        return hint
    if watched:
        return f"{hint} (its rule {rule.id} is evaluated here)"
    since = received_at if alert.since is None else min(alert.since, received_at)
    if boot_time is not None and since < boot_time - BOOT_TOLERANCE_SECONDS:
        return f"alert {alert.name} began before {node} booted: it is about an earlier boot and not used"
    uuid = alert.labels.get("uuid") or alert.labels.get("UUID")
    uuid = uuid[:MAX_TEXT_CHARS] if isinstance(uuid, str) and uuid.isprintable() else None
    index = alert.labels.get("gpu")
    where = f"GPU {str(index)[:20]} of {node}" if isinstance(index, str) and index.isalnum() else node
    return Finding(
        id=finding_id(rule.id, node, f"{uuid or '-'}/@{alert.key}", boot_id),
        rule=rule.id,
        kind=rule.kind,
        node=node,
        severity=rule.severity,
        response=rule.response,
        repair=rule.repair,
        clear_on=rule.clear_on,
        since=since,
        mode=modes.get(rule.id, rule.mode),
        uuid=uuid,
        boot_id=boot_id,
        source=SOURCE,
        sentence=f"Prometheus says that {where} {rule.says or f'meets the rule {rule.id}'}",
        evidence={"alert": alert.key, "alertname": alert.name, "detected_at": received_at},
    )


def _epoch(value: object) -> float | None:
    """RFC 3339 as Alertmanager writes it; its zero time, and whatever else cannot be read, is None."""
    if not isinstance(value, str) or value.startswith("0001-01-01"):
        return None
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return None
    seconds = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    return seconds if math.isfinite(seconds) and seconds > 0 else None
