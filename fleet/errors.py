"""The errors of the house. What a scheduler can answer is a closed list (docs/architecture.md)."""

from __future__ import annotations


class SickbayError(Exception):
    """Base of every error that is ours; its text is one line a person can act on."""


class InvalidInputError(SickbayError):
    """Input from outside is malformed: the text says what, where and what to do."""


class BackendError(SickbayError):
    """A scheduler call did not do what was asked. ``retryable``: asking again later may help."""

    retryable = False


class UnavailableError(BackendError):
    """The scheduler did not answer in time, or answered nonsense: the outcome is unknown, read it back."""

    retryable = True


class ConflictError(BackendError):
    """Somebody else changed the object between our read and our write, or owns it."""


class ForbiddenError(BackendError):
    """The service itself lacks the right. Permanent until an operator changes it: stop and page."""


class NotFoundError(BackendError):
    """The scheduler does not know the object."""


class RateLimitedError(BackendError):
    """The scheduler, or our own token bucket, asks for a pause. ``retry_after_seconds`` may be None."""

    retryable = True

    def __init__(self, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class RefusedError(BackendError):
    """The scheduler understood and said no (a job that must not be requeued, say). Permanent."""
