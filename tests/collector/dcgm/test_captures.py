"""Bodies as people capture and proxies rewrite them: packed, re-encoded, cut, in the other format's units."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.dcgm import read_dcgm
from collector.dcgm.capture import MAX_UNPACKED_BYTES
from fleet.observations import ProblemReason, Reading

NOW = 1_770_430_400.0
UUID = "GPU-4e5febd5-a81e-5483-a111-047f7dcfc700"
OTHER = "GPU-850df946-1669-5c31-9b6e-c536c868fb3d"
WHO = f'gpu="0",UUID="{UUID}",Hostname="n01"'
TEMPERATURE = f"DCGM_FI_DEV_GPU_TEMP{{{WHO}}} 41"
POWER = f"DCGM_FI_DEV_POWER_USAGE{{{WHO}}} 100"
CASES = sorted((Path(__file__).parents[2] / "data" / "dcgm").glob("*/input*.prom"))
Values = list[tuple[str, float, float]]


def read(data: bytes | str) -> Reading:
    return read_dcgm(data if isinstance(data, bytes) else data.encode(), node=None, now=NOW)


def values(reading: Reading) -> Values:
    return [(s.signal, s.value, s.time) for s in reading.samples]


def told(reading: Reading) -> list[tuple[ProblemReason, int]]:
    return [(p.reason, p.count) for p in reading.problems]


HOT: Values = [("gpu_temperature_celsius", 41.0, NOW)]


@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(f"{TEMPERATURE}\n".encode()),
        gzip.compress(b"# one member\n") + gzip.compress(f"{TEMPERATURE}\n".encode()),
        f"{TEMPERATURE}\n".encode("utf-16"),
        f"\ufeff{TEMPERATURE}\r\n".encode("utf-16-be"),
        gzip.compress(f"{TEMPERATURE}\n".encode("utf-16")),
        f"\ufeff{TEMPERATURE}\n".encode(),
    ],
    ids=["gzip", "two members", "UTF-16", "UTF-16 BE", "gzip of UTF-16", "BOM"],
)
def test_a_wrapped_capture_is_read(data: bytes) -> None:
    reading = read(data)
    assert (values(reading), told(reading)) == (HOT, [])


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_packing_changes_nothing(path: Path) -> None:
    data = path.read_bytes()
    assert read(gzip.compress(data)) == read(data)


def test_a_gzip_file_that_is_cut_off_gives_what_is_whole() -> None:
    packed = gzip.compress(f"{TEMPERATURE}\n".encode() + b"# padding\n" * 50_000, compresslevel=1)
    reading = read(packed[: len(packed) * 2 // 3])
    assert values(reading) == HOT
    assert (ProblemReason.TRUNCATED, 1) in [(reason, 1) for reason, _ in told(reading)]


def test_what_is_no_gzip_file_is_unreadable() -> None:
    reading = read(b"\x1f\x8b\x08\x00 and then something else")
    assert not reading.ok
    assert told(reading)[0] == (ProblemReason.UNREADABLE, 1)


def test_a_gzip_bomb_is_left_unread() -> None:
    bomb = gzip.compress(f"{TEMPERATURE}\n".encode() + b"#" * (MAX_UNPACKED_BYTES + 1), compresslevel=9)
    reading = read(bomb)
    assert values(reading) == HOT
    assert ProblemReason.TOO_LARGE in [reason for reason, _ in told(reading)]


CUT_OPENMETRICS = [
    f"# UNIT DCGM_FI_DEV_GPU_TEMP celsius\n{TEMPERATURE} 1767225600.125\n",
    f"# TYPE target info\n{TEMPERATURE} 1767225600.125\n",
    f"{TEMPERATURE} 1767225600.125\n",
]


@pytest.mark.parametrize("data", CUT_OPENMETRICS)
def test_openmetrics_without_its_end_is_known_by_what_only_it_has(data: str) -> None:
    reading = read(data)
    assert values(reading) == [("gpu_temperature_celsius", 41.0, 1767225600.125)]
    assert told(reading) == [(ProblemReason.TRUNCATED, 1)]


def test_an_exemplar_is_no_timestamp() -> None:
    reading = read(f'DCGM_FI_DEV_POWER_USAGE_total{{{WHO}}} 100 # {{trace_id="a"}} 0.5 1767225600.1\n# EOF\n')
    assert (values(reading), told(reading)) == ([("gpu_power_watts", 100.0, NOW)], [])


@pytest.mark.parametrize(
    ("data", "time", "problems"),
    [
        (f"{TEMPERATURE} 1767225600125\n", 1767225600.125, []),
        (f"{TEMPERATURE} 1767225600\n", 1767225600.0, [(ProblemReason.INCONSISTENT, 1)]),
        (f"{TEMPERATURE} 1767225600\n# EOF\n", 1767225600.0, []),
        (f"{TEMPERATURE} 1767225600125\n# EOF\n", 1767225600.125, [(ProblemReason.INCONSISTENT, 1)]),
        (f"{TEMPERATURE}\t1767225600125\r\n", 1767225600.125, []),
    ],
)
def test_timestamps_in_either_unit(data: str, time: float, problems: list[tuple[ProblemReason, int]]) -> None:
    reading = read(data)
    assert (values(reading), told(reading)) == ([("gpu_temperature_celsius", 41.0, time)], problems)


@pytest.mark.parametrize("stamp", ["-5", "1e400", "12:30", "99999999999999999"])
def test_a_timestamp_that_is_none_costs_its_line(stamp: str) -> None:
    reading = read(f"{TEMPERATURE} {stamp}\n{POWER}\n")
    assert (values(reading), told(reading)) == (
        [("gpu_power_watts", 100.0, NOW)],
        [(ProblemReason.UNREADABLE, 1)],
    )


def test_quoted_names_of_prometheus_3() -> None:
    reading = read(
        f'{{"DCGM_FI_DEV_GPU_TEMP",{WHO}}} 41\n'
        f'{{"my.metric","k8s.pod"="x"}} 5\n{{"lonely.metric"}} 5\n'
        f'DCGM_FI_DEV_POWER_USAGE{{{WHO},"k8s.pod.name"="x"}} 100\n'
    )
    assert (values(reading), told(reading)) == ([*HOT, ("gpu_power_watts", 100.0, NOW)], [])


@pytest.mark.parametrize(
    ("first", "second", "problems"),
    [
        ("gauge", "counter", [(ProblemReason.INCONSISTENT, 1)]),
        ("gauge", "gauge", []),
        ("untyped", "gauge", []),
        ("gauge", "unknown", []),
    ],
)
def test_a_metric_of_two_types(first: str, second: str, problems: list[tuple[ProblemReason, int]]) -> None:
    other = TEMPERATURE.replace(UUID, OTHER).replace('gpu="0"', 'gpu="1"')
    name = "# TYPE DCGM_FI_DEV_GPU_TEMP"
    reading = read_dcgm(
        f"{name} {first}\n{TEMPERATURE}\n{name} {second}\n{other}\n{name} {second}\n".encode(),
        node=None,
        now=NOW,
        openmetrics=False,
    )
    assert [s.index for s in reading.samples] == [0, 1]
    assert told(reading) == problems


def test_two_gpus_of_one_index_are_told_but_not_in_a_history() -> None:
    other = TEMPERATURE.replace(UUID, OTHER)
    now = read(f"{TEMPERATURE}\n{other}\n")
    assert [s.gpu for s in now.samples] == [UUID, OTHER]
    assert [(p.reason, p.index, p.count) for p in now.problems] == [(ProblemReason.INCONSISTENT, 0, 1)]
    assert told(read(f"{TEMPERATURE} 1767225600000\n{other} 1767225700000\n")) == []


@pytest.mark.parametrize("label", ["node", "kubernetes_node", "nodename"])
def test_a_site_label_names_the_node_where_the_exporter_names_its_pod(label: str) -> None:
    who = f'gpu="0",UUID="{UUID}",Hostname="nvidia-dcgm-exporter-abcde",{label}="n01"'
    (sample,) = read(f"DCGM_FI_DEV_GPU_TEMP{{{who}}} 41\n").samples
    assert sample.node == "n01"


def test_pages_of_several_hosts_one_behind_the_other() -> None:
    pages = "".join(
        "# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n"
        f"{TEMPERATURE.replace('n01', host).replace(UUID, f'GPU-{host}')}\n# EOF\n"
        for host in ("n01", "n02", "n03")
    )
    reading = read(pages)
    assert [(s.node, s.gpu) for s in reading.samples] == [(h, f"GPU-{h}") for h in ("n01", "n02", "n03")]
    assert told(reading) == []


def test_two_hundred_gpus() -> None:
    lines = [
        f'DCGM_FI_DEV_GPU_TEMP{{gpu="{n}",UUID="GPU-{n:08d}-a",Hostname="n01"}} {30 + n % 40}'
        for n in range(200)
    ]
    reading = read("\n".join(lines) + "\n")
    assert [(s.index, s.value) for s in reading.samples] == [(n, 30.0 + n % 40) for n in range(200)]
    assert told(reading) == []


@pytest.mark.parametrize(
    "noise",
    [
        "# a comment\n#\n#comment\n# HELP\n# TYPE\n",
        '# TYPE go_gc histogram\ngo_gc_bucket{le="0.1"} 5\ngo_gc_bucket{le="+Inf"} 6\ngo_gc_sum 3\n',
        'rpc_seconds{quantile="0.99"} NaN\nup 1\nscrape_samples_scraped 4e3\n',
        "# HELP DCGM_FI_DEV_GPU_TEMP one\n# HELP DCGM_FI_DEV_GPU_TEMP another\n",
        'sickbay_agent_source_success{source="dcgm"} 1\n',
    ],
)
def test_what_stands_beside_does_not_matter(noise: str) -> None:
    reading = read(f"{noise}{TEMPERATURE}\n{noise}")
    assert (values(reading), told(reading)) == (HOT, [])


@given(st.binary(max_size=400), st.integers(min_value=0, max_value=60))
def test_any_packed_or_cut_bytes(junk: bytes, cut: int) -> None:
    """Never a value that nobody printed, whatever is packed and wherever it is cut."""
    body = f"{TEMPERATURE}\n".encode() + junk.replace(b"DCGM", b"") + f"\n{POWER}\n".encode()
    for data in (gzip.compress(body), body, body.decode("latin-1").encode("utf-16")):
        reading = read(data[: len(data) - cut])
        for sample in reading.samples:
            known = {"gpu_temperature_celsius": 41.0, "gpu_power_watts": 100.0}
            if sample.signal in known:
                assert sample.value == known[sample.signal]
