"""Spans."""

from __future__ import annotations

import enum
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.context import Context, get_current


class SpanKind(enum.Enum):
    INTERNAL = 0
    SERVER = 1
    CLIENT = 2
    PRODUCER = 3
    CONSUMER = 4


class StatusCode(enum.Enum):
    UNSET = 0
    OK = 1
    ERROR = 2


class Status:
    def __init__(self, status_code: StatusCode = StatusCode.UNSET, description: str | None = None) -> None:
        self.status_code = status_code
        self.description = description


@dataclass(frozen=True)
class SpanContext:
    trace_id: int
    span_id: int
    is_remote: bool
    trace_flags: int = 1
    trace_state: str = ""

    @property
    def is_valid(self) -> bool:
        return self.trace_id != 0 and self.span_id != 0


class Link:
    def __init__(self, context: SpanContext, attributes: Mapping[str, Any] | None = None) -> None:
        self.context = context


class Span:
    """A span that the SDK made, or one that only carries a context."""

    def __init__(self, context: SpanContext, name: str = "", **more: Any) -> None:
        self.context, self.name, self.parent = context, name, more.get("parent")
        self.kind, self.links, self.attributes = more.get("kind"), more.get("links", ()), dict(more.get("attributes") or {})
        self.start_time, self.status = more.get("start_time"), Status()
        self.events: list[BaseException] = []
        self._ended: list[Span] | None = more.get("ended")

    def get_span_context(self) -> SpanContext:
        return self.context

    def set_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value

    def set_status(self, status: Status) -> None:
        self.status = status

    def record_exception(self, exception: BaseException) -> None:
        self.events.append(exception)

    def end(self) -> None:
        if self._ended is not None:
            self._ended.append(self)


_NOBODY = Span(SpanContext(0, 0, False))


def get_current_span(context: Context | None = None) -> Span:
    span: Span = (get_current() if context is None else context).get("span", _NOBODY)
    return span


def set_span_in_context(span: Span, context: Context | None = None) -> Context:
    return Context({**(get_current() if context is None else context), "span": span})


class Tracer:
    def __init__(self, ended: list[Span] | None) -> None:
        self._ended = ended

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, Any] | None = None,
        links: Sequence[Link] | None = None,
        start_time: int | None = None,
    ) -> Span:
        parent = get_current_span(context).get_span_context()
        if self._ended is None:
            return Span(parent)
        own = SpanContext(parent.trace_id or random.getrandbits(128), random.getrandbits(64), False)
        more = {"kind": kind, "links": tuple(links or ()), "attributes": attributes, "start_time": start_time, "ended": self._ended}
        return Span(own, name, parent=parent if parent.is_valid else None, **more)


_provider: Any = None


def set_tracer_provider(provider: Any) -> None:
    global _provider
    _provider = provider


def get_tracer(name: str) -> Tracer:
    return Tracer(_provider.ended if _provider is not None else None)
