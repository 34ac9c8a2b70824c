"""Ask the machine's own NVML, in a child process, and come back in time whatever the driver does."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import collector
from collector.nvidia_smi.stuck import unkillable
from collector.nvml.child import NAME
from collector.nvml.reader import SOURCE, read_nvml
from collector.process import Completed, OutputTooLargeError, TimedOutError, ToolMissingError, run
from fleet.errors import UnavailableError
from fleet.observations import Problem, ProblemReason, Reading

CHILD = ("-P", "-m", "collector.nvml.child")
_KEPT = ("PATH", "HOME", "LD_LIBRARY_PATH", "TZ", "NVIDIA_VISIBLE_DEVICES", "NVML_DLL_PATH")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The child gives up by itself this much earlier (share of the time-out, at most seconds): then what it
# has learned, and which call hung, is known.
_EARLIER_SHARE, _EARLIER_SECONDS = 0.2, 1.0

Run = Callable[[Sequence[str], Mapping[str, str], float], Completed]


def _run(argv: Sequence[str], env: Mapping[str, str], timeout_seconds: float) -> Completed:
    return run(argv, env=env, timeout_seconds=timeout_seconds)


def read_live(
    timeout_seconds: float,
    *,
    node: str | None,
    now: float,
    ask: Run = _run,
    stuck: Callable[[str], Sequence[int]] = unkillable,
    monotonic: Callable[[], float] = time.monotonic,
) -> Reading:
    """What NVML says now; all of it within ``timeout_seconds`` plus about a second.

    Never raises for what library or driver do: no binding or no library is ``tool_missing``; a call that
    hangs is ``timeout`` and costs the GPUs from there on; a child that ends badly is ``query_error``.
    One child at a time: while an earlier one was killed and cannot die, none is started.
    """
    held = stuck(NAME)
    if held:
        why = (
            f"an earlier call (process {held[0]}) was killed and cannot end; the driver does not answer, "
            "none is started beside it"
        )
        return _failed(ProblemReason.TIMEOUT, node, why)
    # The monotonic clock is one for all processes: the child's start counts too.
    own = monotonic() + timeout_seconds - min(timeout_seconds * _EARLIER_SHARE, _EARLIER_SECONDS)
    try:
        completed = ask((sys.executable, *CHILD, f"{own:.3f}"), _environment(), timeout_seconds)
    except TimedOutError:
        why = f"NVML did not answer within {timeout_seconds:g} s; the driver does not answer"
        return _failed(ProblemReason.TIMEOUT, node, why)
    except OutputTooLargeError as error:
        return _failed(ProblemReason.TOO_LARGE, node, str(error))
    except ToolMissingError as error:
        return _failed(ProblemReason.TOOL_MISSING, node, str(error))
    except UnavailableError as error:
        return _failed(ProblemReason.QUERY_ERROR, node, str(error))
    reading = read_nvml(completed.stdout, node=node, now=now)
    if completed.rc == 0:
        return reading
    how = f"was ended by signal {-completed.rc}" if completed.rc < 0 else f"ended with status {completed.rc}"
    last = completed.stderr.decode("utf-8", errors="replace").strip().splitlines()[-1:]
    why = f"the process that asks NVML {how}: {last[0][:200] if last else 'no word'}"
    problem = Problem(source=SOURCE, reason=ProblemReason.QUERY_ERROR, message=why, node=node)
    kept = reading.records if reading.samples else ()
    return Reading((*kept, problem), ok=reading.ok and bool(reading.samples))


def _failed(reason: ProblemReason, node: str | None, message: str) -> Reading:
    return Reading((Problem(source=SOURCE, reason=reason, message=message, node=node),), ok=False)


def _environment() -> Mapping[str, str]:
    """What interpreter and library need of ours. The child runs this very ``collector``, from anywhere."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    home = str(Path(next(iter(collector.__path__))).resolve().parent)
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {
        "PATH": _DEFAULT_PATH,
        **kept,
        "LC_ALL": "C",
        "PYTHONPATH": os.pathsep.join([*paths, home]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
