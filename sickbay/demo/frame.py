"""Draws a ``View`` as one full-screen frame. Pure: the same view at the same size is the same text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.layout import Layout
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fleet.findings import IncidentState
from sickbay.demo.ending import ask, ending, nth_node
from sickbay.demo.fleet_map import MAP_WIDTH, fleet_map
from sickbay.demo.story import Kind, Sentence
from sickbay.demo.view import IncidentLine, View

HEAD_ROWS = 3
FOOT_ROWS = 2
BORDERS = 2
#: Map and sentences beside the truth table: not worth showing in fewer rows.
MIN_STAGE_ROWS = 5
#: Frame, heading and one incident.
MIN_INCIDENT_ROWS = 4
#: A pane narrower than this gives a sentence a second line.
ONE_LINE_FROM = 100
_INDENT = 6

_KIND_STYLES = {
    Kind.FAULT: "bold white on blue",
    Kind.FOUND: "bold red",
    Kind.NOTED: "cyan",
    Kind.MOVED: "",
    Kind.DONE: "green",
    Kind.REFUSED: "yellow",
    Kind.PERSON: "bold magenta",
    Kind.PAGE: "bold white on red",
}


@dataclass(frozen=True, slots=True)
class Frame:
    """Fills the screen it is given, whatever its size."""

    view: View

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = options.height or console.height
        layout = Layout()
        parts = [Layout(_head(self.view, options.max_width), size=HEAD_ROWS)]
        below = _below(self.view, console, options)
        stage_rows = height - HEAD_ROWS - sum(part.size or 0 for part in below)
        if stage_rows >= MIN_STAGE_ROWS:
            parts.append(_stage(self.view, stage_rows, ascii_only=options.ascii_only))
        elif len(below) > 1:
            below[0].size = None  # the table gives way to what can be done next
        layout.split_column(*parts, *below)
        for segment in console.render(layout, options.update(height=height)):
            # Rich's own mark for a cut has no ASCII form.
            cut_mark = options.ascii_only and "…" in segment.text
            yield segment._replace(text=segment.text.replace("…", ".")) if cut_mark else segment


def _below(view: View, console: Console, options: ConsoleOptions) -> list[Layout]:
    """What stands under map and sentences: hints; after the script its truth table and what to do next."""
    if view.truth is None:
        return [Layout(_hints(view), size=FOOT_ROWS)]
    height = options.height or console.height
    room = options.update(height=max(1, height - HEAD_ROWS))
    return [Layout(block, size=rows) for block, rows in ending(view, view.truth, console, room)]


def _stage(view: View, rows: int, *, ascii_only: bool) -> Layout:
    stage = Layout()
    stage.split_row(
        Layout(_left(view, rows, ascii_only=ascii_only), size=MAP_WIDTH + 2 * BORDERS),
        Layout(Panel(_Tail(view.sentences), title="decisions", title_align="left")),
    )
    return stage


def clock_text(seconds: float) -> str:
    """``mm:ss``, with hours once there are any."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"


def _head(view: View, width: int) -> Panel:
    """One line; on a narrow screen in short words, so that its figures are seen."""
    room = width - 2 * BORDERS
    line = _head_line(view, short=False)
    if len(line) > room:
        line = _head_line(view, short=True)
    if view.paused_by is not None:
        line.append(f"  {view.paused_by}", "magenta")
    return Panel(line, title="sickbay demo", title_align="left", padding=(0, 1))


def _head_line(view: View, *, short: bool) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(clock_text(view.elapsed), "bold")
    line.append(f" of {clock_text(view.ends_at)}" if view.truth is None else " simulated", "dim")
    line.append(f"  {'' if short else 'mode '}{view.mode}  {_speed(view, short=short)}  ")
    if view.paused_by is None:
        line.append("running", "green")
    else:
        line.append("PAUSED", "bold white on magenta")
    line.append(f"  repairs {_share(view.repairs, short=short)}")
    line.append(f"  {'out' if short else 'out of service'} {_share(view.out, short=short)}")
    return line


def _share(pair: tuple[int, int], *, short: bool) -> str:
    return f"{pair[0]}{'/' if short else ' of '}{pair[1]}"


def _speed(view: View, *, short: bool) -> str:
    if view.truth is not None:
        return "real time"
    lag = "" if view.lagging is None else f" ({'' if short else 'this machine: '}{view.lagging:.0f}x)"
    return f"{'' if short else 'speed '}{view.speed:g}x{lag}"


def _left(view: View, rows: int, *, ascii_only: bool) -> RenderableType:
    lines = fleet_map(view, ascii_only=ascii_only)
    map_rows = len(lines) + BORDERS
    chart = Panel(
        Text("\n", no_wrap=True, overflow="crop").join(lines),
        title="fleet",
        title_align="left",
        padding=(0, 1),
        height=min(map_rows, rows),
    )
    left = rows - map_rows
    if left < MIN_INCIDENT_ROWS:
        return chart
    table = _incidents(view.incidents[: left - BORDERS - 1])
    return Group(chart, Panel(table, title="incidents", title_align="left", padding=(0, 1), height=left))


def _incidents(incidents: Sequence[IncidentLine]) -> RenderableType:
    if not incidents:
        return Text("none", "dim")
    table = Table.grid(padding=(0, 2, 0, 0))
    known = [("incident", "node", "state"), *((i.id, i.node, str(i.state)) for i in incidents)]
    for column in zip(*known, strict=True):
        table.add_column(no_wrap=True, min_width=max(map(len, column)))
    table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_row(*(Text(name, "dim") for name in ("incident", "node", "state", "held back by")))
    for incident in incidents:
        closed = incident.state.is_closed
        style = "green" if incident.state is IncidentState.RETURNED else "dim" if closed else "bold"
        table.add_row(
            Text(incident.id, "dim" if closed else ""),
            Text(incident.node),
            Text(str(incident.state).replace("_", " "), style),
            Text(", ".join(incident.blocked_by), "yellow"),
        )
    return table


@dataclass(frozen=True, slots=True)
class _Tail:
    """As many of the newest sentences as fit, the newest at the bottom; never a line over its width."""

    sentences: Sequence[Sentence]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = options.height or console.height
        width = options.max_width
        dots = "..." if options.ascii_only else "…"
        blocks: list[list[Text]] = []
        free = rows
        for sentence in reversed(self.sentences):
            lines = _block(console, sentence, width, dots)
            if len(lines) > free:
                break
            free -= len(lines)
            blocks.append(lines)
        for lines in reversed(blocks):
            yield from lines


def _block(console: Console, sentence: Sentence, width: int, dots: str) -> list[Text]:
    text = Text(sentence.text, _KIND_STYLES[sentence.kind])
    prefix = Text().append(clock_text(sentence.at).ljust(_INDENT), "dim")
    if sentence.who:
        prefix.append(f"{sentence.who} ", "bold")
    room = max(1, width - len(prefix))
    if width >= ONE_LINE_FROM:
        return [_cut(prefix + text, width, dots)]
    first = text.wrap(console, room)[0]
    first.rstrip()
    rest = text[len(first) :]
    rest = rest[len(rest.plain) - len(rest.plain.lstrip()) :]
    lines = [_cut(prefix + first, width, dots)]
    if rest.plain:
        lines.append(_cut(Text(" " * _INDENT) + rest, width, dots))
    return lines


def _cut(line: Text, width: int, dots: str) -> Text:
    line.no_wrap, line.overflow = True, "crop"
    if line.cell_len > width:
        line.right_crop(len(line) - max(0, width - len(dots)))
        line.append(dots)
    return line


def _hints(view: View) -> Text:
    lines = Text(no_wrap=True, overflow="ellipsis")
    lines.append(" console ", "dim")
    lines.append(view.url or "-", "underline")
    lines.append("  Ctrl-C ends", "dim")
    if view.notice:
        lines.append(f"  {view.notice}", "yellow")
    lines.append("\n another terminal: ", "dim")
    lines.append("   ".join(ask(view, *words) for words in (("why", nth_node(view, 3)), ("nodes",))))
    return lines
