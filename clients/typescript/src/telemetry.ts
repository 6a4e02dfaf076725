/**
 * The spans of producers and workers, as OpenTelemetry's messaging conventions name them, and the trace context that travels with tasks. If
 * @opentelemetry/api is not installed, or the program registers no tracer provider, it does next to nothing. docs/tracing.md has the rules.
 */

import type * as OpenTelemetry from "@opentelemetry/api";

import type { Server } from "./connection.js";
import { cut, messageOf, show } from "./convert.js";
import { PawlError } from "./errors.js";
import type { TaskSpec } from "./gen/pawl/v1/task_pb.js";
import type { ClaimedTask } from "./gen/pawl/v1/worker_pb.js";

const api: typeof OpenTelemetry | undefined = await import("@opentelemetry/api").catch(() => undefined); // it is optional

const scope = "@pawlq/pawl";
const maxHeaders = 64; // the broker's limits: a task must not be refused for its trace
const maxHeaderBytes = 16 << 10;
const maxLinks = 128;
const maxStatusText = 1 << 10;

type Kind = "PRODUCER" | "CONSUMER" | "CLIENT";
type Attributes = Record<string, string | number>;

/** One span. Without OpenTelemetry it does nothing. */
export class Span {
  readonly #span: OpenTelemetry.Span | undefined;

  constructor(span: unknown) {
    this.#span = span as OpenTelemetry.Span | undefined;
  }

  /** Ends the span of a task that was accepted, or refused. */
  answered(taskId: string, err?: unknown): void {
    if (taskId) this.#span?.setAttribute("messaging.message.id", taskId);
    this.end(err);
  }

  /** Ends the span of a run. An error is given only if the run has failed. */
  processed(outcome: string, err?: unknown): void {
    this.#span?.setAttribute("pawl.task.outcome", outcome);
    if (err !== undefined) quietly(() => this.#span?.recordException(err instanceof Error ? err : show(err)));
    this.end(err);
  }

  /** Ends the span. */
  end(err?: unknown): void {
    const span = this.#span;
    if (err !== undefined && api && span) {
      span.setStatus({ code: api.SpanStatusCode.ERROR });
      quietly(() => span.setAttribute("error.type", errorType(err)));
      quietly(() => span.setStatus({ code: api.SpanStatusCode.ERROR, message: cut(messageOf(err), maxStatusText) }));
    }
    span?.end();
  }

  /** Runs a function in which the span is the current one. */
  within<T>(fn: () => T): T {
    return api && this.#span ? api.context.with(api.trace.setSpan(api.context.active(), this.#span), fn) : fn();
  }

  /** Makes the span of how a run ended, as the broker was told. */
  settled(verb: string, queue: string, server: Server, began: number, err?: PawlError): void {
    if (!api || !this.#span) return;
    const parent = api.trace.setSpan(api.ROOT_CONTEXT, this.#span);
    new Span(start(verb, "settle", "CLIENT", queue, server, {}, { parent, startTime: began })).end(err);
  }

  /** For links: what names the span. */
  get context(): unknown {
    return this.#span?.spanContext();
  }

  /** Puts the trace into the headers of a task. One that its producer gave stays as it is. */
  inject(task: TaskSpec): void {
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
  options: { parent?: unknown; links?: unknown[]; startTime?: number } = {},
): OpenTelemetry.Span | undefined {
  if (!api) return undefined;
  const attributes: Attributes = {
    "messaging.system": "pawl",
    "messaging.operation.name": operation,
    "messaging.operation.type": type,
    ...(queue && { "messaging.destination.name": queue }),
    ...(server.address && { "server.address": server.address }),
    ...(server.port !== undefined && { "server.port": server.port }),
    ...more,
  };
  const links = (options.links ?? []).map((context) => ({ context: context as OpenTelemetry.SpanContext }));
  const given = { kind: api.SpanKind[kind], attributes, links, ...(options.startTime !== undefined && { startTime: options.startTime }) };
  const parent = (options.parent as OpenTelemetry.Context | undefined) ?? api.context.active();
  return api.trace.getTracer(scope).startSpan(queue ? `${operation} ${queue}` : operation, given, parent);
}

function queueOf(task: TaskSpec): string {
  return task.queue || "default";
}

function about(task: { type: string; payload: Uint8Array }): Attributes {
  return { "pawl.task.type": task.type, "messaging.message.body.size": task.payload.length };
}

/** Begins the span of one task, and puts it into the task's headers. */
export function sending(task: TaskSpec, server: Server): Span {
  const given = headerTrace(task.headers);
  const span = new Span(start("send", "send", "PRODUCER", queueOf(task), server, about(task), { links: given ? [given] : [] }));
  span.inject(task);
  return span;
}

/** The spans of a batch: one for each task, and one that links to them. */
export interface Batch {
  readonly tasks: readonly Span[];
  readonly all: Span;
}

/** Begins the spans of a batch, and puts each into the headers of its task. */
export function sendingMany(tasks: readonly TaskSpec[], server: Server): Batch {
  const spans = tasks.map((task) => {
    const span = new Span(start("create", "create", "PRODUCER", queueOf(task), server, about(task)));
    span.inject(task);
    return span;
  });
  const queues = new Set(tasks.map(queueOf));
  const queue = queues.size === 1 ? ([...queues][0] ?? "") : "";
  const links = spans.slice(0, maxLinks).flatMap((span) => (span.context ? [span.context] : []));
  return { tasks: spans, all: new Span(start("send", "send", "CLIENT", queue, server, { "messaging.batch.message_count": tasks.length }, { links })) };
}

/** Begins the span of a run: in the trace that its task brings. */
export function processing(task: ClaimedTask, worker: string, server: Server): Span {
  const origin = headerTrace(task.headers);
  const parent = api && (origin ? api.trace.setSpanContext(api.ROOT_CONTEXT, origin as OpenTelemetry.SpanContext) : api.ROOT_CONTEXT);
  const more = { ...about(task), "pawl.task.attempt": task.attempt, "messaging.message.id": task.taskId, "messaging.client.id": worker };
  return new Span(start("process", "process", "CONSUMER", task.queue, server, more, { parent }));
}

/** Reads the trace of a task's headers, as W3C's trace context has it. */
function headerTrace(headers: Readonly<Record<string, string>>): unknown {
  const found = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/.exec(headers["traceparent"] ?? "");
  if (!api || !found) return undefined;
  const [, version, traceId = "", spanId = "", flags = "", rest] = found;
  if (version === "ff" || (version === "00" && rest)) return undefined;
  const state = headers["tracestate"];
  const context = { traceId, spanId, traceFlags: Number.parseInt(flags, 16) & 1, isRemote: true, ...(state && { traceState: api.createTraceState(state) }) };
  return api.isSpanContextValid(context) ? context : undefined;
}

/** Describes an error. One whose text cannot be had must not cost a worker its slot. */
function quietly(describe: () => void): void {
  try {
    describe();
  } catch {
    // the span is without it
  }
}

function errorType(err: unknown): string {
  return err instanceof PawlError ? err.code : err instanceof Error ? String(err.name) : typeof err;
}
