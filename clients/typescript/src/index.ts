/**
 * The TypeScript SDK of Pawl, a distributed task queue.
 *
 *     const client = new Client("127.0.0.1:7295");
 *     const welcome = defineTask<{ to: string }, string>("mail.welcome", { queue: "mail" });
 *     const ref = await client.enqueue(welcome, { to: "a@example.com" });
 *     console.log(await ref.result());
 */

export { Client, type ClientOptions } from "./client.js";
export type { ConnectionOptions, TLS, Token } from "./connection.js";
export type { Duration } from "./convert.js";
export {
  BatchError,
  ClientClosedError,
  ConflictError,
  IncompleteError,
  InternalError,
  InvalidArgumentError,
  NotFoundError,
  PawlError,
  PayloadTooLargeError,
  PermissionDeniedError,
  QueueFullError,
  RateLimitedError,
  StaleClaimError,
  TimeoutError,
  UnauthenticatedError,
  UnavailableError,
  WrongStateError,
  type Missing,
} from "./errors.js";
export { decodePayload, decodeResult } from "./models.js";
export type { Attempt, AttemptOutcome, Failure, Follower, Parent, Priority, Progress, State, Status, TaskInfo } from "./data.js";
export type { TaskOptions, Unique } from "./options.js";
export { Ref, TaskEndedError, type WaitOptions } from "./ref.js";
export { Call, defineTask, Task, type Definition } from "./task.js";
export { Claim } from "./claim.js";
export { handle, type Handler } from "./handler.js";
export { Forged, Keyring, Unreadable, type Key, type KeyringOptions, type Place } from "./keyring.js";
export type { Logger } from "./log.js";
export { Cancelled, DeadLetter, Discard, Draining, Interrupted, LeaseLost, OnceHeld, Outcome, Poison, RetryIn, Snooze, TimedOut } from "./outcome.js";
export { terminated, Worker, type WorkerOptions, type WorkerQueues } from "./worker.js";
export type { EventFilter } from "./events.js";
export { decodeMemberResult, Group, type GroupOptions, type Made } from "./group.js";
export { Schedules, type Missed, type Overlap, type Schedule, type ScheduleChange, type ScheduledTask, type ScheduleOptions } from "./schedule.js";
export type { SchedulePause } from "./schedule.js";
export { Admin } from "./admin.js";
export { DeadLetters, Operations, Queues, Tasks, Workers } from "./operate.js";
export type { GroupCounts, GroupInfo, GroupMember, GroupState, PawlEvent, Retry, Tick } from "./data.js";
export type { Breaker, DeadGroup, Depth, EventCounts, Explanation, Filter, KeyRules, Latency, Operation } from "./data.js";
export type { OperationPreview, OperationSpec, PausedSubset, Queue, QueueSettings, Rate, Reason, Retention, RunningTask, Stats, WorkerInfo } from "./data.js";
