/** Claim: a task that a handler is running. */

import { isUint8Array } from "node:util/types";

import { create } from "@bufbuild/protobuf";

import { hold, innerOf, type Holder } from "./claimed.js";
import { cut, decode, decodeAs, encode, messageOf, millisecondsOf, show, string, timeOf, type Duration } from "./convert.js";
import type { Result } from "./ending.js";
import { invalid } from "./errors.js";
import { ProgressSchema } from "./gen/pawl/v1/task_pb.js";
import type { ClaimedTask } from "./gen/pawl/v1/worker_pb.js";
import { Kept } from "./kept.js";
import { parent, priorityWords, type Parent, type Priority } from "./data.js";
import { maxProgressText } from "./limits.js";
import { Poison } from "./outcome.js";
import { once, save, step } from "./steps.js";

/** A task that a handler is running, under a lease. Its fields are read-only. */
export class Claim {
  readonly id: string;
  readonly type: string;
  readonly queue: string;
  readonly payload: Uint8Array;
  readonly contentType: string;
  readonly priority: Priority | "";
  /** 1 for the first attempt. Failures and lost leases count; releases and snoozes do not. */
  readonly attempt: number;
  /** If the attempt with this number fails, the task is not retried. */
  readonly maxAttempts: number;
  readonly token: string;
  /** Grows with every claim of the task. Use it to guard your own writes. */
  readonly fence: number;
  /** The length of the lease in milliseconds. The worker extends it. */
  readonly lease: number;
  /** The time limit of this run in milliseconds; 0 if there is none. */
  readonly timeout: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly key: string;
  readonly tags: readonly string[];
  readonly idempotencyKey: string;
  readonly createdAt: Date | undefined;
  readonly readyAt: Date | undefined;
  /** The group that the task is a member of; "" if none. */
  readonly groupId: string;
  /** The task or group that the task follows. */
  readonly parent: Parent | undefined;
  /** Set by setRawResult; read-only. */
  rawResult: Result = { data: new Uint8Array(), contentType: "" };

  constructor(
    p: ClaimedTask,
    /**
     * Aborted when the handler should stop, with the reason: Cancelled, LeaseLost, TimedOut or Draining. If the end of the claim reaches the broker
     * too late and is refused, the signal is aborted with LeaseLost after the handler has returned. Pass the signal on to what the handler calls,
     * and in long loops call claim.signal.throwIfAborted().
     */
    readonly signal: AbortSignal,
    holder: Holder,
  ) {
    this.id = p.taskId;
    this.type = p.type;
    this.queue = p.queue;
    this.payload = p.payload;
    this.contentType = p.contentType;
    this.priority = priorityWords.word(p.priority);
    this.attempt = p.attempt;
    this.maxAttempts = p.maxAttempts;
    this.token = p.claimToken;
    this.fence = Number(p.fence);
    this.lease = millisecondsOf(p.lease);
    this.timeout = millisecondsOf(p.timeout);
    this.headers = p.headers;
    this.key = p.key;
    this.tags = p.tags;
    this.idempotencyKey = p.idempotencyKey;
    this.createdAt = timeOf(p.createdAt);
    this.readyAt = timeOf(p.readyAt);
    this.groupId = p.groupId;
    this.parent = p.parent && parent(p.parent);
    hold(this, holder, { kept: Kept.of(p.checkpoint), busy: new Map(), unclear: new Set() });
  }

  /** Decodes the payload from JSON. Throws Poison if it is not JSON. */
  decodePayload(): unknown {
    try {
      return decodeAs(`payload of type "${this.type}"`, this.payload, this.contentType);
    } catch (err) {
      throw new Poison(messageOf(err), { cause: err });
    }
  }

  /**
   * Decodes the parent's result from JSON. For a task it is undefined if there is no result; for a group it has the counts, as { group_id,
   * name, members, pending, succeeded, dead, ... }. Throws if the task has no parent, or if the result was too large to be included or is not
   * JSON.
   */
  parentResult<T = unknown>(): T {
    if (!this.parent) throw new Error(`task ${this.id} has no parent`);
    const { taskId, result, contentType, resultOmitted } = this.parent;
    if (resultOmitted) throw new Error(`the result of task ${taskId} was too large to be passed along: read it with client.ref(id).result()`);
    return decodeAs(`the result of task ${taskId}`, result, contentType) as T;
  }

  /**
   * Reports progress, from 0 to 100 percent. It does not wait: the worker sends the newest report at most once a second, and the task may end
   * before the last one is sent. Throws the reason if the handler should stop.
   */
  progress(percent: number, message = ""): void {
    this.signal.throwIfAborted();
    const bounded = Math.min(Math.max(Number(percent) || 0, 0), 100);
    innerOf(this).holder.setProgress(create(ProgressSchema, { percent: bounded, message: cut(message, maxProgressText) }));
  }

  /** Sets a result that is not JSON. It is used if the handler returns undefined. */
  setRawResult(data: Uint8Array, contentType: string): void {
    if (!isUint8Array(data)) throw invalid("result", `${show(data)} is not a Uint8Array`);
    this.rawResult = { data, contentType: string("content_type", contentType) };
  }

  /**
   * Stores a value, as at most 64 KiB of JSON, for the next attempt, which reads it with lastCheckpoint. When the promise resolves, the
   * checkpoint is on stable storage and the lease has been extended. Throws the reason if the handler should stop.
   */
  async checkpoint(value: unknown): Promise<void> {
    const data = encode("checkpoint", value);
    this.signal.throwIfAborted();
    await save(this, (kept) => kept.withOwn(data), { signal: this.signal });
  }

  /** Decodes the newest checkpoint, of this or an earlier attempt, from JSON. Returns undefined if there is none. */
  lastCheckpoint<T = unknown>(): T | undefined {
    return decode(innerOf(this).state.kept.own) as T | undefined;
  }

  /**
   * Runs fn once in the life of the task: const charge = await claim.step("charge", () => pay(order)).
   *
   * Its result is recorded as JSON under the name before the promise resolves. When the handler gets here again, in this attempt or a later
   * one, even after a replay, it gets this result and fn does not run. What fn throws is thrown, and nothing is recorded. A result that cannot
   * be recorded, because it is not JSON or too large, throws DeadLetter: fn has run, and a retry would run it again.
   *
   * All results and the checkpoint together take at most 64 KiB, a name at most 256 bytes. Steps may run concurrently; steps of the same name
   * wait for each other. After a crash between the effect of fn and its recording, fn runs again.
   */
  step<R>(name: string, fn: () => Promise<R> | R): Promise<R> {
    return step(this, name, fn);
  }

  /**
   * Runs fn once among all tasks of the queue. The first task to use the key runs it; later ones, and replays, get its result, at most 64 KiB
   * of JSON, for ttl: 1 s to 365 days, by default 24 h.
   *
   * While fn runs, the claim holds the key; it releases the key when it ends, in whatever way. Another task that wants the effect waits for
   * half a lease, at most 10 s, and then throws OnceHeld, which snoozes it. What fn throws is thrown, nothing is recorded, and the key is
   * released. After a crash between the effect and its recording, fn runs again: see docs/idempotency.md for remedies.
   */
  once<R>(key: string, fn: () => Promise<R> | R, options: { ttl?: Duration } = {}): Promise<R> {
    return once(this, key, fn, options.ttl);
  }
}
