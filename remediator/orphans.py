"""Drains under our mark that no incident of ours stands for any more: nobody would ever lift them.

They come from a cordon whose answer was lost and whose incident was cancelled meanwhile, or from a ledger
that was lost or restored. They are told to a person and left: that nobody wants the drain is a guess.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.findings import IncidentState
from fleet.marks import parse_mark
from fleet.scheduler import Owner, SchedulerSnapshot
from remediator.records import LedgerTransaction


def orphans(snapshot: SchedulerSnapshot, tx: LedgerTransaction) -> Iterator[tuple[str, str]]:
    """(key of a page, sentence) for each. A node that was handed over keeps its drain on purpose."""
    for node in snapshot.nodes.values():
        mark = parse_mark(node.reason.text) if node.reason is not None else None
        if node.owner is not Owner.SICKBAY or not node.is_cordoned or mark is None:
            continue
        incident = tx.incident(mark.incident)
        if incident is None:
            why = "which the ledger does not know"
        elif (
            not incident.state.is_closed
            or incident.state is IncidentState.HANDED_OVER
            or (incident.closed_at is not None and snapshot.taken_at <= incident.closed_at)
        ):
            continue
        else:
            why = f"which is {incident.state}"
        yield (
            f"orphan/{node.name}/{mark.incident}",
            f"{node.name} is drained under our mark of incident {mark.incident}, {why}: "
            "nobody will lift it; undrain it by hand if it is well",
        )
