"""Stopping the controller: a signal that another thread took, or that came at a bad moment, still ends it."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time

from sickbay import cli_serve


def test_a_signal_given_to_another_thread_is_noticed() -> None:
    stopping: queue.SimpleQueue[int] = queue.SimpleQueue()
    before = signal.signal(signal.SIGUSR1, lambda number, _: stopping.put(number))
    started = time.monotonic()

    def tell_another_thread() -> None:
        # This thread takes the signal; only the main thread may run its handler.
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    timer = threading.Timer(0.1, tell_another_thread)
    timer.start()
    try:
        assert cli_serve.wait_for_signal(stopping) == signal.SIGUSR1
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert time.monotonic() - started < 5


def test_many_signals_at_any_moment_never_lock_up() -> None:
    stopping: queue.SimpleQueue[int] = queue.SimpleQueue()
    before = signal.signal(signal.SIGUSR1, lambda number, _: stopping.put(number))
    try:
        for _ in range(300):
            threading.Timer(0.0, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            assert cli_serve.wait_for_signal(stopping) == signal.SIGUSR1
    finally:
        signal.signal(signal.SIGUSR1, before)
