/** Ref: a reference to an enqueued task, to wait for it or cancel it. */

import { duration, known, milliseconds, timeOf, type Duration } from "./convert.js";
import { PawlError, TimeoutError } from "./errors.js";
import { ProducerService, type Enqueued } from "./gen/pawl/v1/producer_pb.js";
import { stateWords, taskInfo, type State, type TaskInfo } from "./data.js";
import { decodeResult } from "./models.js";
import { backoff, type Caller } from "./rpc.js";

const waitStep = 30_000; // how long one call waits for the end of a task
export const waitSlack = 5000; // how long after the timeout the response may come that the task has not ended

/** The task ended without success: it is dead, poisoned, discarded or cancelled. task has the details. */
export class TaskEndedError extends PawlError {
  constructor(readonly task: TaskInfo) {
    const failure = task.attemptLog.findLast((attempt) => attempt.error !== undefined)?.error;
    const reason = task.reason ? ` (${task.reason})` : "";
    const why = failure?.message ? `: ${failure.message}` : "";
    super(`task ${task.id} is ${task.state}${reason}${why}`, { code: "task_ended", state: task.state });
  }
}

/** How long to wait. */
export interface WaitOptions {
  /** Ends the wait with TimeoutError. */
  timeout?: Duration;
  /** Ends the wait with the signal's reason. */
  signal?: AbortSignal;
}

const waitNames = { timeout: 0, signal: 0 } satisfies Record<keyof WaitOptions, 0>;

/** Checks how long to wait. */
export function checkWait(options: WaitOptions): void {
  if (typeof options === "number") throw new TypeError(`the options of a wait are ${options}, want an object: { timeout: ${options} }`);
  known("a wait", options, waitNames, { ttl: "use timeout" });
}

/** A reference to a task that was enqueued. */
export class Ref<Result = unknown> {
  readonly #caller: Caller;

  constructor(
    caller: Caller,
    readonly id: string,
    /** The state when it was accepted: ready or scheduled; for a duplicate, the state it was in; "" for client.ref. */
    readonly state: State | "" = "",
    /** By the broker's clock. */
    readonly createdAt: Date | undefined = undefined,
    /** The idempotency key, unique key or request id already belonged to this task. */
    readonly duplicate = false,
  ) {
    this.#caller = caller;
  }

  /** Returns what the broker knows about the task; NotFoundError if it is gone. */
  async info(): Promise<TaskInfo> {
    const answer = await this.#caller.call(ProducerService.method.getTask, { taskId: this.id });
    return taskInfo(answer.task);
  }

  /** Waits until the task has ended, in whatever state. */
  async waitEnded(options: WaitOptions = {}): Promise<TaskInfo> {
    checkWait(options);
    const timeout = options.timeout === undefined ? Infinity : milliseconds("timeout", options.timeout);
    const deadline = performance.now() + timeout;
    const bounds = this.#caller.limits({ signal: options.signal, deadline: deadline === Infinity ? undefined : deadline + waitSlack });
    for (let attempt = 0; ; ) {
      const start = performance.now();
      const step = Math.max(Math.min(waitStep, deadline - start), 0);
      const limits = { ...bounds, wait: step };
      const answer = await this.#caller.call(ProducerService.method.getTask, { taskId: this.id, wait: duration("timeout", step) }, limits);
      const info = taskInfo(answer.task);
      if (info.ended) return info;
      const now = performance.now();
      if (now >= deadline) throw new TimeoutError(`task ${this.id} is still ${info.state} after ${timeout} ms`);
      attempt = now - start < Math.min(step, 1000) ? attempt + 1 : 0;
      if (attempt) await this.#caller.sleep(backoff(attempt, 20, 2000), bounds.signal); // cut short, for example by a node that is shutting down
    }
  }

  /**
   * Waits for the task and returns its handler's result. TaskEndedError if the task did not succeed; SyntaxError if the result is not JSON:
   * waitEnded returns its bytes.
   */
  async result(options: WaitOptions = {}): Promise<Result> {
    const info = await this.waitEnded(options);
    if (info.state !== "succeeded") throw new TaskEndedError(info);
    return decodeResult(info) as Result;
  }

  /** Cancels the task, and its handler if it is running. WrongStateError if it has ended in another state. */
  async cancel(reason = ""): Promise<TaskInfo> {
    const answer = await this.#caller.call(ProducerService.method.cancelTask, { taskId: this.id, reason });
    return taskInfo(answer.task);
  }
}

/** Returns a reference to a task that was accepted. */
export function refOf(caller: Caller, p: Enqueued | undefined): Ref {
  if (!p) throw new TypeError("the broker answered without a task");
  return new Ref(caller, p.taskId, stateWords.word(p.state), timeOf(p.createdAt), p.duplicate);
}
