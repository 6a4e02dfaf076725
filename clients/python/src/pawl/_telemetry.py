"""The spans and metrics of producers and workers, according to OpenTelemetry's messaging conventions, and the trace context that travels with tasks.

If opentelemetry-api is not installed, it does nothing. What the program has plugged into it may raise: no call and no worker fails for
that. See docs/tracing.md.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, ParamSpec, TypeVar, Union

from pawl import _convert, errors
from pawl._limits import MAX_HEADERS, MAX_HEADER_BYTES
from pawl.v1 import task_pb2, worker_pb2

try:
    from opentelemetry import context as _context
    from opentelemetry import metrics as _metrics
    from opentelemetry import trace as _trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    _carry: Any = TraceContextTextMapPropagator()
except ImportError:
    _carry = None

_SCOPE = "pawl"
_MAX_LINKS = 128
_MAX_STATUS_TEXT = 1 << 10
_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]  # seconds, from the conventions

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("pawl.telemetry")


def _or(fallback: Callable[[], T]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Makes a function return a fallback if it raises."""

    def decorate(fn: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(fn)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return fn(*args, **kwargs)
            except Exception as err:
                with contextlib.suppress(Exception):
                    log.warning("a span or metric was lost: %s", type(err).__name__, exc_info=err)
                return fallback()

        return guarded

    return decorate


def _nothing() -> None: ...


Labels = dict[str, Union[str, int]]

Server = tuple[str, int]
"""Where a client's calls go, for spans; ("", 0) if it has several addresses."""


class _Instruments:
    """The metrics of clients. They go to the program's meter provider, even if that is set later."""

    def __init__(self) -> None:
        meter = _metrics.get_meter(_SCOPE)
        self.operations = self._histogram(meter, "messaging.client.operation.duration", "How long an operation of a client took.")
        self.runs = self._histogram(meter, "messaging.process.duration", "How long a handler ran.")
        self.sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Tasks that a producer tried to enqueue.")
        self.consumed = meter.create_counter("messaging.client.consumed.messages", "{message}", "Tasks that a worker began.")

    def _histogram(self, meter: Any, name: str, description: str) -> Any:
        try:
            return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=_BUCKETS)
        except TypeError:  # an API before 1.30
            return meter.create_histogram(name, "s", description)


_instruments = functools.cache(_Instruments)


class Span:
    """A span and its measurements. Without OpenTelemetry, it does nothing."""

    def __init__(self, span: Any = None, labels: Labels | None = None, sends: int = 0) -> None:
        self._span = span
        self._labels = labels  # None: nothing is measured
        self._sends = sends  # tasks
        self._began = time.perf_counter()

    @_or(_nothing)
    def answered(self, task_id: str, err: BaseException | None = None) -> None:
        """Ends the span of a task that was accepted or refused."""
        if self._span is not None and task_id:
            self._span.set_attribute("messaging.message.id", task_id)
        self.end(err)

    @_or(_nothing)
    def processed(self, outcome: str, err: BaseException | None) -> None:
        """Ends the span of a run. err is given only if the run failed."""
        if self._span is not None:
            self._span.set_attribute("pawl.task.outcome", outcome)
            if err is not None:
                with contextlib.suppress(BaseException):  # the text of err may raise
                    self._span.record_exception(err)
        self._end_span(err)
        if self._labels is not None:
            _instruments().runs.record(time.perf_counter() - self._began, self._with_error(err))

    @_or(_nothing)
    def end(self, err: BaseException | None = None) -> None:
        """Ends the span, and records its duration as a client operation."""
        self._end_span(err)
        if self._labels is None:
            return
        labels = self._with_error(err)
        _instruments().operations.record(time.perf_counter() - self._began, labels)
        if self._sends:
            _instruments().sent.add(self._sends, labels)

    def _with_error(self, err: BaseException | None) -> Labels:
        return {**(self._labels or {}), **({"error.type": _error_type(err)} if err is not None else {})}

    def _end_span(self, err: BaseException | None) -> None:
        if self._span is None:
            return
        if err is not None:
            self._span.set_attribute("error.type", _error_type(err))
            text = ""
            with contextlib.suppress(BaseException):
                text = _convert.cut(str(err), _MAX_STATUS_TEXT)
            self._span.set_status(_trace.Status(_trace.StatusCode.ERROR, text))
        self._span.end()

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Makes the span current within a block."""
        token = self._attach()
        try:
            yield
        finally:
            if token is not None:
                _detach(token)

    @_or(_nothing)
    def _attach(self) -> Any:
        return None if self._span is None else _context.attach(_trace.set_span_in_context(self._span))

    @_or(_nothing)
    def settled(self, verb: str, queue: str, server: Server, began: int) -> None:
        """Creates the span of settling a run: it was sent to the broker at began, in nanoseconds, and is confirmed now."""
        if self._span is not None:
            parent = _trace.set_span_in_context(self._span, _context.Context())
            settling = _begin(verb, "settle", "CLIENT", queue, server, {}, parent=parent, start_time=began)
            settling._began -= (time.time_ns() - began) / 1e9
            settling.end()

    @_or(list)
    def links(self) -> list[Any]:
        """Returns a link to the span, if it has a trace."""
        if self._span is None or not self._span.get_span_context().is_valid:
            return []
        return [_trace.Link(self._span.get_span_context())]

    @_or(_nothing)
    def inject(self, task: task_pb2.TaskSpec) -> None:
        """Puts the trace into the headers of a task, unless the producer has set one."""
        if self._span is None or "traceparent" in task.headers or "tracestate" in task.headers:
            return
        said: dict[str, str] = {}
        _carry.inject(said, context=_trace.set_span_in_context(self._span))
        every = [*task.headers.items(), *said.items()]
        size = sum(len(name.encode()) + len(value.encode("utf-8", "replace")) for name, value in every)
        if len(every) <= MAX_HEADERS and size <= MAX_HEADER_BYTES:
            task.headers.update(said)


@_or(_nothing)
def _detach(token: Any) -> None:
    _context.detach(token)


def _begin(
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
    sends: int = 0,
    measured: bool = True,
) -> Span:
    labels: Labels = {
        "messaging.system": "pawl",
        "messaging.operation.name": operation,
        "messaging.operation.type": type,
    }
    host, port = server
    labels.update({"messaging.destination.name": queue} if queue else {})
    labels.update({"server.address": host} if host else {})
    labels.update({"server.port": port} if port else {})
    span = _trace.get_tracer(_SCOPE).start_span(
        f"{operation} {queue}".rstrip(),
        context=parent,
        kind=_trace.SpanKind[kind],
        attributes={**labels, **more},
        links=links,
        start_time=start_time,
    )
    return Span(span, labels if measured else None, sends)


def _queue(task: task_pb2.TaskSpec) -> str:
    return task.queue or "default"


def _about(task: task_pb2.TaskSpec | worker_pb2.ClaimedTask) -> dict[str, str | int]:
    return {"pawl.task.type": task.type, "messaging.message.body.size": len(task.payload)}


@_or(Span)
def sending(task: task_pb2.TaskSpec, server: Server) -> Span:
    """Starts the span of one task, and puts it into the task's headers."""
    if _carry is None:
        return Span()
    origin = Span(_trace.get_current_span(_origin(task.headers)))
    out = _begin("send", "send", "PRODUCER", _queue(task), server, _about(task), links=origin.links(), sends=1)
    out.inject(task)
    return out


class Batch:
    """The spans of tasks that are sent together: one for each, and one that links to them. They start at the same time, and each is in
    the headers of its task."""

    def __init__(self, tasks: Sequence[task_pb2.TaskSpec], server: Server) -> None:
        self._spans: list[Span] = []
        self._all = Span()
        if _carry is not None:
            self._start(tasks, server)

    @_or(_nothing)
    def _start(self, tasks: Sequence[task_pb2.TaskSpec], server: Server) -> None:
        self._spans = [_begin("create", "create", "PRODUCER", _queue(task), server, _about(task), measured=False) for task in tasks]
        for task, span in zip(tasks, self._spans):
            span.inject(task)
        queues = {_queue(task) for task in tasks}
        links = [link for span in self._spans[:_MAX_LINKS] for link in span.links()]
        count = {"messaging.batch.message_count": len(tasks)}
        queue = queues.pop() if len(queues) == 1 else ""
        self._all = _begin("send", "send", "CLIENT", queue, server, count, links=links, sends=len(tasks))

    def answered(self, answers: Sequence[Any]) -> None:
        """Ends the spans with the result for each task: an object with its id, or an exception."""
        for span, answer in zip(self._spans, answers):
            err = answer if isinstance(answer, BaseException) else None
            span.answered(getattr(answer, "id", ""), err)
        self._all.end()

    def failed(self, err: BaseException) -> None:
        """Ends the spans of a batch that was refused as a whole."""
        for span in (*self._spans, self._all):
            span.end(err)


@_or(Span)
def processing(task: worker_pb2.ClaimedTask, worker: str, server: Server) -> Span:
    """Starts the span of a run, in the trace of its task."""
    if _carry is None:
        return Span()
    more: dict[str, str | int] = {**_about(task), "pawl.task.attempt": task.attempt, "messaging.message.id": task.task_id, "messaging.client.id": worker}
    span = _begin("process", "process", "CONSUMER", task.queue, server, more, parent=_origin(task.headers))
    _instruments().consumed.add(1, span._labels)
    return span


def _origin(headers: Mapping[str, str]) -> Any:
    """Returns a context with only the trace from a task's headers."""
    return _carry.extract(dict(headers), context=_context.Context())


def _error_type(err: BaseException) -> str:
    if isinstance(err, errors.PawlError):
        return err.code
    cls = type(err)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
