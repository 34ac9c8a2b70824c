"""Units, names, hosts, GPU instances, workloads and our own metrics, in tables."""

from __future__ import annotations

import pytest

from collector.dcgm import read_dcgm
from collector.dcgm.fields import load_fields
from collector.inventory import Inventory, InventoryItem
from collector.prometheus_text import to_prometheus
from collector.signals import SignalTarget, load_signals
from fleet.identity import MigInstance
from fleet.observations import Allocation, ProblemReason, Reading, Sample

NOW = 1_770_430_400.0
UUID = "GPU-4e5febd5-a81e-5483-a111-047f7dcfc700"
OTHER = "GPU-850df946-1669-5c31-9b6e-c536c868fb3d"
WHO = f'gpu="0",UUID="{UUID}",Hostname="n01"'


def read(*lines: str, node: str | None = None, inventory: Inventory | None = None) -> Reading:
    data = "".join(f"{line}\n" for line in lines).encode()
    return read_dcgm(data, node=node, now=NOW, inventory=inventory)


def samples(reading: Reading) -> list[Sample]:
    return [r for r in reading.records if isinstance(r, Sample)]


def allocations(reading: Reading) -> list[Allocation]:
    return [r for r in reading.records if isinstance(r, Allocation)]


def told(reading: Reading) -> list[tuple[ProblemReason, int]]:
    return [(p.reason, p.count) for p in reading.problems]


@pytest.mark.parametrize(
    ("metric", "printed", "signal", "value"),
    [
        ("DCGM_FI_DEV_SM_CLOCK", "1980", "gpu_sm_clock_hertz", 1.98e9),
        ("DCGM_FI_DEV_GPU_UTIL", "37", "gpu_utilization_ratio", 0.37),
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", "37", "gpu_utilization_ratio", 0.37),
        ("DCGM_FI_DEV_FB_USED", "81000", "gpu_memory_used_bytes", 81000 * 2**20),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "5000", "gpu_energy_joules_total", 5.0),
        ("DCGM_FI_DEV_POWER_VIOLATION", "2e9", "gpu_power_violation_seconds_total", 2.0),
        ("DCGM_FI_PROF_SM_ACTIVE", "0.931", "gpu_sm_active_ratio", 0.931),
        ("DCGM_FI_PROF_PCIE_TX_BYTES", "123456", "gpu_pcie_transmit_bytes_per_second", 123456.0),
        ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "72", "gpu_clock_event_reasons", 72.0),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "4", "gpu_clock_event_reasons", 4.0),
        ("DCGM_FI_DEV_XID_ERROR", "79", "gpu_xid_last_code", 79.0),
        ("DCGM_FI_DEV_GPU_RECOVERY_ACTION", "2", "gpu_recovery_action", 2.0),
        ("DCGM_FI_DEV_ROW_REMAP_FAILED", "1", "gpu_row_remap_failed", 1.0),
        ("DCGM_FI_DEV_RETIRED_PENDING", "3", "gpu_retired_pages_pending", 1.0),
        ("DCGM_FI_DEV_GPU_TEMP_LIMIT", "-2", "gpu_temperature_margin_celsius", -2.0),
        ("DCGM_FI_DEV_SLOWDOWN_TEMP", "87", "gpu_temperature_limit_celsius", 87.0),
        ("DCGM_FI_DEV_POWER_USAGE_INSTANT", "650.5", "gpu_power_watts", 650.5),
        ("dcgm_thermal_violation", "1e9", "gpu_thermal_violation_seconds_total", 1.0),
    ],
)
def test_base_units(metric: str, printed: str, signal: str, value: float) -> None:
    (sample,) = samples(read(f"{metric}{{{WHO}}} {printed}"))
    assert (sample.signal, sample.value) == (signal, pytest.approx(value))
    assert (sample.node, sample.gpu, sample.index, sample.time) == ("n01", UUID, 0, NOW)


def test_every_name_of_the_signal_table_is_read() -> None:
    fields = load_fields()
    for signal in load_signals().values():
        for name in (*signal.dcgm_names, signal.metric_name):
            assert fields[name].signal == signal.name


@pytest.mark.parametrize("signal", load_signals().values(), ids=lambda signal: signal.name)
def test_our_own_metrics_come_back_as_they_were_printed(signal: object) -> None:
    name = getattr(signal, "name")  # noqa: B009 - parametrised over a mapping's values
    gpu = load_signals()[name].target is SignalTarget.GPU
    written = Sample(
        node="n01",
        signal=name,
        value=1.0,
        time=NOW,
        gpu=UUID if gpu else None,
        index=3 if gpu else None,
        pci="0000:3b:00.0" if gpu else None,
        labels={"model": "M", "driver": "D"} if name == "gpu_info" else {},
    )
    assert list(read(*to_prometheus(Reading((written,))).splitlines()).records) == [written]


@pytest.mark.parametrize(
    ("lines", "watts"),
    [
        (("POWER_USAGE_INSTANT", "POWER_USAGE"), 100.0),
        (("POWER_USAGE", "POWER_USAGE_INSTANT"), 100.0),
        (("POWER_USAGE_INSTANT",), 200.0),
    ],
)
def test_average_power_wins_over_instant(lines: tuple[str, ...], watts: float) -> None:
    printed = {"POWER_USAGE": 100.0, "POWER_USAGE_INSTANT": 200.0}
    reading = read(*(f"DCGM_FI_DEV_{line}{{{WHO}}} {printed[line]}" for line in lines))
    assert [s.value for s in samples(reading)] == [watts]
    assert reading.problems == ()


@pytest.mark.parametrize(
    ("metric", "printed", "reason"),
    [
        ("DCGM_FI_DEV_MEMORY_TEMP", "0", None),
        ("DCGM_FI_DEV_PCIE_LINK_WIDTH", "0", None),
        ("DCGM_FI_DEV_GPU_TEMP", "0", ProblemReason.INCONSISTENT),
        ("DCGM_FI_DEV_GPU_TEMP", "-273", ProblemReason.UNRECOGNISED_VALUE),
        ("DCGM_FI_DEV_XID_ERRORS", "31.5", ProblemReason.UNRECOGNISED_VALUE),
        ("DCGM_FI_DEV_XID_ERRORS", "-1", ProblemReason.UNRECOGNISED_VALUE),
        ("DCGM_FI_DEV_POWER_USAGE", "NaN", ProblemReason.UNRECOGNISED_VALUE),
        ("DCGM_FI_DEV_GPU_UTIL", "101", None),
        ("DCGM_FI_PROF_SM_ACTIVE", "45", ProblemReason.UNRECOGNISED_VALUE),
        ("DCGM_FI_DEV_GPU_TEMP", "0x2D", ProblemReason.UNREADABLE),
        ("DCGM_FI_DEV_GPU_TEMP", "4_5", ProblemReason.UNREADABLE),
        ("DCGM_FI_DEV_GPU_TEMP", "45 then 12", ProblemReason.UNREADABLE),
    ],
)
def test_what_is_no_value(metric: str, printed: str, reason: ProblemReason | None) -> None:
    reading = read(f"{metric}{{{WHO}}} {printed}")
    assert told(reading) == ([] if reason is None else [(reason, 1)])
    if reason is not None or printed == "0":
        assert samples(reading) == []


def test_total_memory_is_added_up_only_from_all_three_parts() -> None:
    used, free, reserved = (
        f"DCGM_FI_DEV_FB_{part}{{{WHO}}} {value}"
        for part, value in (("USED", 1000), ("FREE", 80000), ("RESERVED", 559))
    )
    total = {s.signal: s.value for s in samples(read(used, free, reserved))}["gpu_memory_total_bytes"]
    assert total == 81559 * 2**20
    assert {s.signal for s in samples(read(used, free))} == {"gpu_memory_used_bytes"}


def test_a_mig_gpu_has_one_board_and_many_instances() -> None:
    def rows(metric: str, *values: str) -> list[str]:
        return [
            f'{metric}{{{WHO},GPU_I_PROFILE="1g.10gb",GPU_I_ID="{gi}"}} {value}'
            for gi, value in zip((7, 8), values, strict=True)
        ]

    reading = read(
        *rows("DCGM_FI_DEV_GPU_TEMP", "41", "41"),
        *rows("DCGM_FI_DEV_XID_ERRORS", "0", "31"),
        *rows("DCGM_FI_DEV_FB_USED", "100", "200"),
    )
    first, second = MigInstance(gi=7, profile="1g.10gb"), MigInstance(gi=8, profile="1g.10gb")
    assert {(s.signal, s.mig): s.value for s in samples(reading)} == {
        ("gpu_temperature_celsius", None): 41.0,
        ("gpu_xid_last_code", None): 31.0,
        ("gpu_memory_used_bytes", first): 100 * 2.0**20,
        ("gpu_memory_used_bytes", second): 200 * 2.0**20,
    }
    assert reading.problems == ()


def test_a_mig_uuid_of_old_names_its_gpu() -> None:
    (sample,) = samples(read(f'DCGM_FI_PROF_SM_ACTIVE{{gpu="0",UUID="MIG-{UUID}/3/0",Hostname="n01"}} 0.5'))
    assert (sample.gpu, sample.mig) == (UUID, MigInstance(gi=3, ci=0))


def test_repeats_are_one_sample_and_contradictions_are_told() -> None:
    same = read(f"DCGM_FI_DEV_GPU_TEMP{{{WHO}}} 41", f"DCGM_FI_DEV_GPU_TEMP{{{WHO}}} 41")
    assert ([s.value for s in samples(same)], told(same)) == ([41.0], [])
    differing = read(f"DCGM_FI_DEV_GPU_TEMP{{{WHO}}} 41", f"DCGM_FI_DEV_GPU_TEMP{{{WHO}}} 90")
    assert [s.value for s in samples(differing)] == [41.0]
    assert told(differing) == [(ProblemReason.INCONSISTENT, 1)]


def test_two_times_of_one_series_are_two_samples() -> None:
    reading = read(f"DCGM_FI_DEV_GPU_TEMP{{{WHO}}} 41 1000", f"DCGM_FI_DEV_GPU_TEMP{{{WHO}}} 42 16000")
    assert [(s.value, s.time) for s in samples(reading)] == [(41.0, 1.0), (42.0, 16.0)]


def test_a_line_without_uuid_gets_it_from_its_siblings() -> None:
    reading = read(
        f"DCGM_FI_DEV_GPU_TEMP{{{WHO}}} 41",
        'DCGM_FI_DEV_POWER_USAGE{gpu="0",Hostname="n01"} 100',
        'DCGM_FI_DEV_POWER_USAGE{gpu="1",Hostname="n01"} 110',
    )
    assert [(s.signal, s.gpu, s.index) for s in samples(reading)] == [
        ("gpu_temperature_celsius", UUID, 0),
        ("gpu_power_watts", UUID, 0),
        ("gpu_power_watts", None, 1),
    ]


def test_a_line_that_names_no_gpu_is_told() -> None:
    reading = read('DCGM_FI_DEV_GPU_TEMP{Hostname="n01"} 41', f"DCGM_FI_DEV_POWER_USAGE{{{WHO}}} 100")
    assert [s.signal for s in samples(reading)] == ["gpu_power_watts"]
    assert told(reading) == [(ProblemReason.PARTIAL, 1)]


@pytest.mark.parametrize(
    ("labels", "jobs", "held"),
    [
        ('hpc_job="4711"', ("4711",), ()),
        ('hpc_job="0"', (), ()),
        ('hpc_job=""', (), ()),
        ('pod="train-0",namespace="team-a",container="c"', (), ("team-a/train-0",)),
        ('pod_name="train-0",pod_namespace="team-a",container_name="c"', (), ("team-a/train-0",)),
        ('exported_pod="train-0",exported_namespace="team-a",pod="x",namespace="m"', (), ("team-a/train-0",)),
        ('pod="nvidia-dcgm-exporter-p9d2k",namespace="gpu-operator"', (), ()),
        ('hpc_job="7",pod="p",namespace="n"', ("7",), ("n/p",)),
    ],
)
def test_who_holds_a_gpu(labels: str, jobs: tuple[str, ...], held: tuple[str, ...]) -> None:
    found = allocations(read(f"DCGM_FI_DEV_GPU_TEMP{{{WHO},{labels}}} 41"))
    assert [(a.node, a.gpu, a.index, a.jobs, a.pods) for a in found] == (
        [("n01", UUID, 0, jobs, held)] if jobs or held else []
    )


def test_two_jobs_on_one_gpu() -> None:
    reading = read(*(f'DCGM_FI_DEV_GPU_TEMP{{{WHO},hpc_job="{job}"}} 41' for job in (1, 2, 1)))
    assert [a.jobs for a in allocations(reading)] == [("1", "2")]
    assert len(samples(reading)) == 1


def test_a_pod_without_its_namespace_is_told() -> None:
    reading = read(f'DCGM_FI_DEV_GPU_TEMP{{{WHO},pod="p"}} 41')
    assert (allocations(reading), told(reading)) == ([], [(ProblemReason.PARTIAL, 1)])


def hosts(*names: str) -> list[str]:
    return [f'DCGM_FI_DEV_GPU_TEMP{{gpu="{n}",Hostname="{name}"}} 41' for n, name in enumerate(names)]


@pytest.mark.parametrize(
    ("lines", "node", "nodes", "problems"),
    [
        (hosts("n01"), None, ["n01"], []),
        (hosts("n01", "n02"), None, ["n01", "n02"], []),
        (hosts("n[1-4]"), None, [None], [(ProblemReason.UNRECOGNISED_VALUE, 1)]),
        (hosts("N01.cluster.local"), "n01", ["n01"], []),
        (hosts("login1"), "n01", ["n01"], [(ProblemReason.INCONSISTENT, 1)]),
        (hosts("10.0.0.1"), "10.1.2.3", ["10.1.2.3"], [(ProblemReason.INCONSISTENT, 1)]),
        # A federation endpoint: the target gets only the lines that name it.
        (hosts("n01", "n02", "n02"), "n01", ["n01"], [(ProblemReason.CONFLICT, 2)]),
        (hosts("n02", "n03"), "n01", [], [(ProblemReason.CONFLICT, 2)]),
    ],
)
def test_whose_lines(
    lines: list[str],
    node: str | None,
    nodes: list[str | None],
    problems: list[tuple[ProblemReason, int]],
) -> None:
    reading = read(*lines, node=node)
    assert [s.node for s in samples(reading)] == nodes
    assert [one for one in told(reading) if one[0] is not ProblemReason.NO_DEVICES] == problems


def test_the_inventory_knows_hosts_by_alias_and_address() -> None:
    inventory = Inventory(
        [
            InventoryItem(node="n01", aliases=("gpu-a",), addresses=("10.0.0.1",)),
            InventoryItem(node="n02", aliases=("gpu-b",)),
        ]
    )
    reading = read(*hosts("n01", "gpu-a", "10.0.0.1", "gpu-b", "n03"), inventory=inventory)
    assert [s.node for s in samples(reading)] == ["n01", "n01", "n01", "n02", None]
    assert told(reading) == [(ProblemReason.UNRECOGNISED_VALUE, 1)]


def test_a_gpu_with_two_addresses_is_told() -> None:
    reading = read(
        f'DCGM_FI_DEV_GPU_TEMP{{{WHO},pci_bus_id="00000000:3B:00.0"}} 41',
        f'DCGM_FI_DEV_POWER_USAGE{{{WHO},pci_bus_id="00000000:3C:00.0"}} 100',
    )
    assert {s.pci for s in samples(reading)} == {"0000:3b:00.0"}
    assert told(reading) == [(ProblemReason.INCONSISTENT, 1)]


def test_metrics_of_dcgm_that_nobody_knows_are_not_silence() -> None:
    reading = read(f"DCGM_FI_DEV_FAN_SPEED{{{WHO}}} 30")
    (problem,) = reading.problems
    assert problem.reason is ProblemReason.NO_DEVICES
    assert "1 of DCGM's" in problem.message


def test_windows_line_ends_and_a_byte_order_mark_do_not_matter() -> None:
    data = b"\xef\xbb\xbf# TYPE x gauge\r\n" + f"DCGM_FI_DEV_GPU_TEMP{{{WHO}}} 41\r\n".encode()
    reading = read_dcgm(data, node=None, now=NOW)
    assert ([s.value for s in samples(reading)], reading.problems) == ([41.0], ())
