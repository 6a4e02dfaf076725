"""A program whose spans test_tracing.py checks. It prints them as JSON, in the order in which they ended."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import pawl
from pawl import testing

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))

app = pawl.App()
queue = sys.argv[1]
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def await_span(name: str, n: int = 1) -> None:
    """Waits for the last span of a story."""
    end = time.monotonic() + 20
    while sum(span.name == name for span in exporter.get_finished_spans()) < n:
        if time.monotonic() > end:
            raise TimeoutError(f"no span {name!r} among {[span.name for span in exporter.get_finished_spans()]}")
        time.sleep(0.01)


def chain() -> None:
    """A request enqueues a task, whose handler enqueues another: one in a thread, one on an event loop."""

    @app.task("first", queue=queue)
    def first() -> str:
        return second.enqueue().id

    @app.task("second", queue=queue)
    async def second() -> None:
        await third.aenqueue()

    @app.task("third", queue=queue)
    def third() -> None: ...

    request = trace.get_tracer("test").start_span("request")
    from opentelemetry import context

    token = context.attach(trace.set_span_in_context(request))
    ref = first.enqueue()
    context.detach(token)
    request.end()
    with testing.working(app, queue, name="w-1"):
        await_span(f"ack {queue}", 3)
    print(json.dumps({"task": ref.id, "traceparent": ref.info().headers["traceparent"]}))


def foreign() -> None:
    """One task carries a trace, and one carries an invalid one."""
    app.handler("job")(lambda claim: None)
    for traceparent in (TRACEPARENT, "nonsense"):
        made = app.call("job", queue=queue, headers={"traceparent": traceparent}).enqueue()
        assert made.info().headers["traceparent"] == traceparent
    with testing.working(app, queue, concurrency=1):
        await_span(f"ack {queue}", 2)
    print("{}")


def batch() -> None:
    """Tasks in a batch, one of which is refused; and a group."""
    try:
        app.enqueue_many([app.call("job", {"n": 1}, queue=queue), app.call("job", {"n": 2}, queue=queue, cost=5000)])
    except pawl.BatchError as err:
        print(json.dumps({"tasks": [err.results[0].id]}))
    app.enqueue_group([app.call("job", {"n": 3}, queue=queue)])


def ends() -> None:
    """Runs that end in ways other than success."""
    class Undescribed(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    errors: list[Exception] = [Undescribed(), RuntimeError("too far"), pawl.Snooze(3600), pawl.Discard("nothing to do"), pawl.DeadLetter("no")]

    def handle(claim: pawl.Claim) -> None:
        raise errors[claim.decode_payload()]

    app.handler("job")(handle)
    for at in range(len(errors)):
        app.call("job", at, queue=queue, max_attempts=1).enqueue()
    with testing.working(app, queue, concurrency=1):
        await_span(f"fail {queue}", 4)
        await_span(f"release {queue}")
    print("{}")


stories: dict[str, Callable[[], None]] = {"chain": chain, "foreign": foreign, "batch": batch, "ends": ends}
stories[sys.argv[2]]()
for span in exporter.get_finished_spans():
    said = {
        "name": span.name,
        "id": f"{span.get_span_context().span_id:016x}",
        "trace": f"{span.get_span_context().trace_id:032x}",
        "parent": f"{span.parent.span_id:016x}" if span.parent else "",
        "kind": span.kind.name if span.kind else "",
        "attributes": dict(span.attributes or {}),
        "links": [f"{link.context.span_id:016x}" for link in span.links],
        "events": len(span.events),
        "status": span.status.status_code.name,
    }
    print(json.dumps(said))
data = reader.get_metrics_data()
for metric in data.resource_metrics[0].scope_metrics[0].metrics if data is not None else ():
    for point in metric.data.data_points:
        value = point.value if metric.unit == "{message}" else point.count
        print(json.dumps({"metric": metric.name, "attributes": dict(point.attributes), "value": value, "sum": getattr(point, "sum", 0)}))
app.close()
