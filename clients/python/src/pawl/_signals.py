"""How the main thread waits for what a signal handler reports."""

from __future__ import annotations

import contextlib
import queue
from typing import TypeVar

T = TypeVar("T")

_STEP = 0.5  # seconds


def get(q: queue.SimpleQueue[T]) -> T:
    """Waits for an item that a signal handler may put. Python runs the handler only when the main thread does something, and a
    signal that comes just before the main thread waits does not wake it."""
    while True:
        with contextlib.suppress(queue.Empty):
            return q.get(timeout=_STEP)
