/** What operators' calls take and answer with. Durations of answers are milliseconds. */

import type { Duration } from "./convert.js";
import type { Priority, State } from "./models.js";
import type { Retry } from "./options.js";

/** A token bucket: limit tokens come in a period, and there can be burst of them, by default limit. */
export interface Rate {
  limit: number;
  period: Duration;
  burst?: number;
}

/** The limits of a key, and its share against other keys. */
export interface KeyRules {
  maxRunning?: number;
  rate?: Rate;
  weight?: number;
}

/** When tasks of a type that fail too often are held back. What is left out is the broker's default. */
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

/** How long tasks that have ended are kept; by default 24 h, dead and poisoned ones 14 days. */
export interface Retention {
  succeeded?: Duration;
  discarded?: Duration;
  cancelled?: Duration;
  dead?: Duration;
  poisoned?: Duration;
}

/**
 * The rules of a queue. In answers each field has its effective value. What is left out of a put is the broker's default, and not what it was
 * before: { ...queue.settings, maxAttempts: 3 } changes one.
 */
export interface QueueSettings {
  /** Without them priorities are strict. */
  weights?: { high: number; normal: number; low: number };
  retry?: Retry;
  maxAttempts?: number;
  lease?: Duration;
  /** Of one run. */
  timeout?: Duration;
  retention?: Retention;
  /** Waiting tasks at most; 0: no limit. */
  maxLength?: number;
  /** Tasks that run at once; 0: no limit. */
  maxRunning?: number;
  rate?: Rate;
  perKey?: KeyRules;
  /** Of single keys, instead of perKey. */
  keys?: Readonly<Record<string, KeyRules>>;
  /** A task that is ready for longer needs attention. */
  maxWait?: Duration;
  /** In answers "" is none. */
  keyOrder?: "none" | "strict" | "";
  breaker?: Breaker;
  /** Of single types, instead of breaker. */
  breakers?: Readonly<Record<string, Breaker>>;
}

/** The tasks of a queue by state. held: of those that are ready, how many may not run now. */
export interface Depth {
  readonly scheduled: number;
  readonly ready: number;
  readonly claimed: number;
  readonly retrying: number;
  readonly held: number;
  readonly dead: number;
  readonly poisoned: number;
}

/** How long something took. Quantiles are about right. */
export interface Latency {
  readonly count: number;
  readonly meanSeconds: number;
  readonly p50Seconds: number;
  readonly p95Seconds: number;
  readonly p99Seconds: number;
}

/** What the broker knows of a queue. */
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
  /** Until no task is ready or claimed, at the present rates; undefined: they do not get less. */
  readonly drainSeconds: number | undefined;
  /** Those that take its tasks. */
  readonly workers: number | undefined;
  readonly breakersOpen: number;
  readonly settings: QueueSettings;
  /** Of the settings, for put with ifVersion. */
  readonly version: number;
  readonly createdAt: Date | undefined;
}

/** Selects tasks. What is given must all match; {} is all tasks. */
export interface Filter {
  queue?: string;
  states?: readonly State[];
  type?: string;
  tag?: string;
  key?: string;
  worker?: string;
  /** Part of the last error's message. */
  error?: string;
  /** Of a DeadGroup. */
  fingerprint?: string;
  /** The id of the last operation that changed the task. */
  operation?: string;
  createdAfter?: Date;
  createdBefore?: Date;
  /** Part of the payload. */
  q?: string;
}

/** The dead letters that have an error in common. */
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
  /** The one with the most of them. */
  readonly queue: string;
}

/** Which dead letters: those of taskIds, or those that the filter selects. */
export interface DeadSelection {
  taskIds?: readonly string[];
  filter?: Filter;
  /** 0: all that match. */
  max?: number;
  /** Counts only. */
  dryRun?: boolean;
  /** Of the poisoned tasks instead. */
  poisoned?: boolean;
  reason?: string;
}

/** One thing to be done to many tasks, in the background: docs/operations.md has the rules. */
export interface OperationSpec {
  action: "replay" | "cancel" | "discard" | "move" | "set_priority" | "run_now";
  filter: Filter;
  /** Of move. */
  toQueue?: string;
  /** Of set_priority. */
  priority?: Priority;
  /** Tasks at most; 0: all that match. */
  max?: number;
  /** Tasks a second at most; 0: as fast as goes without holding up others. */
  rate?: number;
  /** It pauses by itself after so many; 0: it does not. */
  canary?: number;
}

/** What the broker knows of an operation. */
export interface Operation {
  readonly operationId: string;
  readonly spec: OperationSpec;
  readonly state: "running" | "paused" | "done" | "aborted" | "failed" | "";
  readonly author: { readonly actor: string; readonly address: string; readonly face: string; readonly reason: string } | undefined;
  readonly createdAt: Date | undefined;
  readonly pausedAt: Date | undefined;
  readonly endedAt: Date | undefined;
  /** Why it is paused, was aborted or has failed. */
  readonly why: string;
  readonly total: number;
  readonly matched: number;
  readonly done: number;
  readonly skipped: number;
  readonly failed: number;
  /** The first. */
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

/** What the broker knows of a worker. */
export interface WorkerInfo {
  readonly workerId: string;
  /** As it calls itself. */
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
  /** An operator's word that it is to take no new tasks. */
  readonly quiet: { readonly reason: string; readonly by: string; readonly at: Date | undefined; readonly until: Date | undefined } | undefined;
  readonly lostAt: Date | undefined;
  readonly lostReason: string;
}

/** One thing that stands between a task and a worker, or how it runs or has ended. */
export interface Reason {
  readonly code: string;
  /** A sentence with the facts. */
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

/** Why a task is not running, or by whom it runs, or how it has ended. The first reason decides first. */
export interface Explanation {
  readonly taskId: string;
  readonly state: State | "";
  readonly queue: string;
  readonly type: string;
  readonly key: string;
  readonly reasons: readonly Reason[];
}

/** What happened in some time. */
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

/** What happened in a window of time, and how long tasks waited and ran in it. */
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
  readonly missingNodes: readonly string[];
}
