"""Waits for conditions."""

from __future__ import annotations

import time
from typing import Any, Callable


def eventually(holds: Callable[[], Any], limit: float = 60.0) -> None:
    """Waits until a condition holds."""
    deadline = time.monotonic() + limit
    while not holds():
        assert time.monotonic() < deadline, "it does not come about"
        time.sleep(0.01)
