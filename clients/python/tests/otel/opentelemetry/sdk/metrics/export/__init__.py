"""Reads all measurements."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from opentelemetry.metrics import meter


class InMemoryMetricReader:
    def get_metrics_data(self) -> Any:
        metrics = [
            SimpleNamespace(
                name=each.name,
                unit=each.unit,
                data=SimpleNamespace(
                    data_points=[SimpleNamespace(attributes=dict(key), count=len(told), sum=sum(told), value=sum(told)) for key, told in each.points.items()]
                ),
            )
            for each in meter.instruments
        ]
        return SimpleNamespace(resource_metrics=[SimpleNamespace(scope_metrics=[SimpleNamespace(metrics=metrics)])])
