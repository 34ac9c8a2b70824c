"""``python -m collector.nvml.child DEADLINE``: ask the library, print the snapshot, be gone in time.

DEADLINE is a time of the monotonic clock, which all processes of a machine share.

Only this process ever calls into NVML. A call that hangs is left where it is: a second thread says which
one it was and ends the process (the library's calls release the interpreter's lock). Should even that
fail, because the kernel holds the process, the reader's own deadline stands behind.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from collector.nvidia_smi.live import bound_gpus
from collector.nvml.library import Nvml, load_library
from collector.nvml.snapshot import Line, Snapshot

# What a stuck child is found by (``collector.nvidia_smi.stuck``); the kernel keeps 15 characters.
NAME = "sickbay-nvml"


class _Output:
    """Whole lines only, from two threads, until one of them has the last word."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def write(self, line: Line) -> None:
        with self._lock:
            self._put(line)

    def last(self, line: Line) -> None:
        """Write ``line`` and keep the lock: nothing follows."""
        self._lock.acquire()
        self._put(line)

    def _put(self, line: Line) -> None:
        data = f"{json.dumps(line)}\n".encode()
        while data:
            data = data[os.write(self._descriptor, data) :]


def ask(
    seconds: float,
    *,
    library: Nvml | None,
    descriptor: int,
    bound: Callable[[], tuple[str, ...]] = bound_gpus,
    leave: Callable[[int], object] = os._exit,
) -> None:
    """Print the snapshot of ``library`` (None: the binding is not installed) within ``seconds``."""
    output = _Output(descriptor)
    if library is None:
        output.write({"missing": "pynvml"})
        return
    snapshot = Snapshot(library, output.write, bound=bound())

    def give_up() -> None:
        output.last({"timeout": seconds, "call": snapshot.doing, **snapshot.at})
        leave(0)

    watchdog = threading.Timer(seconds, give_up)
    watchdog.daemon = True
    watchdog.start()
    snapshot.take()
    watchdog.cancel()


def _name_process() -> None:
    try:
        Path("/proc/self/comm").write_text(NAME, encoding="ascii")
    except OSError:
        return


def main(argv: list[str]) -> int:
    _name_process()
    library = load_library()
    left = max(0.0, float(argv[1]) - time.monotonic())
    ask(left, library=library, descriptor=sys.stdout.fileno())
    # Unloading the library may hang as any call may: nothing of ours is left to do.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv)
