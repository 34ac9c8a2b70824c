"""Whatever an address answers, the reader answers; a good line survives any neighbour."""

from __future__ import annotations

import math

from hypothesis import example, given
from hypothesis import strategies as st

from collector.dcgm import read_dcgm
from collector.encode import to_json_line
from fleet.observations import Reading, Sample

GOOD = b'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-11111111-aaaa",Hostname="n01"} 41\n'
_PIECES = st.sampled_from(
    [
        b"DCGM_FI_DEV_GPU_UTIL",
        b"DCGM_FI_DEV_XID_ERRORS",
        b"sickbay_gpu_info",
        b"{",
        b"}",
        b'"',
        b"\\",
        b",",
        b"=",
        b" ",
        b"\t",
        b"\r",
        b"#",
        b"# EOF",
        b'gpu="1"',
        b'UUID="GPU-22222222-bbbb"',
        b'GPU_I_ID="3"',
        b'pod="p"',
        b'Hostname="n01"',
        b'window_size_in_ms="300000"',
        b"79",
        b"NaN",
        b"-Inf",
        b"1e999",
        b"9223372036854775794",
        b"1767225600000",
        b"\xff",
        b"\x00",
    ]
)
_JUNK = st.one_of(st.binary(max_size=200), st.lists(_PIECES, max_size=12).map(b"".join))


def check(reading: Reading) -> None:
    for record in reading.records:
        to_json_line(record)
        if isinstance(record, Sample):
            assert math.isfinite(record.value)


@given(st.lists(_JUNK, max_size=8).map(b"\n".join), st.sampled_from([None, True, False]))
@example(b"", None)
@example(b"{}", None)
@example(b'x{a="' + b"\\" * 99, None)
def test_any_bytes(data: bytes, openmetrics: bool | None) -> None:
    check(read_dcgm(data, node=None, now=0.0, openmetrics=openmetrics))


@given(_JUNK, _JUNK)
def test_a_good_line_survives_its_neighbours(before: bytes, after: bytes) -> None:
    # A web page is refused as a whole, and what follows a good line may contradict it: neither is the point.
    data = b"# x\n" + before.replace(b"DCGM_FI_DEV_GPU_TEMP", b"") + b"\n" + GOOD + after
    reading = read_dcgm(data, node="n01", now=0.0)
    check(reading)
    kept = [r for r in reading.records if isinstance(r, Sample) and r.signal == "gpu_temperature_celsius"]
    assert [(s.node, s.gpu, s.value) for s in kept] == [("n01", "GPU-11111111-aaaa", 41.0)]
