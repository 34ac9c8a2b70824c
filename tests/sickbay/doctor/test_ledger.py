"""The ledger, looked at beside a controller that may be running: nothing in its folder changes."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from fleet.clock import ManualClock
from remediator.ledger import open_ledger, schema
from remediator.records import AgentContact
from sickbay.doctor.ledger import (
    FAIL_FREE_BYTES,
    LedgerChecks,
    LedgerLookError,
    file_writable,
    filesystem_of,
    free_space,
    look,
    sqlite_path,
)
from sickbay.doctor.model import Shared, Status


def picture(folder: Path) -> dict[str, tuple[int, int]]:
    return {one.name: (one.stat().st_size, one.stat().st_mtime_ns) for one in folder.iterdir()}


def filled(path: Path) -> str:
    url = f"sqlite:///{path}"
    ledger = open_ledger(url, ManualClock())
    with ledger.transaction() as tx:
        tx.put_agent(
            AgentContact(node="n1", boot_id="b", last_seen=5.0, first_seen_boot=1.0, version="0.1.0")
        )
    ledger.close()
    return url


def schema_results(url: str) -> dict[str, tuple[Status, str]]:
    checks = LedgerChecks(url, Shared(lambda: look(url)), ManualClock())
    return {one.name: (one.status, one.sentence) for one in checks.schema()}


def test_what_a_closed_ledger_says_and_nothing_changes(tmp_path: Path) -> None:
    url = filled(tmp_path / "x.db")
    before = picture(tmp_path)
    sight = look(url)
    assert sight.version == 1
    assert sight.agents is not None
    assert sight.agents["n1"].last_seen == 5.0
    assert sight.agents["n1"].version == "0.1.0"
    assert sight.open_incidents == frozenset()
    assert picture(tmp_path) == before


def test_beside_a_running_controller_its_last_write_is_seen(tmp_path: Path) -> None:
    url = filled(tmp_path / "x.db")
    ledger = open_ledger(url, ManualClock())
    with ledger.transaction() as tx:
        tx.put_agent(AgentContact(node="n2", boot_id="b", last_seen=9.0, first_seen_boot=1.0))
    names = set(picture(tmp_path))
    sight = look(url)
    assert sight.agents is not None
    assert set(sight.agents) == {"n1", "n2"}
    assert set(picture(tmp_path)) == names
    ledger.check_writable()  # our look holds nothing
    ledger.close()


def test_no_ledger_yet_is_no_fault_and_is_not_made(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new/x.db"
    assert schema_results(url)["store.schema"][0] is Status.OK
    assert [one.status for one in file_writable(sqlite_path(url))] == [Status.OK]
    assert list(tmp_path.iterdir()) == []


def test_a_newer_ledger_and_other_files(tmp_path: Path) -> None:
    newer = tmp_path / "newer.db"
    filled(newer)
    with sqlite3.connect(newer) as connection:
        connection.execute(f"UPDATE {schema.meta.name} SET value = '99' WHERE key = 'schema_version'")  # noqa: S608
        connection.execute(f"DROP TABLE {schema.agent.name}")
    connection.close()
    assert schema_results(f"sqlite:///{newer}")["store.schema"][0] is Status.FAIL

    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    text = tmp_path / "text.db"
    text.write_text("no database " * 100)
    for path in (other, text):
        assert schema_results(f"sqlite:///{path}")["store.schema"][0] is Status.FAIL
        with pytest.raises(LedgerLookError):
            look(f"sqlite:///{path}")


def test_places_that_cannot_hold_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    assert [one.status for one in file_writable(tmp_path)] == [Status.FAIL]
    assert [one.status for one in file_writable(tmp_path / "file/x.db")] == [Status.FAIL]
    monkeypatch.setattr("sickbay.doctor.ledger.os.access", lambda *_: False)
    assert [one.status for one in file_writable(tmp_path / "x.db")] == [Status.FAIL]


def test_network_file_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"dev / ext4 rw 0 0\nsrv:/x {tmp_path} nfs4 rw 0 0\nodd\n")
    assert filesystem_of(tmp_path / "deep", mounts) == "nfs4"
    assert filesystem_of(Path("/"), mounts) == "ext4"
    assert filesystem_of(Path("/"), tmp_path / "absent") is None
    monkeypatch.setattr("sickbay.doctor.ledger.filesystem_of", lambda _: "nfs4")
    found = {one.name: one.status for one in file_writable(tmp_path / "x.db")}
    assert found == {"store.writable": Status.OK, "store.filesystem": Status.FAIL}


@pytest.mark.parametrize(
    ("free", "status"),
    [(FAIL_FREE_BYTES - 1, Status.FAIL), (FAIL_FREE_BYTES, Status.WARN), (5 * 1024**3, Status.OK)],
)
def test_space(free: int, status: Status, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": free})()
    monkeypatch.setattr("sickbay.doctor.ledger.shutil.disk_usage", lambda _: usage)
    assert [one.status for one in free_space(tmp_path / "deep/er/x.db")] == [status]


def test_without_its_driver_postgresql_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr("sickbay.doctor.ledger.importlib.import_module", missing)
    with pytest.raises(LedgerLookError, match="psycopg") as caught:
        look("postgresql+psycopg://u:secret@db/x")
    assert "postgresql" in caught.value.next_step
    assert "secret" not in str(caught.value)
