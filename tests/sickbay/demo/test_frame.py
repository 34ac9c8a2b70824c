"""The picture: a golden frame, and that it fits every terminal."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from fleet.findings import IncidentState, Mode, Verdict
from sickbay.demo.bill import Bill
from sickbay.demo.frame import Frame, clock_text
from sickbay.demo.meter import Assumptions, World
from sickbay.demo.picture import draw
from sickbay.demo.story import Kind, Sentence
from sickbay.demo.truth import Row, Truth
from sickbay.demo.view import Cell, IncidentLine, Look, View

GOLDEN = Path(__file__).parents[2] / "data" / "demo"
LONG = "XID 79 on 0000:5d:00.0: GPU has fallen off the bus; the node must be drained and rebooted, " * 2
PAUSED = "cordon refused: the demo's operator paused the fleet until it is lifted: the red button, for show"


def cells(first: int, count: int) -> tuple[Cell, ...]:
    special = {
        3: (Look.REBOOTING, Verdict.UNHEALTHY),
        5: (Look.BUSY, Verdict.UNKNOWN),
        6: (Look.IDLE, Verdict.HEALTHY),
        7: (Look.PROBATION, Verdict.HEALTHY),
        11: (Look.ADMINS, Verdict.UNHEALTHY),
        12: (Look.DRAINED, Verdict.HEALTHY),
    }
    return tuple(
        Cell(f"n{i:02d}", *special.get(i, (Look.BUSY, Verdict.HEALTHY))) for i in range(first, first + count)
    )


VIEW = View(
    elapsed=563.0,
    ends_at=1000.0,
    mode=Mode.AUTO,
    speed=20.0,
    lagging=14.2,
    paused_by="the demo's operator: the red button, for show",
    repairs=(1, 2),
    out=(3, 4),
    racks={"rack1": cells(1, 8), "rack2": cells(9, 8)},
    incidents=(
        IncidentLine("demo-2", "n11", IncidentState.CONFIRMED, ("pause", "foreign_owner")),
        IncidentLine("demo-1", "n03", IncidentState.REPAIRING, ()),
        IncidentLine("demo-0", "n07", IncidentState.RETURNED, ()),
    ),
    sentences=(
        Sentence(40.0, "n03", Kind.FAULT, "GPU 3 falls off the bus"),
        Sentence(40.0, "n03", Kind.FOUND, LONG),
        Sentence(42.0, "n03", Kind.DONE, "cordoned: the scheduler says draining under our mark"),
        Sentence(300.0, "6 nodes", Kind.FAULT, "their agents fall silent for 180 s"),
        Sentence(
            540.0, "", Kind.PERSON, "pause by the demo's operator on the fleet: the red button, for show"
        ),
        Sentence(562.0, "n02", Kind.REFUSED, PAUSED),
    ),
    url="http://127.0.0.1:8470",
)
ROW = Row("xid-79", "a GPU falls off the bus", "n03", "returned", "drained, returned", True, 0.0, 187.0)
ENDED = replace(
    VIEW,
    elapsed=4000.0,
    lagging=None,
    paused_by=None,
    truth=Truth(
        (ROW, replace(ROW, node="n01", others=5, ok=False, returned_after_seconds=None)),
        ("cordon n09",),
        Bill(World({"xid-79": 3.0}), World({"xid-79": 36.0}), Assumptions()),
    ),
    notice="port 8470 is taken, this one is free",
    url="http://127.0.0.1:40001",
)


def lines(view: View, width: int, height: int, encoding: str = "utf-8") -> list[str]:
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding=encoding) as out:
        console = Console(
            width=width, height=height, file=out, color_system=None, legacy_windows=False, _environ={}
        )
        console.print(Frame(view), height=height)
        out.flush()
        return raw.getvalue().decode(encoding).splitlines()


@pytest.mark.parametrize(("name", "view"), [("running", VIEW), ("ended", ENDED)])
def test_golden(name, view):
    """On purpose changed? Write what ``lines`` gives to the file, and look at it."""
    expected = (GOLDEN / f"{name}-100x30.txt").read_text("utf-8")
    assert "\n".join(line.rstrip() for line in lines(view, 100, 30)) + "\n" == expected


@pytest.mark.parametrize("view", [VIEW, ENDED, replace(VIEW, sentences=(), incidents=())])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize(("width", "height"), [(100, 30), (200, 60), (80, 24), (60, 12), (20, 8)])
def test_it_fills_exactly_the_screen(view, width, height, encoding):
    drawn = lines(view, width, height, encoding)
    assert len(drawn) == height
    assert max(map(cell_len, drawn)) <= width


def test_the_newest_sentence_is_always_there_and_a_long_one_is_cut():
    drawn = lines(VIEW, 200, 60)
    assert any("562" not in line and PAUSED in line for line in drawn)
    cut = [line for line in lines(VIEW, 152, 30) if "XID 79" in line]
    assert len(cut) == 1
    assert cut[0].rstrip(" │").endswith("…")
    narrow = "\n".join(lines(VIEW, 100, 15))
    assert "cordon refused" in narrow
    assert "GPU 3 falls" not in narrow


def test_what_to_do_next_is_seen_even_where_the_table_is_cut():
    drawn = "\n".join(lines(ENDED, 100, 14))
    assert "sickbay why n11 --url http://127.0.0.1:40001" in drawn
    assert "1 unexpected: cordon n09" in drawn


class TestASmallTerminal:
    """80 columns, 24 rows."""

    @pytest.mark.parametrize("paused", [None, "ada: let me look at this before anything else is done"])
    def test_the_head_is_not_cut(self, paused):
        head = lines(replace(VIEW, elapsed=13000.0, paused_by=paused), 80, 24)[1]
        word = "running" if paused is None else "PAUSED"
        assert f"3:36:40 of 16:40  auto  20x (14x)  {word}  repairs 1/2  out 3/4" in head

    def test_every_scene_and_the_bill_are_on_the_last_screen(self):
        rows = tuple(replace(ROW, title=f"scene {number:02d} " * 9) for number in range(12))
        truth = replace(ENDED.truth, rows=rows, unexpected=())
        drawn = lines(replace(ENDED, truth=truth), 80, 24)
        assert [f"scene {number:02d}" in "".join(drawn) for number in range(12)] == [True] * 12
        assert any(
            "Lost to these faults: 3 GPU-hours (8 USD); without sickbay 36 (90 USD)" in d for d in drawn
        )
        assert any("sickbay why n11" in line for line in drawn)

    def test_what_was_expected_is_told_where_it_did_not_happen(self):
        truth = replace(ENDED.truth, rows=(replace(ROW, ok=False, expected="left", seen="TOUCHED"),) * 16)
        assert "TOUCHED, not: left" in "".join(lines(replace(ENDED, truth=truth), 100, 24))


def test_a_tall_terminal_says_what_the_bill_assumes():
    assert "a sick node is found after 4 h" in "".join(lines(ENDED, 120, 60))
    assert "is found after" not in "".join(lines(ENDED, 100, 14))


def test_many_nodes_share_rows():
    racks = {f"rack{r}": cells(r * 8 + 100, 8) for r in range(64)}
    drawn = lines(replace(VIEW, racks=racks), 100, 40)
    assert sum("●" * 8 in line for line in drawn) == 16


@pytest.mark.parametrize(("seconds", "text"), [(0, "00:00"), (62.9, "01:02"), (3600, "1:00:00")])
def test_clock(seconds, text):
    assert clock_text(seconds) == text


def test_the_picture_is_the_same_each_time_and_asks_the_network_for_nothing():
    drawn = draw(VIEW)
    assert drawn == draw(VIEW)
    assert "@font-face" not in drawn
    assert "url(http" not in drawn
    assert len(drawn) < 200_000
