"""The demo in a terminal: the picture, the service's HTTP door, the pace of time, and a clean end."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.live import Live

from fleet.clock import Clock, ManualClock, SystemClock
from fleet.errors import SickbayError
from rules.model import Catalogue
from sickbay.demo.clockwork import TICK_SECONDS, Clockwork, node_names
from sickbay.demo.clusters_kind import SchedulerKind
from sickbay.demo.door import Door
from sickbay.demo.frame import Frame, clock_text
from sickbay.demo.quiet import quiet_logging
from sickbay.demo.scenes import default_script, heat_expected
from sickbay.demo.story import Story
from sickbay.demo.table import truth_report
from sickbay.demo.truth import Truth, truth_of
from sickbay.demo.view import take_view
from sickbay.http import HttpServer, TokenAccess, create_app

HOST = "127.0.0.1"
FRAME_SECONDS = 0.12
#: A signal is noticed within this; ``time.sleep`` goes on after a handler has run.
SLICE_SECONDS = 0.03
#: Behind by more than this, the pace starts anew from here instead of rushing.
MAX_BEHIND_SECONDS = 1.0
_LAG_WORTH_TELLING = 0.9
_LAG_WINDOW_SECONDS = 3.0
EXIT_OK, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 130
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a private folder is made in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """``speed``: simulated seconds per second. ``command``: how the reader would call us."""

    nodes: int
    seed: int
    speed: float
    port: int
    command: str = "sickbay"
    scheduler: SchedulerKind = SchedulerKind.SLURM
    catalogue: Catalogue


class Stop:
    """Set by SIGINT, SIGTERM and SIGHUP; a flag, since a handler must not touch locks."""

    def __init__(self) -> None:
        self.wanted = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        self.wanted = True

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        before = {n: signal.signal(n, self) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Pace:
    """How many ticks are due: ``speed`` simulated seconds per second of ``clock``'s monotonic time."""

    def __init__(self, clock: Clock, speed: float) -> None:
        self._clock = clock
        self.speed = speed
        self._start_over()

    def _start_over(self) -> None:
        self._anchor = self._clock.monotonic()
        self._done = 0
        self._lag_anchor = (self._anchor, 0)
        self.lagging: float | None = None

    def set(self, speed: float) -> None:
        self.speed = speed
        self._start_over()

    def due(self) -> int:
        """Ticks to catch up with; never more than a second's worth."""
        behind = (self._clock.monotonic() - self._anchor) * self.speed / TICK_SECONDS - self._done
        limit = max(1.0, MAX_BEHIND_SECONDS * self.speed)
        if behind > limit:
            self._anchor += (behind - limit) * TICK_SECONDS / self.speed
            behind = limit
        return max(0, math.floor(behind))

    def ticked(self) -> None:
        self._done += 1
        now = self._clock.monotonic()
        since, done = self._lag_anchor
        if now - since >= _LAG_WINDOW_SECONDS:
            reached = (self._done - done) * TICK_SECONDS / (now - since)
            self.lagging = reached if reached < _LAG_WORTH_TELLING * self.speed else None
            self._lag_anchor = (now, self._done)


def run(settings: Settings, console: Console) -> int:
    """Until Ctrl-C. The exit code: 130 before the script's end, then 0, or 1 where the service failed."""
    stop = Stop()
    with (
        stop.listening(),
        quiet_logging() as errors,
        tempfile.TemporaryDirectory(prefix="sickbay-demo-", dir=_fast_folder()) as folder,
    ):
        show = _Show(settings, console, stop, Path(folder) / "ledger.db")
        try:
            show.play()
            show.say_goodbye()
        finally:
            show.close()
        for line in errors:
            console.print(line, style="red", markup=False, highlight=False)
    if show.truth is None:
        return EXIT_INTERRUPTED
    return EXIT_FAILED if show.truth.failed else EXIT_OK


def _fast_folder() -> Path | None:
    """Memory, where there is some to share: the demo's ledger need not survive, and syncs cost time."""
    usable = _SHARED_MEMORY.is_dir() and os.access(_SHARED_MEMORY, os.W_OK | os.X_OK)
    return _SHARED_MEMORY if usable else None


class _Show:
    """One run on a terminal. Time passes at the wanted speed, after the script as the wall clock's."""

    def __init__(self, settings: Settings, console: Console, stop: Stop, database: Path) -> None:
        self.truth: Truth | None = None
        self._settings = settings
        self._console = console
        self._stop = stop
        self._clock: Clock = SystemClock()
        self._people: list[str] = []
        script = default_script(node_names(settings.nodes), heat=heat_expected(settings.catalogue))
        # The simulated clock meets the wall clock at the script's end: ages in `sickbay why` are right then.
        start = int(self._clock.now() + script.ends_at / settings.speed - script.ends_at)
        self._work = Clockwork(
            nodes=settings.nodes,
            seed=settings.seed,
            database=database,
            script=script,
            clock=ManualClock(float(start)),
            scheduler=settings.scheduler,
            catalogue=settings.catalogue,
        )
        self._story = Story(self._work)
        self._server, self._notice = self._open_door(settings.port)
        self._pace = Pace(self._clock, settings.speed)

    def _open_door(self, port: int) -> tuple[HttpServer, str | None]:
        """The real API on the loopback; on another port, with a notice, where ``port`` is taken."""
        access = TokenAccess(lambda _: None, allow_anonymous_loopback=True)
        app = create_app(self._work.app.service, access)
        app.add_middleware(Door, noticed=self._people.append, clock=self._work.clock)
        server = HttpServer(app, HOST, port, date_header=False)
        try:
            server.start()
        except SickbayError:
            server = HttpServer(app, HOST, 0, date_header=False)
            server.start()
            return server, f"port {port} is taken, this one is free"
        return server, None

    def play(self) -> None:
        """Until somebody stops it."""
        with Live(
            self._frame(),
            console=self._console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        ) as live:
            size = self._console.size
            while not self._stop.wanted:
                frame_ends = self._clock.monotonic() + FRAME_SECONDS
                moved = self._catch_up(frame_ends)
                if moved or self._console.size != size:
                    size = self._console.size
                    live.update(self._frame(), refresh=True)
                self._rest_until(frame_ends)

    def _catch_up(self, until: float) -> bool:
        """The ticks that are due, as far as they fit into this frame; at least one if any is due."""
        moved = False
        while self._pace.due() and not self._stop.wanted:
            self._work.tick()
            self._pace.ticked()
            moved = True
            if self.truth is None and self._work.finished:
                self.truth = truth_of(self._work, self._people)
                self._pace.set(1.0)
            if self._clock.monotonic() >= until:
                break
        return moved

    def _rest_until(self, until: float) -> None:
        while not self._stop.wanted and (left := until - self._clock.monotonic()) > 0:
            self._clock.sleep(min(left, SLICE_SECONDS))

    def _frame(self) -> Frame:
        view = take_view(self._work, speed=self._pace.speed)
        self._story.look(view.verdicts)
        return Frame(
            replace(
                view,
                lagging=self._pace.lagging,
                sentences=tuple(self._story.sentences),
                truth=self.truth,
                url=self._server.url,
                command=self._settings.command,
                notice=self._notice,
            )
        )

    def say_goodbye(self) -> None:
        """What stays on the terminal when the picture is gone."""
        if self.truth is not None:
            self._console.print(truth_report(self.truth))
            return
        at = clock_text(self._work.elapsed)
        end = clock_text(self._work.script.ends_at)
        self._console.print(f"stopped at {at} of {end}: no truth table", markup=False, highlight=False)

    def close(self) -> None:
        self._server.stop()
        self._work.close()
