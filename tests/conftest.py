"""Fixtures that every test may use. Real servers are started only by tests marked ``services``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.minislurm import MiniSlurm, missing_programs


def require_slurm() -> None:
    """Skip with the reason when Slurm is not installed; on CI its absence is a failure."""
    missing = missing_programs()
    if not missing:
        return
    reason = f"Slurm is not installed (missing: {', '.join(missing)}); run: sh tests/services/install.sh"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


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
