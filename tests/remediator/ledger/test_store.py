"""Opening a ledger, its transactions, and what it says when the database cannot."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy.exc import SQLAlchemyError

from fleet.clock import ManualClock, SystemClock
from remediator.ledger import (
    Ledger,
    LedgerError,
    LedgerUnavailableError,
    Transaction,
    dialects,
    open_ledger,
    schema,
)
from remediator.ledger import store as store_module
from remediator.records import Added, LedgerStore, Phase
from tests.support.ledger_records import event, line


def _pending(ledger: Ledger) -> int:
    with ledger.transaction(read_only=True) as tx:
        return tx.pending_inbox_count()


def _push(ledger: Ledger, *numbers: int) -> Added:
    with ledger.transaction() as tx:
        return tx.add_events([event(number) for number in numbers], 1.0)


# -- opening


def test_a_new_ledger_is_for_its_owner_alone(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "a" / "b" / "ledger.db"
    store: LedgerStore = open_ledger(f"sqlite:///{path}", clock)
    store.check_writable()
    files = [file for file in path.parent.iterdir() if file.is_file()]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert len(files) == 3, "database, write-ahead log and its index"
    store.close()


def test_a_ledger_that_others_could_read_is_closed_to_them(path: Path, clock: ManualClock) -> None:
    path.touch(mode=0o644)
    path.chmod(0o644)
    open_ledger(f"sqlite:///{path}", clock).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_is_stored_is_there_after_a_restart(path: Path, clock: ManualClock) -> None:
    first = open_ledger(f"sqlite:///{path}", clock)
    _push(first, 1, 2)
    first.close()
    second = open_ledger(f"sqlite:///{path}", clock)
    assert _push(second, 2, 3) == Added(1, 1)
    second.close()


def test_connections_are_durable_and_strict(file_ledger: Ledger) -> None:
    found = {}
    with file_ledger.transaction() as tx:
        for pragma in ("journal_mode", "synchronous", "busy_timeout", "foreign_keys"):
            found[pragma] = tx._connection.exec_driver_sql(f"PRAGMA {pragma}").scalar()
    assert found == {"journal_mode": "wal", "synchronous": 2, "busy_timeout": 5000, "foreign_keys": 1}


def _newer(path: Path) -> None:
    open_ledger(f"sqlite:///{path}", ManualClock()).close()
    _sql(path, "UPDATE sickbay_meta SET value = '2' WHERE key = 'schema_version'")


def _odd_version(path: Path) -> None:
    open_ledger(f"sqlite:///{path}", ManualClock()).close()
    _sql(path, "UPDATE sickbay_meta SET value = 'x' WHERE key = 'schema_version'")


def _sql(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (_newer, f"made by a newer sickbay .schema 2, this one knows {schema.SCHEMA_VERSION}"),
        (_odd_version, "not a sickbay ledger"),
        (lambda path: _sql(path, "CREATE TABLE other (a)"), "not a sickbay ledger"),
        (
            lambda path: path.write_bytes(b"no database at all, but long enough to have a header" * 50),
            "not an SQLite database",
        ),
        (lambda path: path.mkdir(), "is a folder"),
    ],
    ids=["newer", "odd version", "somebody else's", "no database", "folder"],
)
def test_what_is_not_our_ledger_is_refused_in_one_line(
    path: Path, make: Callable[[Path], object], says: str
) -> None:
    make(path)
    with pytest.raises(LedgerError, match=says) as caught:
        open_ledger(f"sqlite:///{path}", ManualClock())
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("ledger.db", "not a database URL"),
        ("mysql://u:secret@h/d", "mysql"),
        ("sqlite:///x.db?mode=ro", "no options"),
    ],
)
def test_addresses_we_cannot_use_are_refused_without_their_password(url: str, says: str) -> None:
    with pytest.raises(LedgerError, match=says) as caught:
        open_ledger(url, ManualClock())
    assert "secret" not in str(caught.value)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        LedgerUnavailableError, match=r"folder of the ledger .*cannot be created: Not a directory"
    ):
        open_ledger(f"sqlite:///{tmp_path}/file/below/ledger.db", clock)


def test_two_who_create_it_at_once_share_it(path: Path) -> None:
    """Threads with their own ledger each behave towards the file as processes do."""
    barrier = threading.Barrier(6)
    failures: list[BaseException] = []

    def create(number: int) -> None:
        try:
            barrier.wait()
            ledger = open_ledger(f"sqlite:///{path}", SystemClock())
            _push(ledger, number)
            ledger.close()
        except LedgerError as error:
            failures.append(error)

    _in_threads(create, 6)
    assert failures == []
    ledger = open_ledger(f"sqlite:///{path}", SystemClock())
    assert _pending(ledger) == 6
    ledger.close()


# -- transactions


def test_everything_commits_or_nothing_does(ledger: Ledger) -> None:
    with pytest.raises(ZeroDivisionError), ledger.transaction() as tx:
        _write_and_fail(tx)
    assert _pending(ledger) == 0
    with ledger.transaction(read_only=True) as tx:
        assert tx.steps() == []


def _write_and_fail(tx: Transaction) -> None:
    tx.add_events([event(1)], 1.0)
    tx.append(line(Phase.DECISION))
    raise ZeroDivisionError


def test_a_swallowed_database_error_keeps_nothing(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="nothing of it is kept"), ledger.transaction() as tx:
        _write_and_swallow(tx)
    assert _pending(ledger) == 0


def _write_and_swallow(tx: Transaction) -> None:
    tx.add_events([event(1)], 1.0)
    with pytest.raises(LedgerError):
        tx.add_events([event(2**70)], 1.0)
    with pytest.raises(LedgerError, match="nothing of it is kept"):
        tx.add_events([event(3)], 1.0)


def test_a_view_cannot_write(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="read-only view"), ledger.transaction(read_only=True) as tx:
        tx.append(line(Phase.DECISION))


def test_a_view_waits_for_no_writer_and_is_consistent(file_ledger: Ledger) -> None:
    _push(file_ledger, 1)
    with file_ledger.transaction() as writer:
        writer.add_events([event(2)], 1.0)
        assert _pending(file_ledger) == 1
    with file_ledger.transaction(read_only=True) as view:
        assert view.pending_inbox_count() == 2
        _push(file_ledger, 3)
        assert view.pending_inbox_count() == 2
    assert _pending(file_ledger) == 3


def test_a_second_write_in_the_same_thread_is_an_error_not_a_deadlock(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        tx.add_events([event(1)], 1.0)
        with pytest.raises(LedgerError, match="open in this thread already"):
            _push(ledger, 2)
    assert _push(ledger, 1, 2) == Added(1, 1)


def test_a_transaction_ends_with_its_block(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        pass
    with pytest.raises(LedgerError):
        tx.add_events([event(1)], 1.0)


def test_a_closed_ledger_says_so(ledger: Ledger) -> None:
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="is closed"):
        _push(ledger, 1)
    with pytest.raises(LedgerError, match="is closed"):
        ledger.check_writable()


def test_threads_queue_and_lose_nothing(ledger: Ledger) -> None:
    counts: list[Added] = []

    def hammer(number: int) -> None:
        for start in range(0, 40, 2):
            counts.append(_push(ledger, start, start + 1))
            with ledger.transaction(read_only=True) as tx:
                assert tx.pending_inbox_count() >= start + 2
            with ledger.transaction() as tx:
                tx.append(line(Phase.INTENT, f"{number}-{start}"))

    _in_threads(hammer, 8)
    assert sum(added.accepted for added in counts) == 40
    assert sum(added.duplicates for added in counts) == 7 * 40
    with ledger.transaction(read_only=True) as tx:
        assert len(tx.steps()) == 8 * 20


def _in_threads(work: Callable[[int], None], count: int) -> None:
    errors: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001 -- reported below, in the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []


def test_a_thread_does_not_wait_for_ever(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "QUEUE_TIMEOUT_SECONDS", 0.05)
    with ledger.transaction():
        seen: list[str] = []

        def wait() -> None:
            with pytest.raises(LedgerUnavailableError, match="is busy") as caught, ledger.transaction():
                pass
            seen.append(str(caught.value))

        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(10)
    assert len(seen) == 1


# -- when the database cannot


def test_a_full_disk_is_said_and_ends(file_ledger: Ledger) -> None:
    _push(file_ledger, 1)
    with file_ledger.transaction() as tx:
        pages = tx._connection.exec_driver_sql("PRAGMA page_count").scalar()
        tx._connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(LedgerUnavailableError, match="is full") as caught:
        _push(file_ledger, *range(2, 2000))
    assert isinstance(caught.value.__cause__, SQLAlchemyError)
    assert _pending(file_ledger) == 1, "the batch did not fit: nothing of it is kept"
    with file_ledger.transaction() as tx:
        tx._connection.exec_driver_sql("PRAGMA max_page_count = 100000")
    assert _push(file_ledger, *range(2, 2000)) == Added(1998, 0)


_LOCKER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_lock_of_another_process_is_waited_for_then_said(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialects, "LOCK_TIMEOUT_SECONDS", 0.5)
    ledger = open_ledger(f"sqlite:///{path}", SystemClock())
    with subprocess.Popen(
        [sys.executable, "-c", _LOCKER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as locker:
        assert locker.stdout is not None
        assert locker.stdout.readline() == "locked\n"
        started = time.monotonic()
        with pytest.raises(LedgerUnavailableError, match="locked by another process"):
            ledger.check_writable()
        assert 0.4 < time.monotonic() - started < 5.0
        assert _pending(ledger) == 0, "readers are not locked out"
        locker.kill()
    assert _push(ledger, 1) == Added(1, 0)
    ledger.close()


_READ_ONLY = """
import os, sys
from fleet.clock import SystemClock
from remediator.ledger import LedgerError, open_ledger
open_ledger("sqlite://", SystemClock()).close()
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    open_ledger(f"sqlite:///{sys.argv[1]}", SystemClock()).check_writable()
except LedgerError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("folder_mode", [0o755, 0o777], ids=["folder too", "file only"])
def test_a_read_only_ledger_is_unavailable(folder_mode: int) -> None:
    # Not under tmp_path, whose parents only the owner may enter: root becomes nobody for this.
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "ledger.db"
        open_ledger(f"sqlite:///{path}", ManualClock()).close()
        path.chmod(0o444)
        Path(name).chmod(folder_mode if os.getuid() == 0 else folder_mode & 0o500)
        done = subprocess.run(
            [sys.executable, "-c", _READ_ONLY, str(path)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        Path(name).chmod(0o700)
    assert done.stderr == ""
    assert done.stdout.startswith("LedgerUnavailableError the ledger")
    assert done.stdout.count("\n") == 1


def test_a_damaged_ledger_says_so(path: Path, clock: ManualClock) -> None:
    ledger = open_ledger(f"sqlite:///{path}", clock)
    _push(ledger, *range(500))
    ledger.close()
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(LedgerError, match="damaged") as caught:
        open_ledger(f"sqlite:///{path}", clock)
    assert not isinstance(caught.value, LedgerUnavailableError)
