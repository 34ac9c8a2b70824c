"""Stores to run the suite over; PostgreSQL joins with one more entry in STORES."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleet.clock import ManualClock
from remediator.ledger import Ledger, open_ledger

STORES: dict[str, Callable[[Path], str]] = {
    "file": lambda folder: f"sqlite:///{folder}/ledger.db",
    "memory": lambda folder: "sqlite://",
}


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
