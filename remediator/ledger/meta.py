"""What the ledger says about itself."""

from __future__ import annotations

from sqlalchemy import inspect, select

from remediator.ledger import schema
from remediator.ledger.errors import LedgerError
from remediator.ledger.session import Session

_VERSION = "schema_version"


class MetaPart(Session):
    def schema_version(self) -> int | None:
        """The version of the tables that are there; None in an empty database."""
        tables = inspect(self._connection).get_table_names()
        if not tables:
            return None
        stored = self._meta(_VERSION) if schema.meta.name in tables else None
        if stored is None or not stored.isascii() or not stored.isdigit() or int(stored) < 1:
            raise LedgerError(
                f"{self._dialect.name} holds something that is not a sickbay ledger: "
                "point store.url at a database of its own"
            )
        return int(stored)

    def create_schema(self, at: float) -> int:
        """Make all tables; their version."""
        schema.metadata.create_all(self._connection)
        self.put_meta(_VERSION, str(schema.SCHEMA_VERSION))
        self.put_meta("created_at", repr(at))
        return schema.SCHEMA_VERSION

    def put_meta(self, key: str, value: str) -> None:
        self._run(self._dialect.upsert(schema.meta, ["key"]), {"key": key, "value": value})

    def _meta(self, key: str) -> str | None:
        row = self._first(select(schema.meta.c.value).where(schema.meta.c.key == key))
        return None if row is None else str(row.value)
