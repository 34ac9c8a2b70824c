"""Register dumps of NVLink 5: words first, registers where there are none, by the driver's branch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.kernel_log import LogContext, read_kernel_log
from collector.kernel_log.nvlink5 import Decoded, Layout, decode, layout_of
from fleet.observations import Event

OLD, NEW = "570.86.15", "580.82.07"


@pytest.mark.parametrize(
    ("driver", "layout"),
    [
        ("550.54.15", Layout.BEFORE_575),
        ("570.211.01", Layout.BEFORE_575),
        ("575.51.03", Layout.FROM_575),
        ("R580", Layout.FROM_575),
        ("610.10", Layout.FROM_575),
        (None, None),
        ("", None),
        ("unknown", None),
        ("5750", None),
    ],
)
def test_the_branch_decides_the_layout(driver: str | None, layout: Layout | None) -> None:
    assert layout_of(driver) is layout


@pytest.mark.parametrize(
    ("code", "registers", "driver", "decoded"),
    [
        # Bits 9:5 before R575: 14 is the link event; the peer's end went down first.
        (149, ("0x025001c6", "0x00000000"), OLD, Decoded("NETIR_LINK_EVT", fatal=True)),
        (149, ("0x025001c6", "0x00000000"), NEW, Decoded()),
        (149, ("0x02500011", "0x00000000"), NEW, Decoded("NETIR_LINK_DOWN", fatal=True)),
        # The receive pipe: bit 10 (from R575 bit 7) makes the same status fatal.
        (145, ("0x0409a0c2", "0x00000004"), OLD, Decoded("RLW_RXPIPE", fatal=False)),
        (145, ("0x0409a4c2", "0x00000004"), OLD, Decoded("RLW_RXPIPE", fatal=True)),
        (145, ("0x04000006", "0x00000001"), NEW, Decoded("RLW_RXPIPE", fatal=False)),
        (145, ("0x04000086", "0x00000001"), NEW, Decoded("RLW_RXPIPE", fatal=True)),
        # A status that the table does not know: the unit is sure, the severity is not.
        (145, ("0x0409a0c2", "0x00400000"), OLD, Decoded("RLW_RXPIPE")),
        (145, ("0x0409a0c2",), OLD, Decoded("RLW_RXPIPE")),
        # Without the driver nobody calls an error fatal.
        (145, ("0x0409a0c2", "0x00000004"), None, Decoded()),
        (144, ("0xffffffff", "0x00000002"), OLD, Decoded()),
        (145, ("nothing", "0x1"), OLD, Decoded()),
        (145, ("0x10409a0c2", "0x1"), OLD, Decoded()),
        (145, (), OLD, Decoded()),
        (79, ("0x0409a0c2", "0x00000004"), OLD, Decoded()),
    ],
)
def test_decoding(code: int, registers: tuple[str, ...], driver: str | None, decoded: Decoded) -> None:
    assert decode(code, registers, driver) == decoded


def read(text: str, driver: str | None = None) -> Event:
    line = f"[  1.0] NVRM: Xid (PCI:0018:01:00): {text}".encode()
    (event,) = read_kernel_log(line, LogContext(node=None, now=0.0, driver=driver)).events
    return event


@pytest.mark.parametrize("driver", [None, OLD, NEW])
def test_words_win_over_registers(driver: str | None) -> None:
    event = read("145, RLW_SRC_TRACK Nonfatal XC0 i0 Link 03 (0x0409a4c2 0x00000004 0x0)", driver)
    assert (event.unit, event.fatal, event.link) == ("RLW_SRC_TRACK", False, 3)


@pytest.mark.parametrize(
    ("text", "driver", "expected"),
    [
        ("145, pid=7, name=x, Link 03 (0x0409a4c2 0x00000004)", OLD, ("RLW_RXPIPE", True, 3, 7)),
        ("145, (0x0409a0c2, 0x00000004)", OLD, ("RLW_RXPIPE", False, None, None)),
        ("145, (0x0409a0c2, 0x00000004)", None, (None, None, None, None)),
        ("145, Nonfatal error on link 5 (0x0409a4c2 0x00000004", OLD, ("RLW_RXPIPE", False, 5, None)),
        ("150, (none)", OLD, (None, None, None, None)),
    ],
)
def test_registers_speak_where_there_are_no_words(
    text: str, driver: str | None, expected: tuple[object, ...]
) -> None:
    event = read(text, driver)
    assert (event.unit, event.fatal, event.link, event.pid) == expected
    assert event.message.endswith(text.split(", ", 1)[1])


@given(
    st.integers(min_value=0, max_value=999),
    st.lists(st.text(max_size=12) | st.integers(0, 2**32).map(hex), max_size=3).map(tuple),
    st.none() | st.text(max_size=8) | st.sampled_from([OLD, NEW]),
)
def test_any_registers(code: int, registers: tuple[str, ...], driver: str | None) -> None:
    decoded = decode(code, registers, driver)
    assert decoded.fatal is None or layout_of(driver) is not None
    assert decoded == Decoded() or code in range(144, 151)
