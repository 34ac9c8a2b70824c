"""What differs between databases, and nothing else does: how to connect, how to begin, what an error means.

One writer at a time, on every database: a write transaction takes the ledger's write lock before its
first read (SQLite: BEGIN IMMEDIATE, https://www.sqlite.org/lang_transaction.html; PostgreSQL: an advisory
lock held to the end of the transaction). What it reads is therefore still true when it writes, and there
is no lock to upgrade, hence no deadlock. Readers wait for nobody and see one consistent state.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import URL, Connection, Engine, Insert, StaticPool, Table, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from fleet.clock import Clock
from remediator.ledger.errors import LedgerError, LedgerUnavailableError

LOCK_TIMEOUT_SECONDS = 5.0
_READ_ONLY = "sickbay_read_only"


class Dialect(Protocol):
    """One kind of database at one address."""

    url: URL
    """Where to connect."""
    name: str
    """Where the ledger is, for messages; never a password."""
    single_connection: bool
    """All transactions share one connection, readers included: they must take turns."""

    def prepare(self) -> None:
        """Make what must exist before the first connection."""
        ...

    def engine_options(self) -> dict[str, Any]: ...
    def install(self, engine: Engine, clock: Clock) -> None:
        """Set connections up as this database needs it."""
        ...

    def view(self, connection: Connection) -> Connection:
        """The connection, such that its next transaction is a read-only one."""
        ...

    def insert_ignoring(self, table: Table) -> Insert:
        """INSERT that skips rows which are there already."""
        ...

    def upsert(self, table: Table, key: Sequence[str]) -> Insert:
        """INSERT that replaces the row with the same key."""
        ...

    def translate(self, error: SQLAlchemyError) -> LedgerError: ...


def dialect_for(url: URL) -> Dialect:
    if url.get_backend_name() == "sqlite":
        return SqliteDialect(url)
    if url.get_backend_name() == "postgresql":
        return PostgresqlDialect(url)
    raise LedgerError(
        f"the ledger cannot be kept in {url.get_backend_name()!r}: use sqlite:/// or postgresql+psycopg://"
    )


def _one_line(error: BaseException) -> str:
    origin = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return (str(origin).strip().splitlines() or [type(origin).__name__])[0]


class SqliteDialect:
    """A file in WAL mode (readers beside one writer), or one connection in memory."""

    # https://www.sqlite.org/rescode.html: these say "not now", the others that something is wrong.
    _UNAVAILABLE: Mapping[int, str] = {
        sqlite3.SQLITE_BUSY: "is locked by another process",
        sqlite3.SQLITE_LOCKED: "is locked",
        sqlite3.SQLITE_FULL: "cannot grow: the disk (or the database's size limit) is full",
        sqlite3.SQLITE_READONLY: "is read-only for this user",
        sqlite3.SQLITE_IOERR: "cannot be read or written: the disk reports an error",
        sqlite3.SQLITE_CANTOPEN: "cannot be opened: check that its folder exists and is writable",
        sqlite3.SQLITE_PERM: "may not be accessed by this user",
        sqlite3.SQLITE_NOMEM: "cannot be used: out of memory",
    }
    _BROKEN: Mapping[int, str] = {
        sqlite3.SQLITE_NOTADB: "is not an SQLite database: point store.url at another file",
        sqlite3.SQLITE_CORRUPT: "is damaged: restore it from a backup",
    }

    def __init__(self, url: URL) -> None:
        if url.query:
            raise LedgerError("store.url: an SQLite ledger takes no options after the path")
        self.url = url.set(drivername="sqlite")
        in_memory = url.database in (None, "", ":memory:")
        self._path = None if in_memory else Path(url.database or "")
        self.single_connection = in_memory
        self.name = "in memory" if self._path is None else str(self._path)

    def prepare(self) -> None:
        """Create folder and file, for this user alone: SQLite gives the -wal and -shm files its mode."""
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise LedgerUnavailableError(
                f"the folder of the ledger {self._path} cannot be created: {error.strerror}; "
                "create it, or change store.url"
            ) from error
        if self._path.is_dir():
            raise LedgerError(f"the ledger {self._path} is a folder: store.url must name a file")
        try:
            os.close(os.open(self._path, os.O_CREAT | os.O_RDONLY | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise LedgerUnavailableError(
                f"the ledger {self._path} cannot be opened: {error.strerror}"
            ) from error
        mode = stat.S_IMODE(self._path.stat().st_mode)
        if mode & 0o077:
            # Not ours to change when the file belongs to somebody else: they chose.
            with contextlib.suppress(PermissionError):
                self._path.chmod(mode & 0o700)

    def engine_options(self) -> dict[str, Any]:
        threads: dict[str, object] = {"check_same_thread": False}
        if self._path is None:
            return {"poolclass": StaticPool, "connect_args": threads}
        return {
            "pool_size": 8,
            "max_overflow": 24,
            "pool_timeout": LOCK_TIMEOUT_SECONDS,
            "connect_args": threads,
        }

    def install(self, engine: Engine, clock: Clock) -> None:
        def connected(connection: sqlite3.Connection, _record: object) -> None:
            # sqlite3 must not begin transactions by itself: begun() below does, in the kind we want.
            connection.isolation_level = None
            connection.execute(f"PRAGMA busy_timeout = {int(LOCK_TIMEOUT_SECONDS * 1000)}")
            connection.execute("PRAGMA foreign_keys = ON")
            # An acknowledged write survives a power cut, not only a crash of ours; in WAL mode NORMAL
            # would not promise that (https://www.sqlite.org/pragma.html#pragma_synchronous).
            connection.execute("PRAGMA synchronous = FULL")
            if self._path is not None:
                self._use_wal(connection, clock)

        def begun(connection: Connection) -> None:
            read_only = bool(connection.get_execution_options().get(_READ_ONLY))
            connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

        event.listen(engine, "connect", connected)
        event.listen(engine, "begin", begun)

    def _use_wal(self, connection: sqlite3.Connection, clock: Clock) -> None:
        """Switch to WAL (kept in the file). Two processes creating it at once: busy_timeout does not apply
        to the switch itself, so try again for as long.
        """
        deadline = clock.monotonic() + LOCK_TIMEOUT_SECONDS
        while True:
            try:
                mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                break
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or clock.monotonic() >= deadline:
                    raise
                clock.sleep(0.02)
        if mode != "wal":
            raise LedgerError(
                f"the ledger {self._path} cannot use write-ahead logging (a network file system?): "
                "put it on a local disk"
            )

    def view(self, connection: Connection) -> Connection:
        return connection.execution_options(**{_READ_ONLY: True})

    def insert_ignoring(self, table: Table) -> Insert:
        return sqlite.insert(table).on_conflict_do_nothing()

    def upsert(self, table: Table, key: Sequence[str]) -> Insert:
        statement = sqlite.insert(table)
        new = {column.name: column for column in statement.excluded if column.name not in key}
        return statement.on_conflict_do_update(index_elements=list(key), set_=new)

    def translate(self, error: SQLAlchemyError) -> LedgerError:
        origin = getattr(error, "orig", None)
        # Extended codes carry the primary one in their low byte.
        code = getattr(origin, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in self._UNAVAILABLE:
            return LedgerUnavailableError(
                f"the ledger {self.name} {self._UNAVAILABLE[code]} ({_one_line(error)})"
            )
        if isinstance(error, PoolTimeoutError):
            return LedgerUnavailableError(f"the ledger {self.name} is overloaded: no connection became free")
        if code in self._BROKEN:
            return LedgerError(f"the ledger {self.name} {self._BROKEN[code]}")
        return LedgerError(f"the ledger {self.name} refused: {_one_line(error)}")


class PostgresqlDialect:
    """A PostgreSQL database shared by leader and standby, through psycopg 3."""

    # Any fixed number: the ledger's write lock among the advisory locks of this database.
    _WRITE_LOCK = 0x5349434B
    # https://www.postgresql.org/docs/current/errcodes-appendix.html: connection, resources (53100 is a
    # full disk), lock not available, deadlock and serialisation, read-only, operator intervention.
    _UNAVAILABLE = ("08", "25006", "40", "53", "55P03", "57", "58")

    def __init__(self, url: URL) -> None:
        self.single_connection = False
        self.url = url.set(drivername="postgresql+psycopg")
        self.name = f"postgresql://{url.host or ''}:{url.port or 5432}/{url.database or ''}"

    def prepare(self) -> None:
        """Nothing: the database is made by its administrator."""

    def engine_options(self) -> dict[str, Any]:
        return {
            "pool_size": 8,
            "max_overflow": 24,
            "pool_timeout": LOCK_TIMEOUT_SECONDS,
            "pool_pre_ping": True,
            "connect_args": {"connect_timeout": int(LOCK_TIMEOUT_SECONDS)},
        }

    def install(self, engine: Engine, clock: Clock) -> None:
        del clock

        def begun(connection: Connection) -> None:
            if connection.get_execution_options().get(_READ_ONLY):
                connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                return
            # READ COMMITTED, the default, sees what was committed while we waited for the lock.
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {int(LOCK_TIMEOUT_SECONDS * 1000)}")
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({self._WRITE_LOCK})")

        event.listen(engine, "begin", begun)

    def view(self, connection: Connection) -> Connection:
        return connection.execution_options(**{_READ_ONLY: True})

    def insert_ignoring(self, table: Table) -> Insert:
        return postgresql.insert(table).on_conflict_do_nothing()

    def upsert(self, table: Table, key: Sequence[str]) -> Insert:
        statement = postgresql.insert(table)
        new = {column.name: column for column in statement.excluded if column.name not in key}
        return statement.on_conflict_do_update(index_elements=list(key), set_=new)

    def translate(self, error: SQLAlchemyError) -> LedgerError:
        state = getattr(getattr(error, "orig", None), "sqlstate", None) or ""
        lost = isinstance(error, PoolTimeoutError) or (isinstance(error, DBAPIError) and not state)
        if lost or state.startswith(self._UNAVAILABLE):
            return LedgerUnavailableError(f"the ledger {self.name} is not available: {_one_line(error)}")
        if state.startswith("22"):
            return LedgerError(f"a value does not fit into the ledger: {_one_line(error)}")
        return LedgerError(f"the ledger {self.name} refused: {_one_line(error)}")
