/** The options of a task, and the request made from them. */

import { create } from "@bufbuild/protobuf";

import { duration, integer, JSON_TYPE, known, millisecondsOf, number, show, string, timeOf, timestamp, Words } from "./convert.js";
import type { Duration } from "./convert.js";
import { priorityWords, stateWords, type Priority, type Retry, type State } from "./data.js";
import { invalid, PayloadTooLargeError } from "./errors.js";
import { OnConflict, RetryPolicySchema, TaskSpecSchema, UniqueSchema } from "./gen/pawl/v1/task_pb.js";
import type { RetryPolicy, TaskSpec, Unique as UniqueMessage } from "./gen/pawl/v1/task_pb.js";
import { maxMessage } from "./limits.js";

const maxPayload = maxMessage - (1 << 20); // what fits in one message; the broker's own limit is lower

type ConflictWord = "keep" | "replace" | "keep_last" | "reject";
const onConflicts = new Words<ConflictWord>(OnConflict);

/** Limits a queue to one task per key at a time. Without a key, type and payload are the key. */
export interface Unique {
  key?: string;
  /** The states in which a task holds its key; by default all but the end states. */
  states?: readonly State[];
  /** keep: returns the task that holds the key. replace, keep_last: the new task replaces a waiting one. reject: throws ConflictError. */
  onConflict?: ConflictWord;
}

/** The options of a task. For options that are left out, the settings of the queue apply. */
export interface TaskOptions {
  /** Default: "default". A queue is created by its first task. */
  queue?: string;
  priority?: Priority;
  /** When the task is due, counted from now by the broker's clock. Replaces runAt. */
  delay?: Duration;
  /** When the task is due. Replaces delay. */
  runAt?: Date;
  /** Enqueueing again with the same key in the same queue returns the first task. */
  idempotencyKey?: string;
  /** How long the idempotency key is valid; default 24 h. */
  idempotencyTtl?: Duration;
  /** A UUID that identifies this request. The client generates one per call; set your own to retry a call that failed. */
  requestId?: string;
  /** How often the task may fail before it is a dead letter. */
  maxAttempts?: number;
  /** How long the task waits after a failure. */
  retry?: Retry;
  /** The time limit of one run. */
  timeout?: Duration;
  /** The task is discarded unless it starts within this time. */
  expiresIn?: Duration;
  /** How long the task is kept once it has ended. */
  retention?: Duration;
  /** Groups tasks for fairness and limits: a tenant, an account. */
  key?: string;
  /** How many rate-limit tokens the task takes when it starts, 1 to 1,000. */
  cost?: number;
  /** Labels for finding the task. Those of a call are added to those of the task's definition. */
  tags?: readonly string[];
  /** Metadata that travels with the task, such as a correlation id. Headers of a call are added to those of the task's definition. */
  headers?: Readonly<Record<string, string>>;
  /** Makes the task a member of a group that is not complete, for example with claim.groupId of the handler's own group. */
  groupId?: string;
  /** Limits the queue to one task with this key at a time. */
  unique?: Unique | string;
}

const optionNames = {
  queue: 0,
  priority: 0,
  delay: 0,
  runAt: 0,
  idempotencyKey: 0,
  idempotencyTtl: 0,
  requestId: 0,
  maxAttempts: 0,
  retry: 0,
  timeout: 0,
  expiresIn: 0,
  retention: 0,
  key: 0,
  cost: 0,
  tags: 0,
  headers: 0,
  groupId: 0,
  unique: 0,
} satisfies Record<keyof TaskOptions, 0>;

/** The names of all options. */
export const OPTION_NAMES: readonly string[] = Object.keys(optionNames);

const optionHints = { // for BullMQ's
  attempts: "use maxAttempts",
  backoff: "use retry: { initial, factor, max, jitter }",
  deduplication: "use unique, or idempotencyKey",
  jobId: "use idempotencyKey",
  removeOnComplete: "use retention",
  removeOnFail: "use retention",
  repeat: "use client.schedules.put",
};
const retryNames = { initial: 0, factor: 0, max: 0, jitter: 0 } satisfies Record<keyof Retry, 0>;
const retryHints = { delay: "use initial", type: "use factor: 1 for a fixed pause, more for an exponential one" };
const uniqueNames = { key: 0, states: 0, onConflict: 0 } satisfies Record<keyof Unique, 0>;

/** Returns base with the options of over, which take precedence. */
export function merge(base: TaskOptions, over: TaskOptions): TaskOptions {
  known("a task", over, optionNames, optionHints);
  const given = Object.fromEntries(Object.entries(over).filter(([, value]) => value !== undefined)) as TaskOptions;
  if (given.delay !== undefined && given.runAt !== undefined) throw invalid("run_at", "cannot be combined with delay");
  const out: TaskOptions = { ...base, ...given };
  if (given.delay !== undefined) delete out.runAt;
  if (given.runAt !== undefined) delete out.delay;
  if (given.tags !== undefined) out.tags = [...(base.tags ?? []), ...list("tags", given.tags)];
  if (given.headers !== undefined) out.headers = { ...base.headers, ...given.headers };
  return out;
}

// 0, and what is empty, such as an unset variable, is no option that is left out.

function notEmpty(field: string, value: string): string {
  const text = string(field, value);
  if (!text) throw invalid(field, "is empty: leave the option out");
  return text;
}

function notZero(field: string, value: number): number {
  const n = integer(field, value);
  if (n === 0) throw invalid(field, "0 is less than 1");
  return n;
}

/** Returns the request for a task. */
export function spec(type: string, payload: Uint8Array, contentType: string, options: TaskOptions): TaskSpec {
  if (!type) throw invalid("type", "is empty");
  if (payload.length > maxPayload) {
    const message = `payload of type "${type}": ${payload.length} bytes exceed the message limit of ${maxMessage}`;
    throw new PayloadTooLargeError(message, { field: "payload" });
  }
  const o = options;
  const out = create(TaskSpecSchema, { type: string("type", type), payload, contentType: string("content_type", contentType) });
  if (o.queue !== undefined) out.queue = notEmpty("queue", o.queue);
  if (o.priority !== undefined) out.priority = priorityWords.number("priority", o.priority);
  if (o.delay !== undefined) out.delay = duration("delay", o.delay);
  if (o.runAt !== undefined) out.runAt = timestamp("run_at", o.runAt);
  if (o.idempotencyKey !== undefined) out.idempotencyKey = notEmpty("idempotency_key", o.idempotencyKey);
  if (o.idempotencyTtl !== undefined) out.idempotencyTtl = duration("idempotency_ttl", o.idempotencyTtl);
  if (o.requestId !== undefined) out.requestId = notEmpty("request_id", o.requestId);
  if (o.maxAttempts !== undefined) out.maxAttempts = notZero("max_attempts", o.maxAttempts);
  if (o.retry !== undefined) out.retry = retry(o.retry);
  if (o.timeout !== undefined) out.timeout = duration("timeout", o.timeout);
  if (o.expiresIn !== undefined) out.expiresIn = duration("expires_in", o.expiresIn);
  if (o.retention !== undefined) out.retention = duration("retention", o.retention);
  if (o.key !== undefined) out.key = notEmpty("key", o.key);
  if (o.cost !== undefined) out.cost = notZero("cost", o.cost);
  if (o.groupId !== undefined) out.groupId = notEmpty("group_id", o.groupId);
  if (o.unique !== undefined) out.unique = unique(o.unique);
  out.tags = list("tags", o.tags ?? []).map((tag) => string("tags", tag));
  for (const [name, value] of Object.entries(o.headers ?? {})) out.headers[string("headers", name)] = string(`headers.${name}`, value);
  return out;
}

/** Returns the options of a task's spec, without those that it leaves out. Durations are in milliseconds. */
export function optionsOf(p: TaskSpec): TaskOptions {
  const out: TaskOptions = {};
  if (p.queue) out.queue = p.queue;
  const priority = priorityWords.word(p.priority);
  if (priority) out.priority = priority;
  if (p.delay) out.delay = millisecondsOf(p.delay);
  const runAt = timeOf(p.runAt);
  if (runAt) out.runAt = runAt;
  if (p.idempotencyKey) out.idempotencyKey = p.idempotencyKey;
  if (p.idempotencyTtl) out.idempotencyTtl = millisecondsOf(p.idempotencyTtl);
  if (p.maxAttempts) out.maxAttempts = p.maxAttempts;
  if (p.retry) out.retry = retryOf(p.retry);
  if (p.timeout) out.timeout = millisecondsOf(p.timeout);
  if (p.expiresIn) out.expiresIn = millisecondsOf(p.expiresIn);
  if (p.retention) out.retention = millisecondsOf(p.retention);
  if (p.key) out.key = p.key;
  if (p.cost) out.cost = p.cost;
  if (p.tags.length > 0) out.tags = p.tags;
  if (Object.keys(p.headers).length > 0) out.headers = p.headers;
  if (p.unique) out.unique = uniqueOf(p.unique);
  return out;
}

function list(field: string, value: readonly string[]): readonly string[] {
  if (!Array.isArray(value)) throw invalid(field, `${show(value)} is not an array of strings`);
  return value;
}

function retry(policy: Retry): RetryPolicy {
  known("retry", policy, retryNames, retryHints);
  const out = create(RetryPolicySchema);
  if (policy.initial !== undefined) out.initial = duration("retry.initial", policy.initial);
  if (policy.max !== undefined) out.max = duration("retry.max", policy.max);
  if (policy.factor !== undefined) out.factor = number("retry.factor", policy.factor);
  if (policy.jitter !== undefined) out.jitter = number("retry.jitter", policy.jitter);
  return out;
}

function retryOf(p: RetryPolicy): Retry {
  const out: Retry = {};
  if (p.initial) out.initial = millisecondsOf(p.initial);
  if (p.factor) out.factor = p.factor;
  if (p.max) out.max = millisecondsOf(p.max);
  if (p.jitter !== undefined) out.jitter = p.jitter;
  return out;
}

function unique(value: Unique | string): UniqueMessage {
  if (value === "") throw invalid("unique", "is empty: {} makes type and payload the key");
  if (typeof value !== "string") known("unique", value, uniqueNames);
  const { key, states: held = [], onConflict = "keep" } = typeof value === "string" ? { key: value } : value;
  return create(UniqueSchema, {
    ...(key !== undefined && { key: notEmpty("unique.key", key) }),
    states: list("unique.states", held).map((state) => stateWords.number("unique.states", state)),
    onConflict: onConflicts.number("unique.on_conflict", onConflict),
  });
}

function uniqueOf(p: UniqueMessage): Unique {
  const held = p.states.map((state) => stateWords.word(state)).filter((state) => state !== "");
  return { ...(p.key !== undefined && { key: p.key }), states: held, onConflict: onConflicts.word(p.onConflict) || "keep" };
}

/** Reports whether a content type is JSON. */
export function isJSON(contentType: string): boolean {
  return contentType === "" || contentType === JSON_TYPE;
}
