"""The durable ledger: the inbox, findings, incidents, what was done and why, human words, the lease.

Here: the tables and everything that speaks SQL (SQLAlchemy stands in no other place). Not here: what the
records mean (``remediator.records``, and those who decide on them).
"""

from remediator.ledger.errors import (
    DuplicateEffectError,
    DuplicateIntentError,
    LedgerError,
    LedgerUnavailableError,
    LostLeaseError,
    StaleRecordError,
)
from remediator.ledger.store import Ledger, Transaction, open_ledger

__all__ = [
    "DuplicateEffectError",
    "DuplicateIntentError",
    "Ledger",
    "LedgerError",
    "LedgerUnavailableError",
    "LostLeaseError",
    "StaleRecordError",
    "Transaction",
    "open_ledger",
]
