"""The console in a real Chromium: seen and clicked through, over the real service on a simulated fleet."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.findings import IncidentState, Mode
from sickbay.config import Role
from sickbay.http import HttpServer, Identity, TokenAccess, create_app
from sickbay.ports import Service
from tests.support.chromium import Chromium, Complaint, Page, running_chromium
from tests.support.fake_service import FakeService
from tests.support.rig import Rig, bolder

pytestmark = pytest.mark.services

TOKENS = {"operator-token": Identity("olga", Role.OPERATOR), "viewer-token": Identity("vera", Role.VIEWER)}
HOSTILE = '<img src=x onerror="window.owned=1"><script>window.owned=2</script>'
# What the browser itself notes when nobody is signed in yet: the page asks who it is, and hears 401.
NOT_YET = ("network", "401", "/api/v1/session")

# Every text's contrast against what lies behind it (WCAG 2.2, relative luminance), worst first.
CONTRASTS = """(() => {
  const rgba = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const lum = (c) => c.slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const over = (top, under) => [0, 1, 2].map((i) => top[i] * (top[3] ?? 1) + under[i] * (1 - (top[3] ?? 1)));
  const ground = (el) => {
    const layers = [];
    for (let at = el; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255]);
  };
  const found = [];
  for (const el of document.querySelectorAll("body *")) {
    const own = [...el.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !el.checkVisibility() || el.closest("script, style, .hear, option")) continue;
    const back = ground(el), [a, b] = [lum(over(rgba(getComputedStyle(el).color), back)), lum(back)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    found.push([ratio, el.className, el.textContent.slice(0, 40)]);
  }
  return found.sort((a, b) => a[0] - b[0]).slice(0, 5).concat([found.length]);
})()"""
# Buttons smaller than a finger or a shaky hand can hit (WCAG 2.2, 2.5.8); links within a sentence may be.
TOO_SMALL = """[...document.querySelectorAll("button, input, select, summary")]
  .filter((el) => el.checkVisibility() && !el.closest("#feed")).map((el) => [el.getBoundingClientRect(), el])
  .filter(([box]) => box.width < 24 || box.height < 23.9).map(([box, el]) => el.outerHTML.slice(0, 90))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with running_chromium() as browser:
        yield browser


@pytest.fixture
def chromium(browser: Chromium, request: pytest.FixtureRequest) -> Iterator[Chromium]:
    """The module's browser. Its tabs are closed before the servers that they are connected to."""
    for server in {"door", "open_door"} & set(request.fixturenames):
        request.getfixturevalue(server)
    yield browser
    browser.close_pages()


class Door:
    """The HTTP server over a service, on a port that it keeps when it is started again."""

    def __init__(self, service: Service, *, anonymous: bool = False) -> None:
        self._anonymous = anonymous
        self._port = 0
        self.open(service)

    def open(self, service: Service) -> None:
        access = TokenAccess(TOKENS.get, allow_anonymous_loopback=self._anonymous)
        self.server = HttpServer(create_app(service, access), "127.0.0.1", self._port)
        self.server.start()
        self._port, self.url = self.server.port, self.server.url

    def close(self) -> None:
        self.server.stop()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """Four nodes, each with a job; a person approves."""
    rig = Rig(tmp_path, policy=bolder(mode=Mode.APPROVE))
    rig.tick(20)
    for node in sorted(rig.cluster.agents.nodes):
        rig.submit(node)
    rig.tick()
    yield rig
    rig.close()


@pytest.fixture
def door(rig: Rig) -> Iterator[Door]:
    door = Door(rig.app.service)
    yield door
    door.close()


def sign_in(page: Page, token: str = next(iter(TOKENS))) -> None:
    page.wait_for("#token")
    page.click("#token")
    page.type(token)
    page.press("Enter")


def answer(page: Page, button: str, reason: str = "") -> None:
    """Fill the question that is open, and confirm it."""
    page.wait_for("dialog")
    if reason:
        page.type(reason)
    page.click("#ask-ok", button)
    page.wait("the question to be closed", lambda: not page.shown("dialog"))


def assert_quiet(page: Page, *allowed: tuple[str, str, str]) -> None:
    """No error in the browser's console, and nothing that the page's policy had to refuse."""

    def is_allowed(complaint: Complaint) -> bool:
        return any(
            complaint.source == source and text in complaint.text and complaint.url.endswith(where)
            for source, text, where in allowed
        )

    assert [c for c in page.complaints if not is_allowed(c)] == []
    assert page.refused() == []


def test_an_operator_sees_a_sick_node_through(
    chromium: Chromium, rig: Rig, door: Door, tmp_path: Path
) -> None:
    page = chromium.page(door.url)
    sign_in(page)
    page.wait_for(".tile", "n01")
    page.wait("all nodes to be busy", lambda: page.text("#legend").replace("\n", " ") == "● busy 4")
    page.wait_for(".live.on", "live")
    page.js("window.here = true")  # gone if the page were ever loaded again
    assert page.text("#who") == "olga (operator)"
    assert not page.shown("button", "Resume")
    assert "sickbay_session" not in page.js("document.cookie")

    rig.xid("n02")
    rig.tick(5)
    page.wait_for(".tile.c-sick", "n02", seconds=5)
    page.wait_for("#incidents li", "awaits approval", seconds=5)
    assert page.text("#summary") == "4 nodes · 1 unhealthy · 0 unknown · 1 open · 1 waits for a person"
    page.screenshot(tmp_path / "1-sick.png")

    page.click("#incidents .link", "n02")
    page.wait_for(".steps li", "suspected -> confirmed")
    page.wait_for(".steps li", "XID 79")
    assert page.text(".gates li:first-child").split("\n")[:2] == ["✕ blocks", "mode"]
    assert "passes" in page.text(".gates")
    assert "a person decides" in page.text(".now-box")
    assert page.js("document.querySelector('.rail [aria-current=step]').textContent").startswith("●Confirmed")
    assert page.js("location.hash") == f"#incident/{rig.incident().id}"
    page.screenshot(tmp_path / "2-incident.png")

    page.click("#detail .acts button", "Approve")
    answer(page, "Approve", "seen in the kernel log")
    rig.tick(3)
    page.wait_for(".steps li.person", "approved by olga: seen in the kernel log", seconds=5)
    page.wait_for(".steps li", "cordon · done", seconds=5)
    page.wait_for("#feed li", "approved by olga", seconds=5)
    rig.run_until(lambda: rig.state() is IncidentState.RETURNED)
    page.wait_for("#detail-body .chip.good", "returned", seconds=5)
    page.wait_for(".rail li.done", "Back in service", seconds=5)
    assert not page.shown("#detail button", "Approve")
    assert rig.our_verbs("n02")[0] == "cordon"
    page.screenshot(tmp_path / "3-returned.png")
    assert page.js("window.here") is True
    assert {request.split("/")[2] for request in page.requests} == {door.url.split("/")[2]}
    assert_quiet(page, NOT_YET)


def test_hold_release_pause_and_resume(chromium: Chromium, door: Door, tmp_path: Path) -> None:
    page = chromium.page(door.url)
    sign_in(page)
    page.wait_for(".live.on", "live")
    page.js("window.here = true")
    page.click("#map .tile", "n02")
    page.wait_for("#detail-body", "nobody holds this node")
    page.click("button", "Hold n02")
    page.click("#ask-ok", "Hold")
    page.wait_for("#ask-error", "A reason is needed")
    answer(page, "Hold", "fan is being replaced")
    page.wait_for(".gates li", "fan is being replaced", seconds=5)
    assert "✕ blocks" in page.text(".gates li:first-child")
    assert not page.shown("button", "Hold n02")
    page.click("button", "Release n02")
    answer(page, "Release")
    page.wait_for(".gates li", "nobody holds this node", seconds=5)
    page.wait_for("#feed li", "hold on n02 lifted by olga", seconds=5)

    page.click("#pause")
    answer(page, "Pause", "power work in row 4")
    page.wait_for("#paused", "Paused: the whole fleet, by olga: power work in row 4", seconds=5)
    assert not page.shown("#pause")
    page.screenshot(tmp_path / "4-paused.png")
    page.click("#paused button", "Resume")
    answer(page, "Resume")
    page.wait("the pause to be over", lambda: not page.shown("#paused") and page.shown("#pause"), 5)
    assert page.js("window.here") is True
    assert_quiet(page, NOT_YET)

    page.click("#logout")
    page.wait_for("#login", "You are signed out.")
    assert not page.shown("#main")


def test_an_incident_is_cancelled_with_a_reason(chromium: Chromium, rig: Rig, door: Door) -> None:
    rig.xid("n03")
    rig.tick(5)
    page = chromium.page(door.url)
    sign_in(page)
    page.click("#incidents button", "Cancel")
    answer(page, "Cancel the incident", "the GPU was pulled on purpose")
    rig.tick(2)
    page.wait_for("#incidents", "No incident is open.", seconds=5)
    page.click("#show-closed")
    page.click("#incidents .link", "n03")
    page.wait_for(".steps li.person", "cancelled by olga: the GPU was pulled on purpose")
    assert rig.our_verbs() == []
    assert_quiet(page, NOT_YET)


def test_what_is_old_is_marked_and_a_restart_asks_for_the_token_again(
    chromium: Chromium, rig: Rig, door: Door, tmp_path: Path
) -> None:
    rig.xid("n02")
    rig.tick(5)
    page = chromium.page(f"{door.url}/#node/n02")
    sign_in(page)
    page.wait_for("#detail-title", "n02")
    page.wait_for(".live.on")
    door.close()
    page.wait_for("#stale", "Stale since", seconds=10)
    page.wait(
        "every node to be unknown",
        lambda: page.js("document.querySelectorAll('.c-unknown.tile').length") == 4,
    )
    assert page.text("#legend").replace("\n", " ") == "? unknown 4 incident open 1"
    assert "was allocated" in page.text("#map")
    assert "no connection" in page.text("#live")
    assert "healthy" not in page.text("#summary")
    page.screenshot(tmp_path / "stale.png")
    page.click("#pause")
    page.type("to be sure")
    page.click("#ask-ok")
    page.wait_for("#ask-error", "Whether this was taken is not known")
    page.press("Escape")

    rig.restart()
    door.open(rig.app.service)
    rig.tick(2)
    page.wait_for("#login", "Your session has ended", seconds=10)
    assert not page.shown("#main")
    sign_in(page, "operator-tokem")
    page.wait_for("#login-error", "Nobody has this token")
    page.js("document.getElementById('token').value = ''")
    sign_in(page)
    page.wait_for("#detail-title", "n02")
    page.wait_for(".live.on")
    assert not page.shown("#stale")
    page.wait_for(".tile.c-sick", "n02")
    rig.tick(20)  # the lease of the process that was killed runs out
    rig.xid("n03")
    rig.tick(5)
    page.wait_for(".tile.c-sick", "n03", seconds=5)
    assert [c for c in page.complaints if c.source != "network"] == []
    assert page.refused() == []


def motley() -> FakeService:
    """Every kind of node, words that would be markup, names and sentences without end."""
    service = FakeService(names=())
    kinds: list[dict[str, Any]] = [
        {"state": "allocated"},
        {"state": "mixed"},
        {"state": "idle"},
        {"state": "powered_down"},
        {"state": "allocated", "verdict": "unhealthy"},
        {"state": "drained", "verdict": "unhealthy", "owner": "sickbay"},
        {"state": "drained", "owner": "foreign", "verdict": "unknown"},
        {"state": "down", "verdict": "unknown"},
        {"state": "idle", "verdict": "unknown"},
    ]
    for number, kind in enumerate(kinds):
        service.put_node(f"rack-4-chassis-{number:04d}.gpu.cluster-a.example.internal", pool="h100", **kind)
    service.put_node("bad", pool=HOSTILE, state="drained", owner="foreign", reason=HOSTILE)
    long = "this sentence about GPU-78e51061-7311-48a3-82ce-6f447ed4d57b goes on, " * 8
    step = {"at": 1.0, "step": None, "phase": "decision", "outcome": None, "actor": "sickbay"}
    service.put_incident(
        "i-1",
        "bad",
        state="awaiting_approval",
        blocked_by=["mode", "budget"],
        reason=HOSTILE + long,
        rules=[HOSTILE],
        findings=[
            {
                "id": "f",
                "rule": HOSTILE,
                "kind": "xid",
                "gpu": HOSTILE,
                "uuid": None,
                "severity": "critical",
                "response": "drain",
                "since": 1.0,
                "evidence": {HOSTILE: HOSTILE, "unbroken": "A" * 300},
            }
        ],
        steps=[
            {**step, "reason": HOSTILE + "B" * 300},
            {**step, "reason": long, "actor": "person"},
            {**step, "reason": "no", "step": "cordon", "phase": "effect", "outcome": "refused"},
            {**step, "reason": "yes", "step": "cordon", "phase": "effect", "outcome": "done"},
            {**step, "reason": "who knows", "step": "cordon", "phase": "effect", "outcome": "unknown"},
        ],
    )
    service.put_incident("i-2", "bad", state="handed_over", closed_at=2.0)
    service._nodes["bad"]["incident"] = "i-1"
    return service


@pytest.fixture
def open_door() -> Iterator[tuple[FakeService, Door]]:
    """A service in memory, behind a door that needs no token."""
    service = motley()
    door = Door(service, anonymous=True)
    yield service, door
    door.close()


def test_other_peoples_words_stay_words(
    chromium: Chromium, open_door: tuple[FakeService, Door], tmp_path: Path
) -> None:
    service, door = open_door
    page = chromium.page(door.url)
    page.wait_for(".live.on")
    service.emit(at=3.0, node="bad", incident="i-1", phase="decision", reason=HOSTILE, actor="sickbay")
    page.wait_for("#feed li", HOSTILE, seconds=5)
    assert HOSTILE in page.text("#map")
    page.click("#incidents .link", "bad")
    page.wait_for(".steps li", HOSTILE)
    page.click("summary", "Evidence")
    page.wait_for(".facts dd", HOSTILE)
    page.screenshot(tmp_path / "hostile.png")
    assert page.js(
        "window.owned === undefined && document.querySelectorAll('main img, main script').length === 0"
    )
    assert_quiet(page)
    # A name in the address is somebody's word too; what does not exist is said, with what to do.
    page.go(f"{door.url}/#node/%3Cimg%20src=x%20onerror=window.owned=3%3E")
    page.wait("a refusal", lambda: "Go back" in page.text("#detail-body"))
    page.go(f"{door.url}/#incident/%E0%A4%A")
    page.wait_for("#incidents .link", "bad")
    assert page.js("window.owned") is None


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_can_be_read_and_hit(
    chromium: Chromium, open_door: tuple[FakeService, Door], tmp_path: Path, *, dark: bool
) -> None:
    _, door = open_door
    page = chromium.page(door.url, dark=dark)
    page.wait_for(".live.on")
    kinds = page.js("[...new Set([...document.querySelectorAll('.tile')].map((t) => t.classList[1]))].sort()")
    assert len(kinds) == 9
    for width, height in ((1440, 900), (1024, 768), (390, 844)):
        page.look(width=width, height=height, dark=dark)
        for where in ("", "#incident/i-1", "#incident/i-2", "#node/bad"):
            page.js(f"location.hash = '{where}'")
            if where:
                page.wait("the detail", lambda: "loading" not in page.text("#detail-body"))
            else:
                page.wait_for("#incidents .link")
            page.screenshot(tmp_path / f"{width}-{where.strip('#').replace('/', '-')}.png")
            *worst, count = page.js(CONTRASTS)
            assert count > 20
            assert worst[0][0] >= 4.5, worst
            assert page.js(TOO_SMALL) == []
            assert page.js("document.documentElement.scrollWidth <= innerWidth"), f"{width} {where}"
    page.click("button", "Pause all action")
    page.click("#ask-ok")
    page.wait_for("#ask-error", "A reason is needed")
    *worst, _ = page.js(CONTRASTS)
    assert worst[0][0] >= 4.5, worst
    # No state is told by colour alone: every kind has a sign of its own, and a word.
    signs = page.js("[...document.querySelectorAll('.tile .word')].map((w) => w.textContent.split(' ')[0])")
    assert len(set(signs)) == 9
    assert_quiet(page)


def test_the_keyboard_goes_everywhere(chromium: Chromium, open_door: tuple[FakeService, Door]) -> None:
    _, door = open_door
    page = chromium.page(door.url)
    page.wait_for(".live.on")
    stops = page.js("document.querySelectorAll('.tile[tabindex=\"0\"]').length")
    assert stops == 1  # one stop for the map, then arrows
    page.js("document.getElementById('filter').focus()")
    page.press("Tab")
    first = page.js("document.activeElement.dataset.node")
    page.press("ArrowRight")
    page.press("ArrowDown")
    page.press("ArrowUp")
    second = page.js("document.activeElement.dataset.node")
    assert first
    assert second not in (None, first)
    page.press("Enter")
    page.wait_for("#detail-title", second)
    assert page.js("document.activeElement.id") == "detail-title"
    page.press("Escape")
    page.wait("the list", lambda: page.shown("#list"))
    assert page.js("document.activeElement.dataset.node") == second
    # A refresh under a focused button leaves the keyboard where it was.
    page.js("document.querySelector('#incidents .link').focus()")
    page.js("refresh()")
    time.sleep(0.3)
    assert page.js("document.activeElement.dataset.key") == "open i-1"
    assert_quiet(page)


def test_a_click_survives_a_refresh_between_press_and_release(
    chromium: Chromium, open_door: tuple[FakeService, Door]
) -> None:
    service, door = open_door
    page = chromium.page(door.url)
    page.wait_for(".live.on")
    page.wait_for("#incidents .link", "bad")
    box = "document.querySelector('#incidents .link').getBoundingClientRect()"
    spot = {"x": page.js(f"{box}.left + 5"), "y": page.js(f"{box}.top + 5")}
    press = {**spot, "button": "left", "clickCount": 1}
    page.command("Input.dispatchMouseEvent", type="mousePressed", **press)
    service.put_incident("i-1", "bad", state="draining", reason="another sentence")
    page.js("refresh()")
    assert not page.shown("#incidents li", "another sentence")
    page.command("Input.dispatchMouseEvent", type="mouseReleased", **press)
    page.wait_for("#detail-title", "bad")
    page.click("#detail-close")
    page.wait_for("#incidents li", "another sentence")


def test_a_viewer_reads_and_is_offered_nothing_else(chromium: Chromium, rig: Rig, door: Door) -> None:
    rig.xid("n02")
    rig.tick(5)
    page = chromium.page(door.url)
    sign_in(page, "viewer-token")
    page.click("#incidents .link", "n02")
    page.wait_for(".now-box", "An operator can approve or cancel it.")
    for label in ("Approve", "Cancel", "Hold", "Pause", "Resume"):
        assert not page.shown("button", label), label
    assert_quiet(page, NOT_YET)


def test_a_thousand_nodes_and_none(chromium: Chromium, tmp_path: Path) -> None:
    service = FakeService(names=[f"n{number:04d}" for number in range(1000)])
    for number in range(0, 1000, 17):
        service.put_node(f"n{number:04d}", verdict="unhealthy")
        service.put_incident(f"i-{number}", f"n{number:04d}", blocked_by=["burst"])
    door = Door(service, anonymous=True)
    page = chromium.page(door.url)
    page.wait_for(".live.on")
    assert page.js("document.querySelectorAll('.tile').length") == 1000
    assert "1000 nodes · 59 unhealthy" in page.text("#summary")
    assert page.js("document.querySelectorAll('#incidents > li').length") == 59
    assert (
        page.js(
            "refresh().then(() => { const t = performance.now(); paint(); return performance.now() - t; })"
        )
        < 500
    )
    page.screenshot(tmp_path / "thousand.png")
    page.click("#filter")
    page.type("n0017")
    assert page.js("[...document.querySelectorAll('.tile')].filter((t) => !t.hidden).length") == 1
    page.press("Tab")
    assert page.js("document.activeElement.dataset.node") == "n0017"
    door.close()
    door.open(FakeService(names=()))
    page.wait_for("#map-note", "The scheduler has named no node yet", seconds=10)
    assert page.js("document.querySelectorAll('.tile').length") == 0
    assert [c for c in page.complaints if c.source != "network"] == []
    door.close()
