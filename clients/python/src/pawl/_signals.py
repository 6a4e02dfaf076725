"""How a worker gets signals, and how the main thread waits for what a signal handler reports."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Callable, TypeVar

T = TypeVar("T")

_STEP = 0.5  # seconds


def get(q: queue.SimpleQueue[T]) -> T:
    """Waits for an item that a signal handler may put. Python runs the handler only when the main thread does something, and a
    signal that comes just before the main thread waits does not wake it."""
    while True:
        with contextlib.suppress(queue.Empty):
            return q.get(timeout=_STEP)


def stopper(stop: Callable[[], None], *signals: signal.Signals) -> Callable[[int, FrameType | None], None]:
    """Returns a handler for signals that calls stop. A second signal ends the process. Forked processes inherit the handler: SIGTERM
    ends them, since Process.terminate of multiprocessing sends it; SIGINT does not, since Ctrl-C reaches them while the worker drains."""
    pid = os.getpid()

    def on_signal(number: int, frame: FrameType | None) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_DFL)
        if os.getpid() == pid:
            stop()
        elif number == signal.SIGTERM:
            signal.raise_signal(number)

    return on_signal


@contextlib.contextmanager
def terminating(stop: Callable[[], None]) -> Iterator[None]:
    """Calls stop on SIGTERM within a block of the main thread, unless the program handles that signal itself."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    on_signal = stopper(stop, signal.SIGTERM)
    signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is on_signal:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
