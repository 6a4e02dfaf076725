/**
 * The spans and metrics of producers and workers, per OpenTelemetry's messaging conventions, and the trace context that travels with tasks. If
 * @opentelemetry/api is not installed, or the program registers no tracer provider, it does next to nothing. See docs/tracing.md.
 *
 * What the program registered may throw: span processors, samplers, exporters. That must cost no task, so all calls of the API are in quietly.
 */

import { createRequire } from "node:module";

import type * as OpenTelemetry from "@opentelemetry/api";

import type { Server } from "./connection.js";
import { cut, messageOf, show } from "./convert.js";
import { PawlError } from "./errors.js";
import type { TaskSpec } from "./gen/pawl/v1/task_pb.js";
import type { ClaimedTask } from "./gen/pawl/v1/worker_pb.js";
import { maxHeaderBytes, maxHeaders } from "./limits.js";

const api = optional(); // without await, which would keep CommonJS programs from requiring this package

function optional(): typeof OpenTelemetry | undefined {
  try {
    return createRequire(import.meta.url)("@opentelemetry/api") as typeof OpenTelemetry;
  } catch {
    return undefined;
  }
}

const scope = "@pawlq/pawl";
const maxLinks = 128;
const maxStatusText = 1 << 10;
const buckets = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]; // seconds, from the conventions

type Kind = "PRODUCER" | "CONSUMER" | "CLIENT";
type Attributes = Record<string, string | number>;

/** The metrics of clients that go to one meter provider. */
interface Instruments {
  provider: OpenTelemetry.MeterProvider;
  operations: OpenTelemetry.Histogram;
  runs: OpenTelemetry.Histogram;
  sent: OpenTelemetry.Counter;
  consumed: OpenTelemetry.Counter;
}

let made: Instruments | undefined;

/** Returns the metrics of the program's meter provider, which may be set at any time. */
function instruments(): Instruments | undefined {
  const provider = api?.metrics.getMeterProvider();
  if (!provider || made?.provider === provider) return made;
  const meter = provider.getMeter(scope);
  const seconds = (description: string) => ({ description, unit: "s", advice: { explicitBucketBoundaries: buckets } });
  const tasks = (description: string) => ({ description, unit: "{message}" });
  made = {
    provider,
    operations: meter.createHistogram("messaging.client.operation.duration", seconds("How long an operation of a client took.")),
    runs: meter.createHistogram("messaging.process.duration", seconds("How long a handler ran.")),
    sent: meter.createCounter("messaging.client.sent.messages", tasks("Tasks that a producer tried to enqueue.")),
    consumed: meter.createCounter("messaging.client.consumed.messages", tasks("Tasks that a worker began.")),
  };
  return made;
}

/** The measurements of a span. */
interface Measured {
  labels: Attributes;
  began: number; // on the clock of performance.now
  sends: number; // tasks
}

/** A span and its measurements. Without OpenTelemetry, it does nothing. */
export class Span {
  readonly #span: OpenTelemetry.Span | undefined;
  readonly #measured: Measured | undefined;

  constructor(span: OpenTelemetry.Span | undefined, measured?: Measured) {
    this.#span = span;
    this.#measured = measured;
  }

  /** Ends the span of a task that was accepted or refused. */
  answered(taskId: string, err?: unknown): void {
    if (taskId) quietly(() => this.#span?.setAttribute("messaging.message.id", taskId));
    this.end(err);
  }

  /** Ends the span of a run. err is given only if the run failed. */
  processed(outcome: string, err?: unknown): void {
    quietly(() => this.#span?.setAttribute("pawl.task.outcome", outcome));
    if (err !== undefined) quietly(() => this.#span?.recordException(err instanceof Error ? err : show(err)));
    this.#end(err);
    const measured = this.#measured;
    if (measured) quietly(() => instruments()?.runs.record((performance.now() - measured.began) / 1000, withError(measured.labels, err)));
  }

  /** Counts the task of a run. */
  consumed(): void {
    const labels = this.#measured?.labels;
    if (labels) quietly(() => instruments()?.consumed.add(1, labels));
  }

  /** Ends the span, and records its duration as a client operation. */
  end(err?: unknown): void {
    this.#end(err);
    const measured = this.#measured;
    if (!measured) return;
    const labels = withError(measured.labels, err);
    quietly(() => instruments()?.operations.record((performance.now() - measured.began) / 1000, labels));
    if (measured.sends > 0) quietly(() => instruments()?.sent.add(measured.sends, labels));
  }

  #end(err?: unknown): void {
    const span = this.#span;
    if (err !== undefined && api && span) {
      const code = api.SpanStatusCode.ERROR;
      quietly(() => span.setStatus({ code }));
      quietly(() => span.setAttribute("error.type", errorType(err)));
      quietly(() => span.setStatus({ code, message: cut(messageOf(err), maxStatusText) }));
    }
    quietly(() => span?.end());
  }

  /** Runs a function with the span as the current one. */
  within<T>(fn: () => T): T {
    const span = this.#span;
    if (!api || !span) return fn();
    let done: (() => T) | undefined; // what fn returned or threw, also when the context manager throws behind it
    const run = () => {
      try {
        const value = fn();
        done = () => value;
      } catch (err) {
        done = () => {
          throw err;
        };
      }
    };
    quietly(() => api.context.with(api.trace.setSpan(api.context.active(), span), run));
    if (!done) run();
    return done!();
  }

  /** Creates the span of settling a run with the broker. */
  settled(verb: string, queue: string, server: Server, began: number, err?: PawlError): void {
    const span = this.#span;
    const parent = api && span && quietly(() => api.trace.setSpan(api.ROOT_CONTEXT, span));
    if (!parent) return;
    start(verb, "settle", "CLIENT", queue, server, {}, { parent, startTime: began }).end(err);
  }

  /** The span's context, for links. */
  get context(): unknown {
    return quietly(() => this.#span?.spanContext());
  }

  /** Puts the trace into the headers of a task, unless the producer has set one. */
  inject(task: TaskSpec): void {
    quietly(() => this.#inject(task));
  }

  #inject(task: TaskSpec): void {
    const context = this.#span?.spanContext();
    if (!api || !context || !api.isSpanContextValid(context) || "traceparent" in task.headers || "tracestate" in task.headers) return;
    const flags = context.traceFlags.toString(16).padStart(2, "0");
    const said: Record<string, string> = { traceparent: `00-${context.traceId}-${context.spanId}-${flags}` };
    const state = context.traceState?.serialize();
    if (state) said["tracestate"] = state;
    const all = { ...task.headers, ...said };
    const bytes = Object.entries(all).reduce((n, [name, value]) => n + Buffer.byteLength(name) + Buffer.byteLength(value), 0);
    if (Object.keys(all).length <= maxHeaders && bytes <= maxHeaderBytes) Object.assign(task.headers, said);
  }
}

function start(
  operation: string,
  type: string,
  kind: Kind,
  queue: string,
  server: Server,
  more: Attributes,
  options: { parent?: unknown; links?: unknown[]; startTime?: number; sends?: number; measured?: boolean } = {},
): Span {
  if (!api) return new Span(undefined);
  const labels: Attributes = {
    "messaging.system": "pawl",
    "messaging.operation.name": operation,
    "messaging.operation.type": type,
    ...(queue && { "messaging.destination.name": queue }),
    ...(server.address && { "server.address": server.address }),
    ...(server.port !== undefined && { "server.port": server.port }),
  };
  const links = (options.links ?? []).map((context) => ({ context: context as OpenTelemetry.SpanContext }));
  const given = { kind: api.SpanKind[kind], attributes: { ...labels, ...more }, links, ...(options.startTime !== undefined && { startTime: options.startTime }) };
  const span = quietly(() => {
    const parent = (options.parent as OpenTelemetry.Context | undefined) ?? api.context.active();
    return api.trace.getTracer(scope).startSpan(queue ? `${operation} ${queue}` : operation, given, parent);
  });
  if (options.measured === false) return new Span(span);
  const before = options.startTime === undefined ? 0 : Date.now() - options.startTime;
  return new Span(span, { labels, began: performance.now() - before, sends: options.sends ?? 0 });
}

function queueOf(task: TaskSpec): string {
  return task.queue || "default";
}

function about(task: { type: string; payload: Uint8Array }): Attributes {
  return { "pawl.task.type": task.type, "messaging.message.body.size": task.payload.length };
}

/** Starts the span of one task, and puts it into the task's headers. */
export function sending(task: TaskSpec, server: Server): Span {
  const given = headerTrace(task.headers);
  const span = start("send", "send", "PRODUCER", queueOf(task), server, about(task), { links: given ? [given] : [], sends: 1 });
  span.inject(task);
  return span;
}

/** The spans of a batch: one for each task, and one that links to them. */
export interface Batch {
  readonly tasks: readonly Span[];
  readonly all: Span;
}

/** Starts the spans of a batch, and puts each into the headers of its task. */
export function sendingMany(tasks: readonly TaskSpec[], server: Server): Batch {
  const spans = tasks.map((task) => {
    const span = start("create", "create", "PRODUCER", queueOf(task), server, about(task), { measured: false });
    span.inject(task);
    return span;
  });
  const queues = new Set(tasks.map(queueOf));
  const queue = queues.size === 1 ? ([...queues][0] ?? "") : "";
  const links = spans.slice(0, maxLinks).flatMap((span) => (span.context ? [span.context] : []));
  const count = { "messaging.batch.message_count": tasks.length };
  return { tasks: spans, all: start("send", "send", "CLIENT", queue, server, count, { links, sends: tasks.length }) };
}

/** Starts the span of a run, in the trace of its task. */
export function processing(task: ClaimedTask, worker: string, server: Server): Span {
  const origin = headerTrace(task.headers);
  const parent = api && (origin ? api.trace.setSpanContext(api.ROOT_CONTEXT, origin as OpenTelemetry.SpanContext) : api.ROOT_CONTEXT);
  const more = { ...about(task), "pawl.task.attempt": task.attempt, "messaging.message.id": task.taskId, "messaging.client.id": worker };
  const span = start("process", "process", "CONSUMER", task.queue, server, more, { parent });
  span.consumed();
  return span;
}

/** Reads the W3C trace context from a task's headers. */
function headerTrace(headers: Readonly<Record<string, string>>): unknown {
  const found = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/.exec(headers["traceparent"] ?? "");
  if (!api || !found) return undefined;
  const [, version, traceId = "", spanId = "", flags = "", rest] = found;
  if (version === "ff" || (version === "00" && rest)) return undefined;
  const state = headers["tracestate"];
  const context = { traceId, spanId, traceFlags: Number.parseInt(flags, 16) & 1, isRemote: true, ...(state && { traceState: api.createTraceState(state) }) };
  return api.isSpanContextValid(context) ? context : undefined;
}

/** Calls what may throw, and then returns undefined: code that the program registered, or an error that cannot be formatted. */
function quietly<T>(call: () => T): T | undefined {
  try {
    return call();
  } catch {
    return undefined; // the span goes without it
  }
}

function withError(labels: Attributes, err: unknown): Attributes {
  if (err === undefined) return labels;
  let type = "unknown";
  quietly(() => (type = errorType(err)));
  return { ...labels, "error.type": type };
}

function errorType(err: unknown): string {
  return err instanceof PawlError ? err.code : err instanceof Error ? String(err.name) : typeof err;
}
