"""Alerts as records, from one notification or several in one capture. Pure: bytes in, records out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from collector.alertmanager.notification import hidden_alerts, parse_notification
from collector.alertmanager.subject import Resolve, resolve_node
from collector.inventory import Inventory
from fleet.errors import InvalidInputError
from fleet.observations import AlertRecord, Problem, ProblemReason, Reading, Record

SOURCE = "alertmanager"
MAX_INPUT_BYTES = 64 * 1024 * 1024
MAX_TEXT_CHARS = 300
STATUSES = ("firing", "resolved")
#: Grafana's own alerts about rules it could not evaluate: of the monitoring, never of the node they name.
MONITORING_FAULTS = ("DatasourceNoData", "DatasourceError")
# Alertmanager's zero time, in every spelling: "not set".
_NO_TIME = "0001-01-01"
_INDEX = re.compile(r"[0-9]{1,4}")


def read_captured(data: bytes, *, inventory: Inventory | None) -> Reading:
    """Alerts and problems of one notification, or of several in a row. ``ok`` is False when none is one.

    Without ``inventory`` no node is known: an alert's node is null then, as for any label that names nobody.
    """
    if len(data) > MAX_INPUT_BYTES:
        return _nothing(ProblemReason.TOO_LARGE, f"more than {MAX_INPUT_BYTES} bytes")
    resolve: Resolve = inventory.resolve if inventory is not None else lambda _: None
    records: list[Record] = []
    understood = False
    try:
        for document in _documents(data.decode("utf-8-sig")):
            try:
                notification, warnings = parse_notification(document)
            except InvalidInputError as error:
                records.append(_problem(ProblemReason.UNREADABLE, str(error)))
                continue
            understood = True
            records += [_problem(ProblemReason.UNRECOGNISED_VALUE, warning) for warning in warnings]
            records += _alerts(notification, resolve)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        torn = ProblemReason.TRUNCATED if understood else ProblemReason.UNREADABLE
        records.append(_problem(torn, f"is no JSON: {str(error)[:MAX_TEXT_CHARS]}"))
    if not records and not understood:
        return _nothing(ProblemReason.UNREADABLE, "nothing is in it")
    return Reading(tuple(records), ok=understood)


def _documents(text: str) -> Iterator[object]:
    """One JSON document after the other. Raises ValueError where the text is none."""
    decoder = json.JSONDecoder()
    at, end = 0, len(text)
    while at < end:
        if text[at].isspace():
            at += 1
            continue
        document, at = decoder.raw_decode(text, at)
        yield document


def _alerts(notification: Mapping[str, Any], resolve: Resolve) -> Iterator[Record]:
    skipped = 0
    for raw in notification["alerts"]:
        if not isinstance(raw, Mapping) or not isinstance(raw.get("labels"), Mapping) or not raw["labels"]:
            skipped += 1
            continue
        yield from read_alert(raw, resolve, group_status=notification.get("status"))
    if skipped:
        yield _problem(
            ProblemReason.UNREADABLE, "alerts that are no object with labels are skipped", count=skipped
        )
    hidden = hidden_alerts(dict(notification))
    if hidden:
        yield _problem(
            ProblemReason.TRUNCATED,
            "alerts were cut from this notification (max_alerts): what it does not name is not resolved",
            count=hidden,
        )


def read_alert(raw: Mapping[str, Any], resolve: Resolve, *, group_status: object = None) -> Iterator[Record]:
    """One alert: its record, or the problem it is. The group's status counts only where it has none."""
    labels = {str(name): _text(value) for name, value in raw["labels"].items()}
    name = labels.get("alertname")
    node, problem = resolve_node(labels, resolve)
    if name in MONITORING_FAULTS:
        rule = labels.get("rulename") or "a rule"
        yield _problem(
            ProblemReason.QUERY_ERROR, f"{name}: Grafana could not evaluate {rule[:80]!r}", node=node
        )
        return
    status = str(raw.get("status") or group_status or "").lower()[:20]
    if status not in STATUSES:
        yield _problem(
            ProblemReason.UNRECOGNISED_VALUE,
            f"status {status!r} of alert {str(name)[:80]!r} is neither firing nor resolved",
            node=node,
        )
    yield AlertRecord(
        name=name,
        status=status or "unknown",
        node=node,
        unresolved=None if node is not None else problem,
        gpu=labels.get("uuid") or labels.get("UUID"),
        index=_index(labels.get("gpu")),
        severity=labels.get("severity"),
        starts_at=_time(raw.get("startsAt")),
        ends_at=_time(raw.get("endsAt")),
        fingerprint=_text(raw.get("fingerprint")) or None,
    )


def _text(value: object) -> str | None:
    """A label's value; hand-written senders give numbers too. What is no scalar is no text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else None


def _index(text: str | None) -> int | None:
    return int(text) if text is not None and _INDEX.fullmatch(text) else None


def _time(value: object) -> str | None:
    """As given; the zero time, and what is no text, is None."""
    return None if not isinstance(value, str) or not value or value.startswith(_NO_TIME) else value


def _problem(reason: ProblemReason, message: str, *, node: str | None = None, count: int = 1) -> Problem:
    return Problem(source=SOURCE, reason=reason, message=message, node=node, count=count)


def _nothing(reason: ProblemReason, message: str) -> Reading:
    return Reading((_problem(reason, message),), ok=False)
