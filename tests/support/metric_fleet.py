"""A few nodes whose readings a test writes by hand, and the metric rules run over them tick by tick."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fleet.findings import Finding
from fleet.observations import Problem, ProblemReason, Reading, Sample
from rules.catalogue import load_catalogue
from rules.metrics.evaluate import evaluate
from rules.metrics.state import MetricEvaluation, MetricState
from rules.metrics.windows import SampleWindows
from rules.model import Rule

START = 1_767_225_600.0
STEP = 15.0
HEALTHY: Mapping[str, float] = {
    "gpu_utilization_ratio": 0.98,
    "gpu_clock_event_reasons": 0.0,
    "gpu_row_remap_failed": 0.0,
    "gpu_row_remap_pending": 0.0,
    "gpu_ecc_uncorrected_volatile_total": 0.0,
    "gpu_recovery_action": 0.0,
}
RULES = load_catalogue().metric_rules


def uuid(node: str, gpu: int) -> str:
    return f"GPU-{node}-{gpu}"


def samples(
    node: str, gpu: int, values: Mapping[str, float | None], at: float, *, index: int | None = None
) -> tuple[Sample, ...]:
    """The samples of one healthy, busy GPU with ``values`` over it; None: no such sample."""
    merged = {**HEALTHY, **values}
    return tuple(
        Sample(
            node=node,
            signal=signal,
            value=value,
            time=at,
            gpu=uuid(node, gpu),
            index=gpu if index is None else index,
            pci=f"0000:{0x10 + gpu:02x}:00.0",
        )
        for signal, value in merged.items()
        if value is not None
    )


def loss(node: str, reason: ProblemReason = ProblemReason.TRUNCATED) -> Problem:
    return Problem(source="dcgm", reason=reason, message="the rest is missing", node=node)


@dataclass(slots=True)
class MetricFleet:
    """``tick`` says what is different from a healthy, busy node; ``seen`` collects all answers."""

    nodes: Sequence[str] = ("n01",)
    gpus: int = 4
    rules: Sequence[Rule] = RULES
    now: float = START
    state: MetricState = field(default_factory=MetricState)
    boots: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    cleared: list[tuple[str, str]] = field(default_factory=list)
    seen: list[MetricEvaluation] = field(default_factory=list)
    windows: SampleWindows = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """The process starts anew: the windows are empty, the state is as it was stored."""
        self.windows = SampleWindows.for_rules(self.rules, step_seconds=STEP)

    def tick(
        self,
        changes: Mapping[tuple[str, int], Mapping[str, float | None]] | None = None,
        *,
        without: Iterable[tuple[str, int]] = (),
        silent: Iterable[str] = (),
        damaged: Iterable[str] = (),
        indexes: Mapping[tuple[str, int], int] | None = None,
    ) -> MetricEvaluation:
        """One step of time: every node answers, but for ``silent``; GPUs ``without`` are not in it."""
        self.now += STEP
        gone, quiet, torn = set(without), set(silent), set(damaged)
        readings = []
        for node in self.nodes:
            if node in quiet:
                readings.append(Reading((loss(node, ProblemReason.TIMEOUT),), ok=False))
                continue
            records: list[Sample | Problem] = [loss(node)] if node in torn else []
            for gpu in range(self.gpus):
                if (node, gpu) not in gone:
                    values = (changes or {}).get((node, gpu), {})
                    index = (indexes or {}).get((node, gpu))
                    records += samples(node, gpu, values, self.now, index=index)
            readings.append(Reading(tuple(records)))
        return self.take(readings)

    def take(self, readings: Sequence[Reading]) -> MetricEvaluation:
        """One evaluation over these readings, now."""
        self.windows.append(readings, self.now, boots=self.boots)
        answer = evaluate(self.windows, self.rules, self.now, self.state)
        self.state = answer.state
        self.findings += answer.findings
        self.cleared += answer.cleared
        self.seen.append(answer)
        return answer

    def ticks(self, count: int, *args: object, **kwargs: object) -> None:
        for _ in range(count):
            self.tick(*args, **kwargs)  # type: ignore[arg-type]

    @property
    def rules_found(self) -> list[str]:
        return sorted({finding.rule for finding in self.findings})
