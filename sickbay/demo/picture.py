"""Regenerates the pictures of the documentation: ``python -m sickbay.demo.picture docs/images``.

``demo.svg`` is the demo under way, ``demo-end.svg`` its last screen.

The same seed gives the same files: simulated time only, and no font from the network.
"""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from sickbay.cli_demo import DEFAULT_SPEED
from sickbay.demo.clockwork import Clockwork
from sickbay.demo.frame import Frame
from sickbay.demo.quiet import quiet_logging
from sickbay.demo.story import Story
from sickbay.demo.truth import truth_of
from sickbay.demo.view import View, take_view

WIDTH, HEIGHT = 126, 36
#: With room for the whole truth table, and map and sentences above it.
END_HEIGHT = 54
#: A hot node waits for hands, another for its reboot, a third for the budget.
MOMENT_SECONDS = 1262.0
_FORMAT = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" class="rich-terminal">
<style>
.{unique_id}-matrix {{ font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace; \
font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def views(*, nodes: int = 16, seed: int = 1) -> tuple[View, View]:
    """The demo's view at ``MOMENT_SECONDS`` and at its end, its story read second by second."""
    work = Clockwork(nodes=nodes, seed=seed, database=None)
    story = Story(work)
    moment: View | None = None
    try:
        while not work.finished:
            work.tick()
            view = take_view(work, speed=DEFAULT_SPEED)
            story.look(view.verdicts)
            if moment is None and work.elapsed >= MOMENT_SECONDS:
                moment = _with_story(view, story)
        end = replace(_with_story(view, story), truth=truth_of(work))
    finally:
        work.close()
    return moment or end, end


def _with_story(view: View, story: Story) -> View:
    return replace(view, sentences=tuple(story.sentences), url="http://127.0.0.1:8470")


def draw(view: View, *, width: int = WIDTH, height: int = HEIGHT) -> str:
    """The frame as an SVG document."""
    console = Console(
        width=width,
        height=height,
        record=True,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
        _environ={},
    )
    console.print(Frame(view), height=height)
    return console.export_svg(title="sickbay demo", code_format=_FORMAT, unique_id="demo")


def main(folder: str = "docs/images") -> None:
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    with quiet_logging():
        moment, end = views()
    (target / "demo.svg").write_text(draw(moment), encoding="utf-8")
    (target / "demo-end.svg").write_text(draw(end, height=END_HEIGHT), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:2])
