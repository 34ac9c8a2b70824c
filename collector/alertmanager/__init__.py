"""Alertmanager's webhook (version 4) and Grafana's variant of it: what a notification says, alert by alert.

Lives here: the shape of a notification, the reading of single alerts, and whose node a label names. What an
alert is worth is decided by the remediator; who may post is decided at the door.
"""

from collector.alertmanager.notification import parse_notification
from collector.alertmanager.reader import read_alert, read_captured
from collector.alertmanager.subject import NODE_LABELS, resolve_node

__all__ = ["NODE_LABELS", "parse_notification", "read_alert", "read_captured", "resolve_node"]
