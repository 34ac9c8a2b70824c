"""Calls into the driver that were killed and cannot die: the kernel holds them (state D).

Starting another one beside such a process only makes two. It is found by what /proc says, not by memory
of ours, so that it holds across restarts and for calls that somebody else made.
"""

from __future__ import annotations

import re
from pathlib import Path

PROC = Path("/proc")
_MAX_NAME = 15  # the kernel's TASK_COMM_LEN, less its NUL
_SIGKILL = 1 << 8
_PENDING = re.compile(r"^(?:SigPnd|ShdPnd):\s*([0-9a-fA-F]+)$", re.MULTILINE)
_STATE = re.compile(r"^State:\s*(\S)", re.MULTILINE)


def unkillable(name: str, proc: Path = PROC) -> tuple[int, ...]:
    """Process ids, in order, of programs called ``name`` that SIGKILL was sent to and that still wait.

    proc(5): a signal that was sent and not yet acted on stands in SigPnd or ShdPnd. None when /proc
    cannot be read.
    """
    try:
        folders = [entry for entry in proc.iterdir() if entry.name.isdecimal()]
    except OSError:
        return ()
    return tuple(sorted(int(folder.name) for folder in folders if _is_stuck(folder, name)))


def _is_stuck(folder: Path, name: str) -> bool:
    try:
        if (folder / "comm").read_text(errors="replace").strip() != name[:_MAX_NAME]:
            return False
        status = (folder / "status").read_text(errors="replace")
    except OSError:
        return False  # it has ended meanwhile
    state = _STATE.search(status)
    pending = any(int(mask, 16) & _SIGKILL for mask in _PENDING.findall(status))
    return state is not None and state[1] == "D" and pending
