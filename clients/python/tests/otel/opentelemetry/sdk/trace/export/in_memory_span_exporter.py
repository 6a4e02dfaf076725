"""Keeps spans in memory."""

from __future__ import annotations

from opentelemetry.trace import Span


class InMemorySpanExporter:
    def __init__(self) -> None:
        self.ended: list[Span] = []

    def get_finished_spans(self) -> tuple[Span, ...]:
        return tuple(self.ended)
