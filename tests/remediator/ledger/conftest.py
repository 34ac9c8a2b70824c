"""Stores to run the suite over.

SICKBAY_TEST_POSTGRESQL, the URL of an empty PostgreSQL database that may be wiped, adds that to the list.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from fleet.clock import ManualClock
from remediator.ledger import Ledger, open_ledger, schema

POSTGRESQL = os.environ.get("SICKBAY_TEST_POSTGRESQL")


def _empty_postgresql(_folder: Path) -> str:
    assert POSTGRESQL is not None
    engine = create_engine(POSTGRESQL)
    schema.metadata.drop_all(engine)
    engine.dispose()
    return POSTGRESQL


STORES: dict[str, Callable[[Path], str]] = {
    "file": lambda folder: f"sqlite:///{folder}/ledger.db",
    "memory": lambda folder: "sqlite://",
}
if POSTGRESQL:
    STORES["postgresql"] = _empty_postgresql


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=sorted(STORES))
def ledger(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Ledger]:
    store = open_ledger(STORES[request.param](tmp_path), clock)
    yield store
    store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def file_ledger(path: Path, clock: ManualClock) -> Iterator[Ledger]:
    store = open_ledger(f"sqlite:///{path}", clock)
    yield store
    store.close()
