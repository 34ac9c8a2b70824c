"""Small tools for tests that start real servers: ports, waiting, ending what was started."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

# Below Linux's default ephemeral range (32768-60999): an outgoing connection cannot take a port
# between our check and the server's bind.
_PORTS = range(20000, 32000)


def free_ports(count: int) -> list[int]:
    """``count`` TCP ports that can be bound on the loopback address now."""
    ports: list[int] = []
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        with socket.socket() as candidate:
            try:
                candidate.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise RuntimeError(f"could not find {count} free ports in {_PORTS.start}-{_PORTS.stop}")


def wait_until(condition: Callable[[], T], *, timeout: float, what: str, interval: float = 0.03) -> T:
    """Poll until ``condition()`` is truthy and return it; TimeoutError names ``what`` was awaited."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout:g} s for {what}")
        time.sleep(interval)


def processes_with_environment(variable: str, value: str) -> list[int]:
    """Ids of living processes (not zombies, not this one) that were started with ``variable=value``."""
    wanted = f"{variable}={value}".encode()
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except (OSError, IndexError):
            continue  # it ended, or belongs to somebody else
        if wanted in environment and state != "Z":
            found.append(int(entry.name))
    return found


def end_processes_with_environment(variable: str, value: str, *, rounds: int = 60) -> None:
    """SIGKILL, by id, every process that carries ``variable=value``, until none is left."""
    for _ in range(rounds):
        left = processes_with_environment(variable, value)
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    raise RuntimeError(f"processes with {variable}={value} would not end: {left}")
