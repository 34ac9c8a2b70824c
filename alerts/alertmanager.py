"""The Alertmanager configuration: what a rule of the catalogue says goes to sickbay, everything to people.

sickbay must hear every alert of the catalogue, so none of them inhibits another: a pending row remap is
still pending while the card is too hot. One node is one group, and so one notification for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from alerts.availability import NAME as BUDGET_BURN
from alerts.own import DOWN, FINDING, WATCHDOG

WEBHOOK_URL = "http://sickbay:8470/api/v1/alerts"
TOKEN_FILE = "/etc/alertmanager/sickbay-token"  # noqa: S105 - a path
# sickbay calls Alertmanager silent after five minutes; a dead man's switch outside may be as strict.
# Shorter than two group intervals, or every second repeat would fall just short of it and be left out.
_WATCHDOG_EVERY = {"group_wait": "0s", "group_interval": "30s", "repeat_interval": "45s"}


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
                _watchdog("sickbay", goes_on=True),
                _watchdog("watchdog", goes_on=False),
                {
                    "receiver": "sickbay",
                    "matchers": ['rule=~".+"', 'alertname!~"Sickbay.+"'],
                    "continue": True,
                },
                {"receiver": "people", "matchers": ['severity=~"critical|warning"']},
                {"receiver": "nobody"},
            ],
        },
        "inhibit_rules": _inhibitions(),
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


def _watchdog(receiver: str, *, goes_on: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"receiver": receiver, "matchers": [f'alertname="{WATCHDOG}"']}
    found |= {"group_by": ["cluster"], **_WATCHDOG_EVERY}
    return found | ({"continue": True} if goes_on else {})


def _inhibitions() -> list[dict[str, Any]]:
    return [
        # Of what sickbay itself found on a GPU, the graver is the one to read.
        {
            "source_matchers": [f'alertname="{FINDING}"', 'severity="critical"'],
            "target_matchers": [f'alertname="{FINDING}"', 'severity=~"warning|info"'],
            "equal": ["cluster", "node", "uuid"],
        },
        # A budget that burns fast burns slowly, too.
        {
            "source_matchers": [f'alertname="{BUDGET_BURN}"', 'severity="critical"'],
            "target_matchers": [f'alertname="{BUDGET_BURN}"', 'severity="warning"'],
            "equal": ["cluster"],
        },
        # Without a controller, what it would have said of itself is no news.
        {
            "source_matchers": [f'alertname="{DOWN}"'],
            "target_matchers": ['alertname=~"Sickbay.+"', f'alertname!~"{DOWN}|{WATCHDOG}"'],
            "equal": ["cluster"],
        },
    ]
