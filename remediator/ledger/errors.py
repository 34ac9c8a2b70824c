"""What can go wrong with the ledger. Each text is one line a person can act on; the cause is chained."""

from __future__ import annotations

from fleet.errors import SickbayError


class LedgerError(SickbayError):
    """The ledger did not do what was asked, and nothing of the transaction is kept."""


class LedgerUnavailableError(LedgerError):
    """The ledger cannot be reached or written now: locked, full, read-only, no connection."""


class DuplicateIntentError(LedgerError):
    """An intent with this key is recorded already: the action is under way, or was done."""


class DuplicateEffectError(LedgerError):
    """The effect of this key is recorded already."""


class StaleRecordError(LedgerError):
    """The record to replace is gone, closed, or not what the writer had read."""


class LostLeaseError(LedgerError):
    """Somebody else leads now (or nobody): what a late leader writes is refused."""
