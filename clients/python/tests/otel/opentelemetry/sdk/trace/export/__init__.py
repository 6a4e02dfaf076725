"""Passes each span to an exporter."""

from __future__ import annotations

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class SimpleSpanProcessor:
    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self.exporter = exporter
