/** The results of calls. All of them are read-only. */

import { decodeAs, millisecondsOf, timeOf, Words } from "./convert.js";
import { FollowerState, type Follower as FollowerMessage, type Parent as ParentMessage } from "./gen/pawl/v1/chain_pb.js";
import { Outcome as OutcomeEnum, Priority as PriorityEnum, State as StateEnum, Status as StatusEnum } from "./gen/pawl/v1/task_pb.js";
import type { Attempt as AttemptMessage, Task as TaskMessage } from "./gen/pawl/v1/task_pb.js";

export type State = "scheduled" | "ready" | "claimed" | "retrying" | "succeeded" | "discarded" | "dead" | "poisoned" | "cancelled";
export type Status = "queued" | "processing" | "completed" | "failed" | "cancelled";
export type Priority = "high" | "normal" | "low";
export type AttemptOutcome =
  | "succeeded"
  | "failed"
  | "dead"
  | "discarded"
  | "poisoned"
  | "lease_lost"
  | "timed_out"
  | "released"
  | "snoozed"
  | "cancelled"
  | "leaderless";

export const states = new Words<State>(StateEnum);
export const priorities = new Words<Priority>(PriorityEnum);
const statuses = new Words<Status>(StatusEnum);
const outcomes = new Words<AttemptOutcome>(OutcomeEnum);
const followerStates = new Words<Follower["state"] & string>(FollowerState);

const endStates = new Set<string>(["succeeded", "discarded", "dead", "poisoned", "cancelled"]);

/** The error that a handler reported. */
export interface Failure {
  readonly message: string;
  readonly type: string;
  readonly stack: string;
}

/** The progress that a handler reported. */
export interface Progress {
  readonly percent: number;
  readonly message: string;
}

/** One claim of a task, and how it ended. */
export interface Attempt {
  readonly attempt: number;
  readonly fence: number;
  readonly worker: string;
  readonly startedAt: Date | undefined;
  /** undefined while running. */
  readonly endedAt: Date | undefined;
  /** "" while running. */
  readonly outcome: AttemptOutcome | "";
  readonly error: Failure | undefined;
  /** Milliseconds from ready to claimed. */
  readonly waited: number;
  readonly nextRunAt: Date | undefined;
}

/** The task or group that a follow-up task follows. */
export interface Parent {
  /** Either this or groupId. */
  readonly taskId: string;
  readonly groupId: string;
  /** The task's result, or the group's counts as JSON. */
  readonly result: Uint8Array;
  readonly contentType: string;
  /** The result was too large to be included: read it from the task. */
  readonly resultOmitted: boolean;
}

/** A follow-up task of a task or group, and its state. */
export interface Follower {
  readonly type: string;
  readonly queue: string;
  readonly state: "waiting" | "sent" | "created" | "duplicate" | "refused" | "dropped" | "";
  /** Set once it is created; for a duplicate, the other task. */
  readonly taskId: string;
  /** The error code of the refusal, or the state in which its parent ended. */
  readonly reason: string;
}

/** What the broker knows about a task. Times are undefined if they have not been reached or never will be. */
export interface TaskInfo {
  readonly id: string;
  readonly type: string;
  readonly queue: string;
  readonly status: Status | "";
  readonly state: State | "";
  /** Reports whether the task is in one of its end states. */
  readonly ended: boolean;
  /** Why the task is in its end state. */
  readonly reason: string;
  readonly priority: Priority | "";
  readonly payload: Uint8Array;
  readonly contentType: string;
  readonly result: Uint8Array;
  readonly resultContentType: string;
  readonly attempts: number;
  readonly maxAttempts: number;
  readonly failures: number;
  readonly crashes: number;
  readonly releases: number;
  readonly snoozes: number;
  readonly fence: number;
  readonly attemptLog: readonly Attempt[];
  readonly progress: Progress;
  /** The handler's checkpoint, with the results of its steps. */
  readonly checkpoint: Uint8Array;
  readonly worker: string;
  readonly createdAt: Date | undefined;
  readonly runAt: Date | undefined;
  readonly claimedAt: Date | undefined;
  readonly leaseExpiresAt: Date | undefined;
  readonly endedAt: Date | undefined;
  readonly expiresAt: Date | undefined;
  readonly keptUntil: Date | undefined;
  readonly idempotencyKey: string;
  readonly key: string;
  readonly tags: readonly string[];
  readonly headers: Readonly<Record<string, string>>;
  readonly cost: number;
  /** The id of the running task that holds its unique key. */
  readonly waitsFor: string;
  readonly groupId: string;
  /** The task or group that it follows. */
  readonly parent: Parent | undefined;
  /** Its follow-up tasks. */
  readonly then: readonly Follower[];
}

/** Decodes the payload of a task from JSON; SyntaxError if it is something else. */
export function decodePayload(task: TaskInfo): unknown {
  return decodeAs(`the payload of task ${task.id}`, task.payload, task.contentType);
}

/** Decodes the result of a task from JSON. Returns undefined if it has none; SyntaxError if it is something else. */
export function decodeResult(task: TaskInfo): unknown {
  return decodeAs(`the result of task ${task.id}`, task.result, task.resultContentType);
}

/** Converts a task from the API. */
export function taskInfo(p: TaskMessage | undefined): TaskInfo {
  if (!p) throw new TypeError("the broker answered without a task");
  const { $typeName: _1, $unknown: _2, taskId, retry: _3, timeout: _4, retention: _5, unique: _6, movedTo: _7, movedFrom: _8, etag: _9, ...rest } = p;
  const state = states.word(p.state);
  return {
    ...rest,
    id: taskId,
    status: statuses.word(p.status),
    state,
    ended: endStates.has(state),
    priority: priorities.word(p.priority),
    fence: Number(p.fence),
    attemptLog: p.attemptLog.map(attempt),
    progress: { percent: p.progress?.percent ?? 0, message: p.progress?.message ?? "" },
    createdAt: timeOf(p.createdAt),
    runAt: timeOf(p.runAt),
    claimedAt: timeOf(p.claimedAt),
    leaseExpiresAt: timeOf(p.leaseExpiresAt),
    endedAt: timeOf(p.endedAt),
    expiresAt: timeOf(p.expiresAt),
    keptUntil: timeOf(p.keptUntil),
    parent: p.parent && parent(p.parent),
    then: p.then.map(follower),
  };
}

/** Converts the parent of a task. */
export function parent(p: ParentMessage): Parent {
  const { taskId, groupId, result, contentType, resultOmitted } = p;
  return { taskId, groupId, result, contentType, resultOmitted };
}

/** Converts a follow-up task. */
export function follower(p: FollowerMessage): Follower {
  return { type: p.type, queue: p.queue, state: followerStates.word(p.state), taskId: p.taskId, reason: p.reason };
}

function attempt(p: AttemptMessage): Attempt {
  return {
    attempt: p.attempt,
    fence: Number(p.fence),
    worker: p.worker,
    startedAt: timeOf(p.startedAt),
    endedAt: timeOf(p.endedAt),
    outcome: outcomes.word(p.outcome),
    error: p.error && { message: p.error.message, type: p.error.type, stack: p.error.stack },
    waited: millisecondsOf(p.waited),
    nextRunAt: timeOf(p.nextRunAt),
  };
}
