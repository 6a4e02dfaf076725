"""Metrics: each instrument counts its measurements and keeps their sum, by attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class Instrument:
    def __init__(self, name: str, unit: str) -> None:
        self.name, self.unit = name, unit
        self.points: dict[tuple[tuple[str, Any], ...], list[float]] = {}

    def record(self, amount: float, attributes: Mapping[str, Any] | None = None) -> None:
        self.points.setdefault(tuple(sorted((attributes or {}).items())), []).append(amount)

    add = record


class Meter:
    def __init__(self) -> None:
        self.instruments: list[Instrument] = []

    def create_counter(self, name: str, unit: str = "", description: str = "") -> Instrument:
        self.instruments.append(Instrument(name, unit))
        return self.instruments[-1]

    def create_histogram(
        self, name: str, unit: str = "", description: str = "", *, explicit_bucket_boundaries_advisory: Sequence[float] | None = None
    ) -> Instrument:
        return self.create_counter(name, unit, description)


meter = Meter()


def get_meter(name: str) -> Meter:
    return meter


def set_meter_provider(provider: Any) -> None: ...
