"""The Alertmanager configuration: everything a rule of ours says goes to sickbay, everything to people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from alerts.own import DOWN, WATCHDOG

WEBHOOK_URL = "http://sickbay:8470/api/v1/alerts"
TOKEN_FILE = "/etc/alertmanager/sickbay-token"  # noqa: S105 - a path


def document(*, webhook_url: str = WEBHOOK_URL, token_file: str = TOKEN_FILE) -> Mapping[str, Any]:
    """Routes, receivers and inhibitions. One node is one group: one notification per sick machine."""
    return {
        "route": {
            "receiver": "people",
            "group_by": ["cluster", "node"],
            "group_wait": "5s",
            # The webhook is tried again within this time when sickbay answers 503.
            "group_interval": "30s",
            "repeat_interval": "4h",
            "routes": [
                _watchdog("watchdog", carry_on=True),
                # sickbay acts on an alert only while it hears from here.
                _watchdog("sickbay", carry_on=False),
                {"receiver": "sickbay", "matchers": ['rule=~".+"'], "continue": True},
                {"receiver": "people", "matchers": ['severity=~"critical|warning"']},
                {"receiver": "nobody"},
            ],
        },
        "inhibit_rules": [
            # The same GPU, then the same node: the graver finding is the one to read.
            {
                "source_matchers": ['severity="critical"', 'gpu=~".+"'],
                "target_matchers": ['severity=~"warning|info"', 'gpu=~".+"'],
                "equal": ["cluster", "node", "gpu"],
            },
            # Without a controller, what it would have said of itself is no news.
            {
                "source_matchers": [f'alertname="{DOWN}"'],
                "target_matchers": ['alertname=~"Sickbay.+"', f'alertname!~"{DOWN}|{WATCHDOG}"'],
                "equal": ["cluster"],
            },
        ],
        "receivers": [
            {
                "name": "sickbay",
                "webhook_configs": [
                    {
                        "url": webhook_url,
                        "send_resolved": True,
                        "max_alerts": 0,
                        "http_config": {
                            "authorization": {"type": "Bearer", "credentials_file": token_file},
                            "follow_redirects": False,
                        },
                    }
                ],
            },
            {"name": "people"},
            {"name": "watchdog"},
            {"name": "nobody"},
        ],
    }


def _watchdog(receiver: str, *, carry_on: bool) -> Mapping[str, Any]:
    """The alert that always fires, every minute."""
    route = {
        "receiver": receiver,
        "matchers": [f'alertname="{WATCHDOG}"'],
        "group_by": ["cluster"],
        "group_wait": "0s",
        "group_interval": "1m",
        "repeat_interval": "1m",
    }
    return {**route, "continue": True} if carry_on else route
