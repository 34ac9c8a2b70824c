"""The only way this project talks to Slurm: its commands, as argument lists, in a clean environment.

Two lanes with a token bucket each: ``read`` for the regular look (the man pages ask for few calls; root and
SlurmUser are exempt from slurmctld's own limiter, so the limit must be ours) and ``act`` for writes and the
reads that belong to one. Nothing is retried here: the caller looks again in its next cycle.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from collector import process
from collector.ratelimit import TokenBucket
from collector.slurm.answers import Answer, AnswerKind, classify
from collector.slurm.reader import MAX_INPUT_BYTES
from fleet.clock import Clock
from fleet.errors import ForbiddenError, NotFoundError, RefusedError, UnavailableError

_LOG = logging.getLogger(__name__)
# These change what the commands print, or whom they ask. SLURM_CONF and the like come from the configuration.
_FOREIGN_PREFIXES = ("SLURM_", "SLURMCTLD_", "SBATCH_", "SQUEUE_", "SINFO_", "SCONTROL_", "SACCT_", "SALLOC_")
_FIXED = {"LC_ALL": "C.UTF-8", "LANG": "C.UTF-8", "TZ": "UTC"}
_NEVER = frozenset({"SLURM_TIME_FORMAT", "LC_TIME", "LANGUAGE"})
_VERSION = re.compile(rb"(\d+)\.(\d+)(?:\.\d+)?")
_ERRORS = {
    AnswerKind.FORBIDDEN: ForbiddenError,
    AnswerKind.NOT_FOUND: NotFoundError,
    AnswerKind.REFUSED: RefusedError,
    AnswerKind.UNAVAILABLE: UnavailableError,
}
_SHOWN_ARGUMENTS = 300


class Runner(Protocol):
    """Starts a program (collector.process.run)."""

    def __call__(
        self, argv: Sequence[str], *, env: Mapping[str, str], timeout_seconds: float
    ) -> process.Completed: ...


def _run_bounded(argv: Sequence[str], *, env: Mapping[str, str], timeout_seconds: float) -> process.Completed:
    """``process.run`` with room for all jobs of a large cluster."""
    return process.run(argv, env=env, timeout_seconds=timeout_seconds, max_output_bytes=MAX_INPUT_BYTES)


def clean_environment(base: Mapping[str, str], configured: Mapping[str, str]) -> dict[str, str]:
    """``base`` without anything that steers Slurm's tools, plus what the configuration sets."""
    env = {
        name: value
        for name, value in base.items()
        if not name.startswith(_FOREIGN_PREFIXES) and name not in _NEVER and not name.startswith("LC_")
    }
    env.update({name: value for name, value in configured.items() if name not in _NEVER})
    env.update(_FIXED)
    return env


class SlurmClient:
    """Runs Slurm's commands. Safe to share between threads.

    ``env`` is what the configuration sets for the commands (SLURM_CONF); ``base_env`` is what they inherit
    otherwise. ``timeout_seconds`` is the deadline of one command; waiting for a token may take as long again.
    ``action_timeout_seconds`` is a write's deadline, where it must be shorter. ``may_act`` is asked right
    before each write, with that deadline, and raises if it must not be begun.
    """

    def __init__(
        self,
        *,
        env: Mapping[str, str],
        clock: Clock,
        timeout_seconds: float = 10.0,
        action_timeout_seconds: float | None = None,
        read_rpc_per_second: float = 2.0,
        action_rpc_per_second: float = 20.0,
        base_env: Mapping[str, str] | None = None,
        runner: Runner = _run_bounded,
        may_act: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._env = clean_environment(os.environ if base_env is None else base_env, env)
        self._timeout = timeout_seconds
        self._action_timeout = timeout_seconds if action_timeout_seconds is None else action_timeout_seconds
        self._clock = clock
        self._runner = runner
        self._may_act = may_act
        self._reads = TokenBucket(rate=read_rpc_per_second, clock=clock)
        self._actions = TokenBucket(rate=action_rpc_per_second, clock=clock)
        self._version: tuple[int, int] | None = None

    @property
    def timeout_seconds(self) -> float:
        return self._timeout

    def read(self, argv: Sequence[str]) -> bytes:
        """The whole standard output of a successful read.

        Raises UnavailableError, ForbiddenError, NotFoundError, RefusedError or RateLimitedError.
        """
        self._reads.acquire(self._timeout)
        return self._expect_data(argv)

    def read_back(self, argv: Sequence[str]) -> bytes:
        """``read`` in the lane of actions: the read before a write and the one after it."""
        self._actions.acquire(self._timeout)
        return self._expect_data(argv)

    def act(self, argv: Sequence[str]) -> Answer:
        """One write. The answer's kind is OK or VERIFY; either way only reading back proves the effect.

        Raises like ``read``; UnavailableError here means that the outcome is unknown.
        """
        self._actions.acquire(self._timeout)
        self._may_act(self._action_timeout)
        answer = self._run(argv, self._action_timeout)
        if answer.kind in (AnswerKind.OK, AnswerKind.VERIFY):
            return answer
        raise _ERRORS[answer.kind](f"{_what(argv)}: {answer.text}")

    def version(self) -> tuple[int, int]:
        """(major, minor) of the commands, such as (22, 5). Asked once; needs no controller."""
        if self._version is None:
            match = _VERSION.search(self._expect_data(["scontrol", "--version"]))
            if match is None:
                raise UnavailableError("scontrol --version does not say a version; is it Slurm's scontrol?")
            self._version = (int(match[1]), int(match[2]))
        return self._version

    def _expect_data(self, argv: Sequence[str]) -> bytes:
        answer = self._run(argv, self._timeout, well=logging.DEBUG)
        if answer.kind is AnswerKind.OK:
            return answer.stdout
        error = _ERRORS.get(answer.kind, UnavailableError)
        raise error(f"{_what(argv)}: {answer.text}")

    def _run(self, argv: Sequence[str], timeout_seconds: float, *, well: int = logging.INFO) -> Answer:
        """``well``: how loud to tell of a call that succeeded; polling, all day, is nothing to tell."""
        started = self._clock.monotonic()
        kind = "failed"
        try:
            done = self._runner(argv, env=self._env, timeout_seconds=timeout_seconds)
            answer = classify(done.rc, done.stdout, done.stderr)
            kind = answer.kind.value
            return answer
        finally:
            took = self._clock.monotonic() - started
            level = well if kind == AnswerKind.OK.value else logging.INFO
            what = shlex.join(argv)[:_SHOWN_ARGUMENTS]
            _LOG.log(level, "slurm: %s -> %s in %.3f s", what, kind, took)


def _what(argv: Sequence[str]) -> str:
    return " ".join(argv[:3])[:80]
