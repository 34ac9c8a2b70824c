"""Ask the machine's own nvidia-smi, and come back in time whatever it does."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from collector.nvidia_smi.reader import read_nvidia_smi
from collector.nvidia_smi.records import SOURCE
from collector.nvidia_smi.stuck import unkillable
from collector.process import Completed, OutputTooLargeError, TimedOutError, ToolMissingError, run
from fleet.errors import UnavailableError
from fleet.identity import normalise_pci, pci_join_key
from fleet.observations import Problem, ProblemReason, Reading, Sample

TOOL = "nvidia-smi"
QUERY = ("-q", "-x")
BOUND_GPUS = Path("/sys/bus/pci/drivers/nvidia")
_KEPT = ("PATH", "LD_LIBRARY_PATH", "TZ", "NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PCI_NAME = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
# One unreachable GPU makes the whole query fail; the others are then asked one by one, this many at most.
_MAX_SINGLE_QUERIES = 32

Run = Callable[[Sequence[str], float], Completed]


def bound_gpus(folder: Path = BOUND_GPUS) -> tuple[str, ...]:
    """PCI addresses of the devices the nvidia driver holds, from sysfs; none when it cannot be read."""
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return ()
    return tuple(name for name in names if _PCI_NAME.fullmatch(name))


def read_live(
    timeout_seconds: float,
    *,
    node: str | None,
    now: float,
    tool: str = TOOL,
    gpus: Callable[[], Sequence[str]] = bound_gpus,
    stuck: Callable[[str], Sequence[int]] = unkillable,
    monotonic: Callable[[], float] = time.monotonic,
) -> Reading:
    """What ``nvidia-smi -q -x`` says now; all of it within ``timeout_seconds`` plus about a second.

    Never raises for what the tool does: missing is ``tool_missing``; a hang, or an end by a signal, is
    ``timeout``, with no samples. When the answer names an unreachable GPU and shows none, the others
    (``gpus``: their PCI addresses) are asked one by one. One call is outstanding at a time: while an
    earlier one was killed and cannot die (``stuck``), none is started, and the reading is ``timeout``.
    """
    held = stuck(Path(tool).name)
    if held:
        return _failed(
            ProblemReason.TIMEOUT,
            node,
            f"an earlier {TOOL} (process {held[0]}) was killed and cannot end; the driver does not answer, "
            "none is started beside it",
        )
    deadline = monotonic() + timeout_seconds
    env = _environment()

    def ask(argv: Sequence[str], left: float) -> Completed:
        return run(argv, env=env, timeout_seconds=left)

    reading = _read(ask, (tool, *QUERY), timeout_seconds, node=node, now=now)
    lost = {pci_join_key(p.pci) for p in reading.problems if p.pci is not None}
    if not lost or any(isinstance(record, Sample) for record in reading.records):
        return reading
    return _ask_others(
        ask, tool, reading, lost=lost, gpus=gpus(), node=node, now=now, left=lambda: deadline - monotonic()
    )


def _ask_others(
    ask: Run,
    tool: str,
    reading: Reading,
    *,
    lost: set[str],
    gpus: Sequence[str],
    node: str | None,
    now: float,
    left: Callable[[], float],
) -> Reading:
    """The whole query's problems, and what each other GPU says. What time doesn't allow is a problem."""
    records = list(reading.records)
    ok = reading.ok
    others = [pci for pci in gpus if pci_join_key(normalise_pci(pci) or pci) not in lost]
    for done, pci in enumerate(others[:_MAX_SINGLE_QUERIES]):
        remaining = left()
        if remaining <= 0:
            records.append(
                _problem(
                    ProblemReason.TIMEOUT,
                    node,
                    f"no time left to ask {len(others) - done} more GPU(s) singly",
                )
            )
            break
        single = _read(ask, (tool, *QUERY, "-i", pci), remaining, node=node, now=now)
        records.extend(record for record in single.records if record not in records)
        ok |= single.ok
    return Reading(tuple(records), ok=ok)


def _read(ask: Run, argv: Sequence[str], timeout_seconds: float, *, node: str | None, now: float) -> Reading:
    try:
        completed = ask(argv, timeout_seconds)
    except ToolMissingError as error:
        return _failed(ProblemReason.TOOL_MISSING, node, str(error))
    except TimedOutError as error:
        return _failed(ProblemReason.TIMEOUT, node, f"{error}; the driver does not answer")
    except OutputTooLargeError as error:
        return _failed(ProblemReason.TOO_LARGE, node, str(error))
    except UnavailableError as error:
        return _failed(ProblemReason.QUERY_ERROR, node, str(error))
    if completed.rc < 0:
        return _failed(
            ProblemReason.TIMEOUT,
            node,
            f"{argv[0]} was ended by signal {-completed.rc}; its output is dropped",
        )
    output = completed.stdout if completed.stdout.strip() else completed.stderr
    return read_nvidia_smi(output, node=node, now=now, returncode=completed.rc, args=argv[1:], own_time=False)


def _failed(reason: ProblemReason, node: str | None, message: str) -> Reading:
    return Reading((_problem(reason, node, message),), ok=False)


def _problem(reason: ProblemReason, node: str | None, message: str) -> Problem:
    return Problem(source=SOURCE, reason=reason, message=message, node=node)


def _environment() -> Mapping[str, str]:
    """What the tool needs of ours; messages in English, since sentences decide."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {"PATH": _DEFAULT_PATH, **kept, "LC_ALL": "C"}
