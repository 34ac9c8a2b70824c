"""The public face of the kernel-log reader: a whole capture at once, or line by line as it is written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import BinaryIO

from collector.kernel_log.coalesce import Coalescer
from collector.kernel_log.context import SOURCE, ContextSource, LogContext, resolve
from collector.kernel_log.groups import Group, Occurrence
from collector.kernel_log.interpret import Interpreter, Result
from collector.kernel_log.opening import is_plain
from collector.kernel_log.physical import file_blocks, split_blocks
from fleet.observations import Event, Problem, ProblemReason, Reading, TimeSource

PROBLEM_INTERVAL_SECONDS = 60.0
_MAX_PROBLEMS = 1024
_MAX_BATCH_GROUPS = 65_536  # how far back a second capture of the same log is recognised

ProblemKey = tuple[ProblemReason, str | None]


def read_kernel_log(data: bytes, context: LogContext) -> Reading:
    """Read a captured log, whole. Events in the order they first occurred, repeats counted; then problems.

    ``data`` may be gzip-compressed, as rotated logs are. ``ok`` is False only if there was something and none
    of it could be read. Never raises for any bytes.
    """
    return _read_blocks(split_blocks(data), context)


def read_kernel_log_file(file: BinaryIO, context: LogContext) -> Reading:
    """As ``read_kernel_log``, from an open file: memory grows with what is found, not with the file.

    OSError is the caller's.
    """
    return _read_blocks(file_blocks(file), context)


def _read_blocks(blocks: Iterable[bytes], context: LogContext) -> Reading:
    batch = _Batch(context)
    feed = batch.interpreter.feed
    for block in blocks:
        plain = is_plain(block)
        for line in block.split(b"\n"):
            results = feed(line, context, plain=plain)
            if results:
                batch.take(results)
    batch.take(batch.interpreter.expire(context, everything=True))
    return batch.finish()


class _Batch:
    """Collects what a whole capture says."""

    def __init__(self, context: LogContext) -> None:
        self.interpreter = Interpreter()
        self._context = context
        self._coalescer = Coalescer(max_groups=_MAX_BATCH_GROUPS)
        self._groups: list[Group] = []
        self._problems: dict[ProblemKey, Problem] = {}

    def take(self, results: list[Result]) -> None:
        for result in results:
            if isinstance(result, Problem):
                _count_problem(self._problems, result)
                continue
            group, is_new = self._coalescer.add(result, self._context.now)
            if is_new and group is not None:
                self._groups.append(group)

    def finish(self) -> Reading:
        self._coalescer.reconcile()
        told = [g for g in self._groups if not g.superseded and not self.interpreter.is_foreign(g.event)]
        events = [self._dated(group) for group in told]
        ok = self.interpreter.records > 0 or not self._problems
        return Reading(records=(*events, *self._problems.values()), ok=ok)

    def _dated(self, group: Group) -> Event:
        """The boot time that we know is the last boot's: it dates no uptime of an earlier one."""
        event = group.event
        if event.time_source is TimeSource.UPTIME and self.interpreter.booted_again(group.first):
            return replace(event, time=self._context.now, time_source=TimeSource.RECEIVED)
        return event


def _count_problem(problems: dict[ProblemKey, Problem], problem: Problem) -> None:
    """One Problem per reason and node; the first one's words stand as the example."""
    key = (problem.reason, problem.node)
    if key not in problems and len(problems) >= _MAX_PROBLEMS:
        key = (problem.reason, None)
        problem = replace(problem, node=None)
    known = problems.get(key)
    problems[key] = problem if known is None else replace(known, count=known.count + problem.count)


class KernelLogParser:
    """Line by line, as an agent reads: a new fault is answered at once, its repeats later, counted.

    ``context`` is a LogContext, or a function that is asked once per call: an agent's clock moves, and its
    boot ID may be read anew. Not thread-safe: one reader, one parser.

    - ``feed`` takes one line without its newline and returns what must be passed on now: the first
      occurrence of a fault at once; repeats that have waited 5 s as one Event whose count is their number.
    - ``flush`` must be called about once a second even when no line comes; it returns repeats that are due
      and torn messages whose rest did not come.
    - ``close`` returns everything that is left.

    The sum of ``count`` over all events returned for a fault is the number of its lines. Problems are told
    at once and then, counted, at most once a minute per reason and node.
    """

    def __init__(self, context: ContextSource) -> None:
        self._context = context
        self._interpreter = Interpreter()
        self._coalescer = Coalescer()
        self._told: dict[ProblemKey, float] = {}
        self._untold: dict[ProblemKey, Problem] = {}

    def feed(self, line: bytes) -> list[Event | Problem]:
        context = resolve(self._context)
        answer = self._pass_on(self._interpreter.feed(line, context), context.now)
        answer.extend(self._coalescer.take_pending(context.now))
        return answer

    def flush(self, now: float | None = None) -> list[Event | Problem]:
        """``now`` (epoch seconds) overrides the context's clock."""
        return self._flush(now, everything=False)

    def close(self) -> list[Event | Problem]:
        return self._flush(None, everything=True)

    def _flush(self, now: float | None, *, everything: bool) -> list[Event | Problem]:
        context = resolve(self._context)
        if now is not None:
            context = replace(context, now=now)
        answer = self._pass_on(self._interpreter.expire(context, everything=everything), context.now)
        answer.extend(self._coalescer.take_pending(context.now, everything=everything))
        for key in list(self._untold):
            if everything or self._problem_is_due(key, context.now):
                answer.append(self._untold.pop(key))
                self._told[key] = context.now
        return answer

    def _pass_on(self, results: list[Result], now: float) -> list[Event | Problem]:
        answer: list[Event | Problem] = []
        for result in results:
            if isinstance(result, Occurrence):
                group, is_new = self._coalescer.add(result, now)
                if is_new and group is not None and not self._interpreter.is_foreign(group.event):
                    answer.append(group.event)
                continue
            key = (result.reason, result.node)
            _count_problem(self._untold, result)
            if key in self._untold and self._problem_is_due(key, now):
                answer.append(self._untold.pop(key))
                self._told[key] = now
        return answer

    def _problem_is_due(self, key: ProblemKey, now: float) -> bool:
        told = self._told.get(key)
        if told is not None and 0 <= now - told < PROBLEM_INTERVAL_SECONDS:
            return False
        if len(self._told) > _MAX_PROBLEMS:
            self._told.clear()
        return True


__all__ = ["SOURCE", "KernelLogParser", "read_kernel_log", "read_kernel_log_file"]
