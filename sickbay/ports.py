"""What the HTTP layer may ask of the running service: the one seam between transport and application.

Everything returned is plain data in the shapes of docs/api.md, ready to be encoded. The service checks
node names against the inventory; the HTTP layer checks tokens, sizes and content types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from fleet.errors import SickbayError

Json = dict[str, Any]


class NoSuchNodeError(SickbayError):
    """The inventory does not know this node: 404."""


class NoSuchIncidentError(SickbayError):
    """No such incident: 404."""


class NotPossibleError(SickbayError):
    """The request contradicts the present state (approve a closed incident, say): 409."""


class StoreUnavailableError(SickbayError):
    """The push could not be made durable: 503, the sender must try again."""


class Service(Protocol):
    """The running controller, as its API sees it. Every method may be called from any thread."""

    version: str

    def ready(self) -> tuple[bool, str]:
        """(True, "ok"), or (False, the reason in one sentence)."""
        ...

    def ingest_events(self, node: str, agent: Mapping[str, Any], events: Sequence[Any]) -> Json:
        """Store an agent's push durably: ``{"accepted","duplicates","rejected":[{"index","reason"}]}``.

        ``node`` is ``agent["node"]``, already checked against the token. Raises NoSuchNodeError when the
        inventory does not know it and StoreUnavailableError when it cannot be made durable.
        """
        ...

    def ingest_alerts(self, notification: Mapping[str, Any]) -> Json:
        """Store an Alertmanager v4 notification durably; answers ``{"accepted","duplicates"}``."""
        ...

    def nodes(self, *, limit: int, after: str | None) -> Json: ...

    def node(self, name: str) -> Json: ...

    def why(self, name: str) -> Json: ...

    def incidents(self, *, state: str | None, node: str | None, limit: int, before: float | None) -> Json: ...

    def incident(self, incident_id: str) -> Json: ...

    def findings(self, *, node: str | None, include_cleared: bool) -> Json: ...

    def approve(self, incident_id: str, *, author: str, reason: str) -> Json: ...

    def cancel(self, incident_id: str, *, author: str, reason: str) -> Json: ...

    def hold(self, node: str, *, author: str, reason: str, expires_in_seconds: float | None) -> Json: ...

    def release(self, node: str, *, author: str, reason: str) -> Json: ...

    def pause(
        self, *, pool: str | None, author: str, reason: str, expires_in_seconds: float | None
    ) -> Json: ...

    def resume(self, *, pool: str | None, author: str, reason: str) -> Json: ...

    def changes(self, *, after: int, timeout: float) -> Iterator[Json]:
        """Ledger lines with id > ``after`` as ``{"id","node","incident","state","step",...}``.

        Waits up to ``timeout`` seconds for the first one, then yields what there is and ends.
        """
        ...

    def render_metrics(self) -> bytes:
        """Prometheus text exposition (0.0.4) of the controller and the fleet."""
        ...
