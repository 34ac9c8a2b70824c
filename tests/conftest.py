"""Fixtures that every test may use. Real servers are started only by tests marked ``services``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.minislurm import MiniSlurm
from tests.support.requirements import require_slurm


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[MiniSlurm]:
    """A real Slurm cluster of four nodes with eight GPUs each, shared by the session; reboots are served.

    A test that uses it leaves nodes undrained and without jobs.
    """
    require_slurm()
    with MiniSlurm() as cluster, cluster.serve_reboots(downtime_seconds=0.2):
        yield cluster


@pytest.fixture
def make_slurm_cluster() -> Iterator[Callable[..., MiniSlurm]]:
    """A factory of running clusters of the test's own: the arguments of MiniSlurm."""
    require_slurm()
    with contextlib.ExitStack() as stack:

        def make(**options: Any) -> MiniSlurm:
            return stack.enter_context(MiniSlurm(**options))

        yield make
