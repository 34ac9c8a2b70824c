"""The terminal: pace, door, signals, and one real run in a pseudo-terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from fleet.clock import ManualClock
from sickbay.demo.console import Pace, Stop
from sickbay.demo.door import Door
from sickbay.demo.quiet import quiet_logging

pytestmark = pytest.mark.slow


class TestPace:
    def test_ticks_are_due_as_time_passes(self):
        clock = ManualClock()
        pace = Pace(clock, 20.0)
        assert pace.due() == 0
        clock.advance(0.25)
        assert pace.due() == 5
        for _ in range(5):
            pace.ticked()
        assert pace.due() == 0

    def test_after_a_long_stop_it_does_not_rush(self):
        clock = ManualClock()
        pace = Pace(clock, 20.0)
        clock.advance(3600.0)
        assert pace.due() == 20

    @pytest.mark.parametrize(("ticks_a_second", "told"), [(20, None), (8, 8.0)])
    def test_it_tells_when_the_machine_is_too_slow(self, ticks_a_second, told):
        clock = ManualClock()
        pace = Pace(clock, 20.0)
        for _ in range(4 * ticks_a_second):
            clock.advance(1 / ticks_a_second)
            pace.ticked()
        assert pace.lagging == (None if told is None else pytest.approx(told, rel=0.05))

    def test_slower_than_real_time(self):
        clock = ManualClock()
        pace = Pace(clock, 0.5)
        clock.advance(1.9)
        assert pace.due() == 0
        clock.advance(0.1)
        assert pace.due() == 1


def test_the_door_notices_accepted_posts_only():
    def answer(request):
        return PlainTextResponse("x", 403 if "refused" in request.url.query else 200)

    noticed: list[str] = []
    app = Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST"])])
    app.add_middleware(Door, noticed=noticed.append, clock=ManualClock(1_800_000_000.0))

    async def knock() -> None:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for path in ("pause", "nodes/n01/hold", "events", "alerts"):
                await client.post(f"/api/v1/{path}")
                got = await client.get(f"/api/v1/{path}")
                assert got.headers["date"] == "Fri, 15 Jan 2027 08:00:00 GMT"
                await client.post(f"/api/v1/{path}?refused")
            await client.post("/login")

    anyio.run(knock)
    assert noticed == ["pause", "hold", "events"]


def test_signals_set_a_flag_and_are_given_back():
    before = signal.getsignal(signal.SIGINT)
    stop = Stop()
    with stop.listening():
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wanted
    assert signal.getsignal(signal.SIGINT) is before


def test_the_log_stays_off_the_screen(capsys):
    import logging

    with quiet_logging() as errors:
        logging.getLogger("remediator.notify").error("page: n02 is broken")
        logging.getLogger("x").warning("late")
        logging.getLogger("x").error("the ledger is gone")
    assert errors == ["x: the ledger is gone"]
    assert capsys.readouterr().err == ""


class Terminal:
    """A program in a pseudo-terminal of 100x30, and what it has written."""

    def __init__(self, argv: list[str], folder: Path) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.environ |= {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30", "LANG": "C.UTF-8"}
                os.chdir(folder)
                os.execv(argv[0], argv)  # noqa: S606
            finally:
                os._exit(127)
        self.written = ""

    def read_until(self, done: Callable[[str], object], *, timeout: float = 40.0) -> None:
        deadline = time.monotonic() + timeout
        while not done(self.written):
            assert time.monotonic() < deadline, self.written[-2000:]
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    data = os.read(self.fd, 65536)
                except OSError:  # Linux: the other side is closed
                    return
                self.written += data.decode("utf-8", "replace")

    def finish(self) -> int:
        self.read_until(lambda _: False)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def plain(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.written)


def test_in_a_terminal_people_can_ask_and_command_and_leave(tmp_path):
    own = Path(__file__).parents[3]
    code = f"import sys; sys.path.insert(0, {str(own)!r}); from sickbay import cli; cli.main()"
    terminal = Terminal([sys.executable, "-c", code, "demo", "--port", "0", "--nodes", "16"], tmp_path)
    try:
        terminal.read_until(lambda text: "cordoned:" in text)
        shown = terminal.plain()
        url = re.search(r"http://127\.0\.0\.1:\d+", shown)
        assert url is not None
        assert "GPU 3 falls off the bus" in shown
        with httpx.Client(base_url=url[0]) as client:
            assert client.get("/").status_code == 200
            why = client.get("/api/v1/nodes/n03/why").json()
            assert (why["verdict"], why["owner"], why["incident"]["id"]) == ("unhealthy", "sickbay", "demo-1")
            pause = client.post("/api/v1/pause", json={"reason": "let me look"})
            assert pause.status_code == 200
        terminal.read_until(lambda text: "PAUSED" in text)
        os.kill(terminal.pid, signal.SIGINT)
        assert terminal.finish() == 130
        assert "\x1b[?1049l" in terminal.written[-400:]  # the alternate screen is left
        assert "\x1b[?25h" in terminal.written[-400:]  # the cursor is back
        assert "no truth table" in terminal.plain()[-200:]
        assert "Traceback" not in terminal.written
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(terminal.pid, signal.SIGKILL)
        os.close(terminal.fd)
