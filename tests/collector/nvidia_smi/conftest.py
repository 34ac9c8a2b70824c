"""What several of these tests need."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest


@pytest.fixture
def local_time() -> Iterator[Callable[[str], None]]:
    """Set the zone that zone-less times are read in, for one test."""
    with pytest.MonkeyPatch.context() as patch:

        def choose(zone: str) -> None:
            patch.setenv("TZ", zone)
            time.tzset()

        yield choose
    time.tzset()
