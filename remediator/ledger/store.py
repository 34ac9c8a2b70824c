"""Opening the ledger, and its transactions."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from sqlalchemy import Connection, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from fleet.clock import Clock
from remediator.ledger import schema
from remediator.ledger.dialects import Dialect, dialect_for
from remediator.ledger.errors import LedgerError, LedgerUnavailableError, LostLeaseError
from remediator.ledger.inbox import InboxPart
from remediator.ledger.incidents import IncidentPart
from remediator.ledger.lines import LinePart
from remediator.ledger.meta import MetaPart
from remediator.ledger.words import LeasePart, WordPart
from remediator.records import Lease

QUEUE_TIMEOUT_SECONDS = 10.0
"""How long a thread waits for the writers before it: twice what one of them may wait for the database."""


class Transaction(InboxPart, IncidentPart, LinePart, WordPart, LeasePart, MetaPart):
    """``remediator.records.LedgerTransaction``, on one database connection."""


class Ledger:
    """``remediator.records.LedgerStore`` over SQLAlchemy. Safe to share between threads.

    Writers take turns: within this process by a lock, between processes by the database's (see
    ``dialects``). Every failure of the database leaves here as a LedgerError, its cause chained.
    """

    def __init__(self, engine: Engine, dialect: Dialect, clock: Clock) -> None:
        self._engine = engine
        self._dialect = dialect
        self._clock = clock
        self._turn = threading.Lock()
        self._writer: int | None = None
        self._closed = False

    @contextlib.contextmanager
    def transaction(self, *, read_only: bool = False, fence: Lease | None = None) -> Iterator[Transaction]:
        """See ``LedgerStore``. A thread has one write transaction at a time; nested ones are an error."""
        takes_turn = not read_only or self._dialect.single_connection
        with self._take_turn() if takes_turn else contextlib.nullcontext():
            try:
                with self._begun(read_only=read_only) as connection:
                    transaction = Transaction(connection, self._dialect, read_only=read_only)
                    if fence is not None:
                        _check_fence(transaction, fence)
                    yield transaction
                    transaction.check_whole()
            except SQLAlchemyError as error:
                raise self._dialect.translate(error) from error

    def check_writable(self) -> None:
        """Write one row and make it durable, else LedgerError."""
        with self.transaction() as transaction:
            transaction.put_meta("last_write_check_at", repr(self._clock.now()))

    def close(self) -> None:
        """Close the connections, after the write in progress. The ledger cannot be used any more."""
        waited = self._turn.acquire(timeout=QUEUE_TIMEOUT_SECONDS)
        try:
            self._closed = True
            self._engine.dispose()
        finally:
            if waited:
                self._turn.release()

    def set_up(self) -> None:
        """Create the tables in an empty database; refuse a ledger that this version does not know."""
        with self.transaction(read_only=True) as transaction:
            version = transaction.schema_version()
        if version is None:
            with self.transaction() as transaction:
                # Another process may have been faster.
                version = transaction.schema_version() or transaction.create_schema(self._clock.now())
        if version > schema.SCHEMA_VERSION:
            raise LedgerError(
                f"the ledger {self._dialect.name} was made by a newer sickbay (schema {version}, this one "
                f"knows {schema.SCHEMA_VERSION}): upgrade sickbay, or point store.url elsewhere"
            )

    @contextlib.contextmanager
    def _begun(self, *, read_only: bool) -> Iterator[Connection]:
        if self._closed:
            raise LedgerError(f"the ledger {self._dialect.name} is closed")
        with self._engine.connect() as connection:
            chosen = self._dialect.view(connection) if read_only else connection
            with chosen.begin():
                yield chosen

    @contextlib.contextmanager
    def _take_turn(self) -> Iterator[None]:
        if self._writer == threading.get_ident():
            raise LedgerError("a transaction on the ledger is open in this thread already: use that one")
        if not self._turn.acquire(timeout=QUEUE_TIMEOUT_SECONDS):
            raise LedgerUnavailableError(
                f"the ledger {self._dialect.name} is busy: waited {QUEUE_TIMEOUT_SECONDS:g} s for a turn"
            )
        self._writer = threading.get_ident()
        try:
            yield
        finally:
            self._writer = None
            self._turn.release()


def _check_fence(transaction: Transaction, fence: Lease) -> None:
    """Nobody can take the lease between this look and the commit: that, too, is a write, and waits.

    The expiry is not compared: an expired lease that nobody took is still the last word, and clocks of two
    machines need not agree.
    """
    standing = transaction.lease()
    if standing is None or (standing.holder, standing.epoch) != (fence.holder, fence.epoch):
        now = "nobody" if standing is None else f"{standing.holder} (epoch {standing.epoch})"
        raise LostLeaseError(
            f"{fence.holder} (epoch {fence.epoch}) does not hold the lease any more, {now} does: "
            "nothing was written"
        )


def open_ledger(url: str, clock: Clock) -> Ledger:
    """Open the ledger at a database URL, creating its tables in an empty database.

    ``sqlite:////absolute/path``, ``sqlite:///relative/path``, ``sqlite://`` (in memory, for tests and the
    demo) or ``postgresql+psycopg://user:password@host/database``. Raises LedgerError, one line, when it
    cannot be used: a folder that cannot be made, a database that is something else or of a newer version.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise LedgerError(
            "store.url is not a database URL: write sqlite:////absolute/path or postgresql+psycopg://..."
        ) from error
    dialect = dialect_for(parsed)
    dialect.prepare()
    try:
        engine = create_engine(dialect.url, **dialect.engine_options())
    except ImportError as error:
        raise LedgerError(
            f"the ledger {dialect.name} needs a database driver: install sickbay[postgresql] ({error})"
        ) from error
    except SQLAlchemyError as error:
        raise LedgerError(f"the ledger {dialect.name} cannot be used: {error}") from error
    dialect.install(engine, clock)
    ledger = Ledger(engine, dialect, clock)
    try:
        ledger.set_up()
    except LedgerError:
        ledger.close()
        raise
    return ledger
