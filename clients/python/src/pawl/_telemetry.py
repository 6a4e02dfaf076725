"""The spans of producers and workers, as OpenTelemetry's messaging conventions name them, and the trace context that travels with tasks.

If opentelemetry-api is not installed it does nothing. docs/tracing.md has the rules.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pawl import _convert, errors
from pawl.v1 import task_pb2, worker_pb2

try:
    from opentelemetry import context as _context
    from opentelemetry import trace as _trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    _carry: Any = TraceContextTextMapPropagator()
except ImportError:
    _carry = None

_SCOPE = "pawl"
_MAX_HEADERS = 64  # the broker's limits: a task must not be refused for its trace
_MAX_HEADER_BYTES = 16 << 10
_MAX_LINKS = 128
_MAX_STATUS_TEXT = 1 << 10

Server = tuple[str, int]
"""Where a client's calls go, as spans say it: ("", 0) if it has several addresses."""


class Span:
    """One span. Without OpenTelemetry it does nothing."""

    def __init__(self, span: Any = None) -> None:
        self._span = span

    def answered(self, task_id: str, err: BaseException | None = None) -> None:
        """Ends the span of a task that was accepted, or refused."""
        if self._span is not None and task_id:
            self._span.set_attribute("messaging.message.id", task_id)
        self.end(err)

    def processed(self, outcome: str, err: BaseException | None) -> None:
        """Ends the span of a run. An error is given only if the run has failed."""
        if self._span is not None:
            self._span.set_attribute("pawl.task.outcome", outcome)
            if err is not None:
                with contextlib.suppress(Exception):  # the text of err may raise
                    self._span.record_exception(err)
        self.end(err)

    def end(self, err: BaseException | None = None) -> None:
        """Ends the span."""
        if self._span is None:
            return
        if err is not None:
            self._span.set_attribute("error.type", _error_type(err))
            text = ""
            with contextlib.suppress(Exception):
                text = _convert.cut(str(err), _MAX_STATUS_TEXT)
            self._span.set_status(_trace.Status(_trace.StatusCode.ERROR, text))
        self._span.end()

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Makes the span the current one of a block."""
        if self._span is None:
            yield
            return
        token = _context.attach(_trace.set_span_in_context(self._span))
        try:
            yield
        finally:
            _context.detach(token)

    def settled(self, verb: str, queue: str, server: Server, began: int) -> None:
        """Makes the span of how a run ended, as the broker was told at a time in nanoseconds, and has confirmed now."""
        if self._span is not None:
            parent = _trace.set_span_in_context(self._span, _context.Context())
            Span(_start(verb, "settle", "CLIENT", queue, server, {}, parent=parent, start_time=began)).end()

    def links(self) -> list[Any]:
        """A link to the span, if it has a trace."""
        if self._span is None or not self._span.get_span_context().is_valid:
            return []
        return [_trace.Link(self._span.get_span_context())]

    def inject(self, task: task_pb2.TaskSpec) -> None:
        """Puts the trace into the headers of a task. One that its producer gave stays as it is."""
        if self._span is None or "traceparent" in task.headers or "tracestate" in task.headers:
            return
        said: dict[str, str] = {}
        _carry.inject(said, context=_trace.set_span_in_context(self._span))
        every = [*task.headers.items(), *said.items()]
        size = sum(len(name.encode()) + len(value.encode("utf-8", "replace")) for name, value in every)
        if len(every) <= _MAX_HEADERS and size <= _MAX_HEADER_BYTES:
            task.headers.update(said)


def _start(
    operation: str,
    type: str,
    kind: str,
    queue: str,
    server: Server,
    more: Mapping[str, str | int],
    *,
    parent: Any = None,
    links: Sequence[Any] = (),
    start_time: int | None = None,
) -> Any:
    attributes: dict[str, str | int] = {
        "messaging.system": "pawl",
        "messaging.operation.name": operation,
        "messaging.operation.type": type,
    }
    host, port = server
    attributes.update({"messaging.destination.name": queue} if queue else {})
    attributes.update({"server.address": host} if host else {})
    attributes.update({"server.port": port} if port else {})
    attributes.update(more)
    return _trace.get_tracer(_SCOPE).start_span(
        f"{operation} {queue}".rstrip(),
        context=parent,
        kind=_trace.SpanKind[kind],
        attributes=attributes,
        links=links,
        start_time=start_time,
    )


def _queue(task: task_pb2.TaskSpec) -> str:
    return task.queue or "default"


def _about(task: task_pb2.TaskSpec | worker_pb2.ClaimedTask) -> dict[str, str | int]:
    return {"pawl.task.type": task.type, "messaging.message.body.size": len(task.payload)}


def sending(task: task_pb2.TaskSpec, server: Server) -> Span:
    """Begins the span of one task, and puts it into the task's headers."""
    if _carry is None:
        return Span()
    origin = Span(_trace.get_current_span(_origin(task.headers)))
    out = Span(_start("send", "send", "PRODUCER", _queue(task), server, _about(task), links=origin.links()))
    out.inject(task)
    return out


class Batch:
    """The spans of tasks that go together: one for each, and one that links to them. They begin at once, and each is in the headers of
    its task."""

    def __init__(self, tasks: Sequence[task_pb2.TaskSpec], server: Server) -> None:
        self._spans: list[Span] = []
        self._all = Span()
        if _carry is None:
            return
        self._spans = [Span(_start("create", "create", "PRODUCER", _queue(task), server, _about(task))) for task in tasks]
        for task, span in zip(tasks, self._spans):
            span.inject(task)
        queues = {_queue(task) for task in tasks}
        links = [link for span in self._spans[:_MAX_LINKS] for link in span.links()]
        count = {"messaging.batch.message_count": len(tasks)}
        self._all = Span(_start("send", "send", "CLIENT", queues.pop() if len(queues) == 1 else "", server, count, links=links))

    def answered(self, answers: Sequence[Any]) -> None:
        """Ends the spans with what became of each task: something that has its id, or an exception."""
        for span, answer in zip(self._spans, answers):
            err = answer if isinstance(answer, BaseException) else None
            span.answered(getattr(answer, "id", ""), err)
        self._all.end()

    def failed(self, err: BaseException) -> None:
        """Ends the spans of a batch that was refused as a whole."""
        for span in (*self._spans, self._all):
            span.end(err)


def processing(task: worker_pb2.ClaimedTask, worker: str, server: Server) -> Span:
    """Begins the span of a run: in the trace that its task brings."""
    if _carry is None:
        return Span()
    more: dict[str, str | int] = {**_about(task), "pawl.task.attempt": task.attempt, "messaging.message.id": task.task_id, "messaging.client.id": worker}
    return Span(_start("process", "process", "CONSUMER", task.queue, server, more, parent=_origin(task.headers)))


def _origin(headers: Mapping[str, str]) -> Any:
    """The context with the trace of a task's headers, and nothing else."""
    return _carry.extract(dict(headers), context=_context.Context())


def _error_type(err: BaseException) -> str:
    if isinstance(err, errors.PawlError):
        return err.code
    cls = type(err)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
