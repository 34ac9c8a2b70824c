"""A query may ask only for names we export: looked up when a board is built, none is shipped blind."""

from __future__ import annotations

from functools import cache

from collector.signals import load_signals
from fleet.errors import SickbayError
from fleet.metric_names import EXPORTED_METRICS, names_in


class UnknownMetricError(SickbayError):
    """A query asks for a metric that nobody exports."""


def check_query(expression: str) -> None:
    """Raises UnknownMetricError, with the names, unless every metric of the query is in the catalogues."""
    unknown = sorted(set(names_in(expression)) - known_series())
    if unknown:
        names = ", ".join(unknown)
        raise UnknownMetricError(f"query {expression!r} asks for {names}, which is in no metric catalogue")


@cache
def known_series() -> frozenset[str]:
    """Every series a board may ask for: our own metrics, and the signals under our prefix."""
    own = {name for metric in EXPORTED_METRICS for name in metric.series}
    return frozenset(own | {signal.metric_name for signal in load_signals().values()})
