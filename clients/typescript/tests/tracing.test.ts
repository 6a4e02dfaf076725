/** Traces: a task belongs to the trace of its producer, and so does what its handler enqueues. */

import assert from "node:assert/strict";
import { after, beforeEach, test } from "node:test";

import { context, metrics, SpanStatusCode, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { AggregationTemporality, InMemoryMetricExporter, MeterProvider, PeriodicExportingMetricReader, type Histogram } from "@opentelemetry/sdk-metrics";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor, type ReadableSpan } from "@opentelemetry/sdk-trace-base";

import { defineTask, Discard, handle, Snooze, type Handler } from "../src/index.js";
import { eventually, newQueue, working, world } from "./world.js";

const exporter = new InMemorySpanExporter();
trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }));
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
const measured = new InMemoryMetricExporter(AggregationTemporality.DELTA);
const reader = new PeriodicExportingMetricReader({ exporter: measured, exportIntervalMillis: 3_600_000 });
const meters = new MeterProvider({ readers: [reader] });
metrics.setGlobalMeterProvider(meters);
after(async () => {
  await meters.shutdown();
  metrics.disable();
  trace.disable();
  context.disable();
});
beforeEach(() => exporter.reset());

const w = world();
const tracer = trace.getTracer("test");

/** Runs a worker until there is a span of this name for each of n runs, and returns all spans by name. */
async function spans(queue: string, handlers: Handler[], name: string, n = 1): Promise<Map<string, ReadableSpan[]>> {
  await working(w.client, handlers, { queues: queue, name: "w-1" }, () => eventually(() => exporter.getFinishedSpans().filter((s) => s.name === name).length >= n));
  const out = new Map<string, ReadableSpan[]>();
  for (const span of exporter.getFinishedSpans()) out.set(span.name, [...(out.get(span.name) ?? []), span]);
  return out;
}

/** What was measured in a queue since it was last asked: by metric, operation and error, how often or how many. */
async function measurements(queue: string): Promise<Map<string, number>> {
  measured.reset();
  await reader.forceFlush();
  const out = new Map<string, number>();
  for (const metric of measured.getMetrics().flatMap((each) => each.scopeMetrics).flatMap((each) => each.metrics)) {
    for (const { attributes, value } of metric.dataPoints) {
      if (attributes["messaging.destination.name"] !== queue) continue;
      const key = [metric.descriptor.name.replace("messaging.", ""), attributes["messaging.operation.name"], attributes["error.type"]].filter(Boolean).join(" ");
      out.set(key, typeof value === "number" ? value : (value as Histogram).count);
      if (typeof value !== "number") assert.ok((value as Histogram).sum! > 0 && (value as Histogram).sum! < 20, key);
    }
  }
  return out;
}

const row = defineTask<{ n: number }>("row");

test("one trace from the request over the handler to what that enqueues", async () => {
  const queue = newQueue();
  const first = defineTask<null, string>("first", { queue });
  const second = defineTask("second", { queue });
  const handlers = [handle(first, async () => (await w.client.enqueue(second, null)).id), handle(second, () => undefined)];
  const ref = await tracer.startActiveSpan("request", async (span) => {
    const made = await w.client.enqueue(first, null);
    span.end();
    return made;
  });
  const by = await spans(queue, handlers, `ack ${queue}`, 2);
  // The second task may end before the first: its spans are found by their type.
  const spanOf = (operation: string, type: string) => by.get(`${operation} ${queue}`)?.find((span) => span.attributes["pawl.task.type"] === type);
  const [request] = by.get("request") ?? [];
  const [send, sendSecond] = [spanOf("send", "first"), spanOf("send", "second")];
  const [process, processSecond] = [spanOf("process", "first"), spanOf("process", "second")];
  const ack = by.get(`ack ${queue}`)?.find((span) => span.parentSpanContext?.spanId === process?.spanContext().spanId);
  assert.ok(request && send && sendSecond && process && processSecond && ack);
  const chain = [request, send, process, sendSecond, processSecond];
  chain.slice(1).forEach((span, at) => assert.equal(span.parentSpanContext?.spanId, chain[at]?.spanContext().spanId, `${at}`));
  assert.deepEqual(new Set(chain.map((span) => span.spanContext().traceId)).size, 1);
  const { traceId, spanId } = send.spanContext();
  assert.equal((await ref.info()).headers["traceparent"], `00-${traceId}-${spanId}-01`);
  const server = { "server.address": "127.0.0.1", "server.port": Number(w.broker.address.split(":")[1]) };
  const both = { "messaging.system": "pawl", "messaging.destination.name": queue, "messaging.message.id": ref.id, "pawl.task.type": "first", ...server };
  const size = { "messaging.message.body.size": 4 };
  assert.deepEqual(send.attributes, { ...both, ...size, "messaging.operation.name": "send", "messaging.operation.type": "send" });
  assert.deepEqual(process.attributes, {
    ...both,
    ...size,
    "messaging.operation.name": "process",
    "messaging.operation.type": "process",
    "messaging.client.id": "w-1",
    "pawl.task.attempt": 1,
    "pawl.task.outcome": "succeeded",
  });
});

test("a task brings the trace that a program in another language gave it", async () => {
  const queue = newQueue();
  const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const ref = await w.client.enqueue(row, { n: 1 }, { queue, headers: { traceparent, tracestate: "vendor=1" } });
  assert.equal((await ref.info()).headers["traceparent"], traceparent); // as it was given
  const by = await spans(queue, [handle(row, () => undefined)], `process ${queue}`);
  const [process] = by.get(`process ${queue}`) ?? [];
  assert.equal(process?.parentSpanContext?.spanId, "b7ad6b7169203331");
  assert.equal(process?.spanContext().traceId, "0af7651916cd43dd8448eb211c80319c");
  assert.equal(by.get(`send ${queue}`)?.[0]?.links[0]?.context.spanId, "b7ad6b7169203331");
});

test("a trace that cannot be read is nobody's", async () => {
  for (const traceparent of ["", "nonsense", "00-00000000000000000000000000000000-b7ad6b7169203331-01", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"]) {
    const queue = newQueue();
    await w.client.enqueue(row, { n: 1 }, { queue, headers: { traceparent } });
    const by = await spans(queue, [handle(row, () => undefined)], `process ${queue}`);
    assert.equal(by.get(`process ${queue}`)?.[0]?.parentSpanContext, undefined, traceparent);
  }
});

test("tasks of a batch have a span each", async () => {
  const queue = newQueue();
  const refs = await w.client.enqueueMany(row.with({ queue }), [{ n: 1 }, { n: 2 }]);
  const done = exporter.getFinishedSpans();
  const [send] = done.filter((span) => span.name === `send ${queue}`);
  const creates = done.filter((span) => span.name === `create ${queue}`);
  assert.deepEqual(creates.map((span) => span.attributes["messaging.message.id"]), refs.map((ref) => ref.id));
  assert.deepEqual(send?.links.map((link) => link.context.spanId), creates.map((span) => span.spanContext().spanId));
  assert.equal(send?.attributes["messaging.batch.message_count"], 2);
  const group = await w.client.enqueueGroup([row.call({ n: 3 }, { queue })]);
  assert.equal(exporter.getFinishedSpans().filter((span) => span.name === `create ${queue}`).length, 3);
  assert.equal(group.tasks.length, 1);
});

test("a run that has failed has its error, and no other", async () => {
  const cases: [() => unknown, string, string | undefined, string][] = [
    [() => Promise.reject(new RangeError("too far")), "failed", "RangeError", "fail"],
    [() => Promise.reject(Object.defineProperty(new Error(), "message", { get: () => assert.fail("no text") })), "failed", "Error", "fail"],
    [() => Promise.reject(new Snooze("1h")), "snoozed", undefined, "release"],
    [() => Promise.reject(new Discard("nothing to do")), "discarded", undefined, "fail"],
  ];
  for (const [fn, outcome, type, verb] of cases) {
    const queue = newQueue();
    await w.client.enqueue(row, { n: 1 }, { queue });
    const by = await spans(queue, [handle(row, fn as () => undefined)], `${verb} ${queue}`);
    const [process] = by.get(`process ${queue}`) ?? [];
    assert.equal(process?.attributes["pawl.task.outcome"], outcome);
    assert.equal(process?.attributes["error.type"], type);
    assert.equal(process?.status.code, type ? SpanStatusCode.ERROR : SpanStatusCode.UNSET);
    assert.equal(process?.events.length, type === "RangeError" ? 1 : 0);
  }
});

test("an enqueue that is refused has an error", async () => {
  await assert.rejects(w.client.enqueue(row, { n: 1 }, { queue: "no spaces" }));
  const [send] = exporter.getFinishedSpans();
  assert.deepEqual([send?.name, send?.attributes["error.type"]], ["send no spaces", "invalid_argument"]);
});

test("operations and runs are measured, with their errors", async () => {
  const queue = newQueue();
  await w.client.enqueue(row, { n: 0 }, { queue, maxAttempts: 1 });
  await w.client.enqueueMany(row.with({ queue }), [{ n: 1 }, { n: 2 }]);
  await assert.rejects(w.client.enqueue(row, { n: 3 }, { queue, cost: 5000 }));
  const fails = handle(row, ({ n }) => (n === 0 ? Promise.reject(new RangeError("too far")) : undefined));
  await working(w.client, [fails], { queues: queue }, () => eventually(() => exporter.getFinishedSpans().filter((s) => /^(ack|fail) /.test(s.name)).length >= 3));
  const want = new Map([
    ["client.consumed.messages process", 3],
    ["client.operation.duration ack", 2],
    ["client.operation.duration fail", 1],
    ["client.operation.duration send", 2],
    ["client.operation.duration send invalid_argument", 1],
    ["client.sent.messages send", 3],
    ["client.sent.messages send invalid_argument", 1],
    ["process.duration process", 2],
    ["process.duration process RangeError", 1],
  ]);
  assert.deepEqual(await measurements(queue), want);
});

test("telemetry that throws costs no task", async (t) => {
  const queue = newQueue();
  const fails = () => {
    throw new Error("the telemetry is broken");
  };
  const task = defineTask<number, number>("t", { queue, retry: { initial: "10ms" } });
  let runs = 0;
  const handler = handle(task, (n) => {
    if (runs++ % 2) throw new Error("the handler fails");
    return n;
  });
  const span = tracer.startSpan("sample");
  const prototype = (of: object) => Object.getPrototypeOf(of) as object;
  const meter = metrics.getMeter("sample");
  const broken: [object, string[]][] = [
    [SimpleSpanProcessor.prototype, ["onStart", "onEnd"]],
    [prototype(span), ["setAttribute", "setStatus", "recordException", "end", "spanContext"]],
    [prototype(tracer), ["startSpan"]],
    [AsyncLocalStorageContextManager.prototype, ["active", "with"]],
    [prototype(meter.createHistogram("h")), ["record"]],
    [prototype(meter.createCounter("c")), ["add"]],
    [MeterProvider.prototype, ["getMeter"]],
  ];
  for (const [of, what] of broken.flatMap(([of, names]) => names.map((name) => [of, name] as const))) {
    runs = 0;
    if (what === "getMeter") metrics.disable(), metrics.setGlobalMeterProvider(new MeterProvider()); // whose instruments are not made yet
    const mock = t.mock.method(of as Record<string, () => void>, what, fails);
    await working(w.client, [handler], { queues: queue }, async () => {
      const alone = await w.client.enqueue(task, 7);
      const many = await w.client.enqueueMany(task, [8, 9]);
      const infos = await Promise.all([alone, ...many].map((ref) => ref.waitEnded()));
      assert.deepEqual(infos.map((info) => info.state), ["succeeded", "succeeded", "succeeded"], what);
    });
    assert.ok(mock.mock.callCount() > 0, what);
    mock.mock.restore();
  }
});

test("a context manager that throws behind a handler does not run it twice", async (t) => {
  const queue = newQueue();
  const task = defineTask<null, string>("t", { queue });
  let runs = 0;
  const given = context.with.bind(context);
  t.mock.method(context, "with", (...args: Parameters<typeof context.with>) => {
    given(...args);
    throw new Error("the context manager is broken");
  });
  await working(w.client, [handle(task, () => `${++runs}`)], { queues: queue }, async () => {
    assert.equal(await (await w.client.enqueue(task, null)).result(), "1");
  });
});
