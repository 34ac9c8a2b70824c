"""All metric rules over the windows: which findings begin, which end, what cannot be judged.

Pure: (windows, rules, now, state) -> MetricEvaluation. Nothing begins and nothing ends without a sample
of the newest tick that says so; in a gap every open finding is held as unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fleet.findings import Finding, Mode
from rules.events import finding_id
from rules.metrics.conditions import Absence, Increase, MetricCondition, Share
from rules.metrics.intake import Target
from rules.metrics.kernels import Judgement, judge
from rules.metrics.say import Facts, duration, evidence, finding_sentence, place, threshold_text
from rules.metrics.state import (
    SOURCE,
    Coverage,
    Episode,
    MetricEvaluation,
    MetricState,
    Pending,
    Unknown,
    by_target,
)
from rules.metrics.windows import Answer, SampleWindows, TickRef
from rules.model import ENDED_BY_METRICS, Rule

MAX_LISTED = 1000
"""``pending`` and ``unknown`` hold at most so many entries each."""


@dataclass(slots=True)
class _Answers:
    """An evaluation under construction."""

    findings: list[Finding] = field(default_factory=list)
    cleared: list[tuple[str, str]] = field(default_factory=list)
    standing: list[str] = field(default_factory=list)
    reported: list[str] = field(default_factory=list)
    quiet: list[str] = field(default_factory=list)
    unknown: list[Unknown] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    coverage: list[Coverage] = field(default_factory=list)
    episodes: list[Episode] = field(default_factory=list)

    def held(self, episode: Episode, why: str) -> None:
        self.episodes.append(episode.unobserved())
        self.unknown.append(
            Unknown(
                node=episode.node,
                uuid=episode.uuid,
                rule=episode.rule,
                finding_id=episode.finding_id,
                sentence=f"{episode.rule} on {place(episode.target, None)} is held as unknown: {why}",
            )
        )


def evaluate(
    windows: SampleWindows,
    rules: Iterable[Rule],
    now: float,
    state: MetricState,
    *,
    modes: Mapping[str, Mode] | None = None,
    disabled: frozenset[str] = frozenset(),
) -> MetricEvaluation:
    """Judge every rule on metrics once (others are passed over).

    ``modes``: the configured mode of a rule, in place of its own. Findings of rules that are disabled or
    gone stay open: a person ends them.
    """
    active = [(rule, rule.when) for rule in rules if rule.when is not None and rule.finds]
    active = [(rule, when) for rule, when in active if rule.id not in disabled]
    answers = _Answers()
    newest = windows.newest(now)
    by_rule: dict[str, list[Episode]] = {}
    for episode in state.episodes:
        by_rule.setdefault(episode.rule, []).append(episode)
    for rule, when in active:
        episodes = by_rule.pop(rule.id, [])
        if newest is None:
            for episode in episodes:
                answers.held(episode, "no samples have come lately")
            continue
        one = _RuleEvaluation(windows, rule, when, now, newest, (modes or {}).get(rule.id, rule.mode))
        one.run(episodes, answers)
    for episodes in by_rule.values():
        for episode in episodes:
            answers.held(episode, "its rule is not in force; a person ends it")
    answers.unknown += _silent(windows, newest)
    return MetricEvaluation(
        findings=tuple(answers.findings),
        cleared=tuple(answers.cleared),
        standing=tuple(answers.standing),
        unknown=tuple(answers.unknown[:MAX_LISTED]),
        pending=tuple(answers.pending[:MAX_LISTED]),
        coverage=tuple(answers.coverage),
        state=MetricState(tuple(sorted(answers.episodes, key=by_target))),
        reported=tuple(answers.reported),
        quiet=tuple(answers.quiet),
    )


class _RuleEvaluation:
    """One rule, once."""

    def __init__(
        self,
        windows: SampleWindows,
        rule: Rule,
        condition: MetricCondition,
        now: float,
        newest: TickRef,
        mode: Mode,
    ) -> None:
        self._windows = windows
        self._rule = rule
        self._condition = condition
        self._now = now
        self._newest = newest
        self._mode = mode
        self._judgement: Judgement = judge(windows, condition, now, newest)
        violating = self._judgement.violating
        self._alike = np.bincount(windows.node_of[violating], minlength=len(windows.nodes))

    def run(self, episodes: Sequence[Episode], answers: _Answers) -> None:
        judged = self._judgement
        open_: dict[Target, Episode] = {}
        for episode in episodes:
            self._observe(episode, answers)
            if not self._is_over(episode):
                open_[episode.target] = episode
        for row, target in self._targets(np.flatnonzero(judged.violating)):
            self._violates(row, target, open_.pop(target, None), answers)
        for episode in open_.values():
            self._not_violating(episode, answers)
        waiting = np.flatnonzero(judged.pending)[: MAX_LISTED - len(answers.pending)]
        answers.pending += [self._pending(row, target) for row, target in self._targets(waiting)]
        answers.coverage.append(self._coverage())

    def _targets(self, rows: np.typing.NDArray[np.int64]) -> Iterator[tuple[int, Target]]:
        """In the order of their names: the answer does not depend on who reported first."""
        targets = self._windows.targets
        found = [(row, target) for row in rows.tolist() if (target := targets[row]) is not None]
        return iter(sorted(found, key=lambda item: (item[1].node, item[1].gpu or "", item[1].part)))

    def _observe(self, episode: Episode, answers: _Answers) -> None:
        """Whether anything was seen of what an open finding is about, of whichever boot it is."""
        row = self._windows.row_of(episode.target)
        test, slot, judged = self._condition.test, self._newest.slot, self._judgement
        if isinstance(test, Absence):
            reported = self._windows.answer_of(episode.node, slot) is Answer.WHOLE
        else:
            reported = row is not None and not np.isnan(self._windows.values(test.signal, slot)[row])
        if not reported:
            return
        answers.reported.append(episode.finding_id)
        if row is None or judged.violating[row] or judged.pending[row]:
            return
        # A share is judged while the GPU works; once it is idle, that nothing shows is all there is to see.
        if judged.judged[row] or isinstance(test, Share):
            answers.quiet.append(episode.finding_id)

    def _is_over(self, episode: Episode) -> bool:
        """It belongs to an earlier boot, and its end is not ours to see (a repair's, or a person's)."""
        return self._rule.clear_on not in ENDED_BY_METRICS and self._other_boot(episode)

    def _other_boot(self, episode: Episode) -> bool:
        boot_id = self._windows.boot_of(episode.node)
        return boot_id is not None and episode.boot_id is not None and boot_id != episode.boot_id

    def _violates(self, row: int, target: Target, episode: Episode | None, answers: _Answers) -> None:
        if episode is not None and not self._other_boot(episode):
            answers.episodes.append(episode.disturbed())
            answers.standing.append(episode.finding_id)
            return
        finding = self._finding(row, target)
        if episode is not None:
            text = f"{target.node} has booted since, and the fault is back: finding {finding.id} goes on"
            answers.cleared.append((episode.finding_id, text))
        answers.findings.append(finding)
        answers.standing.append(finding.id)
        answers.reported.append(finding.id)
        answers.episodes.append(
            Episode(
                finding_id=finding.id,
                rule=self._rule.id,
                node=target.node,
                uuid=target.gpu,
                part=target.part,
                boot_id=finding.boot_id,
                since=finding.since,
            )
        )

    def _not_violating(self, episode: Episode, answers: _Answers) -> None:
        row = self._windows.row_of(episode.target)
        judged, clear = self._judgement, self._condition.clear
        if row is None:
            answers.held(episode, "it has not reported for long")
        elif self._rule.clear_on not in ENDED_BY_METRICS or clear is None:
            # Only its own repair, or a person, ends it.
            answers.episodes.append(episode)
        elif judged.calm[row]:
            calmer = episode.at_calm(self._newest.time, gap_seconds=self._windows.gap_seconds)
            if calmer.calm_seconds < clear.seconds:
                answers.episodes.append(calmer)
                return
            answers.cleared.append((episode.finding_id, self._calm_sentence(row, episode, clear.seconds)))
        elif judged.uneasy[row]:
            answers.episodes.append(episode.disturbed())
        else:
            answers.held(episode, "it cannot be judged now (no sample, or not busy)")

    def _calm_sentence(self, row: int, episode: Episode, seconds: float) -> str:
        index, _ = self._windows.place(row)
        how = f"for {duration(seconds)}" if seconds else "now"
        if isinstance(self._condition.test, Share):
            value = f"the share is {100 * self._judgement.measure[row]:.0f} %"
        elif isinstance(self._condition.test, Increase):
            value = f"the increase is {self._judgement.measure[row]:g}"
        else:
            value = f"the value is {self._judgement.measure[row]:g}"
        return f"{self._rule.id} on {place(episode.target, index)} is over: calm {how}, {value}"

    def _facts(self, row: int, target: Target) -> Facts:
        judged = self._judgement
        index, pci = self._windows.place(row)
        since, started = float(judged.since[row]), self._windows.started_at
        return Facts(
            target=target,
            index=index,
            pci=pci,
            measure=float(judged.measure[row]),
            held=float(judged.held[row]),
            since=since,
            samples=int(judged.samples[row]),
            siblings=int(judged.siblings[row]) if judged.siblings.size else 0,
            alike=int(self._alike[self._windows.node_of[row]]),
            timer_restarted=started is not None and since <= started,
        )

    def _finding(self, row: int, target: Target) -> Finding:
        facts = self._facts(row, target)
        boot_id = self._windows.boot_of(target.node)
        # One id per episode: the same fault may come back in the same boot after its finding has ended.
        about = f"{target.gpu or '-'}/{target.part}@{self._now!r}"
        return Finding(
            id=finding_id(self._rule.id, target.node, about, boot_id),
            rule=self._rule.id,
            kind=self._rule.kind,
            node=target.node,
            severity=self._rule.severity,
            response=self._rule.response,
            repair=self._rule.repair,
            clear_on=self._rule.clear_on,
            since=facts.since,
            mode=self._mode,
            gpu=facts.pci,
            uuid=target.gpu,
            boot_id=boot_id,
            source=SOURCE,
            sentence=finding_sentence(self._rule, self._condition, facts),
            evidence=evidence(self._condition, facts, detected_at=self._now),
        )

    def _pending(self, row: int, target: Target) -> Pending:
        facts = self._facts(row, target)
        test = self._condition.test
        needed = test.min_seconds if isinstance(test, Share) else self._condition.history_seconds
        again = "; the timer began when sickbay began to watch" if facts.timer_restarted else ""
        return Pending(
            rule=self._rule.id,
            node=target.node,
            uuid=target.gpu,
            since=facts.since,
            held=facts.held,
            needed=needed,
            sentence=(
                f"{self._rule.id} on {place(target, facts.index)}: {facts.held:.0f} of {needed:.0f} s "
                f"of {threshold_text(self._condition)}{again}"
            ),
        )

    def _coverage(self) -> Coverage:
        windows, signals = self._windows, self._condition.signals
        of_gpus = isinstance(self._condition.test, Absence) or signals[0].startswith("gpu_")
        wanted = windows.is_gpu if of_gpus else windows.in_use & ~windows.is_gpu
        return Coverage(self._rule.id, int((self._judgement.judged & wanted).sum()), int(wanted.sum()))


def _silent(windows: SampleWindows, newest: TickRef | None) -> list[Unknown]:
    """Nodes that were heard within the horizon and say nothing usable now."""
    if newest is None:
        return [Unknown(node=None, sentence="no samples have come lately: nothing is judged")]
    places = np.unique(windows.node_of[windows.in_use])
    answers = windows.answers(newest.slot)
    said = {
        Answer.NONE: "did not answer: unknown, not sick",
        Answer.DAMAGED: "answered, but a part of it is lost: a missing GPU says nothing",
    }
    found = []
    for at in places[answers[places] != Answer.WHOLE].tolist():
        node = windows.nodes[at]
        if node is not None:
            found.append(Unknown(node=node, sentence=f"{node} {said[Answer(int(answers[at]))]}"))
    return sorted(found, key=lambda unknown: unknown.node or "")[:MAX_LISTED]
