"""The last screen: what was expected and seen, what it was worth, what to do next; in the rows there are."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sickbay.demo.table import bill_line, bill_note, short_truth_table, truth_table, verdict
from sickbay.demo.truth import Truth
from sickbay.demo.view import View


def ending(
    view: View, truth: Truth, console: Console, options: ConsoleOptions
) -> list[tuple[RenderableType, int]]:
    """Blocks from top to bottom with their rows: the fullest form that fits into ``options.height`` rows."""
    rows = options.height or console.height
    free = options.update(height=None)
    measured: list[tuple[RenderableType, int]] = []
    for blocks in _forms(view, truth):
        measured = [(block, len(console.render_lines(block, free, pad=False))) for block in blocks]
        if sum(height for _, height in measured) <= rows:
            break
    return measured


def _forms(view: View, truth: Truth) -> Iterator[tuple[RenderableType, RenderableType]]:
    """From the fullest to the shortest."""
    for table, notes in ((truth_table, True), (truth_table, False), (short_truth_table, True)):
        yield _framed(table(truth)), _next(view, truth, notes=notes, commands=len(try_next(view)))
    for commands in range(len(try_next(view)), 0, -1):
        yield _framed(short_truth_table(truth)), _next(view, truth, notes=False, commands=commands)


def _framed(table: Table) -> Panel:
    return Panel(table, title="expected and seen", title_align="left", padding=(0, 1))


def ask(view: View, *words: str) -> str:
    """A command line for another terminal, with the address where the default would not do."""
    where = ["--url", view.url] if view.url and not view.url.endswith(":8470") else []
    return " ".join([view.command, *words, *where])


def nth_node(view: View, number: int) -> str:
    return view.cells[number - 1].name


def try_next(view: View) -> list[tuple[str, str]]:
    """What to do now: a command (or an address), and what it shows."""
    first = next((i.id for i in reversed(view.incidents)), "demo-1")
    return [
        (ask(view, "why", nth_node(view, 11)), "why an admin's node is left alone"),
        (view.url or "-", "the console, in a browser"),
        (ask(view, "incidents", first), "every step that was taken, and why"),
        (ask(view, "pause", "--reason", "'my turn'"), "the red button")
        if view.paused_by is None
        else (ask(view, "resume"), "lift the pause"),
    ]


def _next(view: View, truth: Truth, *, notes: bool, commands: int) -> RenderableType:
    grid = Table.grid(padding=(0, 3, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, overflow="ellipsis", style="dim")
    for command, what in try_next(view)[:commands]:
        grid.add_row(Text(command, "bold"), Text(what))
    heading = Text("The fleet goes on; ask it from another terminal (Ctrl-C here ends the demo):")
    if view.notice:
        heading.append(f"  {view.notice}", "yellow")
    said = [verdict(truth, explain=notes), bill_line(truth.bill), *([bill_note(truth.bill)] if notes else [])]
    return Padding(Group(*said, heading, grid), (0, 1))
