"""``sickbay doctor``: is everything around the controller as it must be? It looks, and changes nothing.

A check is a small function with a name; it answers with results: ok, warn, fail or unknown, one sentence
and, unless ok, the next step. ``examine`` runs them side by side, each with a deadline of its own.
"""

from sickbay.doctor.model import Check, Result, Status
from sickbay.doctor.run import examine

__all__ = ["Check", "Result", "Status", "examine"]
