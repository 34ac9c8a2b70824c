"""Regenerates the README's picture: ``python -m sickbay.demo.picture docs/images/demo.svg``.

The same seed gives the same file: simulated time only, and no font from the network.
"""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from sickbay.demo.clockwork import Clockwork
from sickbay.demo.frame import Frame
from sickbay.demo.quiet import quiet_logging
from sickbay.demo.story import Story
from sickbay.demo.view import View, take_view

WIDTH, HEIGHT = 126, 36
#: The red button has just been let go: every kind of sentence is there.
MOMENT_SECONDS = 623.0
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


def view_at(seconds: float, *, nodes: int = 16, seed: int = 1) -> View:
    """The demo's view after ``seconds`` simulated ones, its story read second by second."""
    work = Clockwork(nodes=nodes, seed=seed, database=None)
    story = Story(work)
    try:
        view = take_view(work)
        while work.elapsed < seconds:
            work.tick()
            view = take_view(work)
            story.look(view.verdicts)
    finally:
        work.close()
    return replace(view, sentences=tuple(story.sentences), speed=20.0, url="http://127.0.0.1:8470")


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


def main(path: str = "docs/images/demo.svg") -> None:
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with quiet_logging():
        view = view_at(MOMENT_SECONDS)
    target.write_text(draw(view), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:2])
