"""The ledger, looked at without touching it: a second pair of eyes beside a controller that may be running.

``open_ledger`` creates what is missing, so it is not used here. SQLite is opened read-only, and as immutable
where no write-ahead log lies beside it (SQLite would otherwise make one); PostgreSQL in a read-only
transaction. Table names come from the ledger's own schema.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from fleet.clock import Clock
from fleet.errors import SickbayError
from sickbay.doctor.clocks import compare
from sickbay.doctor.model import Check, Result, Shared, fail, ok, warn

_SQLITE = "sqlite:///"
_WAIT_SECONDS = 5
_GIB = 1024**3
# A full disk stops every action: nothing is done that cannot be recorded.
WARN_FREE_BYTES, FAIL_FREE_BYTES = 1 * _GIB, 100 * 1024**2
# Write-ahead logging needs memory shared between processes: not over a network (sqlite.org/wal.html).
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "fuse.sshfs", "9p"})

Rows = Callable[[str], list[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class Heard:
    """An agent's last word: its version, and when (epoch seconds, the controller's clock)."""

    version: str | None
    last_seen: float


@dataclass(frozen=True, slots=True)
class LedgerSight:
    """``version`` None: there is no ledger yet. ``agents`` None: with it, or in a newer sickbay's ledger.

    ``says``: the server's own time, epoch seconds.
    """

    version: int | None
    agents: Mapping[str, Heard] | None
    open_incidents: frozenset[str]
    says: float | None = None
    writable: bool = True


@dataclass(frozen=True, slots=True)
class LedgerChecks:
    """``url`` as the configuration has it, already in SQLAlchemy's form."""

    url: str
    sight: Shared[LedgerSight]
    clock: Clock

    def checks(self) -> tuple[Check, ...]:
        checks = [Check("store.schema", self.schema, 20.0)]
        if self.url.startswith(_SQLITE):
            path = sqlite_path(self.url)
            checks.insert(0, Check("store.writable", lambda: file_writable(path), 10.0))
            checks.append(Check("store.space", lambda: free_space(path), 10.0))
        else:
            checks.append(Check("store.clock", self.server_clock, 20.0))
        return tuple(checks)

    def schema(self) -> Iterator[Result]:
        from remediator.ledger.schema import SCHEMA_VERSION  # noqa: PLC0415 - loads the database's library

        name = "store.schema"
        try:
            sight = self.sight.get()
        except LedgerLookError as error:
            yield fail(name, str(error), error.next_step)
            return
        if sight.version is None:
            yield ok(name, "no ledger yet: the first start makes it")
        elif sight.version > SCHEMA_VERSION:
            yield fail(
                name,
                f"the ledger was made by a newer sickbay (schema {sight.version}, this one knows "
                f"{SCHEMA_VERSION})",
                "upgrade sickbay here, or point store.url elsewhere",
            )
        else:
            yield ok(name, f"schema {sight.version}, {len(sight.open_incidents)} open incidents in it")
        if not sight.writable:
            yield fail(
                "store.writable",
                "the database is a standby, or this user may not write to the ledger's tables",
                "point store.url at the primary, with a user that owns the tables",
            )

    def server_clock(self) -> Iterator[Result]:
        started, asked_at = self.clock.monotonic(), self.clock.now()
        says = self.sight.get().says
        took = self.clock.monotonic() - started
        yield compare("store.clock", "the database server", says, asked_at, took)


class LedgerLookError(SickbayError):
    """The ledger is there and cannot be read, or is none."""

    def __init__(self, text: str, next_step: str) -> None:
        super().__init__(text)
        self.next_step = next_step


def look(url: str) -> LedgerSight:
    """What the ledger at ``url`` says. Raises LedgerLookError; changes nothing."""
    return _look_sqlite(sqlite_path(url)) if url.startswith(_SQLITE) else _look_postgresql(url)


def sqlite_path(url: str) -> Path:
    """``sqlite:////var/x.db`` -> /var/x.db (the configuration makes every path absolute)."""
    return Path(url.removeprefix(_SQLITE))


def file_writable(path: Path) -> Iterator[Result]:
    """By rights and mount flags, for the user who runs the doctor: nothing is written."""
    name = "store.writable"
    folder = path.parent
    nearest = next((one for one in (folder, *folder.parents) if one.exists()), Path("/"))
    if path.is_dir():
        yield fail(name, f"{path} is a folder", "store.url must name a file")
    elif path.exists() and not os.access(path, os.R_OK | os.W_OK):
        yield fail(name, f"{path} may not be written by this user", "run as the service's user, or chown it")
    elif not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        yield fail(
            name,
            f"{nearest} may not be written by this user; the ledger and its journal live in {folder}",
            f"make {folder} for the service's user: install -d -m 0700 -o USER {folder}",
        )
    else:
        yield ok(
            name, f"{path} {'can be written' if path.exists() else 'does not exist yet and can be made'}"
        )
    kind = filesystem_of(nearest)
    if kind in _NETWORK:
        yield fail(
            "store.filesystem",
            f"{nearest} is on a network file system ({kind}), where SQLite's write-ahead log does not work",
            "put the ledger on a local disk, or use PostgreSQL",
        )


def free_space(path: Path) -> Iterator[Result]:
    name = "store.space"
    nearest = next((one for one in path.parents if one.exists()), Path("/"))
    free = shutil.disk_usage(nearest).free
    shown = f"{free / _GIB:.1f} GiB" if free >= _GIB else f"{free // 1024**2} MiB"
    step = f"make room on the disk of {nearest}, or move the ledger (store.url)"
    if free < FAIL_FREE_BYTES:
        yield fail(name, f"{shown} free at {nearest}: a full disk stops every action", step)
    elif free < WARN_FREE_BYTES:
        yield warn(name, f"{shown} free at {nearest}; a full disk stops every action", step)
    else:
        yield ok(name, f"{shown} free at {nearest}")


def filesystem_of(folder: Path, mounts: Path = Path("/proc/self/mounts")) -> str | None:
    """The type of the file system that holds ``folder``; None where the kernel does not say."""
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return None
    best: tuple[int, str | None] = (-1, None)
    resolved = folder.resolve()
    for line in lines:
        parts = line.split()
        if len(parts) < 3:  # noqa: PLR2004 - device, where, type
            continue
        where = Path(parts[1].replace("\\040", " "))
        if resolved.is_relative_to(where) and len(where.parts) >= best[0]:
            best = (len(where.parts), parts[2])
    return best[1]


def _look_sqlite(path: Path) -> LedgerSight:
    if not path.exists():
        return LedgerSight(None, None, frozenset())
    # With a log beside it, somebody writes (or died writing): then it must be read, which needs no new file.
    immutable = "" if Path(f"{path}-wal").exists() else "&immutable=1"
    try:
        with closing(
            sqlite3.connect(f"file:{quote(str(path))}?mode=ro{immutable}", uri=True, timeout=_WAIT_SECONDS)
        ) as connection:
            return _read(
                lambda sql: connection.execute(sql).fetchall(),
                tables="SELECT name FROM sqlite_master WHERE type = 'table'",
            )
    except sqlite3.Error as error:
        raise LedgerLookError(
            f"{path} cannot be read as a ledger ({error})",
            "point store.url at the ledger, or at a file that does not exist yet",
        ) from error


def _look_postgresql(url: str) -> LedgerSight:
    try:
        psycopg = importlib.import_module("psycopg")
    except ModuleNotFoundError as error:
        raise LedgerLookError(
            "store.url names PostgreSQL, but psycopg is not installed",
            "pip install 'sickbay[controller,postgresql]'",
        ) from error
    where = urlsplit(url).hostname or "the database"
    try:
        with psycopg.connect(
            url.replace("postgresql+psycopg://", "postgresql://", 1), connect_timeout=_WAIT_SECONDS
        ) as connection:
            connection.read_only = True
            rows: Rows = lambda sql: connection.execute(sql).fetchall()  # noqa: E731 - as short as its twin
            sight = _read(
                rows,
                tables="SELECT tablename FROM pg_tables WHERE schemaname = current_schema()",
            )
            says = float(rows("SELECT extract(epoch FROM date_trunc('second', clock_timestamp()))")[0][0])
            return LedgerSight(
                sight.version, sight.agents, sight.open_incidents, says, writable=_may_write(rows, sight)
            )
    except psycopg.Error as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise LedgerLookError(
            f"PostgreSQL at {where} cannot be used: {said}",
            "check store.url, the server, and pg_hba.conf for this machine",
        ) from error


def _may_write(rows: Rows, sight: LedgerSight) -> bool:
    if rows("SELECT pg_is_in_recovery()")[0][0]:
        return False
    if sight.version is None:
        return bool(rows("SELECT has_schema_privilege(current_schema(), 'CREATE')")[0][0])
    from remediator.ledger.schema import meta  # noqa: PLC0415 - loads the database's library

    return bool(rows(f"SELECT has_table_privilege('{meta.name}', 'UPDATE')")[0][0])


def _read(rows: Rows, *, tables: str) -> LedgerSight:
    from remediator.ledger import schema  # noqa: PLC0415 - loads the database's library

    names = {row[0] for row in rows(tables)}
    if not names:
        return LedgerSight(None, None, frozenset())
    stored = (
        rows(f"SELECT value FROM {schema.meta.name} WHERE key = 'schema_version'")  # noqa: S608 - our own name
        if schema.meta.name in names
        else []
    )
    if not stored or not str(stored[0][0]).isdecimal():
        raise LedgerLookError(
            "the database holds something that is no ledger of sickbay's",
            "point store.url at a database of its own",
        )
    version = int(stored[0][0])
    if version > schema.SCHEMA_VERSION:
        return LedgerSight(version, None, frozenset())  # its tables may have changed
    agents = rows(f"SELECT node, version, last_seen FROM {schema.agent.name}")  # noqa: S608
    incidents = rows(f"SELECT id FROM {schema.incident.name} WHERE closed_at IS NULL")  # noqa: S608
    return LedgerSight(
        version=version,
        agents={str(node): Heard(version, float(seen)) for node, version, seen in agents},
        open_incidents=frozenset(str(row[0]) for row in incidents),
    )
