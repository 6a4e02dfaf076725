"""A provider of meters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class MeterProvider:
    def __init__(self, metric_readers: Sequence[Any] = ()) -> None: ...
