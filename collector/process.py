"""Start a program from an argument list and come back in time, whatever the program does.

The child leads its own process group, which is killed as a whole at the deadline; nothing waits for a
pipe to close, because a grandchild may hold it open for ever (a wedged ``nvidia-smi`` does).
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from fleet.errors import UnavailableError

MAX_OUTPUT_BYTES = 32 * 1024 * 1024
# What a killed process gets to be reaped; an uninterruptible one (D state) is left to the kernel.
_REAP_SECONDS = 1.0
# After the program itself has ended, what is left in its pipes is read for this long at most.
_DRAIN_SECONDS = 0.5
_POLL_SECONDS = 0.05
# A program that closed its pipes and lives on is looked at this often.
_CLOSED_PIPES_POLL_SECONDS = 0.01


class ToolMissingError(UnavailableError):
    """The program is not installed, or may not be executed."""


class TimedOutError(UnavailableError):
    """The program did not end in time and was killed: its outcome is unknown."""


class OutputTooLargeError(UnavailableError):
    """The program printed more than is sane to keep; it was killed and its output dropped."""


@dataclass(frozen=True, slots=True)
class Completed:
    """How a program ended. ``rc`` is negative (minus the signal number) when a signal ended it."""

    argv: tuple[str, ...]
    rc: int
    stdout: bytes
    stderr: bytes
    duration: float


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    timeout_seconds: float,
    max_output_bytes: int = MAX_OUTPUT_BYTES,
) -> Completed:
    """Run ``argv`` with exactly ``env`` and no standard input.

    Raises ToolMissingError, TimedOutError (after ``timeout_seconds`` plus at most a second) and
    OutputTooLargeError. Uses the machine's monotonic clock: a real program ends in real time only.
    """
    started = time.monotonic()
    deadline = started + timeout_seconds
    process = _start(argv, env)
    try:
        with _Collector(process, max_output_bytes) as collector:
            ended = collector.collect(deadline)
        if collector.overflow:
            raise OutputTooLargeError(f"{argv[0]} printed more than {max_output_bytes} bytes; output dropped")
        if not ended:
            raise TimedOutError(f"{argv[0]} did not end within {timeout_seconds:g} s and was killed")
    finally:
        rc = _end_group(process)
    return Completed(
        tuple(argv), rc, bytes(collector.stdout), bytes(collector.stderr), time.monotonic() - started
    )


def _start(argv: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # ended and reaped in run(), on every path
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise ToolMissingError(f"{argv[0]} is not installed (not found on PATH)") from error
    except PermissionError as error:
        raise ToolMissingError(f"{argv[0]} may not be executed: {error.strerror}") from error
    except OSError as error:
        raise UnavailableError(f"{argv[0]} could not be started: {error.strerror}") from error


class _Collector:
    """Reads both pipes without ever blocking on them."""

    def __init__(self, process: subprocess.Popen[bytes], limit: int) -> None:
        self._process = process
        self._limit = limit
        self._selector = selectors.DefaultSelector()
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.overflow = False

    def __enter__(self) -> _Collector:
        for pipe, buffer in ((self._process.stdout, self.stdout), (self._process.stderr, self.stderr)):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self._selector.register(pipe, selectors.EVENT_READ, buffer)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._selector.close()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def collect(self, deadline: float) -> bool:
        """True once the program itself has ended and its pipes are read; False at the deadline."""
        while not self.overflow:
            if _has_ended(self._process):
                self._drain(min(deadline, time.monotonic() + _DRAIN_SECONDS))
                return not self.overflow
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._read_ready(min(left, _POLL_SECONDS))
        return False

    def _drain(self, deadline: float) -> None:
        """A child that outlives the program may hold the pipe: what is there now is what it printed."""
        while self._selector.get_map() and not self.overflow and time.monotonic() < deadline:
            if not self._read_ready(_POLL_SECONDS):
                return

    def _read_ready(self, timeout: float) -> bool:
        if not self._selector.get_map():
            time.sleep(min(timeout, _CLOSED_PIPES_POLL_SECONDS))
            return False
        ready = self._selector.select(timeout)
        for key, _events in ready:
            pipe: IO[bytes] = key.fileobj  # type: ignore[assignment]  # registered above, always a pipe
            try:
                chunk = os.read(pipe.fileno(), 65536)
            except BlockingIOError:
                continue
            if not chunk:
                self._selector.unregister(pipe)
                continue
            key.data.extend(chunk)
            if len(self.stdout) + len(self.stderr) > self._limit:
                self.overflow = True
        return bool(ready)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """True once the program has ended. It is not reaped yet, so its group id cannot be given away."""
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _end_group(process: subprocess.Popen[bytes]) -> int:
    """End whatever is left of the program's group, then reap the program. Its exit status."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        return process.wait(_REAP_SECONDS)
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL
