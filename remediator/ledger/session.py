"""One open transaction: runs statements, turns what the database says into our errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, CursorResult, Row
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.sql import Delete, Insert, Select, Update

from remediator.ledger.dialects import Dialect
from remediator.ledger.errors import LedgerError

Parameters = Mapping[str, object] | Sequence[Mapping[str, object]]
Statement = Select[Any] | Insert | Update | Delete

# Databases limit the parameters of one statement (SQLite: 32,766).
CHUNK = 500


class Session:
    """What the parts of a transaction share."""

    def __init__(self, connection: Connection, dialect: Dialect, *, read_only: bool) -> None:
        self._connection = connection
        self._dialect = dialect
        self._read_only = read_only
        self._failure: LedgerError | None = None

    def check_whole(self) -> None:
        """Raise if a statement failed: a caller that swallowed the error must not commit the rest."""
        if self._failure is not None:
            raise LedgerError(
                "a part of this transaction failed, so nothing of it is kept"
            ) from self._failure

    def _run(self, statement: Statement, parameters: Parameters | None = None) -> CursorResult[Any]:
        # After an error the database may have rolled back by itself: a further statement would stand alone.
        self.check_whole()
        if self._read_only and not isinstance(statement, Select):
            raise LedgerError("this is a read-only view of the ledger: nothing can be written in it")
        try:
            # preserve_rowcount: an INSERT that skips rows must tell how many it took.
            return self._connection.execute(
                statement, parameters, execution_options={"preserve_rowcount": True}
            )
        except SQLAlchemyError as error:
            self._failure = self._dialect.translate(error)
            raise self._failure from error
        except (UnicodeError, OverflowError) as error:
            self._failure = LedgerError(f"a value does not fit into the ledger: {error}")
            raise self._failure from error

    def _rows(self, statement: Select[Any]) -> Sequence[Row[Any]]:
        return self._run(statement).all()

    def _first(self, statement: Select[Any]) -> Row[Any] | None:
        return self._run(statement).first()

    def _insert(self, statement: Insert, values: Mapping[str, object]) -> int:
        """Insert one row; its number."""
        key = self._run(statement, values).inserted_primary_key
        if key is None:
            raise LedgerError("the database did not number a new row of the ledger")
        return int(key[0])
