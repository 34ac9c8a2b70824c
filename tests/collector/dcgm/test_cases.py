"""Awkward inputs from public reports, each with the one right answer."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from collector.dcgm import DcgmRead, XidWatch, read_dcgm, read_dcgm_in_full
from collector.dcgm.values import Blank
from collector.inventory import Inventory, InventoryItem
from fleet.identity import MigInstance
from fleet.observations import Allocation, Event, ProblemReason, Reading, Sample

CASES = Path(__file__).parents[2] / "data" / "dcgm"
NOW = 1_770_430_400.0
A = "GPU-4e5febd5-a81e-5483-a111-047f7dcfc700"
B = "GPU-850df946-1669-5c31-9b6e-c536c868fb3d"
C = "GPU-022047cc-9ef1-52cd-8ff5-761c864a6cc1"


def body(case: str, name: str = "input.prom") -> bytes:
    (folder,) = CASES.glob(f"{case}-*")
    return (folder / name).read_bytes()


def read(
    case: str,
    name: str = "input.prom",
    *,
    node: str | None = None,
    inventory: Inventory | None = None,
    openmetrics: bool | None = None,
) -> DcgmRead:
    return read_dcgm_in_full(
        body(case, name), node=node, now=NOW, inventory=inventory, openmetrics=openmetrics
    )


def samples(reading: Reading) -> list[Sample]:
    return [r for r in reading.records if isinstance(r, Sample)]


def values(reading: Reading, gpu: str | None = None) -> dict[str, float]:
    return {s.signal: s.value for s in samples(reading) if gpu in (None, s.gpu)}


def pods(reading: Reading) -> dict[str | None, tuple[str, ...]]:
    return {r.gpu: r.pods for r in reading.records if isinstance(r, Allocation)}


def problems(reading: Reading) -> dict[ProblemReason, int]:
    counts: dict[ProblemReason, int] = {}
    for problem in reading.problems:
        counts[problem.reason] = counts.get(problem.reason, 0) + problem.count
    return counts


def test_b01_the_names_of_the_1x_namespace_are_understood() -> None:
    reading = read("B-01", node="tarn-g01").reading
    assert values(reading, A) == {
        "gpu_sm_clock_hertz": 1.41e9,
        "gpu_memory_clock_hertz": 1.215e9,
        "gpu_temperature_celsius": 57.0,
        "gpu_power_watts": 243.118,
        "gpu_utilization_ratio": pytest.approx(0.99),
        "gpu_xid_last_code": 0.0,
        "gpu_pcie_replays_total": 0.0,
    }
    assert {s.gpu for s in samples(reading)} == {A}
    assert pods(reading) == {}


def test_b02_a_gpu_keeps_its_identity_over_driver_and_pod() -> None:
    before, after = read("B-02").reading, read("B-02", "input.after-upgrade.prom").reading
    assert values(before, A)["gpu_xid_last_code"] == 0
    assert values(before, B)["gpu_xid_last_code"] == 94
    assert pods(before) == {A: ("team-a/llm-0",)}
    assert pods(after) == {A: ("team-a/llm-1",)}

    def keys(reading: Reading) -> set[tuple[object, ...]]:
        return {
            (s.node, s.gpu, s.index, s.mig, tuple(s.labels.items()))
            for s in samples(reading)
            if s.signal == "gpu_temperature_celsius"
        }

    assert keys(before) == keys(after)


def test_b03_the_renamed_host_label_and_the_labels_of_nvlink_rows() -> None:
    old, new = read("B-03", "input.old.prom").reading, read("B-03").reading
    assert {s.node for s in (*samples(old), *samples(new))} == {"tarn-g07"}
    assert {s.gpu for s in (*samples(old), *samples(new))} == {A}
    (link,) = [s for s in samples(new) if s.signal == "gpu_nvlink_replay_errors_total"]
    assert (link.value, link.labels, link.pci) == (17, {"nvlink": "3"}, "0000:8d:00.0")
    assert new.problems == ()


@pytest.mark.parametrize(("name", "told"), [("input.prom", 1), ("input.nohost.prom", 0)])
def test_b04_a_pod_is_no_node(name: str, told: int) -> None:
    reading = read("B-04", name, node="fell-b3-n04").reading
    assert {s.node for s in samples(reading)} == {"fell-b3-n04"}
    assert problems(reading).get(ProblemReason.INCONSISTENT, 0) == told

    alone = read("B-04", name).reading
    assert {s.node for s in samples(alone)} == {None}
    assert sum(problems(alone).values()) == 1

    pod = InventoryItem(node="fell-b3-n04", aliases=("nvidia-dcgm-exporter-p9d2k",))
    known = read("B-04", name, inventory=Inventory([pod])).reading
    assert {s.node for s in samples(known)} == ({"fell-b3-n04"} if told else {None})


def test_b05_a_latched_code_is_an_event_only_when_it_changes() -> None:
    watch, seen = XidWatch(), []
    for line in body("B-05", "input.times.txt").decode().splitlines():
        step, when = line.split()[:2]
        now = datetime.fromisoformat(when).replace(tzinfo=UTC).timestamp()
        reading = read_dcgm(body("B-05", f"input.{step}.prom"), node=None, now=now)
        assert reading.events == ()
        seen += [(int(step), event.code, event.time == now) for event in watch.observe(reading)]
    assert seen == [(1, 31, True), (4, 13, True), (7, 13, True)]


def test_b05_what_a_gpu_had_before_we_looked_is_no_event() -> None:
    watch = XidWatch()
    reading = read("B-05", "input.01.prom").reading
    assert watch.observe(reading) == ()
    watch.forget("tarn-g07")
    assert watch.observe(read("B-05", "input.04.prom").reading) == ()


def test_b07_a_sliding_window_counts_only_when_it_rises() -> None:
    watch, seen = XidWatch(), []
    for step in range(5):
        events: tuple[Event, ...] = watch.observe(read("B-07", f"input.0{step}.prom").reading)
        seen += [(step, event.code, event.count) for event in events]
    assert seen == [(0, 31, 1), (1, 31, 2), (1, 94, 1)]


def test_b07_clock_events_say_which() -> None:
    found = {
        s.labels["clock_event"]: (s.signal, s.value, s.labels["window_seconds"])
        for s in samples(read("B-07", "input.clock.prom").reading)
    }
    assert found["hw_thermal"] == ("gpu_clock_event_window_count", 4, "300")
    assert set(found) == {"gpu_idle", "hw_thermal", "power_cap"}


def test_b08_blank_codes_of_every_width_are_absent() -> None:
    read_ = read("B-08")
    assert values(read_.reading) == {"gpu_temperature_celsius": 45.0}
    assert read_.coverage.blank_count == 11
    assert read_.coverage.blanks == {
        "DCGM_FI_DEV_MEMORY_TEMP": Blank.NOT_SUPPORTED,
        "DCGM_FI_DEV_FB_USED": Blank.BLANK,
        "DCGM_FI_DEV_GPU_UTIL": Blank.BLANK,
        "DCGM_FI_DEV_FAN_SPEED": Blank.NOT_SUPPORTED,
        "DCGM_FI_DEV_POWER_USAGE": Blank.BLANK,
        "DCGM_FI_PROF_SM_ACTIVE": Blank.NOT_SUPPORTED,
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": Blank.BLANK,
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": Blank.UNKNOWN,
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": Blank.UNKNOWN,
        "DCGM_FI_PROF_DRAM_ACTIVE": Blank.BLANK,
        "DCGM_FI_DEV_SM_CLOCK": Blank.NOT_PERMISSIONED,
    }
    # "Not supported" is no problem; a missing right is one that somebody can mend.
    assert problems(read_.reading) == {ProblemReason.PERMISSION_DENIED: 1}


def test_b09_what_cannot_be_is_refused_and_not_clipped() -> None:
    reading = read("B-09").reading
    assert [(s.gpu, s.signal, s.value, s.mig) for s in samples(reading)] == [
        (C, "gpu_utilization_ratio", 1.0, None),
        (C, "gpu_sm_active_ratio", 1.173, MigInstance(gi=7, profile="1g.10gb")),
    ]
    assert problems(reading) == {ProblemReason.UNRECOGNISED_VALUE: 4, ProblemReason.INCONSISTENT: 1}


def test_b10_a_bad_line_costs_itself_alone() -> None:
    read_ = read("B-10")
    assert [(s.gpu, s.signal, s.value) for s in samples(read_.reading)] == [
        (A, "gpu_temperature_celsius", 55.0),
        (B, "gpu_power_watts", 299.0),
    ]
    assert read_.coverage.bad_lines == 5
    assert problems(read_.reading) == {ProblemReason.UNREADABLE: 4, ProblemReason.TRUNCATED: 1}


def test_b12_what_is_no_longer_said_shows_in_the_coverage() -> None:
    before, after = read("B-12", "input.v441.prom"), read("B-12", "input.v453.prom")
    assert before.coverage.metrics - after.coverage.metrics == {
        "DCGM_FI_DEV_RETIRED_DBE",
        "DCGM_FI_DEV_XID_ERRORS",
    }
    assert "gpu_xid_last_code" not in values(after.reading)
    assert after.reading.problems == ()


def test_b14_labels_are_free_text() -> None:
    read_ = read("B-14")
    temperatures = {s.gpu: s for s in samples(read_.reading) if s.signal == "gpu_temperature_celsius"}
    assert {gpu: s.value for gpu, s in temperatures.items()} == {A: 47.0, B: 48.0}
    assert temperatures[A].time == 1767225600.0
    assert temperatures[B].time == NOW
    (info,) = [s for s in samples(read_.reading) if s.signal == "gpu_info"]
    assert info.labels == {"model": 'ACME "X\\9" {rev,2} = test'}
    assert read_.coverage.bad_lines == 1


def test_b15_openmetrics() -> None:
    reading = read("B-15", "input.om").reading
    assert [(s.signal, s.value, s.time) for s in samples(reading)] == [
        ("gpu_energy_joules_total", pytest.approx(71200345.678), 1767225600.125),
        ("gpu_temperature_celsius", 47.0, NOW),
    ]
    assert reading.problems == ()

    cut = read("B-15", "input.noeof.om", openmetrics=True).reading
    assert problems(cut) == {ProblemReason.TRUNCATED: 1}


@pytest.mark.parametrize(
    ("name", "ok", "reason"),
    [
        ("input.b.http", False, ProblemReason.NO_DEVICES),
        ("input.c.http", True, ProblemReason.NO_DEVICES),
        ("input.d.http", False, ProblemReason.UNREADABLE),
    ],
)
def test_b16_bodies_without_a_gpu(name: str, ok: bool, reason: ProblemReason) -> None:
    content = body("B-16", name).partition(b"\r\n\r\n")[2]
    reading = read_dcgm(content, node="tarn-g07", now=NOW)
    assert (reading.ok, samples(reading), list(problems(reading))) == (ok, [], [reason])


def test_b16_fewer_gpus_than_expected() -> None:
    item = json.loads(body("B-16", "input.inventory.json"))
    inventory = Inventory([InventoryItem(node=item["node"], expected_gpus=item["expected_gpus"])])
    reading = read("B-02", node="tarn-g07", inventory=inventory).reading
    assert problems(reading) == {ProblemReason.PARTIAL: 6}


def test_b17_the_exporters_own_pod_is_no_workload() -> None:
    assert pods(read("B-17").reading) == {A: ("team-a/llm-0",)}


def test_b19_violations_are_nanoseconds_whatever_the_help_says() -> None:
    name = "gpu_thermal_violation_seconds_total"
    old = values(read("B-19", "input.old.prom").reading)[name]
    new = values(read("B-19", "input.new.prom").reading)[name]
    assert (new - old) / 60 == pytest.approx(1.0)


def test_b20_label_churn_is_folded() -> None:
    line = (
        'DCGM_FI_DEV_GPU_TEMP{gpu="%d",UUID="GPU-%032x",hostname="n1",pod="p-%d",namespace="x",y="%s"} 30\n'
    )
    data = "".join(line % (i % 16, i % 16, i, "y" * 64) for i in range(20_000)).encode()
    reading = read_dcgm(data, node=None, now=NOW)
    assert {s.gpu for s in samples(reading)} == {f"GPU-{i:032x}" for i in range(16)}
    assert len(samples(reading)) == 16
    assert all(len(held) <= 256 for held in pods(reading).values())
    assert problems(reading) == {ProblemReason.PARTIAL: 20_000 - 16 * 256}


def test_b20_a_line_without_end_is_not_kept() -> None:
    data = b'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 41\nDCGM_FI_DEV_GPU_TEMP{gpu="0",x="' + b"z" * 5_000_000
    reading = read_dcgm(data + b"\n", node="n1", now=NOW)
    assert values(reading) == {"gpu_temperature_celsius": 41.0}
    assert problems(reading) == {ProblemReason.TOO_LARGE: 1}
