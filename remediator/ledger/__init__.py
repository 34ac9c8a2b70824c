"""The durable ledger."""

from remediator.ledger.errors import (
    DuplicateEffectError,
    DuplicateIntentError,
    LedgerError,
    LedgerUnavailableError,
    LostLeaseError,
    StaleRecordError,
)

__all__ = [
    "DuplicateEffectError",
    "DuplicateIntentError",
    "LedgerError",
    "LedgerUnavailableError",
    "LostLeaseError",
    "StaleRecordError",
]
