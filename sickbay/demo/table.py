"""The truth table for people, in a terminal of 80 columns or more, with or without colours."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sickbay.demo.bill import Bill
from sickbay.demo.meter import World
from sickbay.demo.truth import Row, Truth

UNEXPECTED_SHOWN = 5


def truth_report(truth: Truth) -> RenderableType:
    """The table and the sentence under it."""
    return Group(
        truth_table(truth), Text(), verdict(truth), Text(), bill_table(truth.bill), bill_note(truth.bill)
    )


def bill_table(bill: Bill) -> Table:
    """The same faults in both worlds, side by side."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold underline")
    table.add_column("the same faults")
    table.add_column("GPU-hours lost", justify="right")
    table.add_column(bill.assumptions.currency, justify="right")
    for name, world, style in (
        ("with sickbay", bill.with_sickbay, "bold green"),
        ("without", bill.without, "bold red"),
    ):
        cost = f"{bill.cost(world):,.0f}"
        table.add_row(Text(name), Text(f"{world.gpu_hours:,.0f}", style), Text(cost, style))
    return table


def bill_line(bill: Bill) -> Text:
    """The same in one line."""
    with_us, without = bill.with_sickbay, bill.without
    line = Text("Lost to these faults: ")
    line.append(f"{with_us.gpu_hours:,.0f} GPU-hours ({_cost(bill, with_us)})", "bold green")
    line.append("; without sickbay ")
    line.append(f"{without.gpu_hours:,.0f} ({_cost(bill, without)})", "bold red")
    return line


def _cost(bill: Bill, world: World) -> str:
    return f"{bill.cost(world):,.0f} {bill.assumptions.currency}"


def bill_note(bill: Bill) -> Text:
    return Text(bill.assumptions.sentence, "dim")


def truth_table(truth: Truth) -> Table:
    table = Table(box=None, expand=True, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold underline")
    # At 100 columns every cell of the shipped script takes two lines at most.
    table.add_column("what happened", ratio=23)
    table.add_column("node", min_width=6)
    table.add_column("expected", ratio=20)
    table.add_column("seen", ratio=28)
    table.add_column("found", justify="right", no_wrap=True)
    table.add_column("back", justify="right", no_wrap=True)
    table.add_column("ok", min_width=3, no_wrap=True)
    for row in truth.rows:
        table.add_row(
            Text(row.title),
            Text(_nodes(row)),
            Text(row.expected),
            Text(row.seen),
            _seconds(row.detected_after_seconds),
            _seconds(row.returned_after_seconds),
            _mark(truth, ok=row.ok),
        )
    return table


def short_truth_table(truth: Truth) -> Table:
    """One line a scene, for a small screen; what was expected stands only where it did not happen."""
    table = Table(box=None, expand=True, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold underline")
    table.add_column("what happened", ratio=26, no_wrap=True, overflow="ellipsis")
    table.add_column("node", min_width=6, no_wrap=True)
    table.add_column("seen", ratio=24, no_wrap=True, overflow="ellipsis")
    table.add_column("found", justify="right", no_wrap=True)
    table.add_column("back", justify="right", no_wrap=True)
    table.add_column("ok", min_width=3, no_wrap=True)
    for row in truth.rows:
        table.add_row(
            Text(row.title),
            Text(_nodes(row)),
            Text(row.seen if row.ok else f"{row.seen}, not: {row.expected}"),
            _seconds(row.detected_after_seconds),
            _seconds(row.returned_after_seconds),
            _mark(truth, ok=row.ok),
        )
    return table


def _nodes(row: Row) -> str:
    return f"{row.node} +{row.others}" if row.others else row.node


def verdict(truth: Truth, *, explain: bool = True) -> Text:
    """One sentence: is this what should have come of it? ``explain``: with the meaning of the columns."""
    good = sum(row.ok for row in truth.rows)
    line = Text(f"{good} of {len(truth.rows)} as expected, ")
    if not truth.unexpected:
        line.append("nothing else touched.")
    else:
        more = len(truth.unexpected) - UNEXPECTED_SHOWN
        shown = "; ".join(truth.unexpected[:UNEXPECTED_SHOWN])
        line.append(f"{len(truth.unexpected)} unexpected: {shown}{f' and {more} more' if more > 0 else ''}.")
    if explain:
        line.append(" (found, back: simulated seconds after the fault)")
    if truth.people:
        acts = ", ".join(dict.fromkeys(truth.people))
        line.append(f" A person took part ({acts}): what differs from the script may be theirs.")
    line.stylize("bold red" if truth.failed else "yellow" if not truth.ok else "bold green", 0, len(line))
    return line


def _mark(truth: Truth, *, ok: bool) -> Text:
    if ok:
        return Text("yes", "green")
    return Text("?", "yellow") if truth.people else Text("NO", "bold red")


def _seconds(value: float | None) -> Text:
    return Text("-", "dim") if value is None else Text(f"{value:.0f} s")
