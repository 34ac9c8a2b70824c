"""The simulated dcgm-exporter: what its text says about busy, idle, hot, braked, lost and silent GPUs."""

from __future__ import annotations

import pytest

from fleet.clock import ManualClock
from simulator.cluster import SimulatedCluster
from simulator.faults import Fault, FaultKind
from simulator.jobs import JobSpec


def values(text: bytes | None, name: str) -> dict[int, float]:
    """GPU index -> value of one family."""
    assert text is not None
    found: dict[int, float] = {}
    for line in text.decode().splitlines():
        if line.startswith(name + "{"):
            index = int(line.split('gpu="', 1)[1].split('"', 1)[0])
            found[index] = float(line.rsplit(" ", 1)[1])
    return found


@pytest.fixture
def cluster() -> SimulatedCluster:
    made = SimulatedCluster(clock=ManualClock(), nodes=2, seed=3, busy_share=0.0, reboot_seconds=30.0)
    made.scheduler.submit(JobSpec(name="train", gpus_per_node=4, seconds=36_000))
    made.tick()
    return made


def busy_node(cluster: SimulatedCluster) -> str:
    return next(name for name in cluster.fleet.names if cluster.scheduler.jobs_on(name))


def test_busy_gpus_work_and_idle_ones_do_not(cluster: SimulatedCluster) -> None:
    text = cluster.telemetry.exposition(busy_node(cluster))
    used = values(text, "DCGM_FI_DEV_GPU_UTIL")
    assert all(used[index] > 90 for index in range(4))
    assert all(used[index] == 0 for index in range(4, 8))
    assert set(values(text, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")) == {0, 1, 2, 3}
    assert values(text, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS") == dict.fromkeys(range(4), 0.0) | dict.fromkeys(
        range(4, 8), 1.0
    )


@pytest.mark.parametrize(("kind", "bit"), [(FaultKind.HEAT, 0x40), (FaultKind.POWER_BRAKE, 0x80)])
def test_a_slowed_gpu_says_why_only_while_it_is_busy(
    cluster: SimulatedCluster, kind: FaultKind, bit: int
) -> None:
    node = busy_node(cluster)
    for index in (1, 6):
        fault = Fault(at_seconds=0, node=node, scene="s", kind=kind, gpu_index=index, seconds=60)
        fault.apply(cluster.fleet, cluster.scheduler, cluster.telemetry)
    text = cluster.telemetry.exposition(node)
    reasons = values(text, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS")
    assert [index for index, value in reasons.items() if int(value) & bit] == [1]
    clocks = values(text, "DCGM_FI_DEV_SM_CLOCK")
    assert clocks[1] < 0.7 * clocks[0]
    cluster.clock.sleep(61)
    after = values(cluster.telemetry.exposition(node), "DCGM_FI_DEV_CLOCKS_EVENT_REASONS")
    assert int(after[1]) & bit == 0


def test_errors_and_remaps_live_through_what_they_live_through(cluster: SimulatedCluster) -> None:
    node = cluster.fleet.names[1]
    cluster.telemetry.add_uncorrected_errors(node, 2)
    cluster.telemetry.fail_row_remap(node, 3)
    text = cluster.telemetry.exposition(node)
    assert values(text, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL")[2] == 1
    assert values(text, "DCGM_FI_DEV_ROW_REMAP_PENDING")[2] == 1
    cluster.fleet.reboot(node, 30.0)
    cluster.tick()
    assert cluster.telemetry.exposition(node) is None
    cluster.clock.sleep(31)
    cluster.tick()
    text = cluster.telemetry.exposition(node)
    assert values(text, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL")[2] == 0
    assert values(text, "DCGM_FI_DEV_ROW_REMAP_PENDING")[2] == 0
    assert values(text, "DCGM_FI_DEV_ROW_REMAP_FAILURE")[3] == 1


def test_a_lost_gpu_vanishes_while_its_siblings_report(cluster: SimulatedCluster) -> None:
    node = cluster.fleet.names[0]
    cluster.fleet.lose_gpu(node, 5)
    assert set(values(cluster.telemetry.exposition(node), "DCGM_FI_DEV_GPU_TEMP")) == set(range(8)) - {5}


def test_an_exporter_that_is_away_answers_nothing(cluster: SimulatedCluster) -> None:
    node = cluster.fleet.names[0]
    cluster.telemetry.exporter_away(node, 30)
    assert cluster.telemetry.exposition(node) is None
    cluster.clock.sleep(31)
    assert cluster.telemetry.exposition(node)


def test_equal_seeds_equal_text() -> None:
    def text() -> bytes | None:
        cluster = SimulatedCluster(clock=ManualClock(), nodes=2, seed=9, busy_share=0.5)
        cluster.tick()
        return cluster.telemetry.exposition("n01")

    assert text() == text()
