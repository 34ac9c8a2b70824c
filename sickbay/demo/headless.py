"""The demo without a picture: to the script's end as fast as the machine allows."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from rules.model import Catalogue
from sickbay.demo.clockwork import Clockwork
from sickbay.demo.clusters_kind import SchedulerKind
from sickbay.demo.quiet import quiet_logging
from sickbay.demo.scenes import Script
from sickbay.demo.truth import Truth, truth_of

#: Simulated seconds between two looks at the bar.
REPORT_SECONDS = 20.0


def play(
    *,
    nodes: int,
    seed: int,
    script: Script | None = None,
    scheduler: SchedulerKind = SchedulerKind.SLURM,
    catalogue: Catalogue | None = None,
) -> Truth:
    """Run the whole script. Progress goes to stderr, and only to a terminal."""
    errors = Console(stderr=True)
    progress = Progress(
        TextColumn("simulating {task.completed:.0f} of {task.total:.0f} s"),
        BarColumn(),
        TimeElapsedColumn(),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    )
    with quiet_logging():
        work = Clockwork(
            nodes=nodes, seed=seed, database=None, script=script, scheduler=scheduler, catalogue=catalogue
        )
        try:
            with progress:
                task = progress.add_task("", total=work.script.ends_at)
                while not work.finished:
                    report_at = work.elapsed + REPORT_SECONDS
                    work.run(lambda: work.finished or work.elapsed >= report_at)  # noqa: B023 - run at once
                    progress.update(task, completed=work.elapsed)
            return truth_of(work)
        finally:
            work.close()
