/** The parameters and results of operators' calls. Durations in results are in milliseconds. */

import type { Duration } from "./convert.js";
import type { Missing } from "./errors.js";
import type { Priority, State } from "./models.js";
import type { Retry } from "./options.js";

/** A token bucket: it gains limit tokens per period and holds at most burst, by default limit. */
export interface Rate {
  limit: number;
  period: Duration;
  burst?: number;
}

/** The limits of a key, and its weight among other keys. */
export interface KeyRules {
  maxRunning?: number;
  /** Or a text such as "10/1m"; in results, a Rate. */
  rate?: Rate | string;
  weight?: number;
}

/** A circuit breaker, which holds back tasks of a type that fail too often. Fields that are left out get the broker's defaults. */
export interface Breaker {
  off?: boolean;
  /** Percent. */
  failureRate?: number;
  window?: Duration;
  minAttempts?: number;
  hold?: Duration;
  maxHold?: Duration;
  probes?: number;
}

/** How long ended tasks are kept, by end state: by default 24 h, and 14 days for dead and poisoned tasks. */
export interface Retention {
  succeeded?: Duration;
  discarded?: Duration;
  cancelled?: Duration;
  dead?: Duration;
  poisoned?: Duration;
}

/**
 * The settings of a queue. In results, every field has its effective value. A field left out of a put gets the broker's default, not its old
 * value: use { ...queue.settings, maxAttempts: 3 } to change one.
 */
export interface QueueSettings {
  /** Without weights, the order of priorities is strict. */
  weights?: { high: number; normal: number; low: number };
  retry?: Retry;
  maxAttempts?: number;
  lease?: Duration;
  /** Of one run. */
  timeout?: Duration;
  retention?: Retention;
  /** Maximum number of waiting tasks; 0: no limit. */
  maxLength?: number;
  /** Tasks that run at the same time; 0: no limit. */
  maxRunning?: number;
  /** Or a text such as "10/1m"; in results, a Rate. */
  rate?: Rate | string;
  perKey?: KeyRules;
  /** For single keys, instead of perKey. */
  keys?: Readonly<Record<string, KeyRules>>;
  /** A task that is ready for longer needs attention. */
  maxWait?: Duration;
  /** In results, "" means none. */
  keyOrder?: "none" | "strict" | "";
  breaker?: Breaker;
  /** For single types, instead of breaker. */
  breakers?: Readonly<Record<string, Breaker>>;
}

/** The number of tasks of a queue by state. held: how many of the ready ones can't run now. */
export interface Depth {
  readonly scheduled: number;
  readonly ready: number;
  readonly claimed: number;
  readonly retrying: number;
  readonly held: number;
  readonly dead: number;
  readonly poisoned: number;
}

/** How long something took. Quantiles are approximate. */
export interface Latency {
  readonly count: number;
  readonly meanSeconds: number;
  readonly p50Seconds: number;
  readonly p95Seconds: number;
  readonly p99Seconds: number;
}

/** What the broker knows about a queue. */
export interface Queue {
  /** Its name. */
  readonly queue: string;
  readonly paused: boolean;
  readonly pausedReason: string;
  readonly pausedBy: string;
  readonly pausedAt: Date | undefined;
  readonly depth: Depth | undefined;
  readonly oldestReadyAgeSeconds: number;
  /** From ready to claimed, in the last 5 minutes. */
  readonly wait: Latency | undefined;
  /** From claimed to the end of the run, in the last 5 minutes. */
  readonly run: Latency | undefined;
  /** Until no task is ready, at the rates of the last minute; undefined: the ready tasks do not become fewer. */
  readonly drainSeconds: number | undefined;
  /** The number of workers that take its tasks. */
  readonly workers: number | undefined;
  readonly breakersOpen: number;
  readonly settings: QueueSettings;
  /** The version of the settings, for put with ifVersion. */
  readonly version: number;
  readonly createdAt: Date | undefined;
  /** The shards and nodes whose part of the numbers is missing. */
  readonly missing: readonly Missing[];
}

/** Selects tasks. All fields that are given must match; {} selects all tasks. */
export interface Filter {
  queue?: string;
  states?: readonly State[];
  type?: string;
  tag?: string;
  key?: string;
  worker?: string;
  /** Substring of the last error's message. */
  error?: string;
  /** From a DeadGroup. */
  fingerprint?: string;
  /** The id of the last operation that changed the task. */
  operation?: string;
  createdAfter?: Date;
  createdBefore?: Date;
  /** Substring of the payload. */
  q?: string;
}

/** The dead letters that have the same error. */
export interface DeadGroup {
  readonly fingerprint: string;
  readonly type: string;
  /** With numbers and ids replaced. */
  readonly message: string;
  readonly count: number;
  readonly firstAt: Date | undefined;
  readonly lastAt: Date | undefined;
  readonly sampleTaskId: string;
  readonly queues: number;
  /** The queue with the most of them. */
  readonly queue: string;
}

/** A bulk operation: one action, applied to many tasks in the background. See docs/bulk-operations.md. */
export interface OperationSpec {
  action: "replay" | "cancel" | "discard" | "move" | "set_priority" | "run_now";
  filter: Filter;
  /** For move only. */
  toQueue?: string;
  /** For set_priority only. */
  priority?: Priority;
  /** Maximum number of tasks; 0: all that match. */
  max?: number;
  /** Tasks per second at most; 0: as fast as possible without delaying other work. */
  rate?: number | string;
  /** The operation pauses itself after this many tasks; 0: it does not. */
  canary?: number;
}

/** What an operation would affect. */
export interface OperationPreview {
  readonly matched: number;
  /** Counting all of the tasks would have taken too long. */
  readonly isLowerBound: boolean;
}

/** What the broker knows about an operation. */
export interface Operation {
  readonly operationId: string;
  readonly spec: OperationSpec;
  readonly state: "running" | "paused" | "done" | "aborted" | "failed" | "";
  readonly author: { readonly actor: string; readonly address: string; readonly interface: string; readonly reason: string } | undefined;
  readonly createdAt: Date | undefined;
  readonly pausedAt: Date | undefined;
  readonly endedAt: Date | undefined;
  /** Why it was paused or aborted, or why it failed. */
  readonly why: string;
  readonly total: number;
  readonly matched: number;
  readonly done: number;
  readonly skipped: number;
  readonly failed: number;
  /** The first errors. */
  readonly errors: readonly { readonly taskId: string; readonly message: string }[];
  readonly waitsFor: string;
}

/** A task that a worker holds. */
export interface RunningTask {
  readonly taskId: string;
  readonly type: string;
  readonly queue: string;
  readonly attempt: number;
  readonly since: Date | undefined;
  readonly leaseExpiresAt: Date | undefined;
}

/** What the broker knows about a worker. */
export interface WorkerInfo {
  readonly workerId: string;
  /** As given by the worker. */
  readonly worker: string;
  readonly node: string;
  readonly connected: boolean;
  readonly host: string;
  readonly pid: number;
  readonly version: string;
  readonly types: readonly string[];
  readonly slots: number;
  readonly running: number;
  readonly tasks: readonly RunningTask[];
  readonly connectedAt: Date | undefined;
  readonly seenAt: Date | undefined;
  readonly draining: boolean;
  /** An operator's order that it take no new tasks. */
  readonly quiet: { readonly reason: string; readonly by: string; readonly at: Date | undefined; readonly until: Date | undefined } | undefined;
  readonly lostAt: Date | undefined;
  readonly lostReason: string;
}

/** One thing that keeps a task from running, or how it is running or has ended. */
export interface Reason {
  readonly code: string;
  /** The facts, in a sentence. */
  readonly detail: string;
  /** What would change it. */
  readonly change: string;
  readonly since: Date | undefined;
  readonly until: Date | undefined;
  readonly queue: string;
  readonly type: string;
  readonly key: string;
  readonly cause: string;
  readonly error: string;
}

/** Why a task is not running, which worker runs it, or how it ended. The first reason is the most decisive. */
export interface Explanation {
  readonly taskId: string;
  readonly state: State | "";
  readonly queue: string;
  readonly type: string;
  readonly key: string;
  readonly reasons: readonly Reason[];
}

/** Counts events by kind. */
export interface EventCounts {
  readonly enqueued: number;
  readonly claimed: number;
  readonly succeeded: number;
  /** Attempts. */
  readonly failed: number;
  /** Attempts whose lease was lost. */
  readonly crashed: number;
  readonly dead: number;
  readonly poisoned: number;
  readonly discarded: number;
  readonly cancelled: number;
  readonly replayed: number;
}

/** Counts the events of a time window, and how long tasks waited and ran in it. */
export interface Stats {
  readonly window: number;
  readonly totals: EventCounts;
  /** 0 to 1. */
  readonly failureRate: number;
  readonly wait: Latency | undefined;
  readonly run: Latency | undefined;
  readonly failing: readonly {
    readonly queue: string;
    readonly type: string;
    readonly failures: number;
    readonly lastError: string;
    readonly lastErrorType: string;
    readonly lastAt: Date | undefined;
  }[];
  /** The shards and nodes whose part is missing. */
  readonly missing: readonly Missing[];
}

/** A part of a queue that is paused separately: the tasks of one type or one key. */
export interface PausedSubset {
  type?: string;
  key?: string;
}
