"""The benches of the contract suite: the same tests on a simulated scheduler, a fake API and real Slurm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.bench import Bench
from tests.support.kubernetes_bench import kubernetes_bench
from tests.support.minislurm import MiniSlurm
from tests.support.simulated_bench import RemoteBench, SimulatedBench

if TYPE_CHECKING:
    from tests.support.slurm_bench import SlurmBench


@pytest.fixture(scope="session")
def slurm_bench(slurm_cluster: MiniSlurm) -> SlurmBench:
    """One bench for the session: it keeps the record of what its backend sends."""
    from tests.support.slurm_bench import SlurmBench

    return SlurmBench(slurm_cluster)


@pytest.fixture(
    params=["simulated", "remote", "kubernetes", pytest.param("slurm", marks=pytest.mark.services)]
)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """A scheduler with four idle nodes."""
    if request.param == "simulated":
        yield SimulatedBench()
        return
    if request.param == "remote":
        yield RemoteBench()
        return
    if request.param == "kubernetes":
        with kubernetes_bench(tmp_path) as fake:
            yield fake
        return
    slurm: SlurmBench = request.getfixturevalue("slurm_bench")
    yield slurm
    slurm.reset()
